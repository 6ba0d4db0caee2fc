"""Models and inputs of records: the same record always gives the same model."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from splitops.comparison.cases.forms import input_of_lengths
from splitops.comparison.cases.neighbours import NEIGHBOURS, write_neighbours
from splitops.comparison.cases.words import opset_of, row_of
from splitops.comparison.records import Record
from splitops.models.formats.openvino import Builder, OpenVINOModel, Output
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType
from splitops.spec.operators.schemas import Given
from splitops.spec.sizes.dims import UNKNOWN

DATA: Final = "x"
"""The name of the data in every model."""
SPECIALS: Final = {
    "absent": "an input 'split' that is named ''",
    "constant-data": "the data is a constant of the model",
    "elements": "SequenceAt takes the parts out of the sequence",
    "length": "SequenceLength counts the parts",
    "reversed": "a Slice turns the elements of each part round",
    "packed": "the data is a constant, and its parts are converted to int32",
    "transposed": "the first two axes of each part change places",
    "twin": "a second split of the same data has one output more",
    "unranked": "the model does not say the rank of the data",
    "wide": "the data needs all 64 bits",
    **{word: own.title for word, own in NEIGHBOURS.items()},
}
"""What else may be unusual of a model, by the word of its record."""

_INT64_MAX: Final = (1 << 63) - 1

Array = npt.NDArray[Any]


def inputs_of(record: Record) -> dict[str, Array]:
    """Return what a run of the model is given."""
    made = {} if _is_constant(record) else {DATA: _data(record)}
    return made | ({} if record.constant else dict(operands_of(record)))


def model_of(record: Record) -> onnx.ModelProto | OpenVINOModel:
    """Return the model of a record."""
    return _onnx_model(record) if record.format == "onnx" else _ir_model(record)


def outputs_of(record: Record) -> tuple[str, ...]:
    """Return the names of the outputs of the model: those of the parts, or of what is made of them."""
    own = NEIGHBOURS.get(record.special or "")
    return tuple(filter(None, record.outputs) if own is None else (y.name for y in own.parsed().output))


def _is_constant(record: Record) -> bool:
    return record.special in ("constant-data", "packed")


def _data(record: Record) -> Array:
    kind, count = ELEMENT_TYPES[record.dtype], prod(record.shape)
    if count == 0:
        return np.zeros(record.shape, kind.numpy)
    values: Array = _values(np.arange(count), kind, wide=record.special == "wide")
    return values.reshape(record.shape)


def _values(numbers: Array, kind: ElementType, *, wide: bool) -> Any:
    """Return as many values, of which neighbours differ; wide ones need all bits of a 64-bit type."""
    if kind.name == "string":
        return np.array([f"text {number}" for number in numbers], object)
    if wide:
        return (numbers + 2**40 + 1 if kind.integer else (numbers + 1) / 3).astype(kind.numpy)
    if kind.name.startswith("complex"):
        return (numbers - 1j * numbers).astype(kind.numpy)
    if kind.storage is not None or (kind.name.startswith("float") and kind.bits <= 8):
        # Bit patterns, of which none is infinite or no number.
        return (numbers % 2 ** min(kind.bits, 6)).astype(np.uint8).view(kind.numpy)
    return (numbers % 2 ** min(kind.bits - kind.name.startswith("int"), 6)).astype(kind.numpy)


def operands_of(record: Record) -> list[tuple[str, Array]]:
    """Return the inputs of the node beside the data, by name."""
    row, found = row_of(record), []
    if row.axis.given is Given.INPUT:
        axis = np.full(record.axis_shape, record.axis, ELEMENT_TYPES[record.axis_dtype].numpy)
        found.append((row.axis.name, axis))
    if record.lengths is not None:
        source = input_of_lengths(row)
        name = "split" if source is None else source.name
        found.append((name, np.array(record.lengths, ELEMENT_TYPES[record.lengths_dtype].numpy)))
    return found


def _dims(record: Record, unknown: Any) -> list[Any]:
    """Return what the model says of the shape: the size of the split axis may be unknown."""
    dims: list[Any] = list(record.shape)
    if record.dynamic and dims:
        axis = record.axis or 0
        dims[axis if -len(dims) <= axis < len(dims) else 0] = unknown
    return dims


def _onnx_model(record: Record) -> onnx.ModelProto:
    graph = onnx.GraphProto(name="split")
    names = [DATA]
    if _is_constant(record):
        graph.initializer.append(numpy_helper.from_array(_data(record), DATA))
    else:
        graph.input.append(_value(DATA, record.dtype, _dims(record, "N")))
    for name, array in operands_of(record):
        if record.constant:
            graph.initializer.append(numpy_helper.from_array(array, name))
        else:
            graph.input.append(_value(name, record.lengths_dtype, array.shape))
        names.append(name)
    names += [""] if record.special == "absent" else []
    _read_parts(record, graph, names)
    imports = [helper.make_opsetid("", opset_of(record))]
    version = max(
        4, helper.find_min_ir_version_for(imports, ignore_unknown=True)
    )  # initializers of their own
    return helper.make_model(graph, opset_imports=imports, ir_version=version, producer_name="splitops")


def _value(name: str, dtype: str, dims: Sequence[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, ELEMENT_TYPES[dtype].onnx_number or 0, dims)


def _read_parts(record: Record, graph: onnx.GraphProto, inputs: Sequence[str]) -> None:
    """Add a split, and what its special record reads the parts by."""
    row, outputs = row_of(record), record.outputs
    attributes = dict(record.attributes)
    if record.axis is not None and row.axis.given is Given.ATTRIBUTE:
        attributes[row.axis.name] = record.axis

    def split(parts: Sequence[str], name: str = "split") -> onnx.NodeProto:
        return helper.make_node(record.operator, inputs, parts, name=name, **attributes)

    def constant(name: str, value: Any) -> str:
        graph.initializer.append(numpy_helper.from_array(np.array(value), name))
        return name

    own = NEIGHBOURS.get(record.special or "")
    if own is not None:
        write_neighbours(graph, own, split(outputs))
        return
    parts: Sequence[str] = [f"t{index}" for index in range(len(outputs))]
    reads = [[part] for part in parts]
    splits: list[onnx.NodeProto] = []
    how: dict[str, Any] = {}
    operator, dtype, rank = "", record.dtype, len(record.shape)
    match record.special:
        case "elements":
            parts, operator = ["s"], "SequenceAt"
            reads = [["s", constant(f"i{index}", index)] for index in range(len(outputs))]
            drops = row.keepdims and record.attributes.get(row.keepdims.name) == 0 and record.lengths is None
            rank -= bool(drops)
        case "length":
            parts, operator, reads, dtype, rank = ["s"], "SequenceLength", [["s"]], "int64", 0
        case "transposed":
            operator, how = "Transpose", {"perm": _order(record)}
        case "packed":
            operator, how, dtype = "Cast", {"to": TensorProto.INT32}, "int32"
        case "reversed":
            axis = (record.axis or 0) % rank
            bounds = {"begin": _INT64_MAX, "end": -_INT64_MAX, "axis": axis, "step": -1}
            at = [constant(name, [number]) for name, number in bounds.items()]
            operator, reads = "Slice", [[part, *at] for part in parts]
        case "twin":  # the last output is the last part of the one that has more parts
            parts = [f"a{index}" for index in range(len(outputs))]
            more = [f"b{index}" for index in range(len(outputs) + 1)]
            splits = [split(parts, "split_a"), split(more, "split_b")]
            operator, reads = "Relu", [[part] for part in (*parts[:-1], more[-1])]
        case _:
            parts = outputs
    graph.node.extend(splits or [split(parts)])
    if operator:
        graph.node.extend(
            helper.make_node(operator, names, [name], **how)
            for names, name in zip(reads, outputs, strict=True)
        )
    if row.gives_sequence and not operator:
        kind = ELEMENT_TYPES[dtype].onnx_number or 0
        graph.output.append(helper.make_tensor_sequence_value_info(outputs[0], kind, None))
    else:
        dims = {name: [f"{name}_{axis}" for axis in range(rank)] for name in outputs if name}
        graph.output.extend(_value(name, dtype, sizes) for name, sizes in dims.items())


def _order(record: Record) -> list[int]:
    return [1, 0, *range(2, len(record.shape))]


def _ir_model(record: Record) -> OpenVINOModel:
    builder = Builder("split")
    kind = ELEMENT_TYPES[record.dtype]
    if _is_constant(record):
        ports = [builder.const(_data(record), kind)]
    else:
        shape = None if record.special == "unranked" else tuple(_dims(record, UNKNOWN))
        ports = [builder.parameter(DATA, kind, shape)]
    row = row_of(record)
    for name, array in operands_of(record):
        element = ELEMENT_TYPES[record.axis_dtype if name == row.axis.name else record.lengths_dtype]
        made = (
            builder.const(array, element)
            if record.constant
            else builder.parameter(name, element, array.shape)
        )
        ports.append(made)
    parts = builder.layer(record.operator, ports, record.attributes or None, outputs=len(record.outputs))
    for part, name in zip(parts, record.outputs, strict=True):
        builder.result(_read(builder, record, part), name)
    return builder.model()


def _read(builder: Builder, record: Record, part: Output) -> Output:
    if record.special == "transposed":
        return builder.layer("Transpose", [part, builder.const(np.array(_order(record)))])[0]
    if record.special == "packed":
        return builder.layer("Convert", [part], {"destination_type": "i32"}, element_type="i32")[0]
    return part
