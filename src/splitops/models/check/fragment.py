"""Check a single OpenVINO ``<layer>``, such as one in a bug report, as far as possible without its model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from splitops.common.documents import MAX_RANK
from splitops.errors import ModelError, SplitError, Where
from splitops.models.abstract_values import may_be
from splitops.models.check.findings import Finding, Severity, make_finding
from splitops.models.formats.openvino.shapes import parse_integer
from splitops.models.formats.openvino.splits import get_family_schema
from splitops.spec.elements.types import from_precision
from splitops.spec.operators import FAMILY, OperatorSchema
from splitops.spec.sizes.dims import UNKNOWN, Shape
from splitops.splitting.binding import Fact, bind
from splitops.splitting.faults import find_faults
from splitops.splitting.inference import infer_binding

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_MAX_OUTPUTS: Final = 1 << 16


def check_layer(element: Element, where: Where) -> Iterator[Finding]:
    """Yield the faults of a single layer: invalid attributes, and contradictions between its ports.

    The axis and the lengths are unknown, since the layer reads them from other layers.
    """
    kind = element.get("type")
    if element.tag != "layer" or kind not in FAMILY["openvino"]:
        known = " or ".join(FAMILY["openvino"])
        raise ModelError(f"the XML is a <{element.tag[:80]}>, not a <layer> of {known}", where)
    where = replace(where, node=element.get("name") or kind)
    schema = get_family_schema(kind, element.get("version", "opset1"), where)
    data = element.find("data")
    attributes = {
        attribute.name: parse_integer(text, attribute.name, replace(where, attribute=attribute.name))
        for attribute in schema.attributes
        if data is not None and (text := data.get(attribute.name)) is not None
    }
    inputs = [_parse_port(port, where) for port in element.findall("input/port")]
    outputs = [_parse_port(port, where) for port in element.findall("output/port")]
    if len(outputs) > _MAX_OUTPUTS:
        raise ModelError(f"the layer has {len(outputs)} outputs; the maximum is {_MAX_OUTPUTS}", where)
    facts = _make_facts(schema, inputs)
    faults = find_faults(schema, attributes, facts, outputs=len(outputs) or None, where=where)
    if faults:
        yield from (make_finding(error, source=schema.source) for error in faults)
        return
    count = schema.count_attribute
    number = None if count is None else attributes.get(count)
    if outputs and number is not None and number != len(outputs):
        message = f"{len(outputs)} output ports are declared, but {count} = {number}"
        yield _make_finding(schema, where, "outputs.count", message)
    yield from _find_contradictions(schema, where, attributes, facts, outputs)


def _parse_port(port: Element, where: Where) -> Fact:
    dims = [parse_integer(dim.text or "", "a dimension of a port", where) for dim in port.findall("dim")]
    if len(dims) > MAX_RANK:
        raise ModelError(f"a port has more than {MAX_RANK} dimensions", where)
    kind = from_precision(port.get("precision") or "")
    # A port without dimensions is a scalar or of unknown rank.
    shape = tuple(dim if dim >= 0 else UNKNOWN for dim in dims) if dims else None
    return Fact(kind, shape)


def _make_facts(schema: OperatorSchema, inputs: Sequence[Fact]) -> list[Fact | None]:
    facts: list[Fact | None] = [*inputs]
    # A fragment may omit all ports; in a model, missing ports are an error.
    return facts if facts else [Fact()] * len(schema.inputs)


def _find_contradictions(
    schema: OperatorSchema,
    where: Where,
    attributes: Mapping[str, int],
    facts: Sequence[Fact | None],
    outputs: Sequence[Fact],
) -> Iterator[Finding]:
    """Yield contradictions between data and outputs. The split axis is unknown, so every axis is tried."""
    data = facts[0] or Fact()
    for index, port in enumerate(outputs):
        if port.type is not None and data.type is not None and port.type != data.type:
            yield _make_finding(
                schema, where, "declared.type", f"output {index} is {port.type}, but the data is {data.type}"
            )
    shapes = [port.shape for port in outputs]
    if data.shape is None or all(shape is None for shape in shapes):
        return
    fitting = [
        axis for axis in range(len(data.shape)) if _can_explain(schema, attributes, facts, axis, shapes)
    ]
    if not fitting:
        message = f"no axis of the data {_format_shape(data.shape)} can be split into the declared outputs"
        yield _make_finding(schema, where, "declared.shape", message)
    elif not any(_may_add_up(data.shape, shapes, axis) for axis in fitting):
        message = f"the declared outputs do not add up to the data {_format_shape(data.shape)} on any axis"
        yield _make_finding(schema, where, "lengths.sum", message)


def _make_finding(schema: OperatorSchema, where: Where, code: str, message: str) -> Finding:
    return Finding(
        code=code,
        severity=Severity.ERROR,
        operator=str(schema),
        where=where,
        message=message,
        source=schema.source,
    )


def _can_explain(
    schema: OperatorSchema,
    attributes: Mapping[str, int],
    facts: Sequence[Fact | None],
    axis: int,
    shapes: Sequence[Shape | None],
) -> bool:
    """Return whether a split on ``axis`` can produce the declared ``shapes``."""
    known = [
        fact if index != 1 or fact is None else replace(fact, value=axis) for index, fact in enumerate(facts)
    ]
    try:
        parts = infer_binding(bind(schema, attributes, known, outputs=len(shapes))).parts or ()
    except SplitError:
        return False
    pairs = zip(shapes, parts, strict=False)
    return all(may_be(stated, part) for stated, part in pairs)


def _may_add_up(data: Shape, parts: Sequence[Shape | None], axis: int) -> bool:
    """Return whether the part sizes add up on ``axis``; True if a size is unknown."""
    sizes = [None if part is None else part[axis] for part in parts]
    exact = [size for size in sizes if isinstance(size, int)]
    total = data[axis]
    return len(exact) < len(sizes) or not isinstance(total, int) or sum(exact) == total


def _format_shape(shape: Shape) -> str:
    return f"({', '.join(map(str, shape))})"
