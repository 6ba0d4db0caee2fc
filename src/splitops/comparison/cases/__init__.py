"""The cases: every record with its name, its rule, its baseline, and the result of splitops."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Final

from splitops.comparison.cases.building import DATA, SPECIALS, inputs_of, model_of, operands_of, outputs_of
from splitops.comparison.cases.drawing import drawn
from splitops.comparison.cases.forms import part_names, plain
from splitops.comparison.cases.invalid import invalid_records
from splitops.comparison.cases.valid import valid_records
from splitops.comparison.cases.words import domain_of, id_of, operator_of, opset_of, row_of
from splitops.comparison.records import Case, CompareError, Record, Value
from splitops.errors import RuleError, count_of, shown
from splitops.models import run
from splitops.models.check import Severity, check
from splitops.models.formats.openvino import OpenVINOModel, to_bytes
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.operators import SCHEMAS, schema
from splitops.splitting.binding import Fact, bind, make_fact
from splitops.splitting.planning import SplitRequest

_OTHER_TYPES: Final = {"length": "int64", "packed": "int32"}


@dataclass(frozen=True, slots=True)
class Listed:
    """A case before it is built; see :class:`Case`."""

    id: str
    rule: str
    record: Record
    baseline: Record | None


@cache
def listed() -> Mapping[str, Listed]:
    """Return every case by its name, such as ``"split-18/ceil/5-into-4/float32/static"``."""
    found: dict[str, Listed] = {}
    for row in SCHEMAS:
        for record in valid_records(row):
            new = named(record)
            found.setdefault(new.id, new)
        for record, baseline in invalid_records(row):
            for new in (named(baseline), named(record, baseline)):
                found.setdefault(new.id, new)
    return MappingProxyType(found)


def generated(number: int, seed: int = 0) -> dict[str, Listed]:
    """Return so many cases that are not listed, by names such as ``"generated/SEED/0"``.

    The first ones of a seed do not depend on the number.
    """
    found: dict[str, Listed] = {}
    had = set(listed())
    records = drawn(seed)
    while len(found) < number:
        new = named(*next(records))
        if new.id not in had:
            had.add(new.id)
            name = f"generated/{seed}/{len(found)}"
            found[name] = replace(new, id=name)
    return found


def find(name: str) -> Listed:
    """Return the case of a name, a listed or a generated one."""
    place = re.fullmatch(r"generated/(\d{1,18})/(\d{1,4})", name, re.ASCII)
    if place is not None:
        seed, index = map(int, place.groups())
        name = f"generated/{seed}/{index}"
        return generated(index + 1, seed)[name]
    if name not in listed():
        raise CompareError(f"there is no case {shown(name)}")
    return listed()[name]


def cases(ids: Iterable[str] | None = None) -> tuple[Case, ...]:
    """Build cases; None is all that are listed."""
    return tuple(map(build, listed().values() if ids is None else map(find, ids)))


def named(record: Record, baseline: Record | None = None) -> Listed:
    """Name a record; without a baseline it has that of a valid record."""
    try:
        rule = request_of(record).division.rule.value
    except RuleError as error:
        rule = str(error.rule)
    return Listed(id_of(record, rule), rule, record, baseline_of(record) if baseline is None else baseline)


def baseline_of(record: Record) -> Record | None:
    """Return the plain record of the version (of elements that are read, with them); None for that itself."""
    row = row_of(record)
    read = record.special in ("elements", "length")
    baseline = plain(row, special="elements", outputs=part_names(2)) if read else plain(row)
    return None if baseline == record else baseline


def build(case: Listed) -> Case:
    """Make the model and the inputs of a case, and what is specified of it."""
    record = case.record
    model, inputs = model_of(record), inputs_of(record)
    names = outputs_of(record)
    types = {DATA: record.dtype, row_of(record).axis.name: record.axis_dtype}
    expected: Mapping[str, Value] | None = None
    error: str | None = None
    try:
        expected = run(model, inputs, engine="reference")
    except RuleError as broken:
        error = str(broken.rule)
    weights = None
    if isinstance(model, OpenVINOModel):
        content, weights = to_bytes(model)
    else:
        content = model.SerializeToString(deterministic=True)
    return Case(
        id=case.id,
        operator=operator_of(record),
        rule=case.rule,
        title=_title(record, error),
        record=record,
        format=record.format,
        model=content,
        weights=weights,
        inputs=inputs,
        types={name: types.get(name, record.lengths_dtype) for name in inputs},
        outputs=names,
        expected=None if expected is None else tuple(expected[name] for name in names),
        expected_types=(_OTHER_TYPES.get(record.special or "", record.dtype),) * len(names),
        error=error,
        evident=error is not None
        and any(one.code == error and one.severity is Severity.ERROR for one in check(model)),
        baseline=None if case.baseline is None else named(case.baseline).id,
    )


def request_of(record: Record) -> SplitRequest:
    """Return the split that a record asks for; a RuleError says which rule it breaks."""
    row = schema(record.operator, opset_of(record), domain_of(record))
    attributes = dict(record.attributes)
    if record.axis is not None and row.attribute(row.axis.name) is not None:
        attributes[row.axis.name] = record.axis
    data = Fact(ELEMENT_TYPES[record.dtype], record.shape)
    operands = (make_fact(array, value=True) for _, array in operands_of(record))
    outputs = 1 if row.gives_sequence else len(record.outputs) or None
    return bind(row, attributes, [data, *operands], outputs=outputs).request()


def _title(record: Record, error: str | None) -> str:
    """Return what is asked, in words."""
    shape = "x".join(map(str, record.shape)) or "a scalar"
    lengths = record.attributes.get("split", record.lengths)
    asked = [f"into {own}" for name, own in record.attributes.items() if name.startswith("num_")]
    if lengths is not None:
        asked.insert(0, f"{'as' if isinstance(lengths, list) else 'by'} {lengths}")
    how = " ".join(asked) or f"into {len(record.outputs)} outputs"
    axis = "" if record.axis is None else f" on axis {record.axis}"
    known = ", of unknown size" if record.dynamic else ""
    given = "" if record.constant else ", given by the run"
    broken = f": breaks {error}" if error else ""
    unusual = "".join(f"; {one}" for one in _unusual(record))
    return f"{operator_of(record)}: {record.dtype} {shape} {how}{axis}{known}{given}{unusual}{broken}"


def _unusual(record: Record) -> Iterator[str]:
    """Yield what sets a case apart from a plain one with the same sizes."""
    omitted = [str(index) for index, name in enumerate(record.outputs) if not name]
    if omitted:
        yield f"output {', '.join(omitted)} is left out"
    wanted = record.attributes.get("num_outputs")
    if isinstance(wanted, int) and 0 < len(record.outputs) < wanted:
        yield f"{count_of(len(record.outputs), 'output')} declared"
    if record.lengths is not None and record.lengths_dtype != "int64":
        yield f"lengths of {record.lengths_dtype}"
    if record.axis_shape or record.axis_dtype != "int64":
        shape = "x".join(map(str, record.axis_shape))
        yield f"an axis of {record.axis_dtype}{f' and shape {shape}' if shape else ''}"
    if "keepdims" in record.attributes:
        yield f"keepdims = {record.attributes['keepdims']}"
    if record.special is not None:
        yield SPECIALS[record.special]
