"""What the frame of an ONNX model says that cannot be: it is read all the same, but not by everyone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from onnx import IR_VERSION, ModelProto, TypeProto, ValueInfoProto

from splitops.errors import Where, shown
from splitops.models.check.findings import Finding, Severity
from splitops.models.formats.onnx.structure import function_path, located_graphs

__all__ = ["form_findings"]


def form_findings(model: ModelProto, where: Where) -> Iterator[Finding]:
    """Yield what is wrong with the version of a well-formed model, and with the dimensions that it states."""
    if not 1 <= model.ir_version <= IR_VERSION:
        message = f"ir_version = {model.ir_version}; the versions are 1 to {IR_VERSION}"
        yield _finding(message, where, Severity.ERROR)
    for path, graph in located_graphs(model):
        values = (*graph.input, *graph.value_info, *graph.output)
        yield from _negative_sizes(values, replace(where, graph=path))
    for function in model.functions:
        yield from _negative_sizes(function.value_info, replace(where, graph=function_path(function)))


def _negative_sizes(values: Iterable[ValueInfoProto], where: Where) -> Iterator[Finding]:
    for value in values:
        for axis, size in enumerate(_sizes(value.type)):
            if size < 0:
                message = f"dimension {axis} of {shown(value.name)} is stated as {size}, and taken as unknown"
                yield _finding(message, where, Severity.WARNING)


def _sizes(type_: TypeProto) -> Iterator[int]:
    """Yield the sizes that a type states, of a sequence's elements too; an open one states 0."""
    match type_.WhichOneof("value"):
        case "tensor_type":
            yield from (dim.dim_value for dim in type_.tensor_type.shape.dim)
        case "sequence_type":
            yield from _sizes(type_.sequence_type.elem_type)
        case "optional_type":
            yield from _sizes(type_.optional_type.elem_type)


def _finding(message: str, where: Where, severity: Severity) -> Finding:
    return Finding(code="model.invalid", severity=severity, operator="", where=where, message=message)
