"""What the words of a report mean, and how often each implementation has each of them."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from splitops.comparison.records import Peer, Record, Report, Verdict, Word
from splitops.ground.records import to_json_values
from splitops.spec.operators import SCHEMAS

RULES: Final[Mapping[str, str]] = tomllib.loads(
    files(__package__).joinpath("rules.toml").read_text(encoding="utf-8")
)
"""What each size rule and rule code says, for those who do not know splitops."""
SOURCES: Final[Mapping[str, str]] = {
    f"{row.domain}:{row}" if row.domain else str(row): row.source for row in SCHEMAS
}
"""Where each version of an operator is specified."""

MEANINGS: Final[Mapping[Word, str]] = {
    Word.AGREES: "returns what is specified, or rejects what a rule forbids",
    Word.DIFFERS: "runs, and returns another result",
    Word.REJECTS: "rejects a valid split",
    Word.WRONGLY_ACCEPTS: "runs an invalid split",
    Word.CRASH: "its process died",
    Word.HANG: "did not answer in time",
    Word.MEMORY: "used more memory than the limit",
    Word.PROTOCOL: "sent something that is not an answer",
    Word.ADAPTER_ERROR: "the adapter failed, not the implementation",
    Word.NO_RESULT: "fails the valid baseline case too",
    Word.NOT_APPLICABLE: "was not asked, or does not support it",
}
"""Every word, in the order in which reports show them."""

DISAGREEMENTS: Final = (Word.DIFFERS, Word.REJECTS, Word.WRONGLY_ACCEPTS, Word.CRASH, Word.HANG, Word.MEMORY)
"""The words for a split whose result is not what is specified."""


def described(verdict: Verdict) -> str:
    """Write a verdict in words, with the signal of a crash: ``"crash SIGABRT"``."""
    return f"{verdict.word} {verdict.signal}" if verdict.signal else str(verdict.word)


def spoken(word: str) -> str:
    """Return a verdict as pages show it, such as ``"wrongly accepts"``."""
    return word.replace("-", " ")


def releases(peer: Peer) -> str:
    """Write the releases of an implementation, and of its dependencies."""
    return ", ".join(f"{name} {release}" for name, release in peer.versions.items())


def stated(record: Record) -> dict[str, Any]:
    """Return what a record says as values for JSON, without what it leaves out."""
    return {name: value for name, value in to_json_values(record).items() if value not in (None, {}, [])}


def written(value: Mapping[str, Any]) -> str:
    """Write an output of a report: ``"float32 [2]: 0.0, 1.0"``."""
    if "sequence" in value:
        parts = "; ".join(map(written, value["sequence"]))
        return f"a sequence of {len(value['sequence'])}{': ' if parts else ''}{parts}"
    if "inferred" in value:
        return f"inferred {json.dumps(value['inferred'])}"
    sample = ", ".join(map(str, value["sample"]))
    return f"{value['dtype']} {json.dumps(value['shape'])}{': ' if sample else ''}{sample}"


UNCONFIRMED: Final = "unconfirmed"
"""What a finding counts as that was not repeated alone."""


def counts(report: Report) -> dict[str, Counter[str]]:
    """Return how often each implementation has each word; a finding that was not confirmed is unconfirmed."""
    counted: dict[str, Counter[str]] = {peer.name: Counter() for peer in report.peers}
    for entry in report.entries:
        for name, verdict in entry.verdicts.items():
            if name in counted:
                counted[name][UNCONFIRMED if verdict.is_unsure else verdict.word] += 1
    return counted


def without_result(counted: Mapping[str, int]) -> int:
    """Return how many cases say neither yes nor no about an implementation, of those that it was asked."""
    told = (Word.AGREES, *DISAGREEMENTS, UNCONFIRMED)
    return sum(number for word, number in counted.items() if word not in told)


def unconfirmed(report: Report, peer: Peer) -> Counter[str]:
    """Return how often an implementation did what was not confirmed, by the word."""
    found = (entry.verdicts.get(peer.name) for entry in report.entries)
    return Counter(spoken(one.word) for one in found if one is not None and one.is_unsure)
