"""The meanings of verdicts, their texts, and their counts for each implementation."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from splitops.extension import to_json_values
from splitops.spec import SCHEMAS
from splitops_compare.data import CaseSpec, ComparisonReport, ImplementationInfo, Verdict, VerdictKind

RULES: Final[Mapping[str, str]] = tomllib.loads(
    files(__package__).joinpath("rules.toml").read_text(encoding="utf-8")
)
"""A sentence on each size rule and rule code, for readers who do not know splitops."""
SOURCES: Final[Mapping[str, str]] = {
    f"{schema.domain}:{schema}" if schema.domain else str(schema): schema.source for schema in SCHEMAS
}
"""URL of the specification of each operator version."""

MEANINGS: Final[Mapping[VerdictKind, str]] = {
    VerdictKind.AGREES: "returns the specified result, or rejects an invalid split",
    VerdictKind.DIFFERS: "runs, and returns another result",
    VerdictKind.REJECTS: "rejects a valid split",
    VerdictKind.WRONGLY_ACCEPTS: "runs an invalid split",
    VerdictKind.CRASH: "its process died",
    VerdictKind.HANG: "did not respond in time",
    VerdictKind.MEMORY: "used more memory than the limit",
    VerdictKind.PROTOCOL: "sent something that is not a response",
    VerdictKind.ADAPTER_ERROR: "the adapter failed, not the implementation",
    VerdictKind.NO_RESULT: "fails the valid baseline case too",
    VerdictKind.NOT_APPLICABLE: "does not support the case",
}
"""Meaning of every kind of verdict, in the order of reports."""

DISAGREEMENTS: Final = (
    VerdictKind.DIFFERS,
    VerdictKind.REJECTS,
    VerdictKind.WRONGLY_ACCEPTS,
    VerdictKind.CRASH,
    VerdictKind.HANG,
    VerdictKind.MEMORY,
)
"""The kinds of verdicts on implementations that deviate from the specification."""

UNCONFIRMED: Final = "unconfirmed"
"""The group of findings that were not confirmed."""
NO_RESULT: Final = VerdictKind.NO_RESULT.value
"""The group of cases that are in no other group, including those that did not run."""
GROUPS: Final[Mapping[str, str]] = {
    **{kind.value: MEANINGS[kind] for kind in (VerdictKind.AGREES, *DISAGREEMENTS)},
    UNCONFIRMED: "deviated once, and not again in a new process, or was interrupted",
    NO_RESULT: "did not run, does not support the case, or fails the valid baseline case too",
}
"""Meaning of every group of verdicts, in the order of reports. Each case of an implementation is in one."""


def get_group(verdict: Verdict | None) -> str:
    """Return the group of a verdict, a key of :data:`GROUPS`. None stands for a case that did not run."""
    if verdict is None:
        return NO_RESULT
    if verdict.is_unconfirmed:
        return UNCONFIRMED
    return verdict.kind.value if verdict.kind.value in GROUPS else NO_RESULT


def count_groups(report: ComparisonReport) -> dict[str, Counter[str]]:
    """Count the cases in each group for each implementation."""
    return {
        info.name: Counter(get_group(result.verdicts.get(info.name)) for result in report.cases)
        for info in report.implementations
    }


def count_unconfirmed(report: ComparisonReport, info: ImplementationInfo) -> Counter[str]:
    """Count the unconfirmed findings of an implementation by their kind."""
    verdicts = (result.verdicts.get(info.name) for result in report.cases)
    return Counter(format_label(one.kind) for one in verdicts if one is not None and one.is_unconfirmed)


def describe_verdict(verdict: Verdict) -> str:
    """Describe a verdict by its kind and the signal of a crash: ``"crash SIGABRT"``."""
    return f"{verdict.kind} {verdict.signal}" if verdict.signal else str(verdict.kind)


def format_label(name: str) -> str:
    """Format the name of a kind or group for people: ``"wrongly accepts"``."""
    return name.replace("-", " ")


def format_releases(info: ImplementationInfo) -> str:
    """Format the releases of an implementation and of its dependencies."""
    return ", ".join(f"{name} {release}" for name, release in info.versions.items())


def make_spec_json(spec: CaseSpec) -> dict[str, Any]:
    """Convert a spec to JSON values without its empty fields."""
    return {name: value for name, value in to_json_values(spec).items() if value not in (None, {}, [])}


def format_output(output: Mapping[str, Any]) -> str:
    """Format an output of a report: ``"float32 [2]: 0.0, 1.0"``."""
    if "sequence" in output:
        parts = "; ".join(map(format_output, output["sequence"]))
        return f"a sequence of {len(output['sequence'])}{': ' if parts else ''}{parts}"
    if "inferred" in output:
        return f"inferred {json.dumps(output['inferred'])}"
    sample = ", ".join(map(str, output["sample"]))
    return f"{output['dtype']} {json.dumps(output['shape'])}{': ' if sample else ''}{sample}"
