"""Makes the model and the inputs of a spec. The same spec always results in the same model."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from splitops.extension import Builder, OpenVINOModel, Output
from splitops.spec import ELEMENT_TYPES, ElementType, SourceKind
from splitops_compare.cases.fusion_patterns import FUSION_PATTERNS, write_fusion_pattern
from splitops_compare.cases.names import get_opset, get_schema
from splitops_compare.cases.spec_templates import find_lengths_input
from splitops_compare.data import CaseSpec

_INT64_MAX: Final = (1 << 63) - 1

DATA: Final = "x"
"""Name of the data: an input or a constant of an ONNX model, or a Parameter of an IR."""
SPECIALS: Final = {
    "absent": "the input 'split' is omitted by an empty name",
    "constant-data": "the data is a constant of the model",
    "elements": "SequenceAt reads the parts from the sequence",
    "length": "SequenceLength counts the parts",
    "reversed": "a Slice reverses the elements of each part",
    "packed": "the data is a constant, and its parts are converted to int32",
    "transposed": "a Transpose swaps the first two axes of each part",
    "shared-input": "a second split of the same data has one output more",
    "unranked": "the rank of the data is unknown",
    "wide": "the data needs all 64 bits",
    **{name: pattern.title for name, pattern in FUSION_PATTERNS.items()},
}
"""Other peculiarities of a model, keyed by the ``special`` of its spec."""


Array = npt.NDArray[Any]


def make_inputs(spec: CaseSpec) -> dict[str, Array]:
    """Make the inputs of the model, keyed by name."""
    inputs = {} if _is_constant(spec) else {DATA: _make_data(spec)}
    return inputs | ({} if spec.constant else dict(make_operands(spec)))


def make_model(spec: CaseSpec) -> onnx.ModelProto | OpenVINOModel:
    """Make the ONNX model or OpenVINO IR of a spec."""
    return _make_onnx_model(spec) if spec.format == "onnx" else _make_ir(spec)


def list_outputs(spec: CaseSpec) -> tuple[str, ...]:
    """Return the names of the model outputs: those in the spec, or those of its fusion pattern."""
    pattern = FUSION_PATTERNS.get(spec.special or "")
    if pattern is None:
        return tuple(filter(None, spec.outputs))
    return tuple(output.name for output in pattern.parse_graph().output)


def _is_constant(spec: CaseSpec) -> bool:
    return spec.special in ("constant-data", "packed")


def _make_data(spec: CaseSpec) -> Array:
    kind, count = ELEMENT_TYPES[spec.dtype], prod(spec.shape)
    if count == 0:
        return np.zeros(spec.shape, kind.numpy)
    values: Array = _make_values(np.arange(count), kind, wide=spec.special == "wide")
    return values.reshape(spec.shape)


def _make_values(numbers: Array, kind: ElementType, *, wide: bool) -> Any:
    """Convert numbers to values of a type.

    Adjacent values differ, except for types of one bit. Most ``wide`` ones cannot be represented in 32 bits.
    """
    if kind.name == "string":
        return np.array([f"text {number}" for number in numbers], object)
    if wide:
        return (numbers + 2**40 + 1 if kind.integer else (numbers + 1) / 3).astype(kind.numpy)
    if kind.name.startswith("complex"):
        return (numbers - 1j * numbers).astype(kind.numpy)
    if kind.name == "bool":
        return _wrap(numbers, 1).astype(bool)
    if kind.storage is not None or (kind.name.startswith("float") and kind.bits <= 8):
        # Bit patterns that are neither infinity nor NaN.
        return _wrap(numbers, min(kind.bits, 6)).astype(np.uint8).view(kind.numpy)
    return _wrap(numbers, min(kind.bits - kind.name.startswith("int"), 6)).astype(kind.numpy)


def _wrap(numbers: Array, bits: int) -> Array:
    """Reduce numbers to ``bits`` bits. A single bit is the parity of all bits, which has no period."""
    return numbers % 2**bits if bits > 1 else np.bitwise_count(numbers.astype(np.uint64)) % 2


def make_operands(spec: CaseSpec) -> list[tuple[str, Array]]:
    """Make the inputs of the split node except the data, as pairs of a name and an array."""
    schema, operands = get_schema(spec), []
    if schema.axis.kind is SourceKind.INPUT:
        axis = np.full(spec.axis_shape, spec.axis, ELEMENT_TYPES[spec.axis_dtype].numpy)
        operands.append((schema.axis.name, axis))
    if spec.lengths is not None:
        source = find_lengths_input(schema)
        name = "split" if source is None else source.name
        operands.append((name, np.array(spec.lengths, ELEMENT_TYPES[spec.lengths_dtype].numpy)))
    return operands


def _make_dims(spec: CaseSpec, unknown: Any) -> list[Any]:
    """Return the declared shape of the data, with ``unknown`` as the size of a dynamic split axis."""
    dims: list[Any] = list(spec.shape)
    if spec.dynamic and dims:
        axis = spec.axis or 0
        dims[axis if -len(dims) <= axis < len(dims) else 0] = unknown
    return dims


def _make_onnx_model(spec: CaseSpec) -> onnx.ModelProto:
    graph = onnx.GraphProto(name="split")
    names = [DATA]
    if _is_constant(spec):
        graph.initializer.append(numpy_helper.from_array(_make_data(spec), DATA))
    else:
        graph.input.append(_make_value_info(DATA, spec.dtype, _make_dims(spec, "N")))
    for name, array in make_operands(spec):
        if spec.constant:
            graph.initializer.append(numpy_helper.from_array(array, name))
        else:
            graph.input.append(_make_value_info(name, spec.lengths_dtype, array.shape))
        names.append(name)
    names += [""] if spec.special == "absent" else []
    _add_split(spec, graph, names)
    imports = [helper.make_opsetid("", get_opset(spec))]
    # Since IR version 4, initializers need not be inputs.
    version = max(4, helper.find_min_ir_version_for(imports, ignore_unknown=True))
    return helper.make_model(graph, opset_imports=imports, ir_version=version, producer_name="splitops")


def _make_value_info(name: str, dtype: str, dims: Sequence[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, ELEMENT_TYPES[dtype].onnx_number or 0, dims)


def _add_split(spec: CaseSpec, graph: onnx.GraphProto, inputs: Sequence[str]) -> None:
    """Add a split, the nodes that read its parts if the spec is special, and the outputs of the graph."""
    schema, outputs = get_schema(spec), spec.outputs
    attributes = dict(spec.attributes)
    if spec.axis is not None and schema.axis.kind is SourceKind.ATTRIBUTE:
        attributes[schema.axis.name] = spec.axis

    def split(parts: Sequence[str], name: str = "split") -> onnx.NodeProto:
        return helper.make_node(spec.operator, inputs, parts, name=name, **attributes)

    def add_constant(name: str, value: Any) -> str:
        graph.initializer.append(numpy_helper.from_array(np.array(value), name))
        return name

    pattern = FUSION_PATTERNS.get(spec.special or "")
    if pattern is not None:
        write_fusion_pattern(graph, pattern, split(outputs))
        return
    parts: Sequence[str] = [f"t{index}" for index in range(len(outputs))]
    reads = [[part] for part in parts]
    splits: list[onnx.NodeProto] = []
    options: dict[str, Any] = {}
    operator, dtype, rank = "", spec.dtype, len(spec.shape)
    match spec.special:
        case "elements":
            parts, operator = ["s"], "SequenceAt"
            reads = [["s", add_constant(f"i{index}", index)] for index in range(len(outputs))]
            drops_axis = (
                schema.keepdims and spec.attributes.get(schema.keepdims.name) == 0 and spec.lengths is None
            )
            rank -= bool(drops_axis)
        case "length":
            parts, operator, reads, dtype, rank = ["s"], "SequenceLength", [["s"]], "int64", 0
        case "transposed":
            operator, options = "Transpose", {"perm": _swap_axes(spec)}
        case "packed":
            operator, options, dtype = "Cast", {"to": TensorProto.INT32}, "int32"
        case "reversed":
            axis = (spec.axis or 0) % rank
            bounds = {"begin": _INT64_MAX, "end": -_INT64_MAX, "axis": axis, "step": -1}
            at = [add_constant(name, [number]) for name, number in bounds.items()]
            operator, reads = "Slice", [[part, *at] for part in parts]
        case "shared-input":  # the last output is the last part of the split with more parts
            parts = [f"a{index}" for index in range(len(outputs))]
            more = [f"b{index}" for index in range(len(outputs) + 1)]
            splits = [split(parts, "split_a"), split(more, "split_b")]
            operator, reads = "Relu", [[part] for part in (*parts[:-1], more[-1])]
        case _:
            parts = outputs
    graph.node.extend(splits or [split(parts)])
    if operator:
        graph.node.extend(
            helper.make_node(operator, names, [name], **options)
            for names, name in zip(reads, outputs, strict=True)
        )
    if schema.gives_sequence and not operator:
        kind = ELEMENT_TYPES[dtype].onnx_number or 0
        graph.output.append(helper.make_tensor_sequence_value_info(outputs[0], kind, None))
    else:
        dims = {name: [f"{name}_{axis}" for axis in range(rank)] for name in outputs if name}
        graph.output.extend(_make_value_info(name, dtype, sizes) for name, sizes in dims.items())


def _swap_axes(spec: CaseSpec) -> list[int]:
    return [1, 0, *range(2, len(spec.shape))]


def _make_ir(spec: CaseSpec) -> OpenVINOModel:
    builder = Builder("split")
    kind = ELEMENT_TYPES[spec.dtype]
    if _is_constant(spec):
        ports = [builder.const(_make_data(spec), kind)]
    else:
        dims = _make_dims(spec, "?")
        shape = None if spec.special == "unranked" else ",".join(map(str, dims)) if dims else ()
        ports = [builder.parameter(DATA, kind, shape)]
    schema = get_schema(spec)
    for name, array in make_operands(spec):
        element = ELEMENT_TYPES[spec.axis_dtype if name == schema.axis.name else spec.lengths_dtype]
        if spec.constant:
            ports.append(builder.const(array, element))
        else:
            ports.append(builder.parameter(name, element, array.shape))
    parts = builder.layer(spec.operator, ports, spec.attributes or None, outputs=len(spec.outputs))
    for part, name in zip(parts, spec.outputs, strict=True):
        builder.result(_add_reader(builder, spec, part), name)
    return builder.model()


def _add_reader(builder: Builder, spec: CaseSpec, part: Output) -> Output:
    if spec.special == "transposed":
        return builder.layer("Transpose", [part, builder.const(np.array(_swap_axes(spec)))])[0]
    if spec.special == "packed":
        return builder.layer("Convert", [part], {"destination_type": "i32"}, element_type="i32")[0]
    return part
