"""Models around whose splits OpenVINO fuses wrongly: of ONNX those of the comparison, and the same as IR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper

from splitops.models.check import LIMITS
from splitops.models.formats.openvino import Builder, Output
from splitops_compare.cases import list_cases
from splitops_compare.cases.fusion_patterns import FUSION_PATTERNS
from splitops_compare.cases.models import make_inputs, make_model

Feeds = dict[str, Any]
Made = tuple[Any, Feeds]
ROWS: Final = {
    limit.code: limit for limit in LIMITS if limit.quirk is not None and limit.evidence is not None
}
"""Those around a split; the others have tests of their own."""
RIGHT: Final = ("heads", "upsampled", "convolved", "rotary", "gated")
"""The neighbours that OpenVINO gets right."""


def of_onnx(word: str) -> Made:
    (record,) = (case.spec for case in list_cases().values() if case.spec.special == word)
    return make_model(record), make_inputs(record)


class _IR:
    def __init__(self, *shape: int) -> None:
        self.builder = Builder("m")
        self.data = self.builder.parameter("x", "f32", shape)
        self.feeds = {"x": np.arange(np.prod(np.abs(shape)), dtype=np.float32).reshape(np.abs(shape)) % 5}

    def numbers(self, *shape: int) -> Output:
        return self.builder.const(((np.arange(np.prod(shape)) % 7 - 3) / 8).astype(np.float32).reshape(shape))

    def split(self, data: Output, axis: int, count: int, lengths: Any = None) -> list[Output]:
        at = self.builder.const(np.array(axis))
        if lengths is not None:
            ports = [data, at, self.builder.const(np.array(lengths))]
            return self.builder.layer("VariadicSplit", ports, outputs=count)
        return self.builder.layer("Split", [data, at], {"num_splits": count}, outputs=count)

    def add(self, kind: str, *inputs: Output, **attributes: Any) -> Output:
        if kind in ("Add", "Multiply"):
            attributes["auto_broadcast"] = "numpy"
        shapes, version = [attributes.pop("shape", None)], attributes.pop("version", "opset1")
        return self.builder.layer(kind, list(inputs), attributes or None, shapes=shapes, version=version)[0]

    def concat(self, *inputs: Output, axis: int) -> Output:
        return self.add("Concat", *inputs, axis=axis)

    def convolution(self, data: Output, size: int) -> Output:
        kept = {"strides": "1,1", "pads_begin": "1,1", "pads_end": "1,1", "dilations": "1,1"}
        return self.add("Convolution", data, self.numbers(2, size, 3, 3), **kept, auto_pad="explicit")

    def made(self, *outputs: Output) -> Made:
        for index, output in enumerate(outputs):
            self.builder.result(output, f"y{index}")
        return self.builder.model(), self.feeds


def _heads(*shape: int, axis: int) -> Made:
    ir = _IR(*shape)
    one = ir.builder.const(np.array([1]))
    return ir.made(ir.concat(*(ir.add("Squeeze", p, one) for p in ir.split(ir.data, 1, 3)), axis=axis))


def _upsampled() -> Made:
    ir = _IR(1, 2, 3, 2)
    parts = ir.split(ir.data, -2, 3)
    return ir.made(ir.concat(*(part for part in parts for _ in "12"), axis=2))


def _convolved(lengths: list[int] | None = None, *, order: tuple[int, ...] = (1, 0)) -> Made:
    ir = _IR(1, 4, 3, 3)
    parts = ir.split(ir.data, 1, 2, lengths)
    return ir.made(ir.concat(*(ir.convolution(parts[index], 2) for index in order), axis=1))


def _beside() -> Made:
    ir = _IR(1, 4, 3, 3)
    return ir.made(ir.concat(ir.convolution(ir.split(ir.data, 1, 2)[0], 2), ir.data, axis=1))


def _rotary() -> Made:
    ir = _IR(1, 2, 3, 4)
    first, second = ir.split(ir.data, 3, 2, [2, 2])
    turned = ir.concat(ir.add("Multiply", second, ir.builder.const(np.float32([[[[-1]]]]))), first, axis=-1)
    scaled = (ir.add("Multiply", value, ir.numbers(1, 1, 3, 1)) for value in (ir.data, turned))
    return ir.made(ir.add("Add", *scaled))


def _sliced() -> Made:
    ir = _IR(3, 2)
    places = [[ir.builder.const(np.array([n])) for n in (*bounds, 1, 0)] for bounds in ((0, 1), (1, 0))]
    return ir.made(*(ir.add("ReLU", ir.add("Slice", ir.data, *place, version="opset8")) for place in places))


def _gated() -> Made:
    ir = _IR(2, 3)
    both = ir.concat(ir.data, ir.numbers(2, 2), axis=1)
    product = ir.add("MatMul", both, ir.numbers(5, 8), transpose_a="false", transpose_b="false", shape=(2, 8))
    i, f, c, o = ir.split(ir.add("Add", product, ir.numbers(8), shape=(2, 8)), 1, 4)
    f = ir.add("Add", f, ir.builder.const(np.float32(1)))
    i, f, c, o = (ir.add("ReLU", gate) for gate in (i, f, c, o))
    state = ir.add("Add", ir.add("Multiply", i, c), ir.add("Multiply", f, ir.numbers(2, 2)))
    return ir.made(ir.add("Multiply", ir.add("ReLU", state), o), state)


_OF_IR: Final[dict[str, Callable[[], Made]]] = {
    "openvino.squeezed-parts": lambda: _heads(2, 3, 4, axis=-1),
    "openvino.squeezed-open-parts": lambda: _open_heads(),
    "openvino.repeated-parts": _upsampled,
    "openvino.convolved-parts": _convolved,
    "openvino.convolved-beside": _beside,
    "openvino.rotated-halves": _rotary,
    "openvino.backward-slices": _sliced,
    "openvino.gated-parts": _gated,
}


def _open_heads() -> Made:
    model, _ = _heads(-1, 3, -1, axis=1)
    return model, {"x": np.arange(24, dtype=np.float32).reshape(2, 3, 4)}


def of_code(code: str, *, ir: bool) -> Made:
    """A model in which OpenVINO does what a row says, and its inputs."""
    if ir:
        return _OF_IR[code]()
    case = ROWS[code].evidence
    assert case is not None
    record = list_cases()[case].spec
    return make_model(record), make_inputs(record)


def inside_branch(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same in the first branch of an If, which is taken."""
    inner = onnx.GraphProto(name="then")
    inner.CopyFrom(model.graph)
    names = [output.name for output in inner.output]
    del inner.input[:]
    outputs = list(model.graph.output)
    for name, output in zip(names, inner.output, strict=True):
        for node in inner.node:
            for listed_names in (node.input, node.output):
                listed_names[:] = [f"{name}_inner" if own == name else own for own in listed_names]
        output.name = f"{name}_inner"
    otherwise = onnx.GraphProto(name="else")
    otherwise.CopyFrom(inner)
    for graph, suffix in ((inner, "t"), (otherwise, "e")):
        made = {name for node in graph.node for name in node.output} | {own.name for own in graph.initializer}
        for node in graph.node:
            node.name = f"{node.name}_{suffix}"
            for listed_names in (node.input, node.output):
                listed_names[:] = [f"{own}_{suffix}" if own in made else own for own in listed_names]
        for own in (*graph.initializer, *graph.output):
            own.name = f"{own.name}_{suffix}"
    branch = helper.make_node("If", ["c"], names, name="if", then_branch=inner, else_branch=otherwise)
    condition = helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [])
    graph = helper.make_graph([branch], "g", [*model.graph.input, condition], outputs)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


WORDS: Final = tuple(FUSION_PATTERNS)
