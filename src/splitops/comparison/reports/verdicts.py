"""What the words of a report mean, and how often each implementation has each of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from splitops.comparison.records import FINDINGS, Peer, Record, Report, Verdict, Word

MEANINGS: Final[Mapping[Word, str]] = {
    Word.AGREES: "gives what the rule gives, or rejects what the rule forbids",
    Word.DIFFERS: "runs, and gives something else",
    Word.REJECTS: "rejects what is valid",
    Word.ACCEPTS: "takes what is invalid",
    Word.CRASH: "its process died",
    Word.HANG: "gave no answer in time",
    Word.MEMORY: "took more memory than it was given",
    Word.PROTOCOL: "sent what is not an answer",
    Word.ADAPTER_ERROR: "the adapter failed, not the implementation",
    Word.DEAD: "fails the valid control as well, so that it says nothing here",
    Word.NOT_APPLICABLE: "is not asked, or does not claim to do this",
}
"""Every word, in the order in which reports show them."""

DISAGREEMENTS: Final = (Word.DIFFERS, Word.REJECTS, Word.ACCEPTS, Word.CRASH, Word.HANG, Word.MEMORY)
"""The words for a split whose result is not what is specified."""


def described(verdict: Verdict) -> str:
    """Write a verdict in words, with the signal of a crash.

    Examples:
        >>> described(Verdict(word=Word.CRASH, signal="SIGABRT"))
        'crash SIGABRT'
    """
    return f"{verdict.word} {verdict.signal}" if verdict.signal else str(verdict.word)


def releases(peer: Peer) -> str:
    """Write the releases of an implementation, and of its dependencies."""
    return ", ".join(f"{name} {release}" for name, release in peer.versions.items())


def stated(record: Record) -> dict[str, Any]:
    """Return what a record says as values for JSON, without what it leaves out."""
    return {name: value for name, value in record.to_json().items() if value not in (None, {}, [])}


def written(value: Mapping[str, Any]) -> str:
    """Write an output as reports hold it.

    Examples:
        >>> written({"dtype": "float32", "shape": [2], "sample": [0.0, 1.0]})
        'float32 [2]: 0.0, 1.0'
    """
    if "sequence" in value:
        parts = "; ".join(map(written, value["sequence"]))
        return f"a sequence of {len(value['sequence'])}{': ' if parts else ''}{parts}"
    if "inferred" in value:
        return f"inferred {json.dumps(value['inferred'])}"
    sample = ", ".join(map(str, value["sample"]))
    return f"{value['dtype']} {json.dumps(value['shape'])}{': ' if sample else ''}{sample}"


def counts(report: Report) -> dict[str, Counter[Word]]:
    """Return how often each implementation has each word; what was not confirmed alone is counted nowhere."""
    counted: dict[str, Counter[Word]] = {peer.name: Counter() for peer in report.peers}
    for entry in report.entries:
        for name, verdict in entry.verdicts.items():
            if name in counted and (verdict.counts or verdict.word not in FINDINGS):
                counted[name][verdict.word] += 1
    return counted
