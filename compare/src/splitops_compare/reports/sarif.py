"""Converts a report to SARIF, a format of findings that code-hosting sites show."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from splitops.models.check import sarif_log
from splitops_compare.data import CaseResult, ComparisonReport, ImplementationInfo, Verdict
from splitops_compare.reports.verdicts import MEANINGS, RULES, describe_verdict


def to_sarif(report: ComparisonReport, version: str) -> dict[str, Any]:
    """Convert the findings of a report to a SARIF 2.1.0 log. ``version`` is that of splitops-compare."""
    codes = list(dict.fromkeys(result.rule for result, _, _ in report.findings))
    rules = [{"id": code, "shortDescription": {"text": RULES.get(code, code)}} for code in codes]
    results = [_make_result(*finding, codes.index(finding[0].rule)) for finding in report.findings]
    return sarif_log("splitops-compare", version, rules, results)


def _make_result(result: CaseResult, info: ImplementationInfo, verdict: Verdict, rule: int) -> dict[str, Any]:
    label = describe_verdict(verdict)
    detail = verdict.detail or MEANINGS[verdict.kind]
    finding: dict[str, Any] = {
        "ruleId": result.rule,
        "ruleIndex": rule,
        "level": "error",
        "message": {"text": f"{result.operator}: {info.name} {label}: {detail} ({result.title})"},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": quote(result.id, errors="surrogatepass")}},
                "logicalLocations": [
                    {
                        "name": result.id,
                        "fullyQualifiedName": f"{result.id}/{info.name}",
                        "kind": "module",
                    }
                ],
            }
        ],
        "partialFingerprints": {"finding": f"{result.id} {info.name} {label}"},
        "properties": {
            "implementation": info.name,
            "verdict": verdict.kind.value,
            "versions": dict(info.versions),
        },
    }
    if verdict.known is not None and verdict.known.startswith("https://"):
        finding["workItemUris"] = [verdict.known]
    return finding
