"""A report as SARIF, from which code-hosting sites show findings."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from splitops.comparison.records import Entry, Peer, Report, Verdict
from splitops.comparison.reports.verdicts import MEANINGS, RULES, described
from splitops.models.check.reports import sarif_log


def to_sarif(report: Report, version: str) -> dict[str, Any]:
    """Return the confirmed disagreements of a report as a SARIF 2.1.0 log of a version of splitops."""
    codes = list(dict.fromkeys(entry.rule for entry, _, _ in report.findings))
    rules = [{"id": code, "shortDescription": {"text": RULES.get(code, code)}} for code in codes]
    results = [_result(*finding, codes.index(finding[0].rule)) for finding in report.findings]
    return sarif_log("splitops compare", version, rules, results)


def _result(entry: Entry, peer: Peer, verdict: Verdict, rule: int) -> dict[str, Any]:
    detail = verdict.detail or MEANINGS[verdict.word]
    text = f"{entry.operator}: {peer.name} {described(verdict)}: {detail} ({entry.title})"
    result: dict[str, Any] = {
        "ruleId": entry.rule,
        "ruleIndex": rule,
        "level": "error",
        "message": {"text": text},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": quote(entry.id, errors="surrogatepass")}},
                "logicalLocations": [
                    {"name": entry.id, "fullyQualifiedName": f"{entry.id}/{peer.name}", "kind": "module"}
                ],
            }
        ],
        "partialFingerprints": {"casePeerVerdict": f"{entry.id} {peer.name} {described(verdict)}"},
        "properties": {
            "implementation": peer.name,
            "verdict": verdict.word.value,
            "versions": dict(peer.versions),
        },
    }
    if verdict.known is not None and verdict.known.startswith("https://"):
        result["workItemUris"] = [verdict.known]
    return result
