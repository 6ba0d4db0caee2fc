"""Convert findings to JSON, and to SARIF for code-hosting sites."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from splitops.common.json_values import to_json_values
from splitops.models.check.findings import Finding, Severity

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def to_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings as JSON-serialisable values."""
    return [
        to_json_values(finding)
        | {
            "values": {name: _to_json_value(value) for name, value in finding.values.items()},
            "source": finding.source or None,
        }
        for finding in findings
    ]


def _to_json_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Sequence):
        return [_to_json_value(entry) for entry in value]
    return str(value)


def to_sarif(findings: Sequence[Finding], version: str, *, untested: Sequence[str] = ()) -> dict[str, Any]:
    """Return findings as a SARIF 2.1.0 log.

    Args:
        findings: the findings.
        version: the version of splitops that found them.
        untested: requested runtimes that were not tested; they become a property of the run.
    """
    rules: dict[str, dict[str, Any]] = {}
    for finding in findings:
        rule = rules.setdefault(finding.code, {"id": finding.code})
        if finding.source.startswith("https://"):
            rule["helpUri"] = finding.source
    order = list(rules)
    results = [_make_result(finding, order.index(finding.code)) for finding in findings]
    log = sarif_log("splitops", version, list(rules.values()), results)
    log["runs"][0]["properties"] = {"untested": list(untested)}
    return log


def sarif_log(
    tool: str, version: str, rules: list[dict[str, Any]], results: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return a SARIF 2.1.0 log of one run.

    Args:
        tool: name of the tool.
        version: the version of the tool.
        rules: the rules; results refer to them by index.
        results: the results.
    """
    driver = {"name": tool, "semanticVersion": version, "rules": rules}
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def _make_result(finding: Finding, rule: int) -> dict[str, Any]:
    text = f"{finding.operator}: {finding.message}" if finding.operator else finding.message
    if finding.fix:
        text += f". Fix: {finding.fix}"
    location: dict[str, Any] = {}
    where = finding.where
    if where.model is not None:
        location["physicalLocation"] = {"artifactLocation": {"uri": quote(os.fsencode(where.model))}}
    path = "/".join(part for part in (where.graph, where.node) if part)
    if path:
        location["logicalLocations"] = [
            {"name": where.node or path, "fullyQualifiedName": path, "kind": "function"}
        ]
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": "error" if finding.severity is Severity.ERROR else "warning",
        "message": {"text": text},
    }
    if location:
        result["locations"] = [location]
    return result
