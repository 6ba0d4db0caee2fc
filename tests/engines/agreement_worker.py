"""Runs models on an engine and on the reference, in a process of its own, and says where they differ.

    python agreement_worker.py ENGINE (listed | hostile | NUMBER) [FIRST]

NUMBER is how many generated cases are run. Each line of the output is JSON: what is asked next, a difference,
and at the end how many runs there were. An engine that is asked for by name may reject what the reference
runs, and may reject an invalid split in words of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import onnx
from onnx import helper

import splitops
from splitops.models.engines.engine import EngineError
from splitops.models.formats.openvino import Builder, OpenVINOModel
from splitops.spec import ELEMENT_TYPES, SCHEMAS, OperatorSchema, SourceKind
from splitops_compare.cases import generate_cases, list_cases
from splitops_compare.cases.models import DATA, make_inputs, make_model
from splitops_compare.data import CaseSpec

Model = onnx.ModelProto | OpenVINOModel
Feeds = dict[str, np.ndarray[Any, Any]]
Asked = tuple[str, Model, Sequence[Feeds]]

SEED = 24
_LARGE = 1 << 20
"""Data is grown no further."""


def of_records(records: Mapping[str, CaseSpec]) -> Iterator[Asked]:
    for name, record in records.items():
        yield name, make_model(record), list(other_sizes(record))


def other_sizes(record: CaseSpec) -> Iterator[Feeds]:
    """Yield the inputs of a record; where its model leaves the size of the axis open, other sizes too."""
    inputs = make_inputs(record)
    yield inputs
    axis = record.axis or 0
    data = inputs.get(DATA)
    if not record.dynamic or data is None or not -data.ndim <= axis < data.ndim or data.size > _LARGE:
        return
    size = data.shape[axis]
    for other in {size + 1, max(size - 1, 0), 0, 1, 2 * size} - {size}:
        if other < _LARGE:
            yield inputs | {
                DATA: np.resize(
                    data, (*data.shape[: axis % data.ndim], other, *data.shape[axis % data.ndim + 1 :])
                )
            }


HOSTILE: tuple[Any, ...] = (
    [2, 2],
    [0, 4],
    [4, 0],
    [0, 0],
    [-1, 5],
    [5, -1],
    [-1, -1],
    [-4, 8],
    [20000000, -19999996],
    [2**31 - 1, -(2**31) + 5],
    [2**31, -(2**31) + 4],
    [2**32, 4],
    [2**32 - 2, 2**32 + 6],
    [4 - 2**32, 2**32],
    [2**40, 4 - 2**40],
    [2**62, 4 - 2**62],
    [2**63 - 1, 5 - 2**63],
    [2**63 - 1, 2**63 - 1],
    [-(2**63), -(2**63)],
    [-(2**63), 2**63 - 1],
    [2**63 - 1, 2**63 - 1, 6],
    [2**62, 2**62, 2**62, 2**62 + 4],
    [1, 1, 2],
    [1, 3, 0],
    [4],
    [2],
    [],
    [[2, 2]],
    [[2], [2]],
    4,
    2,
    1,
    3,
    0,
    -1,
    2**31,
    2**32 + 1,
    2**63 - 1,
    -(2**63),
)
"""Lengths of an axis of 4: valid ones, and all that a caller can get wrong."""
HOSTILE_AXES: tuple[Any, ...] = (
    0, 1, -1, -2, 2, -3, 2**31, 2**32, 2**32 + 1, -(2**32), 2**63 - 1, -(2**63), [0], [1], [0, 1], [], [[0]],
)  # fmt: skip


def hostile() -> Iterator[Asked]:
    """Yield a model for each version, type of lengths and what is declared, with values that do not fit."""
    for row in SCHEMAS:
        for source in row.lengths:
            if source.kind is SourceKind.INPUT:
                for kind in sorted(row.types_of(row.inputs[row.input_index(source.name)]), key=str):
                    yield from hostile_lengths(row, source.name, kind.name)
        if row.axis.kind is SourceKind.INPUT:
            yield from hostile_axes(row)


def fitting(values: Sequence[Any], dtype: str) -> Iterator[np.ndarray[Any, Any]]:
    kind = ELEMENT_TYPES[dtype].numpy
    for value in values:
        wide = np.array(value, np.int64)
        if kind.kind == "f":
            yield wide.astype(kind)
            yield np.full_like(wide, np.nan, dtype=kind)
            yield wide.astype(kind) + kind.type(0.5)
        elif not wide.size or (np.iinfo(kind).min <= wide.min() and wide.max() <= np.iinfo(kind).max):
            yield wide.astype(kind)


def hostile_lengths(row: OperatorSchema, name: str, dtype: str) -> Iterator[Asked]:
    if dtype not in ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint64"):
        return
    data = np.arange(8, dtype=dtype if dtype.startswith("float") else np.float32).reshape(4, 2)
    build = ir_model if row.domain else onnx_model
    for open_axis in (False, True):
        for declared, fits in DECLARED.items():
            label = f"{row}/{dtype}/{'open' if open_axis else 'fixed'} axis/{declared}"
            feeds = [{DATA: data, name: one} for one in fitting(HOSTILE, dtype) if fits(one.shape)]
            yield label, build(row, data.dtype, open_axis, declared, name, dtype), feeds


DECLARED: dict[str, Callable[[tuple[int, ...]], bool]] = {
    "two": lambda shape: shape == (2,),
    "scalar": lambda shape: shape == (),
    "any number": lambda shape: len(shape) == 1,
    "any rank": lambda shape: True,
}
"""What a model declares of the shape of its lengths, and which shapes fit."""
SHAPES: dict[str, Sequence[Any] | None] = {"two": [2], "scalar": [], "any number": ["K"], "any rank": None}


def onnx_model(
    row: OperatorSchema, data: np.dtype[Any], open_axis: bool, declared: str, name: str, dtype: str
) -> Model:
    kind = ELEMENT_TYPES[str(data)].onnx_number or 0
    inputs = [
        helper.make_tensor_value_info(DATA, kind, ["N" if open_axis else 4, 2]),
        helper.make_tensor_value_info(name, ELEMENT_TYPES[dtype].onnx_number or 0, SHAPES[declared]),
    ]
    if row.gives_sequence:
        outputs = [helper.make_tensor_sequence_value_info("s", kind, None)]
    else:
        outputs = [helper.make_tensor_value_info(part, kind, None) for part in ("a", "b")]
    node = helper.make_node(row.name, [DATA, name], [value.name for value in outputs], name="split")
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", row.since_version)], ir_version=8)


def ir_model(
    row: OperatorSchema, data: np.dtype[Any], open_axis: bool, declared: str, name: str, dtype: str
) -> Model:
    builder = Builder("g")
    shape = SHAPES[declared]
    ports = [
        builder.parameter(DATA, ELEMENT_TYPES[str(data)], "?,2" if open_axis else "4,2"),
        builder.const(np.array(0)),
        builder.parameter(
            name, ELEMENT_TYPES[dtype], None if shape is None else "?" if shape == ["K"] else tuple(shape)
        ),
    ]
    for part, port in zip("ab", builder.layer(row.name, ports, outputs=2), strict=True):
        builder.result(port, part)
    return builder.model()


def hostile_axes(row: OperatorSchema) -> Iterator[Asked]:
    for dtype in ("int8", "int32", "int64", "uint64"):
        builder = Builder("g")
        ports = [
            builder.parameter(DATA, "f32", "4,2"),
            builder.parameter("axis", ELEMENT_TYPES[dtype], None),
        ]
        if row.lengths:
            ports.append(builder.const(np.array([2, 2])))
        data = {"num_splits": 2} if not row.lengths else None
        for part, port in zip("ab", builder.layer(row.name, ports, data, outputs=2), strict=True):
            builder.result(port, part)
        x = np.arange(8, dtype=np.float32).reshape(4, 2)
        yield f"{row}/axis/{dtype}", builder.model(), [
            {DATA: x, "axis": one} for one in fitting(HOSTILE_AXES, dtype)
        ]  # fmt: skip


class Ran:
    """A session, or why there is none."""

    def __init__(self, model: Model, engine: str) -> None:
        self.session: splitops.Session | None = None
        self.problem: tuple[str, str] | None = None
        try:
            self.session = splitops.session(model, engine)
        except splitops.SplitError as error:
            self.problem = told(error)

    def run(self, feeds: Feeds) -> Any:
        if self.session is None:
            return self.problem
        try:
            return self.session.run(feeds)
        except splitops.SplitError as error:
            return told(error)


def told(error: splitops.SplitError) -> tuple[str, str]:
    if isinstance(error, splitops.RuleError):
        return "rule", str(error.rule)
    return ("engine" if isinstance(error, EngineError) else "model"), str(error)


def same(one: Any, other: Any) -> bool:
    """Return whether two results have equal types, shapes and bits, or are the same rejection."""
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return one == other or "rule" not in (one[0], other[0])
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return False
        return one.tolist() == other.tolist() if one.dtype.kind == "O" else one.tobytes() == other.tobytes()
    return bool(one == other)


def allowed(engine: str, found: Any) -> bool:
    """Return whether an engine may answer so, whatever the reference does."""
    return engine != "auto" and isinstance(found, tuple) and found[0] == "engine"


def shortly(found: Any) -> str:
    if isinstance(found, dict):
        return str({name: shortly(value) for name, value in found.items()})
    if isinstance(found, list):
        return str([shortly(value) for value in found[:9]])
    if isinstance(found, np.ndarray):
        return f"{found.dtype} {found.shape} {found.reshape(-1)[:9].tolist()}"
    return str(found)


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def main(engine: str, what: str, first: str = "0") -> None:
    asked: Iterator[Asked]
    if what == "hostile":
        asked = hostile()
    else:
        cases = list_cases() if what == "listed" else generate_cases(int(what), SEED)
        asked = of_records({name: case.spec for name, case in cases.items()})
    runs = 0
    for name, model, feeds in islice(asked, int(first), None):
        if engine == "onnxruntime" and isinstance(model, OpenVINOModel):
            continue
        say(asks=name)
        reference, ran = Ran(model, "reference"), Ran(model, engine)
        for given in feeds:
            expected, found = reference.run(given), ran.run(given)
            runs += 1
            if not same(expected, found) and not allowed(engine, found):
                words = {
                    own: f"{array.shape} {array.reshape(-1)[:9].tolist()}" for own, array in given.items()
                }
                say(differs=name, inputs=words, reference=shortly(expected), engine=shortly(found))
    say(runs=runs)


if __name__ == "__main__":
    main(*sys.argv[1:])
