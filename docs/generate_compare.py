#!/usr/bin/env python3
"""Writes compare.md, a page and a badge for each implementation, and pictures, from compare/report.json.

python docs/generate_compare.py                       makes the pages anew
python docs/generate_compare.py --add REPORT.json...  puts the verdicts of reports into compare/verdicts
python docs/generate_compare.py --show REPORT.json... does the same, and shows them from now on, as one

compare/verdicts has a file for each operator: case -> implementation -> release -> verdict; known.yml links
reports. The whole page, compare/page.html, is made when the site is built.
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
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).parents[1]))
import splitops
from dev.tools import releases as tables
from splitops.comparison import Report
from splitops.comparison.records import Entry, Peer, Verdict, Word
from splitops.comparison.reports.earlier import read_report
from splitops.comparison.reports.html import anchor, to_html
from splitops.comparison.reports.verdicts import (
    DISAGREEMENTS,
    MEANINGS,
    RULES,
    UNCONFIRMED,
    counts,
    described,
    releases,
    spoken,
    unconfirmed,
    without_result,
)
from splitops.errors import count_of
from splitops.explain.canvas import FAINT, FIELD, Canvas
from splitops.explain.palette import get_colour

DOCS: Final = Path(__file__).parent
VERDICTS: Final = DOCS / "compare/verdicts"
DATA: Final = DOCS / "compare" / "report.json"
TEXT: Final = DOCS / "compare.md"
COLOURS: Final[Mapping[Word, str]] = {
    Word.AGREES: get_colour(2),
    Word.DIFFERS: get_colour(5),
    Word.REJECTS: get_colour(1),
    Word.WRONGLY_ACCEPTS: get_colour(4),
    Word.CRASH: get_colour(3),
    Word.HANG: get_colour(3),
    Word.MEMORY: get_colour(3),
}
"""What is drawn of a verdict; the others say nothing."""

LEGEND: Final = (
    (Word.AGREES,),
    (Word.DIFFERS,),
    (Word.REJECTS,),
    (Word.WRONGLY_ACCEPTS,),
    (Word.CRASH, Word.HANG, Word.MEMORY),
)
SENTENCES: Final[Mapping[Word, str]] = {
    Word.DIFFERS: "**Returns a wrong result**",
    Word.CRASH: "**Crashes**",
    Word.HANG: "**Does not answer**",
    Word.MEMORY: "**Uses more memory than the limit**",
    Word.REJECTS: "Rejects a valid split",
    Word.WRONGLY_ACCEPTS: "Runs an invalid split",
}
"""What an implementation does, at the beginning of a sentence."""

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
            and fnmatchcase(name, one["implementation"])
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
        .replace("{numbers}", numbers(report))
        .replace("{rules}", rules_table(report))
        .replace("{words}", "\n".join(f"| {spoken(one)} | {text} |" for one, text in MEANINGS.items()))
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


def agreeing(report: Report, peer: Peer) -> tuple[int, int]:
    """Return how many cases an implementation agrees about, of those that it has a result for.

    Such a result may be one that was not confirmed.
    """
    found = counts(report)[peer.name]
    return found[Word.AGREES], sum(found[one] for one in (Word.AGREES, *DISAGREEMENTS, UNCONFIRMED))


def score(report: Report, peer: Peer) -> str:
    """Write in how many cases an implementation does what is specified, and how many were not confirmed."""
    agrees, judged = agreeing(report, peer)
    loose = unconfirmed(report, peer).total()
    return f"{agrees} of {judged} cases{f', {loose} unconfirmed' if loose else ''}"


def peers_table(report: Report) -> str:
    """Return the implementations, and how many results of each kind they have."""
    counted = counts(report)
    words = [Word.AGREES, *DISAGREEMENTS, UNCONFIRMED]
    rows = []
    for peer in report.peers:
        of_peer = counted[peer.name]
        name = f"[`{peer.name}`](compare/{peer.name}.md)"
        rows.append((name, peer.kind, *(of_peer[one] or "" for one in words), without_result(of_peer)))
    return table(("implementation", "kind", *map(spoken, words), "no result"), rows)


def page_of(report: Report, peer: Peer) -> str:
    """Return the page of an implementation."""
    found = [
        (entry, verdict)
        for entry, one, verdict in report.findings
        if one is peer and verdict.word in SENTENCES
    ]
    told = [(word, [entry for entry, verdict in found if verdict.word is word]) for word in SENTENCES]
    lines = [
        f"- {SENTENCES[word]} in {count_of(len(entries), 'case')}, such as {_linked(entries[0], peer)}."
        for word, entries in told
        if entries
    ]
    scored, loose = score(report, peer), unconfirmed(report, peer)
    text = f"{HEAD_OF_PEER}# Compare {peer.name}\n\n"
    text += f"![Split: {scored}](badges/{peer.name}.svg)\n\n"
    if loose:
        each = ", ".join(f"{number} {word}" for word, number in loose.most_common())
        text += f"{releases(peer)} does what [the specification](../semantics.md) says in {scored}: {each}.\n"
        text += "They did not repeat in new processes, or the comparison was interrupted before.\n"
    else:
        text += f"{releases(peer)} agrees with [the specification](../semantics.md) in {scored}.\n"
    text += f"[Its column](page.html#?{urlencode({'peer': peer.name})}) has each case, and "
    text += "[the comparison](../compare.md) has the other implementations.\n"
    if found:
        text += "\n## What deviates\n\n" + "\n".join(lines) + f"\n\n{findings_table(found, peer)}\n"
    text += history(peer)
    return text + BADGE.format(name=peer.name, score=scored)


def history(peer: Peer) -> str:
    """Return the section on what changed with a release of a runtime, empty where none was asked."""
    name = next((name for name, one in tables.RUNTIMES.items() if one.adapter == peer.adapter), "")
    asked = tables.read_table(name)
    words = {letter: spoken(word) for word, letter in tables.LETTERS.items()}
    rows = [
        (release, len(cases), words[before], words[after], f"`{cases[0]}`")
        for (release, before, after), cases in tables.history(asked).items()
    ]
    if not asked["releases"]:
        return ""
    first, *_, last = asked["releases"]
    text = "\n## What changed with a release\n\n"
    text += f"{len(asked['releases'])} releases from {first} to {last} were tested"
    if not rows:
        return f"{text}. No verdict changed.\n"
    heading = ("release", "cases", "before", "from this release on", "for example")
    return f"{text}.\n\n{table(heading, rows)}\n"


def _linked(entry: Entry, peer: Peer) -> str:
    return f"[{entry.title}](page.html#{anchor(entry.id, peer.name)})"


def findings_table(found: list[tuple[Entry, Verdict]], peer: Peer) -> str:
    """Return the disagreements of an implementation, those about one rule in a row."""
    groups: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    links: dict[tuple[str, str], str] = {}
    for entry, verdict in found:
        key = entry.rule, spoken(described(verdict))
        groups[key].append(entry)
        if verdict.known:
            links.setdefault(key, verdict.known)
    rows = []
    for key, entries in sorted(groups.items()):
        rule, what = key
        operators = ", ".join(dict.fromkeys(entry.operator for entry in entries))
        upstream = f"[reported]({links[key]})" if key in links else ""
        rows.append((f"`{rule}`", operators, what, len(entries), _linked(entries[0], peer), upstream))
    return table(("rule", "operators", "verdict", "cases", "for example", "upstream"), rows)


def badge(report: Report, peer: Peer) -> str:
    """Draw in how many cases an implementation agrees."""
    left, right = "Split", score(report, peer)
    canvas = Canvas(f"{left}: {right}")
    widths = [round(7 * len(text)) + 16 for text in (left, right)]
    for text, x, width, fill in ((left, 0, widths[0], "#3b434b"), (right, widths[0], widths[1], "#0063a8")):
        canvas.add_rect(x, 0, width, 22, fill)
        canvas.add_text(x + width / 2, 15, text, size=12, fill="#ffffff", anchor="middle")
    return canvas.to_document(sum(widths), 22)


def rules_table(report: Report) -> str:
    """Return the rules that some implementation breaks, in a sentence each."""
    broken = {entry.rule for entry, _, verdict in report.findings if verdict.word in DISAGREEMENTS}
    return table(("rule", "says"), [(f"`{rule}`", RULES[rule]) for rule in sorted(broken)])


def pictures(report: Report) -> dict[str, str]:
    """Return the pictures by file name."""
    return {"compare.svg": picture(report), "compare.narrow.svg": narrow(report)}


def _legend(canvas: Canvas, width: float) -> float:
    """Draw what the colours mean, in lines of a width; return where the last one ends."""
    x, y = 24.0, 22.0
    shown = {", ".join(map(spoken, words)): COLOURS[words[0]] for words in LEGEND} | {"no result": FIELD}
    for text, fill in shown.items():
        if x + 28 + 7 * len(text) > width:
            x, y = 24.0, y + 22
        canvas.add_rect(x, y, 14, 14, fill)
        canvas.add_text(x + 20, y + 12, text, size=13)
        x += 44 + 7 * len(text)
    return y


def narrow(report: Report) -> str:
    """Draw how many results of each kind each implementation has, for a phone."""
    width, row, left = 360, 26, 150
    canvas = Canvas("How many results of each kind each implementation has")
    top = _legend(canvas, width) + 34
    for index, peer in enumerate(report.peers):
        words = [drawn(entry.verdicts.get(peer.name)) for entry in report.entries]
        canvas.add_text(left - 8, top + row * index + 15, peer.name, size=12, anchor="end")
        x = float(left)
        for word in [*COLOURS, None]:
            share = (width - left - 12) * words.count(word) / len(words)
            if share:
                canvas.add_rect(x, top + row * index, share, row - 6, COLOURS[word] if word else FIELD)
            x += share
    return canvas.to_document(width, top + row * len(report.peers) + 12)


def picture(report: Report) -> str:
    """Draw every verdict: a row for each implementation, a column for each case, grouped by operator."""
    left, top, row, case, gap = 180, 108, 20, 1.4, 8
    canvas = Canvas("The result of each implementation for each case")
    _legend(canvas, 960)
    for index, peer in enumerate(report.peers):
        canvas.add_text(left - 10, top + row * index + 14, peer.name, size=13, anchor="end")
    x = left
    for operator, found in groupby(report.entries, lambda entry: entry.operator):
        entries = sorted(found, key=lambda entry: entry.rule)
        canvas.add_text(
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
                canvas.add_rect(x + at * case, y, count * case, row - 4, COLOURS[word] if word else FIELD)
                at += count
        x += len(entries) * case + gap
    return canvas.to_document(x + 24, top + row * len(report.peers) + 16)


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

```console
$ pip install "./splitops[compare]"  # from a clone: splitops is not on the package index yet
$ pip install "splitops[compare]"    # once it is
```

```sh
splitops compare --html report.html
splitops compare onnxruntime --op Split-18 --setting onnxruntime=threads=1
splitops compare onnxruntime --generate 1000 --seed 7
splitops compare onnxruntime --python onnxruntime=../newer/bin/python
splitops compare onnxruntime --repro split-18/ceil/5-into-4/float32/static -o reproduction
```

![Results of each implementation for each case](pictures/compare.svg)

[**Open the whole page**](compare/page.html), with a permalink for each case and each disagreement, or [its
data](compare/report.json), of {date}.

## How results are judged

- **Each implementation runs in a separate process.** If it crashes, hangs, prints or uses too much
  memory, that is its result, and the next case gets a new process. The process has no network, where the
  system allows that.
- **A disagreement counts only after it was confirmed alone.** Two fresh processes, each with different
  garbage in freed memory (`MALLOC_PERTURB_`), have to repeat it. Otherwise it is shown and
  counted as unconfirmed. A value that changes with the garbage was read outside the tensor.
- **A rejection counts only if the valid baseline case works.** Each case names a similar valid case. If an
  implementation fails that one too, it has no result for the case.
- **Settings are columns**: `openvino[threads=1]` is tested next to `openvino`.
- **A converter or simplifier is judged by its model.** An implementation that was right about the source
  runs it.

| verdict | the implementation |
|---|---|
{words}

## Results

{numbers}. [The whole page](compare/page.html) has each result. Where a
specification is silent, we documented a decision and its reason in [what each operator means](semantics.md).
An implementation may have chosen another reading in good faith. Many cases are corners that no model of
today contains.

{peers}

The page of an implementation has its wrong results first, and a badge. These are the rules that some
implementation breaks:

{rules}

## What was not tested

- Interrupted cases: cells that say *not asked*. What was not confirmed in time is unconfirmed. Most of the
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
implementation = "onnxruntime"
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

`docs/compare/verdicts` has a file for each operator: case, implementation, release, verdict. `known.yml` in
it links what is reported upstream. `python docs/generate_compare.py --show REPORT.json` puts a report there,
and makes these pages."""


HEAD_OF_PEER: Final = """<!-- Made by docs/generate_compare.py. -->

"""
BADGE: Final = """
## Show the badge

Copy [the file](badges/{name}.svg) to your site, and link it:

```markdown
![Split: {score}]({name}.svg)
```
"""


def files(report: Report) -> dict[str, str]:
    """Return the pages, pictures and badges, by their paths in the documentation."""
    found = {"compare.md": page(report)}
    found |= {f"pictures/{name}": drawn for name, drawn in pictures(report).items()}
    for peer in report.peers:
        found |= {f"compare/{peer.name}.md": page_of(report, peer)}
        found |= {f"compare/badges/{peer.name}.svg": badge(report, peer)}
    return found


def whole() -> str:
    """Return the page of the whole comparison."""
    return to_html(shown(), splitops.__version__, home="../index.html")


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
    for name, content in files(report).items():
        (DOCS / name).write_text(content)


if __name__ == "__main__":
    main(sys.argv[1:])
