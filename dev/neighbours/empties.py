"""``python -m dev.neighbours.empties [SECONDS [FIRST]]``: draw OpenVINO IR with empty parts, and run it.

The same number always gives the same model. NumPy computes beside each layer what it has to return. Models
run in processes that may end, on the engines ``reference`` and ``auto``, and on the way back to ONNX.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

import splitops
from dev.forks import in_a_fork

_BATCH: Final = 25
_KINDS: Final = ("float32", "float32", "float32", "int32", "int64")
_NAMES: Final = {"float32": "f32", "int32": "i32", "int64": "i64"}
_REFUSALS: Final = (
    "empty-tensor",
    "is not said to be the same",
    "has no ONNX form",
    "how many repeats",
    "computed when the model runs",
    "top_k >= 1",
)
"""What an error in order says: of the limit, of what ONNX does not have, of TopK of none by OpenVINO."""


class _Drawn:
    """A model that is being drawn: its values, each with what it has to be."""

    def __init__(self, number: int) -> None:
        import openvino.opset13

        self.draw = random.Random(number)  # noqa: S311
        self.o: Any = openvino.opset13
        self.inputs: list[Any] = []
        self.feeds: dict[str, Any] = {}
        self.kind = self.draw.choice(_KINDS)
        self.text: list[str] = []
        numbers = np.random.default_rng(number)
        shape = [self.draw.choice([0, 1, 2, 2, 3, 4, 4]) for _ in range(self.draw.choice([1, 2, 3, 3]))]
        data = (numbers.standard_normal(shape) * 4).astype(self.kind)
        self.values: list[tuple[Any, Any]] = [(self.input(data), data)]

    def c(self, value: Any, kind: Any = np.int64) -> Any:
        return self.o.constant(np.array(value, kind))

    def input(self, array: Any) -> Any:
        """Add an input that leaves some of its sizes open."""
        share = self.draw.choice([0, 0, 0.5, 1])
        shape = [-1 if self.draw.random() < share else size for size in array.shape]
        made = self.o.parameter(shape, array.dtype.type if array.dtype != bool else bool)
        made.set_friendly_name(f"p{len(self.inputs)}")
        self.inputs.append(made)
        self.feeds[f"p{len(self.inputs) - 1}"] = array
        return made.output(0)

    def list(self, *numbers: int) -> Any:
        """Return integers as a constant, or as an input."""
        array = np.array(numbers, np.int64)
        return self.input(array) if self.draw.random() < 0.3 else self.c(array)

    def step(self) -> None:
        """Add a layer, or a few, that read one of the last values."""
        x, a = self.draw.choice(self.values[-3:])
        name = self.draw.choice(_STEPS)
        axis = self.draw.randrange(a.ndim) if a.ndim else 0
        if (a.ndim == 0 and name not in ("unsqueeze", "relu", "broadcast")) or a.ndim > 5 or a.size > 4000:
            return
        before = len(self.values)
        try:
            getattr(self, f"_{name}")(x, a, axis)
        except (RuntimeError, ValueError):  # OpenVINO does not make it, or of fewer outputs
            return
        self.text += [f"{name}({a.shape}, {axis})"] if len(self.values) > before else []

    def add(self, node: Any, array: Any) -> None:
        self.values.append((node if hasattr(node, "get_node") else node.output(0), np.asarray(array)))

    def _relu(self, x: Any, a: Any, axis: int) -> None:
        self.add(self.o.relu(x), np.maximum(a, 0).astype(a.dtype))

    def _negative(self, x: Any, a: Any, axis: int) -> None:
        self.add(self.o.negative(x), -a)

    def _unsqueeze(self, x: Any, a: Any, axis: int) -> None:
        self.add(self.o.unsqueeze(x, self.c([axis])), np.expand_dims(a, axis))

    def _squeeze(self, x: Any, a: Any, axis: int) -> None:
        if a.shape[axis] == 1:
            self.add(self.o.squeeze(x, self.c([axis])), np.squeeze(a, axis))

    def _transpose(self, x: Any, a: Any, axis: int) -> None:
        order = self.draw.sample(range(a.ndim), a.ndim)
        self.add(self.o.transpose(x, self.c(order)), a.transpose(order))

    def _merge(self, x: Any, a: Any, axis: int) -> None:
        if axis + 1 < a.ndim:
            o, shape = self.o, self.o.shape_of(x)
            sizes = [o.gather(shape, self.c([at]), self.c(0)) for at in range(a.ndim)]
            sizes[axis : axis + 2] = [o.multiply(sizes[axis], sizes[axis + 1])]
            target = [*a.shape[:axis], a.shape[axis] * a.shape[axis + 1], *a.shape[axis + 2 :]]
            self.add(o.reshape(x, o.concat(sizes, 0), False), a.reshape(target))

    def _broadcast(self, x: Any, a: Any, axis: int) -> None:
        times = self.draw.choice([0, 1, 2])
        shape = self.o.concat([self.list(times), self.o.shape_of(x)], 0) if a.ndim else self.list(times)
        self.add(self.o.broadcast(x, shape), np.broadcast_to(a, (times, *a.shape)))

    def _tile(self, x: Any, a: Any, axis: int) -> None:
        times = [self.draw.choice([0, 1, 1, 2]) for _ in a.shape]
        self.add(self.o.tile(x, self.list(*times)), np.tile(a, times))

    def _gather(self, x: Any, a: Any, axis: int) -> None:
        count = self.draw.choice([0, 1, 2]) if a.shape[axis] else 0
        at = [self.draw.randrange(a.shape[axis]) for _ in range(count)]
        self.add(self.o.gather(x, self.list(*at), self.c(axis)), np.take(a, np.array(at, np.int64), axis))

    def _concat(self, x: Any, a: Any, axis: int) -> None:
        y, b = self.draw.choice(self.values[-4:])
        one, other = ([size for at, size in enumerate(c.shape) if at != axis] for c in (a, b))
        if a.ndim == b.ndim and a.dtype == b.dtype and one == other:
            self.add(self.o.concat([x, y], axis), np.concatenate([a, b], axis))

    def _both(self, x: Any, a: Any, axis: int) -> None:
        y, b = self.draw.choice(self.values[-4:])
        if a.dtype == b.dtype and b.ndim <= 5:
            try:
                made = a + b
            except ValueError:
                return
            self.add(self.o.add(x, y), made)

    def _reduce(self, x: Any, a: Any, axis: int) -> None:
        name, keep = self.draw.choice(["sum", "prod", "max", "min"]), self.draw.random() < 0.5
        if a.shape[axis] or name in ("sum", "prod"):
            made = getattr(np, name)(a, axis=axis, keepdims=keep).astype(a.dtype)
            self.add(getattr(self.o, f"reduce_{name}")(x, self.c([axis]), keep), made)

    def _cumsum(self, x: Any, a: Any, axis: int) -> None:
        self.add(self.o.cum_sum(x, self.c(axis)), np.cumsum(a, axis, dtype=a.dtype))

    def _topk(self, x: Any, a: Any, axis: int) -> None:
        count = self.draw.randint(0, a.shape[axis])
        k = self.input(np.array(count)) if self.draw.random() < 0.3 else self.c(count)
        found = -np.sort(-a, axis)
        self.add(self.o.topk(x, k, axis, "max", "value").output(0), np.take(found, range(count), axis))

    def _split(self, x: Any, a: Any, axis: int) -> None:
        size = self.draw.choice([0, 0, a.shape[axis], self.draw.randint(0, a.shape[axis])])
        sizes = [size, a.shape[axis] - size]
        lengths = self.draw.choice([[size, -1], sizes, [0, size, -1]])
        ends = np.cumsum([a.shape[axis] - sum(lengths) - 1 if one == -1 else one for one in lengths])[:-1]
        made = self.o.variadic_split(x, self.c(axis), self.list(*lengths))
        for output, part in zip(made.outputs(), np.split(a, ends, axis), strict=True):
            self.add(output, part)

    def _slice(self, x: Any, a: Any, axis: int) -> None:
        begin, end = self.draw.randint(-1, a.shape[axis]), self.draw.choice([0, 1, a.shape[axis], 9])
        bounds = (self.list(begin), self.list(end), self.c([1]), self.c([axis]))
        self.add(self.o.slice(x, *bounds), a[(slice(None),) * axis + (slice(begin, end),)])

    def _strided(self, x: Any, a: Any, axis: int) -> None:
        begin, end = self.draw.randint(0, a.shape[axis]), self.draw.choice([0, 1, a.shape[axis], 9])
        rest = [0] * axis
        mask = [1] * axis + [0]
        bounds = (self.list(*rest, begin), self.list(*rest, end), self.c([1] * (axis + 1)))
        self.add(
            self.o.strided_slice(x, *bounds, mask, mask), a[(slice(None),) * axis + (slice(begin, end),)]
        )

    def _pad(self, x: Any, a: Any, axis: int) -> None:
        more = [self.draw.choice([0, 0, 1]) for _ in a.shape]
        pads = (self.c(more), self.c([0] * a.ndim), "constant", self.c(0, a.dtype))
        self.add(self.o.pad(x, *pads), np.pad(a, [(one, 0) for one in more]))

    def _nonzero(self, x: Any, a: Any, axis: int) -> None:
        made = self.o.non_zero(self.o.relu(x), _NAMES["int64"])
        self.add(
            self.o.convert(made, _NAMES[str(a.dtype)]), np.array(np.nonzero(np.maximum(a, 0))).astype(a.dtype)
        )

    def _matmul(self, x: Any, a: Any, axis: int) -> None:
        if a.ndim > 1 and a.dtype == np.float32:
            self.add(self.o.matmul(x, x, False, True), a @ np.swapaxes(a, -1, -2))

    def _softmax(self, x: Any, a: Any, axis: int) -> None:
        if a.dtype == np.float32:
            top = np.exp(a - (a.max(axis, keepdims=True) if a.shape[axis] else 0))
            self.add(self.o.softmax(x, axis), top / top.sum(axis, keepdims=True))

    def _shape(self, x: Any, a: Any, axis: int) -> None:
        made = self.o.convert(self.o.shape_of(x), _NAMES[str(a.dtype)])
        self.add(made, np.array(a.shape, a.dtype))

    def _body(self, x: Any, a: Any, axis: int, begin: Any) -> Any:
        """Return a body that slices its parameter, whose shape it knows or not."""
        import openvino

        shape = [-1] * a.ndim if self.draw.random() < 0.5 else x.get_partial_shape()
        inside = self.o.parameter(shape, a.dtype.type)
        part = self.o.slice(inside, begin, self.c([99]), self.c([1]), self.c([axis]))
        return openvino.Model(
            [self.o.result(self.o.relu(self.o.unsqueeze(part, self.c([0]))))], [inside], "b"
        )

    def _if(self, x: Any, a: Any, axis: int) -> None:
        turn, starts = self.draw.random() < 0.5, [self.draw.choice([0, 9, a.shape[axis]]) for _ in "te"]
        bodies = [self._body(x, a, axis, self.c([start])) for start in starts]
        made = self.o.if_op(self.input(np.array(turn)))
        made.set_then_body(bodies[0])
        made.set_else_body(bodies[1])
        made.set_input(x, *(body.get_parameters()[0] for body in bodies))
        output = made.set_output(*(body.results[0] for body in bodies))
        part = a[(slice(None),) * axis + (slice(starts[0 if turn else 1], None),)]
        self.add(output, np.maximum(part, 0)[None].astype(a.dtype))

    def _iterate(self, x: Any, a: Any, axis: int) -> None:
        if not a.shape[0] or a.ndim < 2:
            return
        start = self.draw.choice([0, 9, 1])
        body = self._body_of_rows(x, a, start)
        made = self.o.tensor_iterator()
        made.set_body(body)
        made.set_sliced_input(body.get_parameters()[0], x, 0, 1, 1, -1, 0)
        output = made.get_concatenated_slices(body.results[0].output(0), 0, 1, 1, -1, 0)
        self.add(output, np.maximum(a[:, start:], 0).astype(a.dtype))

    def _body_of_rows(self, x: Any, a: Any, start: int) -> Any:
        import openvino

        inside = self.o.parameter([1, *[-1] * (a.ndim - 1)], a.dtype.type)
        part = self.o.slice(inside, self.c([start]), self.c([99]), self.c([1]), self.c([1]))
        return openvino.Model([self.o.result(self.o.relu(part))], [inside], "b")

    def model(self) -> tuple[Any, list[Any]]:
        import openvino

        ends = [self.values[-1], *self.draw.sample(self.values, min(2, len(self.values)))]
        return openvino.Model([self.o.result(node) for node, _ in ends], self.inputs, "m"), [
            a for _, a in ends
        ]


_STEPS: Final = [
    name[1:] for name in vars(_Drawn) if name[0] == "_" and name[:2] != "__" and not name.startswith("_body")
]


def _wrong(found: list[Any], expected: list[Any]) -> str | None:
    for one, other in zip(found, expected, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"{one.dtype}{one.shape} for {other.dtype}{other.shape}"
        if not np.allclose(one, other, 1e-3, 1e-3, equal_nan=True):
            return f"values, {one.shape}"
    return None


def _judged(number: int) -> Iterator[str]:
    """Yield ``ENGINE: ANSWER`` for each way in which a model is run."""
    import openvino

    drawn = _Drawn(number)
    with np.errstate(all="ignore"):
        for _ in range(drawn.draw.randint(2, 9)):
            drawn.step()
    model, expected = drawn.model()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.xml"
        openvino.save_model(model, path, compress_to_fp16=False)
        for engine in ("reference", "auto", "onnx"):
            yield f"{engine}: begun {' '.join(drawn.text)}"
            try:
                with np.errstate(all="ignore"):
                    source = splitops.convert(path, to="onnx") if engine == "onnx" else path
                    with splitops.session(source, "reference" if engine == "reference" else "auto") as ready:
                        for _ in range(2):
                            found = [*ready.run(drawn.feeds).values()]
                wrong = _wrong(found, expected)
                yield f"{engine}: {'right' if wrong is None else f'WRONG {wrong}'}"
            except splitops.SplitError as error:
                known = any(text in str(error) for text in _REFUSALS)
                yield f"{engine}: {'refused' if known else f'REFUSED {str(error)[:300]}'}"
            except Exception as error:
                yield f"{engine}: ERROR {type(error).__name__} {str(error)[:300]}"


def _batch(first: int, writing: int) -> None:
    for number in range(first, first + _BATCH):
        signal.alarm(120)
        for line in _judged(number):
            os.write(writing, f"{number} {line}\n".encode())


def main(seconds: float = 1800, first: int = 0) -> int:
    """Draw models for so many seconds; show what is wrong, and return whether anything is."""
    until, number = time.monotonic() + seconds, first
    count: Counter[str] = Counter()
    while time.monotonic() < until:
        said, status = in_a_fork(partial(_batch, number))
        lines = said.decode().splitlines()
        text = ""
        for line in lines:
            _, engine, answer, *_ = line.split()
            if answer == "begun":
                text = line
                continue
            count[f"{engine} {answer}"] += 1
            if answer not in ("right", "refused"):
                print(f"{line}\n    {text}", flush=True)
        number += _BATCH
        if status:
            count["ENDED"] += 1
            print(f"ENDED with {status}: {lines[-1:]}", flush=True)
            number = int(lines[-1].split()[0]) + 1 if lines else number
    print(f"models {first} to {number - 1}: {dict(sorted(count.items()))}", flush=True)
    return int(any(name.split()[-1].isupper() for name in count))


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(float(given[0]) if given else 1800, *map(int, given[1:2])))
