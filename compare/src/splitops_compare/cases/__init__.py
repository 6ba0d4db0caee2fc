"""Lists, generates and builds the cases. The reference evaluator computes their expected results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Final

import splitops
from splitops.errors import RuleError, count_of, shown
from splitops.extension import OpenVINOModel, to_bytes
from splitops.models import run
from splitops.models.check import Severity, check
from splitops.spec import ELEMENT_TYPES, SCHEMAS
from splitops.splitting import Fact, SplitRequest, bind, make_fact
from splitops_compare.cases.invalid_specs import generate_invalid_specs
from splitops_compare.cases.models import (
    DATA,
    SPECIALS,
    list_outputs,
    make_inputs,
    make_model,
    make_operands,
)
from splitops_compare.cases.names import (
    choose_opset,
    format_operator,
    get_domain,
    get_opset,
    get_schema,
    make_id,
)
from splitops_compare.cases.random_specs import generate_specs
from splitops_compare.cases.spec_templates import make_part_names, make_plain_spec
from splitops_compare.cases.valid_specs import generate_valid_specs
from splitops_compare.data import Case, CaseSpec, CompareError, Value

_OUTPUT_TYPES: Final = {"length": "int64", "packed": "int32"}
"""Element types of outputs that differ from that of the data, keyed by the ``special`` of the spec."""


@dataclass(frozen=True, slots=True)
class CaseEntry:
    """A case that is not built yet. Its fields are as in :class:`Case`, but ``baseline`` is a spec."""

    id: str
    rule: str
    spec: CaseSpec
    baseline: CaseSpec | None


@cache
def list_cases() -> Mapping[str, CaseEntry]:
    """Return every listed case, keyed by its id, such as ``"split-18/ceil/5-into-4/float32/static"``."""
    entries: dict[str, CaseEntry] = {}
    for schema in SCHEMAS:
        for spec in generate_valid_specs(schema):
            entry = make_entry(spec)
            entries.setdefault(entry.id, entry)
        for spec, baseline in generate_invalid_specs(schema):
            for entry in (make_entry(baseline), make_entry(spec, baseline)):
                entries.setdefault(entry.id, entry)
    return MappingProxyType(entries)


def generate_cases(number: int, seed: int = 0) -> dict[str, CaseEntry]:
    """Generate ``number`` cases that are not listed, with ids such as ``"generated/SEED/0"``.

    The first cases of a seed do not depend on ``number``.
    """
    entries: dict[str, CaseEntry] = {}
    used = set(list_cases())
    specs = generate_specs(seed)
    while len(entries) < number:
        entry = make_entry(*next(specs))
        if entry.id not in used:
            used.add(entry.id)
            name = f"generated/{seed}/{len(entries)}"
            entries[name] = replace(entry, id=name)
    return entries


def find_case(name: str) -> CaseEntry:
    """Find a listed or generated case by its id.

    Raises:
        CompareError: there is no such case.
    """
    generated = re.fullmatch(r"generated/(\d{1,18})/(\d{1,4})", name, re.ASCII)
    if generated is not None:
        seed, index = map(int, generated.groups())
        name = f"generated/{seed}/{index}"
        return generate_cases(index + 1, seed)[name]
    if name not in list_cases():
        raise CompareError(f"there is no case {shown(name)}")
    return list_cases()[name]


def build_cases(ids: Iterable[str] | None = None) -> tuple[Case, ...]:
    """Build the cases with the given ids, or all listed cases if ``ids`` is None."""
    return tuple(map(build_case, list_cases().values() if ids is None else map(find_case, ids)))


def make_entry(spec: CaseSpec, baseline: CaseSpec | None = None) -> CaseEntry:
    """Make the entry of a spec. ``baseline`` defaults to that of a valid spec, see :func:`find_baseline`."""
    try:
        rule = make_request(spec).division.rule.value
    except RuleError as error:
        rule = str(error.rule)
    return CaseEntry(make_id(spec, rule), rule, spec, find_baseline(spec) if baseline is None else baseline)


def find_baseline(spec: CaseSpec) -> CaseSpec | None:
    """Return the simplest spec of the operator version, or None if it is ``spec`` itself.

    If nodes of ``spec`` read the sequence of parts, nodes of the baseline do so, too.
    """
    schema = get_schema(spec)
    if spec.special in ("elements", "length"):
        baseline = make_plain_spec(schema, special="elements", outputs=make_part_names(2))
    else:
        baseline = make_plain_spec(schema)
    return None if baseline == spec else baseline


def build_case(entry: CaseEntry) -> Case:
    """Build the model and the inputs of a case, and compute the expected outputs or the error."""
    spec = entry.spec
    model, inputs = make_model(spec), make_inputs(spec)
    names = list_outputs(spec)
    types = {DATA: spec.dtype, get_schema(spec).axis.name: spec.axis_dtype}
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
        id=entry.id,
        operator=format_operator(spec),
        rule=entry.rule,
        title=_format_title(spec, error),
        spec=spec,
        format=spec.format,
        model=content,
        weights=weights,
        inputs=inputs,
        types={name: types.get(name, spec.lengths_dtype) for name in inputs},
        outputs=names,
        expected=None if expected is None else tuple(expected[name] for name in names),
        expected_types=(_OUTPUT_TYPES.get(spec.special or "", spec.dtype),) * len(names),
        error=error,
        evident=error is not None
        and any(finding.code == error and finding.severity is Severity.ERROR for finding in check(model)),
        baseline=None if entry.baseline is None else make_entry(entry.baseline).id,
    )


def make_request(spec: CaseSpec) -> SplitRequest:
    """Bind the attributes and inputs of the split of a spec, and return it as a request.

    Raises:
        RuleError: the split breaks a rule.
    """
    schema = splitops.schema(spec.operator, get_opset(spec), get_domain(spec))
    attributes = dict(spec.attributes)
    if spec.axis is not None and schema.attribute(schema.axis.name) is not None:
        attributes[schema.axis.name] = spec.axis
    data = Fact(ELEMENT_TYPES[spec.dtype], spec.shape)
    operands = (make_fact(array, value=True) for _, array in make_operands(spec))
    outputs = 1 if schema.gives_sequence else len(spec.outputs) or None
    return bind(schema, attributes, [data, *operands], outputs=outputs).request()


def _format_title(spec: CaseSpec, error: str | None) -> str:
    """Format the title of a case: the operator, the peculiarities, and then the data and its division."""
    shape = "x".join(map(str, spec.shape)) or "a scalar"
    lengths = spec.attributes.get("split", spec.lengths)
    split = [f"into {value}" for name, value in spec.attributes.items() if name.startswith("num_")]
    if lengths is not None:
        split.insert(0, f"{'as' if isinstance(lengths, list) else 'by'} {lengths}")
    how = " ".join(split) or f"into {len(spec.outputs)} outputs"
    axis = "" if spec.axis is None else f" on axis {spec.axis}"
    special = [f"breaks {error}"] if error else []
    special += _iter_peculiarities(spec)
    prefix = f"{'; '.join(special)}: " if special else ""
    return f"{format_operator(spec)}: {prefix}{spec.dtype} {shape} {how}{axis}"


def _iter_peculiarities(spec: CaseSpec) -> Iterator[str]:
    """Yield a phrase for each peculiarity of a spec that the rest of the title does not show."""
    if spec.special is not None:
        yield SPECIALS[spec.special]
    if spec.dynamic:
        yield "the size of the axis is unknown"
    if not spec.constant:
        yield "lengths are inputs of the model" if spec.lengths is not None else "the axis is an input"
    omitted = [str(index) for index, name in enumerate(spec.outputs) if not name]
    if omitted:
        yield f"output {', '.join(omitted)} is omitted"
    count = spec.attributes.get("num_outputs")
    if isinstance(count, int) and 0 < len(spec.outputs) < count:
        yield f"only {count_of(len(spec.outputs), 'output')} declared"
    if spec.lengths is not None and "split" in spec.attributes:
        yield f"lengths {spec.lengths} in an input too"
    if spec.lengths is not None and spec.lengths_dtype != "int64":
        yield f"lengths of {spec.lengths_dtype}"
    if spec.axis_shape or spec.axis_dtype != "int64":
        shape = "x".join(map(str, spec.axis_shape))
        yield f"an axis of {spec.axis_dtype}{f' with shape {shape}' if shape else ''}"
    if "keepdims" in spec.attributes:
        yield f"keepdims = {spec.attributes['keepdims']}"
    if get_opset(spec) != choose_opset(get_schema(spec)):
        yield f"opset {get_opset(spec)}"
