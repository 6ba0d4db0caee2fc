"""Networks of JAX as ONNX, by jax2onnx at three opsets.

Run with jax and jax2onnx: ``python dev/foreign/jax_networks.py jax.zip``
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax2onnx import to_onnx
from keeping import Keeper


def parts(x):
    a, b, c = jnp.split(x, [1, 4], axis=1)
    return a * b, jnp.concatenate([c, a], 1)


def halves(x):
    a, b = jnp.split(x, 2, axis=-1)
    return jax.nn.sigmoid(a) * b


def scanned(x):
    return lax.scan(lambda carry, row: (carry * 0.5 + row, jnp.split(carry, 2)[0] * row[:3]), jnp.zeros(6), x)


def backwards(x):
    return lax.scan(lambda carry, row: (carry + row, carry * row), jnp.zeros(6), x, reverse=True)


def counted(x):
    return lax.fori_loop(0, 5, lambda i, y: jnp.concatenate(jnp.split(y, 2, axis=1)[::-1], 1) + i, x)


def until(x):
    return lax.while_loop(lambda y: jnp.sum(y) < 40, lambda y: y * 2, jnp.abs(x))


def branch(x):
    return lax.cond(jnp.sum(x) > 0, lambda y: jnp.split(y, 2, axis=1)[1] * 2, lambda y: y[:, :3] - 1, x)


def switched(x):
    return lax.switch(2, [jnp.sin, jnp.cos, lambda y: y[:, ::-1]], x)


def rows(x):
    return jax.vmap(lambda row: jax.nn.softmax(row) @ row)(x)


def sliced(x):
    return (
        lax.dynamic_slice(x, (1, 2), (2, 3)),
        jnp.roll(x, 1, axis=0),
        jnp.cumsum(x, axis=1),
        jnp.take(x, jnp.array([2, 0]), axis=0),
    )


def ordered(x):
    return jnp.sort(x, axis=1), jnp.argmax(x, axis=1), jnp.where(x > 0, x, 0)


def attended(x):
    q, k, v = jnp.split(x.reshape(4, 6) @ jnp.ones((6, 18)) * 0.1, 3, axis=-1)
    return jax.nn.softmax(q @ k.T) @ v


def main(path: str) -> None:
    """Make all networks at every opset."""
    keeper = Keeper(Path(path), f"jax {jax.__version__}, jax2onnx {version('jax2onnx')}")
    x = np.random.default_rng(5).standard_normal((4, 6)).astype(np.float32)
    functions = (
        parts, halves, scanned, backwards, counted, until, branch, switched, rows, sliced, ordered, attended,
    )  # fmt: skip
    for function in functions:
        outputs = jax.tree_util.tree_leaves(function(x))
        for opset in (18, 21, 23):
            keeper.keep(
                f"{function.__name__}, jax2onnx {opset}",
                lambda function=function, opset=opset: to_onnx(
                    function, [(4, 6)], opset=opset, model_name="network"
                ).SerializeToString(),
                [x],
                outputs,
            )
    keeper.close()


if __name__ == "__main__":
    main(sys.argv[1])
