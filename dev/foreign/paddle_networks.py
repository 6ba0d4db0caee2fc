"""Networks of Paddle: as ONNX by paddle2onnx at three opsets, or as OpenVINO's frontend reads them.

The frontend reads no files of Paddle 3: run with paddlepaddle 3 and paddle2onnx, and with paddlepaddle 2 and openvino: ``python dev/foreign/paddle_networks.py paddle.zip``
"""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from keeping import Keeper
from paddle import nn

paddle.seed(0)


class Parts(nn.Layer):
    def forward(self, x):
        a, b, c = paddle.split(x, [1, 3, 2], axis=1)
        d, e = paddle.chunk(x, 2, axis=-1)
        return a * b, paddle.concat([c, a], axis=1), d - e


class Unbound(nn.Layer):
    def forward(self, x):
        return paddle.stack(paddle.unbind(x, axis=1)[::-1], axis=0)


class Gated(nn.Layer):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 8)

    def forward(self, x):
        a, b = paddle.chunk(self.layer(x), 2, axis=-1)
        return a * nn.functional.sigmoid(b)


class Convolved(nn.Layer):
    def __init__(self):
        super().__init__()
        self.one, self.norm = nn.Conv2D(6, 4, 3, padding=1), nn.BatchNorm2D(4)

    def forward(self, x):
        a, b = paddle.split(nn.functional.relu(self.norm(self.one(x))), 2, axis=1)
        return nn.functional.max_pool2d(paddle.concat([b, a], axis=1), 2)


class Rolled(nn.Layer):
    def forward(self, x):
        return paddle.roll(x, [1, -2], [0, 1]), paddle.cumsum(x, axis=1), paddle.flip(x, [1])


class Positions(nn.Layer):
    def forward(self, x):
        values, order = paddle.topk(x, 2)
        return values, order, paddle.argmax(x, axis=1), paddle.where(x > 0, x, -x), paddle.floor(x)


class Recurrent(nn.Layer):
    def __init__(self, kind, direction):
        super().__init__()
        self.layer = getattr(nn, kind)(4, 3, direction=direction)

    def forward(self, x):
        return self.layer(x)[0]


class Branch(nn.Layer):
    def forward(self, x):
        if x.sum() > 0:
            y = paddle.split(x, 2, axis=1)[1] * 2
        else:
            y = x[:, :3] - 1
        return y


class Until(nn.Layer):
    def forward(self, x):
        y = paddle.abs(x)
        n = paddle.zeros([1], dtype="int64")
        while n < 5:
            a, b = paddle.split(y, 2, axis=1)
            y = paddle.concat([b, a * 2], axis=1)
            n = n + 1
        return y


NETWORKS = {
    "parts": (Parts, (4, 6)), "unbound": (Unbound, (4, 6)), "gated": (Gated, (4, 6)),
    "convolved": (Convolved, (2, 6, 4, 4)), "rolled": (Rolled, (4, 6)), "positions": (Positions, (4, 6)),
    "lstm": (lambda: Recurrent("LSTM", "forward"), (2, 5, 4)),
    "lstm both ways": (lambda: Recurrent("LSTM", "bidirect"), (2, 5, 4)),
    "gru": (lambda: Recurrent("GRU", "forward"), (2, 5, 4)),
    "branch": (Branch, (4, 6)), "until": (Until, (4, 6)),
}  # fmt: skip
"""What makes each network, and the shape of its input."""


def _by_openvino(file: str) -> Any:
    import openvino

    return openvino.convert_model(file)


def _by_paddle2onnx(file: str, opset: int) -> bytes:
    import paddle2onnx

    weights = str(Path(file).with_suffix(".pdiparams"))
    content: bytes = paddle2onnx.export(file, weights, None, opset_version=opset, verbose=False)
    return content


def main(path: str) -> None:
    """Make all networks in every way."""
    old = paddle.__version__.startswith("2.")
    exporter = "openvino" if old else "paddle2onnx"
    versions = f"paddle {paddle.__version__}, {exporter} {version(exporter)}"
    keeper = Keeper(Path(path), versions)
    for name, (make, shape) in NETWORKS.items():
        network = make()
        network.eval()
        x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
        found = network(paddle.to_tensor(x))
        outputs = [y.numpy() for y in (found if isinstance(found, list | tuple) else (found,))]
        with tempfile.TemporaryDirectory() as folder:
            place = f"{folder}/model"
            spec = [paddle.static.InputSpec([None, *shape[1:]], "float32", "x")]
            try:
                paddle.jit.save(paddle.jit.to_static(network, input_spec=spec), place)
            except Exception as error:
                print("no", name, str(error).strip().splitlines()[-1][:200])
                continue
            file = next(found for suffix in (".json", ".pdmodel") if Path(found := place + suffix).exists())
            if old:
                keeper.keep(f"{name}, openvino", lambda file=file: _by_openvino(file), [x], outputs)
            for opset in () if old else (11, 13, 18):
                keeper.keep(
                    f"{name}, paddle2onnx {opset}",
                    lambda file=file, opset=opset: _by_paddle2onnx(file, opset),
                    [x],
                    outputs,
                )
    keeper.close()


if __name__ == "__main__":
    main(sys.argv[1])
