"""Proposes limits of an implementation from the published comparison: ``propose.py IMPLEMENTATION``.

Words of limits are proposed where all valid cases that surely meet them failed, of one operator or of all.
A proposal is listed if it explains a failure that no more general one does. A person decides which of them
is the reason. At the end, the failures stand that no limit of today's target explains.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Final

from splitops.models.check.checking import find_limits
from splitops.models.check.predicates import (
    PREDICATES,
    Certainty,
    Condition,
    ModelContext,
    SplitPredicates,
    parse_condition,
)
from splitops.models.check.targets import list_target_names, load_targets
from splitops.models.formats.model import CheckedModel
from splitops.models.infer.interpreter import ShapeInterpreter
from splitops.models.split_nodes import SplitNode
from splitops.spec import SizeRule
from splitops_compare.cases import list_cases
from splitops_compare.cases.models import make_model
from splitops_compare.data import CaseResult, VerdictKind
from splitops_compare.reports.report_diff import read_report

REPORT: Final = Path(__file__).resolve().parents[2] / "compare" / "docs" / "data" / "report.json"
RULES: Final = {rule.value for rule in SizeRule}
NUMBERS: Final = (0, 1, 2, 3, 4)
"""The numbers that are tried; of a list, each element type."""
Split = tuple[str, SplitNode, ModelContext]


def judged(peer: str) -> Iterator[tuple[CaseResult, VerdictKind]]:
    """Yield the valid cases that an implementation has a confirmed result for."""
    for entry in read_report(REPORT).cases:
        verdict = entry.verdicts.get(peer)
        if (
            verdict is None
            or entry.format != "onnx"
            or entry.rule not in RULES
            or entry.id not in list_cases()
        ):
            continue
        if verdict.is_confirmed or verdict.kind is VerdictKind.AGREES:
            yield entry, verdict.kind


def split_of(case: str) -> Split:
    """Return the operator and the first split of a case, with the model around it."""
    model = make_model(list_cases()[case].spec)
    opened = CheckedModel.read(model, weights=False)
    sites = ShapeInterpreter(opened.nodes, opened.where).run().splits
    return f"{sites[0].schema}", sites[0], ModelContext.from_model(opened.nodes)


def conditions() -> Iterator[Condition]:
    """Yield every word, with each number and type that is tried."""
    for word in PREDICATES.values():
        if word.text.endswith(" N"):
            yield from (parse_condition(f"{word.text[:-1]}{number}") for number in NUMBERS)
        elif word.known is not None and word.text.startswith("types in"):
            yield from (parse_condition(f"types in [{kind}]") for kind in sorted(word.known))
        elif "[" not in word.text:
            yield parse_condition(word.text)


def proposals(peer: str) -> Iterator[tuple[str, str, Counter[VerdictKind]]]:
    """Yield an operator or ``all``, words, and how the cases that surely meet them failed."""
    cases = [(entry.id, word, split_of(entry.id)) for entry, word in judged(peer)]
    failed = {case for case, word, _ in cases if word is not VerdictKind.AGREES}
    met = {
        one.text: {
            case
            for case, _, (_, site, model) in cases
            if one.evaluate(SplitPredicates(site, model)) is Certainty.YES
        }
        for one in conditions()
    }
    operators = {case: (operator, operator.partition("-")[0]) for case, _, (operator, *_) in cases}
    named = ["all", *sorted({name for both in operators.values() for name in both})]
    words = {case: word for case, word, _ in cases}
    seen: list[set[str]] = []
    for count in (1, 2):
        for pair in combinations(met, count):
            for name in named:
                found = set.intersection(*(met[text] for text in pair))
                found = {case for case in found if name == "all" or name in operators[case]}
                if found and found <= failed and not any(found <= one for one in seen):
                    seen.append(found)
                    yield name, " + ".join(pair), Counter(words[case] for case in found)


def unexplained(peer: str) -> list[tuple[str, VerdictKind]]:
    """Return the failures that no limit of the target of a name finds, surely or maybe."""
    targets = load_targets(peer)
    return [
        (entry.id, word)
        for entry, word in judged(peer)
        if word is not VerdictKind.AGREES and not list(find_limits(*split_of(entry.id)[1:], targets))
    ]


def main(arguments: Sequence[str]) -> int:
    """Print the proposals, the largest first."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    found = sorted(proposals(arguments[0]), key=lambda one: -one[2].total())
    for name, text, counted in found:
        outcomes = ", ".join(f"{count} {word}" for word, count in counted.items())
        print(f"{counted.total():4}  {name:20} {text:60} {outcomes}")
    if arguments[0] in list_target_names():
        for case, word in unexplained(arguments[0]):
            print(f"unexplained: {word:10} {case}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
