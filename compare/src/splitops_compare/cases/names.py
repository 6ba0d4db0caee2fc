"""Makes the ids of cases, and finds the schema and opset of a spec. Different specs have different ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import splitops
from splitops.spec import OperatorSchema, SourceKind, history
from splitops_compare.data import CaseSpec

_OLDEST: Final = 10
"""Oldest opset that runtimes support in full. Models import it if it selects their operator version."""


def get_domain(spec: CaseSpec) -> str:
    """Return the domain of the operator: empty for ONNX."""
    return "" if spec.format == "onnx" else "openvino"


def get_schema(spec: CaseSpec) -> OperatorSchema:
    """Return the schema of the operator version of a spec.

    Raises:
        OperatorError: there is no such operator version.
    """
    domain = get_domain(spec)
    for schema in history(spec.operator, domain):
        if schema.since_version == spec.version:
            return schema
    return splitops.schema(spec.operator, -1, domain)  # raises OperatorError


def get_opset(spec: CaseSpec) -> int:
    """Return the opset that the model of a spec imports."""
    return spec.version if spec.opset is None else spec.opset


def choose_opset(schema: OperatorSchema) -> int:
    """Choose the opset that a model imports to use an operator version."""
    since = schema.since_version
    versions = (other.since_version for other in history(schema.name, schema.domain))
    following = min((version for version in versions if version > since), default=since + 1)
    return max(since, min(following - 1, _OLDEST))


def format_operator(spec: CaseSpec) -> str:
    """Format the operator version: ``"Split-18"`` or ``"openvino:VariadicSplit-1"``."""
    name = f"{spec.operator}-{spec.version}"
    return name if spec.format == "onnx" else f"openvino:{name}"


def make_id(spec: CaseSpec, rule: str) -> str:
    """Make the stable id of a case: ``"split-18/ceil/5-into-4/float32/static"``."""
    operator = format_operator(spec).lower().replace(":", "-")
    shape = "dynamic" if spec.dynamic else "static"
    return "/".join((operator, rule, _format_sizes(spec), spec.dtype, shape, *_iter_extras(spec)))


def _find_length_attribute(schema: OperatorSchema, attributes: Mapping[str, Any]) -> Sequence[int] | None:
    names = (source.name for source in schema.lengths if source.kind is SourceKind.ATTRIBUTE)
    return next((attributes[name] for name in names if name in attributes), None)


def _format_sizes(spec: CaseSpec) -> str:
    schema = get_schema(spec)
    texts = ["x".join(map(str, spec.shape)) or "scalar"]
    attribute = _find_length_attribute(schema, spec.attributes)
    if attribute is not None:
        texts.append(f"as-{_format_value(attribute)}")
    if spec.lengths is not None:
        word = "as" if isinstance(spec.lengths, Sequence) else "by"
        texts.append(f"{word}-{_format_value(spec.lengths)}{'' if attribute is None else '-given'}")
    if (count := schema.count_attribute) is not None and count in spec.attributes:
        texts.append(f"into-{spec.attributes[count]}")
    elif len(texts) == 1:
        counts_outputs = schema.count is not None and schema.count.kind is SourceKind.OUTPUTS
        texts.append(f"into-{len(spec.outputs)}" if counts_outputs else "alone")
    return "-".join(texts)


def _iter_extras(spec: CaseSpec) -> Iterator[str]:
    """Yield the last parts of the id: the axis if it is set, and fields with unusual values."""
    schema = get_schema(spec)
    shown = {source.name for source in schema.lengths if source.kind is SourceKind.ATTRIBUTE}
    shown.add(schema.count_attribute or "")
    if spec.axis is not None:
        yield f"axis={spec.axis}"
    if spec.axis_dtype != "int64":
        yield f"{spec.axis_dtype}-axis"
    if spec.axis_shape:
        yield f"{'x'.join(map(str, spec.axis_shape))}-axis"
    if spec.lengths_dtype != "int64":
        yield f"{spec.lengths_dtype}-lengths"
    if not spec.constant:
        yield "run-time"
    for name, value in spec.attributes.items():
        if name not in shown:
            yield f"{name}={_format_value(value)}"
    yield from _iter_output_extras(spec, schema)
    if spec.special is not None:
        yield spec.special
    if get_opset(spec) != choose_opset(schema):
        yield f"opset={spec.opset}"


def _iter_output_extras(spec: CaseSpec, schema: OperatorSchema) -> Iterator[str]:
    usual = spec.attributes.get(schema.count_attribute or "")
    if usual is None:
        lengths = spec.lengths
        if lengths is None:
            lengths = _find_length_attribute(schema, spec.attributes)
        usual = len(lengths) if isinstance(lengths, Sequence) else None
    is_sequence = spec.special in (None, "length") and schema.gives_sequence
    if not is_sequence and (usual is not None or schema.gives_sequence) and len(spec.outputs) != usual:
        yield f"{len(spec.outputs)}-outputs"
    if "" in spec.outputs:
        yield f"without-{_format_value([index for index, name in enumerate(spec.outputs) if not name])}"


def _format_value(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = (f"({_format_value(item)})" if isinstance(item, Sequence) else str(item) for item in value)
        return "+".join(items) or "nothing"
    return str(value)
