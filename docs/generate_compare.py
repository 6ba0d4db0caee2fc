#!/usr/bin/env python3
"""Writes compare.md, compare/page.html and a picture from compare/report.json, and keeps compare/verdicts.

python docs/generate_compare.py                       makes the pages anew
python docs/generate_compare.py --add REPORT.json...  puts the verdicts of reports into compare/verdicts
python docs/generate_compare.py --show REPORT.json... does the same, and shows them from now on, as one

compare/verdicts has a file for each operator: case -> peer -> release -> verdict; known.yml links reports.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import splitops
from splitops.comparison import Report
from splitops.comparison.records import Entry, Peer, Verdict, Word
from splitops.comparison.reports.html import anchor, to_html
from splitops.comparison.reports.reading import read_report
from splitops.comparison.reports.rule_texts import rule_text
from splitops.comparison.reports.verdicts import DISAGREEMENTS, MEANINGS, counts, described, releases
from splitops.explain.canvas import FAINT, FIELD, Canvas
from splitops.explain.palette import colour

DOCS: Final = Path(__file__).parent
VERDICTS: Final = DOCS / "compare/verdicts"
DATA: Final = DOCS / "compare" / "report.json"
PAGE: Final = DOCS / "compare" / "page.html"
TEXT: Final = DOCS / "compare.md"
PICTURE: Final = DOCS / "pictures" / "compare.svg"
COLOURS: Final[Mapping[Word, str]] = {
    Word.AGREES: colour(2),
    Word.DIFFERS: colour(5),
    Word.REJECTS: colour(1),
    Word.ACCEPTS: colour(4),
    Word.CRASH: colour(3),
    Word.HANG: colour(3),
    Word.MEMORY: colour(3),
}
"""What is drawn of a verdict; the others say nothing."""

Verdicts = dict[str, dict[str, dict[str, str]]]


# The data of the repository


def file_of(operator: str) -> Path:
    """Return the file of an operator's version."""
    return VERDICTS / f"{operator.replace(':', '-')}.json"


def read_verdicts(path: Path) -> Verdicts:
    """Read what is known of an operator's version: case, peer, release, verdict."""
    found: Verdicts = json.loads(path.read_text()) if path.exists() else {}
    return found


def add(report: Report) -> None:
    """Put the verdicts of a report into the files of their operators."""
    entries: dict[str, list[Entry]] = defaultdict(list)
    for entry in report.entries:
        entries[entry.operator].append(entry)
    for operator, group in entries.items():
        path = file_of(operator)
        path.write_text(written(merged(read_verdicts(path), group, report.peers)))


def merged(verdicts: Verdicts, entries: list[Entry], peers: tuple[Peer, ...]) -> Verdicts:
    """Return what is known with what a report says: the newest word on a release counts."""
    made = {case: {peer: dict(seen) for peer, seen in row.items()} for case, row in verdicts.items()}
    for entry in entries:
        row = made.setdefault(entry.id, {})
        for peer in peers:
            verdict = entry.verdicts.get(peer.name)
            if verdict is not None and peer.versions:
                row.setdefault(peer.name.partition("@")[0], {})[release(peer)] = word(verdict)
    return {case: dict(sorted(row.items())) for case, row in sorted(made.items()) if row}


def written(verdicts: Verdicts) -> str:
    """Write the file of an operator's version: a line for each case."""
    lines = (f"{json.dumps(case)}: {json.dumps(row)}" for case, row in verdicts.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def release(peer: Peer) -> str:
    """Return an implementation's own release."""
    return next(iter(peer.versions.values()))


def word(verdict: Verdict) -> str:
    """Return a verdict in a word, with the signal of a crash."""
    return described(verdict) if verdict.counts or not is_disagreement(verdict) else "unconfirmed"


def is_disagreement(verdict: Verdict) -> bool:
    """Whether a verdict says that an implementation disagrees."""
    return verdict.word in (*DISAGREEMENTS, Word.PROTOCOL, Word.ADAPTER_ERROR)


def with_known(report: Report, known: list[Mapping[str, str]]) -> Report:
    """Return a report whose findings link what is reported upstream."""

    def linked(entry: Entry, name: str, verdict: Verdict) -> Verdict:
        urls = (
            one["url"]
            for one in known
            if fnmatchcase(entry.id, one["case"])
            and fnmatchcase(name, one["peer"])
            and one.get("verdict", verdict.word) == verdict.word
        )
        return replace(verdict, known=next(urls, None)) if verdict.counts else verdict

    entries = (
        replace(entry, verdicts={name: linked(entry, name, one) for name, one in entry.verdicts.items()})
        for entry in report.entries
    )
    return replace(report, entries=tuple(entries))


def read_known() -> list[Mapping[str, str]]:
    """Read the links to reports upstream."""
    import yaml

    path = VERDICTS / "known.yml"
    found: list[Mapping[str, str]] = yaml.safe_load(path.read_text()) or []
    return found


# compare.md


def shown() -> Report:
    """Return the report that the documentation shows."""
    return with_known(read_report(DATA), read_known())


def page(report: Report) -> str:
    """Return compare.md."""
    return (
        TEMPLATE.replace("{peers}", peers_table(report))
        .replace("{findings}", findings_table(report))
        .replace("{numbers}", numbers(report))
        .replace("{rules}", rules_table(report))
        .replace("{words}", "\n".join(f"| {one} | {text} |" for one, text in MEANINGS.items()))
        .replace("{date}", str(report.environment.get("time", ""))[:10])
    )


def numbers(report: Report) -> str:
    """Say how much was asked and found."""
    cases = len({entry.id for entry, _, _ in report.findings})
    return (
        f"{len(report.peers)} implementations answered {len(report.entries)} cases. "
        f"{cases} cases have a disagreement that two more processes repeated alone"
    )


def table(heading: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """Write a Markdown table."""
    lines = [heading, ("---",) * len(heading), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines)


def cell(value: Any) -> str:
    """Write a value in a table."""
    return str(value).replace("|", "&#124;").replace("\n", " ")


def peers_table(report: Report) -> str:
    """Return the implementations and how often each has each word."""
    counted = counts(report)
    words = [Word.AGREES, *DISAGREEMENTS]
    rows = []
    for peer in report.peers:
        of_peer = counted[peer.name]
        silent = sum(of_peer.values()) - sum(of_peer[one] for one in words)
        rows.append(
            (f"`{peer.name}`", releases(peer), peer.kind, *(of_peer[one] or "" for one in words), silent)
        )
    return table(("peer", "releases", "kind", *words, "says nothing"), rows)


def findings_table(report: Report) -> str:
    """Return the disagreements, those of one implementation and rule in a row."""
    groups: dict[tuple[str, str, str], list[Entry]] = defaultdict(list)
    links: dict[tuple[str, str, str], str] = {}
    for entry, peer, verdict in report.findings:
        if verdict.word not in DISAGREEMENTS:
            continue
        key = peer.name, entry.rule, described(verdict)
        groups[key].append(entry)
        if verdict.known:
            links.setdefault(key, verdict.known)
    order = {peer.name: index for index, peer in enumerate(report.peers)}
    rows = []
    for key, entries in sorted(groups.items(), key=lambda item: (order[item[0][0]], item[0])):
        name, rule, what = key
        first = entries[0].id
        case = f"[`{first}`](compare/page.html#{anchor(first, name)})"
        operators = ", ".join(dict.fromkeys(entry.operator for entry in entries))
        upstream = f"[reported]({links[key]})" if key in links else ""
        rows.append((f"`{name}`", f"`{rule}`", operators, what, len(entries), case, upstream))
    return table(("peer", "rule", "operators", "verdict", "cases", "for example", "upstream"), rows)


def rules_table(report: Report) -> str:
    """Return the rules that some peer breaks, in a sentence each."""
    broken = {entry.rule for entry, _, verdict in report.findings if verdict.word in DISAGREEMENTS}
    return table(("rule", "says"), [(f"`{rule}`", rule_text(rule)) for rule in sorted(broken)])


def picture(report: Report) -> str:
    """Draw every verdict: a row for each implementation, a column for each case, grouped by operator."""
    left, top, row, case, gap = 180, 108, 20, 1.4, 8
    canvas = Canvas("What each implementation makes of each case")
    x = float(left)
    for words in ("agrees",), ("differs",), ("rejects",), ("accepts",), ("crash", "hang", "memory"):
        canvas.rect(x, 22, 14, 14, COLOURS[Word(words[0])])
        canvas.text(x + 20, 34, ", ".join(words), size=13)
        x += 44 + 7 * len(", ".join(words))
    canvas.rect(x, 22, 14, 14, FIELD)
    canvas.text(x + 20, 34, "says nothing", size=13)
    for index, peer in enumerate(report.peers):
        canvas.text(left - 10, top + row * index + 14, peer.name, size=13, anchor="end")
    x = left
    for operator, found in groupby(report.entries, lambda entry: entry.operator):
        entries = sorted(found, key=lambda entry: entry.rule)
        canvas.text(
            x,
            top - 8,
            operator.replace("openvino:", ""),
            size=11,
            fill=FAINT,
            transform=f"rotate(-24 {x:g} {top - 8})",
        )
        for index, peer in enumerate(report.peers):
            y, at = top + row * index, 0
            for word, run in groupby(drawn(entry.verdicts.get(peer.name)) for entry in entries):
                count = len(list(run))
                canvas.rect(x + at * case, y, count * case, row - 4, COLOURS[word] if word else FIELD)
                at += count
        x += len(entries) * case + gap
    return canvas.document(x + 24, top + row * len(report.peers) + 16)


def drawn(verdict: Verdict | None) -> Word | None:
    """Return the word that is drawn; None where an implementation says nothing that counts."""
    if verdict is None or verdict.word not in COLOURS:
        return None
    return verdict.word if verdict.counts or verdict.word is Word.AGREES else None


TEMPLATE: Final = """<!-- Made by docs/generate_compare.py. -->

# Compare runtimes

`splitops compare` runs the split test suite on every installed runtime, compiler, converter and
simplifier. It compares each result with [the specification](semantics.md), bit for bit. It confirms every
disagreement, reduces it to the smallest case, and names the rule.

```sh
pip install "splitops[compare]"
splitops compare --html report.html
splitops compare onnxruntime --op Split-18 --setting onnxruntime=threads=1
splitops compare onnxruntime --generate 1000 --seed 7
splitops compare onnxruntime --python onnxruntime=../newer/bin/python
splitops compare onnxruntime --repro split-18/ceil/5-into-4/float32/static -o reproduction
```

[![Results of each implementation for each case](pictures/compare.svg)](compare/page.html)

[**Open the whole page**](compare/page.html), with a permalink for each case and each disagreement, or [its
data](compare/report.json), of {date}.

## How results are judged

- **Each implementation runs in a separate process.** If it crashes, hangs, prints or uses too much
  memory, that is its result, and the next case gets a new process. The process has no network, where the
  system allows that.
- **A disagreement counts only after it was confirmed alone.** Two fresh processes, each with different
  garbage in freed memory (`MALLOC_PERTURB_`), have to repeat it. Otherwise it is shown as unconfirmed and
  not counted. A value that changes with the garbage was read outside the tensor.
- **A rejection counts only if the valid baseline case works.** Each case names a similar valid case. If an
  implementation fails that one too, it has no result for the case.
- **Settings are columns**: `openvino[threads=1]` is tested next to `openvino`.
- **A converter or simplifier is judged by its model.** An implementation that was right about the source
  runs it.

| verdict | the implementation |
|---|---|
{words}

## Results

{numbers}. The page has each result. Where a specification is silent, we documented a decision and its
reason in [what each operator means](semantics.md). An implementation may have chosen another reading in
good faith. Many cases are corners that no model of today contains.

{peers}

The disagreements, grouped by implementation and rule:

{findings}

These are the rules:

{rules}

## What was not tested

- Interrupted cases: cells that say *not asked*. What was not confirmed in time is not counted. Most of the
  compilers were tested with a part of the cases.
- pnnx, PyTorch through onnx2torch and TensorFlow through onnx2tf, which have adapters.
- Devices other than the CPU, systems other than Linux on x86-64, and other releases.
- Speed, gradients, and quantised or sparse tensors.
- Splits among other operators, except for a few cases (a Transpose after the parts, a constant before the
  split, a second split of the same data) and the neighbourhoods that networks contain. `splitops compare
  --model FILE` tests your own model.
- TensorRT, Core ML, DirectML and QNN, which cannot be installed next to the others.
- Whether an implementation returns correct values for input that the rules do not allow.

## Use it in the CI of a runtime

`--expect FILE` compares the results with the known disagreements. The file is the output of an earlier
`--json`, or TOML:

```toml
[[expected]]
case = "split-18/ceil/*"      # an id, or a pattern
peer = "onnxruntime"
verdict = "rejects"
reason = "https://github.com/onnx/onnx/issues/5766"
```

| exit code | |
|---|---|
| 0 | all as expected |
| 1 | an unexpected disagreement, or an expected one that is gone |
| 2 | wrong usage, or an expectation for an unknown case |
| 3 | an implementation did not start |

`--sarif` writes the findings for code-hosting sites. `--diff OLD.json` shows what is new, fixed and
changed since an earlier report.

## Report a disagreement upstream

`splitops compare NAME --repro CASE -o FOLDER` writes a folder for the engineers of the implementation: the
model, its inputs as ONNX's own test data has them, `reproduce.py` with the adapter that called it, and
`report.md`. The script needs the implementation and onnx, and no splitops. The report says what the
specification says and where, what was got, and on which versions.

## The data

`docs/compare/verdicts` has a file for each operator: case, peer, release, verdict. `known.yml` in it links
what is reported upstream. `python docs/generate_compare.py --show REPORT.json` puts a report there, and makes
this page anew."""


def together(reports: list[Report]) -> Report:
    """Return reports of the same cases as one: not every implementation can be asked in one environment."""
    first = reports[0]
    peers = {peer.name: peer for report in reports for peer in report.peers}
    verdicts: dict[str, dict[str, Verdict]] = defaultdict(dict)
    entries: dict[str, Entry] = {}
    for report in reports:
        for entry in report.entries:
            entries.setdefault(entry.id, entry)
            verdicts[entry.id] |= entry.verdicts
    rows = tuple(
        replace(entry, verdicts={name: verdicts[case][name] for name in peers if name in verdicts[case]})
        for case, entry in entries.items()
    )
    return replace(first, peers=tuple(peers.values()), entries=rows)


def main(arguments: list[str]) -> None:
    """Take reports where some are given, and write the pages."""
    if arguments:
        action, *paths = arguments
        reports = [read_report(Path(path)) for path in paths]
        for report in reports:
            add(report)
        if action == "--show":
            content = json.dumps(together(reports).to_json(), separators=(",", ":"))
            DATA.write_text(f"{content}\n")
    report = shown()
    TEXT.write_text(page(report))
    PAGE.write_text(to_html(report, splitops.__version__, home="../index.html"))
    PICTURE.write_text(picture(report))


if __name__ == "__main__":
    main(sys.argv[1:])
