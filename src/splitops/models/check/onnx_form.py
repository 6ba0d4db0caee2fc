"""Find faults of a readable ONNX model that other tools may reject, except broken rules of splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import onnx_ir as ir
from onnx import IR_VERSION

from splitops.errors import Where, shown
from splitops.models.abstract_values import NOTHING, AbstractSequence, AbstractTensor, AbstractValue
from splitops.models.check.findings import Finding, Severity
from splitops.models.formats.onnx.schemas import find_version
from splitops.models.formats.walk import (
    AnyGraph,
    canonicalise,
    find_unknown_opset,
    get_opset_imports,
    index_functions,
    iter_all_graphs,
    iter_located_nodes,
    iter_nodes,
    label,
    make_function_key,
    make_function_path,
)
from splitops.models.graph.onnx import get_abstract_value
from splitops.models.graph.split_nodes import is_split
from splitops.spec.operators import schema


def find_form_errors(
    model: ir.Model, values: Mapping[ir.Value, AbstractValue], where: Where
) -> Iterator[Finding]:
    """Yield the faults of a readable ONNX model, except broken rules, given its inferred ``values``."""
    if not 1 <= model.ir_version <= IR_VERSION:
        message = f"ir_version = {model.ir_version} is not one of the versions 1 to {IR_VERSION}"
        yield Finding(code="model.invalid", where=where, message=message)
    unknown = find_unknown_opset(model)
    if unknown is not None:
        opset, newest = unknown
        message = f"opset {opset} is newer than the opsets of the installed onnx, 1 to {newest}"
        message += ": its changes are unknown"
        yield Finding(code="model.invalid", severity=Severity.WARNING, where=where, message=message)
    for path, graph in iter_all_graphs(model):
        yield from _find_negative_sizes(graph, replace(where, graph=path))
    yield from _find_other_versions(model, where)
    yield from _find_misread_sequences(model, values, where)


def _find_misread_sequences(
    model: ir.Model, values: Mapping[ir.Value, AbstractValue], where: Where
) -> Iterator[Finding]:
    """Yield a finding for each input of a node that must be a tensor but is a sequence, or vice versa."""
    for path, node, opset in iter_located_nodes(model):
        version = find_version(node.op_type, opset) if canonicalise(node.domain) == "" else None
        for index, value in enumerate(node.inputs):
            if version is None or value is None:
                continue
            what = values.get(value)
            sequence = isinstance(what, AbstractSequence) or _is_sequence_of_parts(value)
            tensor = not sequence and isinstance(what, AbstractTensor) and what != NOTHING
            takes = {taken.startswith("seq(") for taken in version.inputs.get_types(index)}
            if sequence and True not in takes:
                text = describe_sequence(value, node.op_type)
                fix = "join its elements with ConcatFromSequence, or select one with SequenceAt"
            elif tensor and takes == {True}:
                text = f"{shown(value.name)} is a tensor, but {node.op_type} requires a sequence"
                fix = "read the sequence itself, or build one from tensors with SequenceConstruct"
            else:
                continue
            place = replace(where, graph=path, node=label(node))
            yield Finding(
                code="model.invalid",
                operator=f"{node.op_type}-{version.since}",
                where=place,
                message=text,
                fix=fix,
            )


class OtherVersion(NamedTuple):
    """A node in a function. At the opset of the model, its operator would have another version."""

    function: str
    """The path of the function."""
    path: str
    """The path of the graph of the node: the function, or a graph inside it."""
    node: ir.Node
    version: int | None
    """The version at the opset of the function, or None if that opset does not have the operator."""
    of_model: int | None


def iter_other_versions(model: ir.Model) -> Iterator[OtherVersion]:
    """Yield the nodes in functions that would have another version at the opset of the model.

    Such models are invalid, and runtimes that inline functions use the version of the model.
    """
    imported, functions = get_opset_imports(model.graph, model), index_functions(model)
    for function in functions.values():
        own, start = get_opset_imports(function), make_function_path(function)
        for path, node in iter_nodes(function, start) if own != imported else ():
            domain, assumed = canonicalise(node.domain), imported.get(canonicalise(node.domain))
            if assumed is None or domain not in own or make_function_key(node) in functions:
                continue
            first, second = (find_version(node.op_type, opset, domain) for opset in (own[domain], assumed))
            since = tuple(None if one is None else one.since for one in (first, second))
            if since[0] != since[1]:
                yield OtherVersion(start, path or start, node, *since)


OTHER_VERSION: Final = "function.opset"
"""The code of a function whose opset selects another version of an operator than the opset of the model."""


def _find_other_versions(model: ir.Model, where: Where) -> Iterator[Finding]:
    """Yield a finding for each split in a function that would have another version at the model's opset.

    If a function has only other nodes with this fault, yield one warning for all of them.
    """
    of_function: dict[str, list[OtherVersion]] = {}
    for one in iter_other_versions(model):
        of_function.setdefault(one.function, []).append(one)
    for path, found in of_function.items():
        splits = [one for one in found if is_split(one.node)]
        for one in splits:
            yield Finding(
                code=OTHER_VERSION,
                operator=f"{one.node.op_type}-{one.version}",
                where=replace(where, graph=one.path, node=label(one.node)),
                message=describe_other_version(one),
                fix=f"splitops fix moves the function to the opset of the model, {_get_opset(model)}",
            )
        if not splits:
            names = [shown(name) for name in dict.fromkeys(one.node.op_type for one in found)]
            more = f" and {len(names) - _MAX_NAMED} more operators" if len(names) > _MAX_NAMED else ""
            yield Finding(
                code=OTHER_VERSION,
                severity=Severity.WARNING,
                where=replace(where, graph=path),
                message=f"the opset of the function and opset {_get_opset(model)} of the model select "
                f"different versions of {', '.join(names[:_MAX_NAMED])}{more}",
                fix=f"splitops convert --to onnx:{_get_opset(model)} moves the functions to that opset",
            )


def describe_other_version(one: OtherVersion) -> str:
    """Return a message that names the versions of a node that its function and the model select."""
    of_model = "no such operator" if one.of_model is None else f"{one.node.op_type}-{one.of_model}"
    mine = "no such operator" if one.version is None else f"{one.node.op_type}-{one.version}"
    return (
        f"the opset of the function selects {mine}, but the opset of the model selects {of_model}: the model "
        "is invalid, and runtimes that inline the function use the version of the model"
    )


def _get_opset(model: ir.Model) -> int:
    return get_opset_imports(model.graph, model).get("", 0)


_MAX_NAMED: Final = 8


def is_sequence(value: ir.Value | None) -> bool:
    """Return whether a value is annotated as a sequence."""
    return value is not None and isinstance(get_abstract_value(value), AbstractSequence)


def describe_sequence(value: ir.Value, operator: str) -> str:
    """Return the message for an operator that reads a sequence, but requires a tensor."""
    return f"{shown(value.name)} is a sequence, but {operator} requires a tensor"


def _is_sequence_of_parts(value: ir.Value) -> bool:
    node = value.producer()
    return node is not None and is_split(node) and schema(node.op_type, domain="").gives_sequence


def _find_negative_sizes(graph: AnyGraph, where: Where) -> Iterator[Finding]:
    values = dict.fromkeys((*graph.inputs, *(value for node in graph for value in node.outputs)))
    for value in values | dict.fromkeys(graph.outputs):
        shape = value.shape
        for axis, size in enumerate(() if shape is None else shape.dims):
            if isinstance(size, int) and size < 0:
                name = shown(value.name)
                message = f"dimension {axis} of {name} is declared as {size}, which is treated as unknown"
                yield Finding(code="model.invalid", severity=Severity.WARNING, where=where, message=message)
