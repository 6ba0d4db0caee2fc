"""The cases of the conversion matrix: each way to state a split in each version, with inputs to run it on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from splitops.models.formats.openvino import Builder, OpenVINOModel

Feeds = Mapping[str, Any]

SPLIT_TARGETS = ("onnx:1", "onnx:2", "onnx:11", "onnx:13", "onnx:18", "openvino")
SEQUENCE_TARGETS = ("onnx:10", "onnx:11", "onnx:24", "openvino")


@dataclass(frozen=True)
class Case:
    """One row of the matrix."""

    source: str
    form: str
    targets: tuple[str, ...]
    build: Callable[[], ModelProto | OpenVINOModel]
    feeds: tuple[Feeds, ...]

    @property
    def label(self) -> str:
        return f"{self.source}: {self.form}"


_DTYPES: Mapping[str, tuple[int, Any]] = {
    "float": (TensorProto.FLOAT, np.float32),
    "int8": (TensorProto.INT8, np.int8),
    "int64": (TensorProto.INT64, np.int64),
    "string": (TensorProto.STRING, object),
    "bfloat16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
}


def data(size: int, dtype: str = "float", columns: int = 2) -> Any:
    """Return an array of shape [size, columns], all of its elements different."""
    ramp = np.arange(size * columns).reshape(size, columns)
    return ramp.astype(str).astype(object) if dtype == "string" else ramp.astype(_DTYPES[dtype][1])


def _value(name: str, dtype: str, shape: Sequence[int | str | None] | None) -> Any:
    return helper.make_tensor_value_info(name, _DTYPES[dtype][0], shape)


def _split_model(
    opset: int,
    outputs: int,
    *,
    size: int | str = 6,
    dtype: str = "float",
    attributes: Mapping[str, Any] | None = None,
    constant: Sequence[int] | None = None,
    at_run_time: int = 0,
    overridable: bool = False,
) -> ModelProto:
    """Return a model of one Split along axis 0."""
    lengths_type = "float" if opset == 1 else "int64"
    inputs, initializers = [_value("x", dtype, [size, 2])], []
    node_inputs = ["x"]
    if constant is not None:
        node_inputs.append("lengths")
        array = np.array(constant, _DTYPES[lengths_type][1])
        initializers.append(numpy_helper.from_array(array, "lengths"))
    if at_run_time or overridable:
        node_inputs = ["x", "lengths"]
        inputs.append(_value("lengths", lengths_type, [at_run_time or len(constant or ())]))
    names = [f"part{index}" for index in range(outputs)]
    node = helper.make_node("Split", node_inputs, names, name="split", **dict(attributes or {}))
    results = [_value(name, dtype, [None, 2]) for name in names]
    graph = helper.make_graph([node], "case", inputs, results, initializer=initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _sequence_model(
    opset: int,
    *,
    dtype: str = "float",
    attributes: Mapping[str, Any] | None = None,
    constant: Any = None,
    at_run_time: bool = False,
    read: bool = False,
) -> ModelProto:
    """Return a model of one SplitToSequence along axis 0 of six rows."""
    inputs, initializers, node_inputs = [_value("x", dtype, [6, 2])], [], ["x"]
    if constant is not None:
        node_inputs.append("lengths")
        initializers.append(numpy_helper.from_array(np.array(constant, np.int64), "lengths"))
    if at_run_time:
        node_inputs.append("lengths")
        inputs.append(_value("lengths", "int64", ["n"]))
    nodes = [
        helper.make_node("SplitToSequence", node_inputs, ["parts"], name="split", **dict(attributes or {}))
    ]
    if read:
        initializers.append(numpy_helper.from_array(np.array(-1, np.int64), "last"))
        nodes.append(helper.make_node("SequenceAt", ["parts", "last"], ["at"]))
        nodes.append(helper.make_node("ConcatFromSequence", ["parts"], ["whole"], axis=0))
        shape = [None] if attributes else [None, 2]
        results = [_value("at", dtype, shape), _value("whole", dtype, shape)]
    else:
        results = [helper.make_tensor_sequence_value_info("parts", _DTYPES[dtype][0], None)]
    graph = helper.make_graph(nodes, "case", inputs, results, initializer=initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _ir_model(
    shape: str,
    lengths: Sequence[int] | None,
    *,
    parts: int = 3,
    element: str = "f32",
    at_run_time: bool = False,
) -> OpenVINOModel:
    builder = Builder("case")
    x = builder.parameter("x", element, shape)
    axis = builder.const(np.array(0))
    if at_run_time:
        given = builder.parameter("lengths", "i64", str(parts))
        outputs = builder.layer("VariadicSplit", [x, axis, given], outputs=parts, name="split")
    elif lengths is None:
        outputs = builder.layer("Split", [x, axis], {"num_splits": parts}, outputs=parts, name="split")
    else:
        given = builder.const(np.array(lengths, np.int32))
        outputs = builder.layer("VariadicSplit", [x, axis, given], outputs=len(lengths), name="split")
    for index, output in enumerate(outputs):
        builder.result(output, f"part{index}")
    return builder.model()


def _feeds(
    *sizes: int, dtype: str = "float", lengths: Sequence[int] | None = None, kind: Any = np.int64
) -> Any:
    extra = {} if lengths is None else {"lengths": np.array(lengths, kind)}
    return tuple({"x": data(size, dtype)} | extra for size in sizes)


def _split_cases() -> Iterator[Case]:
    def case(opset: int, form: str, outputs: int, feeds: Any, **model: Any) -> Case:
        build = lambda: _split_model(opset, outputs, **model)  # noqa: E731
        return Case(f"Split-{opset}", form, SPLIT_TARGETS, build, feeds)

    for opset in (1, 2, 11, 13, 18):
        lengths: dict[str, Any] = (
            {"attributes": {"split": [1, 2, 3]}} if opset < 13 else {"constant": [1, 2, 3]}
        )
        count: dict[str, Any] = {"attributes": {"num_outputs": 3}} if opset >= 18 else {}
        yield case(opset, "equal parts", 3, _feeds(6), **count)
        yield case(opset, "equal parts of any size", 3, _feeds(6, 12, 0), size="N", **count)
        yield case(opset, "lengths", 3, _feeds(6), **lengths)
        yield case(opset, "lengths, size not stated", 3, _feeds(6), size="N", **lengths)
        if opset == 1:
            yield case(opset, "lengths as floats", 3, _feeds(6), constant=[1, 2, 3])
        if opset not in (2, 11):
            kind = np.float32 if opset == 1 else np.int64
            given = _feeds(6, lengths=[1, 0, 5], kind=kind)
            yield case(opset, "lengths at run time", 3, given, at_run_time=3)
            yield case(opset, "lengths at run time, any size", 3, given, size="N", at_run_time=3)
        if opset >= 13:
            yield case(
                opset, "lengths that the caller can replace", 3, _feeds(6), overridable=True, **lengths
            )
            yield case(opset, "bfloat16", 3, _feeds(6, dtype="bfloat16"), dtype="bfloat16", **lengths)
        if opset >= 2:
            yield case(opset, "int8 of any size", 3, _feeds(6, dtype="int8"), dtype="int8", size="N", **count)
            yield case(opset, "int64", 3, _feeds(6, dtype="int64"), dtype="int64", **count)
            any_size = {"dtype": "int64", "size": "N", **count}
            yield case(opset, "int64 of any size", 3, _feeds(6, dtype="int64"), **any_size)
            yield case(opset, "string", 3, _feeds(6, dtype="string"), dtype="string", **lengths)
    for size in (7, 5):
        uneven = {"attributes": {"num_outputs": 4}}
        yield case(18, f"{size} into 4", 4, _feeds(size), size=size, **uneven)
    yield case(18, "4 parts of any size", 4, _feeds(7, 5, 8, 0), size="N", **uneven)
    yield case(18, "4 parts, 2 declared", 2, _feeds(7), size=7, **uneven)
    yield case(18, "2**62 parts, 2 declared", 2, _feeds(7), size=7, attributes={"num_outputs": 2**62})


def _sequence_cases() -> Iterator[Case]:
    def case(opset: int, form: str, feeds: Any, **model: Any) -> Case:
        build = lambda: _sequence_model(opset, **model)  # noqa: E731
        return Case(f"SplitToSequence-{opset}", form, SEQUENCE_TARGETS, build, feeds)

    for opset in (11, 24):
        yield case(opset, "single rows", _feeds(6))
        yield case(opset, "rows without the axis", _feeds(6), attributes={"keepdims": 0})
        yield case(opset, "chunks", _feeds(6), constant=4)
        yield case(opset, "lengths", _feeds(6), constant=[1, 2, 3])
        yield case(opset, "lengths at run time", _feeds(6, lengths=[4, 2]), at_run_time=True)
        yield case(opset, "single rows, read as tensors", _feeds(6), read=True)
        without = {"attributes": {"keepdims": 0}, "read": True}
        yield case(opset, "rows without the axis, read as tensors", _feeds(6), **without)
        yield case(opset, "chunks, read as tensors", _feeds(6), constant=3, read=True)
    yield case(24, "bfloat16", _feeds(6, dtype="bfloat16"), dtype="bfloat16")


def _ir_cases() -> Iterator[Case]:
    def case(name: str, form: str, feeds: Any, *arguments: Any, **model: Any) -> Case:
        build = lambda: _ir_model(*arguments, **model)  # noqa: E731
        return Case(f"openvino {name}-1", form, SPLIT_TARGETS[:-1], build, feeds)

    yield case("Split", "equal parts", _feeds(6), "6,2", None)
    yield case("Split", "equal parts of any size", _feeds(6, 12, 0), "?,2", None)
    yield case("VariadicSplit", "lengths", _feeds(6), "6,2", [1, 2, 3])
    yield case("VariadicSplit", "lengths, size not stated", _feeds(6), "?,2", [1, 2, 3])
    yield case("VariadicSplit", "-1", _feeds(6), "6,2", [1, -1, 2])
    yield case("VariadicSplit", "-1 of any size", _feeds(6, 3, 9), "?,2", [1, -1, 2])
    given = _feeds(6, lengths=[1, -1, 2])
    yield case("VariadicSplit", "lengths at run time", given, "6,2", None, at_run_time=True)
    any_size = _feeds(6, 8, lengths=[1, -1, 2])
    yield case("VariadicSplit", "lengths at run time, any size", any_size, "?,2", None, at_run_time=True)
    codes = ({"x": data(6, "int8").astype(np.uint8)},)
    yield case("VariadicSplit", "nf4", codes, "6,2", [1, 2, 3], element="nf4")


CASES: tuple[Case, ...] = (*_split_cases(), *_sequence_cases(), *_ir_cases())
CELLS: tuple[tuple[Case, str], ...] = tuple((case, target) for case in CASES for target in case.targets)
