"""Names of records: two that differ have different ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from splitops.comparison.records import Record
from splitops.spec.operators import OperatorSchema, history, schema
from splitops.spec.operators.schemas import Given

_OLDEST: Final = 10
"""The opset below which runtimes promise little."""


def domain_of(record: Record) -> str:
    """Return the domain of the operator."""
    return "" if record.format == "onnx" else "openvino"


def row_of(record: Record) -> OperatorSchema:
    """Return the version that a record is about."""
    domain = domain_of(record)
    for row in history(record.operator, domain):
        if row.since_version == record.version:
            return row
    return schema(record.operator, -1, domain)  # it has no such version


def opset_of(record: Record) -> int:
    """Return the opset that the model imports."""
    return record.version if record.opset is None else record.opset


def usual_opset(row: OperatorSchema) -> int:
    """Return the opset by which a version is asked for."""
    later = [other.since_version for other in history(row.name, row.domain)]
    after = min((version for version in later if version > row.since_version), default=row.since_version + 1)
    return max(row.since_version, min(after - 1, _OLDEST))


def operator_of(record: Record) -> str:
    """Return the operator version, for example ``"Split-18"`` or ``"openvino:VariadicSplit-1"``."""
    name = f"{record.operator}-{record.version}"
    return name if record.format == "onnx" else f"openvino:{name}"


def id_of(record: Record, rule: str) -> str:
    """Return the stable name of a case: ``"split-18/ceil/5-into-4/float32/static"``."""
    operator = operator_of(record).lower().replace(":", "-")
    known = "dynamic" if record.dynamic else "static"
    words = (operator, rule, _sizes(record), record.dtype, known, *_extras(record))
    return "/".join(words)


def _stated_lengths(row: OperatorSchema, attributes: Mapping[str, Any]) -> Sequence[int] | None:
    found = (own.name for own in row.lengths if own.given is Given.ATTRIBUTE and own.name in attributes)
    return next((attributes[name] for name in found), None)


def _sizes(record: Record) -> str:
    row = row_of(record)
    said = ["x".join(map(str, record.shape)) or "scalar"]
    stated = _stated_lengths(row, record.attributes)
    if stated is not None:
        said.append(f"as-{_text(stated)}")
    if record.lengths is not None:
        word = "as" if isinstance(record.lengths, Sequence) else "by"
        said.append(f"{word}-{_text(record.lengths)}{'' if stated is None else '-given'}")
    if (count := row.count_attribute) is not None and count in record.attributes:
        said.append(f"into-{record.attributes[count]}")
    elif len(said) == 1:
        counted = row.count is not None and row.count.given is Given.OUTPUTS
        said.append(f"into-{len(record.outputs)}" if counted else "alone")
    return "-".join(said)


def _extras(record: Record) -> Iterator[str]:
    row = row_of(record)
    told = {own.name for own in row.lengths if own.given is Given.ATTRIBUTE} | {row.count_attribute}
    if record.axis is not None:
        yield f"axis={record.axis}"
    if record.axis_dtype != "int64":
        yield f"{record.axis_dtype}-axis"
    if record.axis_shape:
        yield f"{'x'.join(map(str, record.axis_shape))}-axis"
    if record.lengths_dtype != "int64":
        yield f"{record.lengths_dtype}-lengths"
    if not record.constant:
        yield "run-time"
    for name, value in record.attributes.items():
        if name not in told:
            yield f"{name}={_text(value)}"
    yield from _outputs(record, row)
    if record.special is not None:
        yield record.special
    if opset_of(record) != usual_opset(row):
        yield f"opset={record.opset}"


def _outputs(record: Record, row: OperatorSchema) -> Iterator[str]:
    usual = record.attributes.get(row.count_attribute or "")
    if usual is None:
        lengths = record.lengths if record.lengths is not None else _stated_lengths(row, record.attributes)
        usual = len(lengths) if isinstance(lengths, Sequence) else None
    reads = record.special in (None, "length") and row.gives_sequence
    if not reads and (usual is not None or row.gives_sequence) and len(record.outputs) != usual:
        yield f"{len(record.outputs)}-outputs"
    if "" in record.outputs:
        yield f"without-{_text([index for index, name in enumerate(record.outputs) if not name])}"


def _text(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        inner = [f"({_text(own)})" if isinstance(own, Sequence) else _text(own) for own in value]
        return "+".join(inner) or "nothing"
    return str(value)
