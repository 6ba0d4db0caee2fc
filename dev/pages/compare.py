"""Writes the results of splitops-compare: index.md, a page and a badge for each implementation, and pictures.

    python -m dev.pages.compare --add REPORT.json...   adds the verdicts of reports to data/verdicts
    python -m dev.pages.compare --show REPORT.json...  does the same, and shows the reports as one from now on

``compare/docs/data`` has the report that is shown, and in ``verdicts`` a file for each operator: case,
implementation, release, verdict. ``verdicts/known.yml`` has links to reports upstream. The page of all
results, ``page.html``, is made when the site is built.
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

from dev.pages import COMPARE_DOCS
from dev.tools import releases as tables
from splitops.errors import count_of
from splitops.explain.canvas import FAINT, FIELD, Canvas
from splitops.explain.palette import get_colour
from splitops_compare import ComparisonReport
from splitops_compare.data import CaseResult, ImplementationInfo, Verdict, VerdictKind
from splitops_compare.reports.html import make_anchor, to_html
from splitops_compare.reports.report_diff import read_report
from splitops_compare.reports.verdicts import (
    DISAGREEMENTS,
    GROUPS,
    NO_RESULT,
    RULES,
    UNCONFIRMED,
    count_groups,
    count_unconfirmed,
    describe_verdict,
    format_label,
    format_releases,
    get_group,
)
from splitops_compare.version import __version__

VERDICTS: Final = COMPARE_DOCS / "data" / "verdicts"
DATA: Final = COMPARE_DOCS / "data" / "report.json"
COLOURS: Final[Mapping[str, str]] = {
    VerdictKind.AGREES.value: get_colour(2),
    VerdictKind.DIFFERS.value: get_colour(5),
    VerdictKind.REJECTS.value: get_colour(1),
    VerdictKind.WRONGLY_ACCEPTS.value: get_colour(4),
    VerdictKind.CRASH.value: get_colour(3),
    VerdictKind.HANG.value: get_colour(3),
    VerdictKind.MEMORY.value: get_colour(3),
    UNCONFIRMED: FAINT,
    NO_RESULT: FIELD,
}
"""Colour of each group of verdicts."""

SENTENCES: Final[Mapping[VerdictKind, str]] = {
    VerdictKind.DIFFERS: "**Returns a wrong result**",
    VerdictKind.CRASH: "**Crashes**",
    VerdictKind.HANG: "**Does not respond**",
    VerdictKind.MEMORY: "**Uses more memory than the limit**",
    VerdictKind.REJECTS: "Rejects a valid split",
    VerdictKind.WRONGLY_ACCEPTS: "Runs an invalid split",
}
"""Beginning of the sentence on each kind of finding."""

Verdicts = dict[str, dict[str, dict[str, str]]]


# The data of the repository


def file_of(operator: str) -> Path:
    """Return the file of an operator version."""
    return VERDICTS / f"{operator.replace(':', '-')}.json"


def read_verdicts(path: Path) -> Verdicts:
    """Read the verdicts on an operator version: case, implementation, release, verdict."""
    verdicts: Verdicts = json.loads(path.read_text()) if path.exists() else {}
    return verdicts


def add(report: ComparisonReport) -> None:
    """Add the verdicts of a report to the files of their operators."""
    by_operator: dict[str, list[CaseResult]] = defaultdict(list)
    for result in report.cases:
        by_operator[result.operator].append(result)
    for operator, results in by_operator.items():
        path = file_of(operator)
        path.write_text(written(merged(read_verdicts(path), results, report.implementations)))


def merged(
    verdicts: Verdicts, results: list[CaseResult], implementations: tuple[ImplementationInfo, ...]
) -> Verdicts:
    """Return verdicts with those of a report. The newest verdict on a release replaces the others."""
    made = {case: {name: dict(seen) for name, seen in row.items()} for case, row in verdicts.items()}
    for result in results:
        row = made.setdefault(result.id, {})
        for info in implementations:
            verdict = result.verdicts.get(info.name)
            if verdict is not None and info.versions:
                row.setdefault(info.name.partition("@")[0], {})[release(info)] = word(verdict)
    return {case: dict(sorted(row.items())) for case, row in sorted(made.items()) if row}


def written(verdicts: Verdicts) -> str:
    """Write the file of an operator version, with one line for each case."""
    lines = (f"{json.dumps(case)}: {json.dumps(row)}" for case, row in verdicts.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def release(info: ImplementationInfo) -> str:
    """Return the release of the implementation itself."""
    return next(iter(info.versions.values()))


def word(verdict: Verdict) -> str:
    """Return the verdict as the data has it."""
    return UNCONFIRMED if verdict.is_unconfirmed else describe_verdict(verdict)


def with_known(report: ComparisonReport, known: list[Mapping[str, str]]) -> ComparisonReport:
    """Return a report whose findings link the reports upstream."""

    def linked(result: CaseResult, name: str, verdict: Verdict) -> Verdict:
        urls = (
            one["url"]
            for one in known
            if fnmatchcase(result.id, one["case"])
            and fnmatchcase(name, one["implementation"])
            and one.get("verdict", verdict.kind) == verdict.kind
        )
        return replace(verdict, known=next(urls, None)) if verdict.is_confirmed else verdict

    results = (
        replace(result, verdicts={name: linked(result, name, one) for name, one in result.verdicts.items()})
        for result in report.cases
    )
    return replace(report, cases=tuple(results))


def read_known() -> list[Mapping[str, str]]:
    """Read the links to reports upstream."""
    import yaml

    found: list[Mapping[str, str]] = yaml.safe_load((VERDICTS / "known.yml").read_text()) or []
    return found


# index.md


def shown() -> ComparisonReport:
    """Return the report that the documentation shows."""
    return with_known(read_report(DATA), read_known())


def page(report: ComparisonReport) -> str:
    """Return index.md."""
    meanings = "\n".join(f"| {format_label(group)} | {text} |" for group, text in GROUPS.items())
    return (
        TEMPLATE.replace("{implementations}", implementations_table(report))
        .replace("{numbers}", numbers(report))
        .replace("{rules}", rules_table(report))
        .replace("{groups}", meanings)
        .replace("{date}", str(report.environment.get("time", ""))[:10])
    )


def numbers(report: ComparisonReport) -> str:
    """Return a sentence with the numbers of implementations, cases and findings."""
    cases = len({result.id for result, _, _ in report.findings})
    return (
        f"{len(report.implementations)} implementations ran {len(report.cases)} cases. "
        f"{cases} cases have a finding that two more processes confirmed"
    )


def table(heading: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """Write a Markdown table."""
    lines = [heading, ("---",) * len(heading), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines)


def cell(value: Any) -> str:
    """Write a value in a table."""
    return str(value).replace("|", "&#124;").replace("\n", " ")


def agreeing(report: ComparisonReport, info: ImplementationInfo) -> tuple[int, int]:
    """Return the number of cases in which an implementation agrees, and the number of those with a result."""
    counts = count_groups(report)[info.name]
    return counts[VerdictKind.AGREES], counts.total() - counts[NO_RESULT]


def score(report: ComparisonReport, info: ImplementationInfo) -> str:
    """Write in how many cases an implementation agrees, and how many are unconfirmed."""
    agrees, judged = agreeing(report, info)
    unconfirmed = count_unconfirmed(report, info).total()
    return f"{agrees} of {judged} cases{f', {unconfirmed} unconfirmed' if unconfirmed else ''}"


def implementations_table(report: ComparisonReport) -> str:
    """Return the table of implementations with the number of cases in each group."""
    counts = count_groups(report)
    rows = [
        (
            f"[`{info.name}`](implementations/{info.name}.md)",
            info.kind,
            *(counts[info.name][group] or "" for group in GROUPS),
        )
        for info in report.implementations
    ]
    return table(("implementation", "kind", *map(format_label, GROUPS)), rows)


def page_of(report: ComparisonReport, info: ImplementationInfo) -> str:
    """Return the page of an implementation."""
    found = [
        (result, verdict)
        for result, one, verdict in report.findings
        if one is info and verdict.kind in SENTENCES
    ]
    by_kind = [(kind, [result for result, verdict in found if verdict.kind is kind]) for kind in SENTENCES]
    lines = [
        f"- {SENTENCES[kind]} in {count_of(len(results), 'case')}, such as {_linked(results[0], info)}."
        for kind, results in by_kind
        if results
    ]
    scored, unconfirmed = score(report, info), count_unconfirmed(report, info)
    text = f"{HEAD_OF_IMPLEMENTATION}# Compare {info.name}\n\n"
    text += f"![Split: {scored}](badges/{info.name}.svg)\n\n"
    text += f"{format_releases(info)} agrees with [the specification](../../../docs/semantics.md) in {scored}"
    if unconfirmed:
        each = ", ".join(f"{number} {kind}" for kind, number in unconfirmed.most_common())
        text += f": {each}.\nThe unconfirmed results did not repeat in new processes, or the comparison was"
        text += " interrupted before.\n"
    else:
        text += ".\n"
    query = urlencode({"implementation": info.name})
    text += f"[Its column](../page.html#?{query}) has each case, and "
    text += "[the results](../index.md) have the other implementations.\n"
    if found:
        text += "\n## Findings\n\n" + "\n".join(lines) + f"\n\n{findings_table(found, info)}\n"
    text += history(info)
    return text + BADGE.format(name=info.name, score=scored)


def history(info: ImplementationInfo) -> str:
    """Return the section on changes with a release of a runtime. It is empty if no release was tested."""
    name = next((name for name, one in tables.RUNTIMES.items() if one.adapter == info.adapter), "")
    asked = tables.read_table(name)
    words = {letter: format_label(word) for word, letter in tables.LETTERS.items()}
    rows = [
        (release, len(cases), words[before], words[after], f"`{cases[0]}`")
        for (release, before, after), cases in tables.history(asked).items()
    ]
    if not asked["releases"]:
        return ""
    first, *_, last = asked["releases"]
    text = "\n## Changes with a release\n\n"
    text += f"{len(asked['releases'])} releases from {first} to {last} were tested"
    if not rows:
        return f"{text}. No verdict changed.\n"
    heading = ("release", "cases", "before", "from this release on", "for example")
    return f"{text}.\n\n{table(heading, rows)}\n"


def _linked(result: CaseResult, info: ImplementationInfo) -> str:
    return f"[{result.title}](../page.html#{make_anchor(result.id, info.name)})"


def findings_table(found: list[tuple[CaseResult, Verdict]], info: ImplementationInfo) -> str:
    """Return the table of the findings of an implementation, with one row for each rule and verdict."""
    groups: dict[tuple[str, str], list[CaseResult]] = defaultdict(list)
    links: dict[tuple[str, str], str] = {}
    for result, verdict in found:
        key = result.rule, format_label(describe_verdict(verdict))
        groups[key].append(result)
        if verdict.known:
            links.setdefault(key, verdict.known)
    rows = []
    for key, results in sorted(groups.items()):
        rule, what = key
        operators = ", ".join(dict.fromkeys(result.operator for result in results))
        upstream = f"[reported]({links[key]})" if key in links else ""
        rows.append((f"`{rule}`", operators, what, len(results), _linked(results[0], info), upstream))
    return table(("rule", "operators", "verdict", "cases", "for example", "upstream"), rows)


def badge(report: ComparisonReport, info: ImplementationInfo) -> str:
    """Draw in how many cases an implementation agrees."""
    left, right = "Split", score(report, info)
    canvas = Canvas(f"{left}: {right}")
    widths = [round(7 * len(text)) + 16 for text in (left, right)]
    for text, x, width, fill in ((left, 0, widths[0], "#3b434b"), (right, widths[0], widths[1], "#0063a8")):
        canvas.add_rect(x, 0, width, 22, fill)
        canvas.add_text(x + width / 2, 15, text, size=12, fill="#ffffff", anchor="middle")
    return canvas.to_document(sum(widths), 22)


def rules_table(report: ComparisonReport) -> str:
    """Return the rules that some implementation breaks, with a sentence on each."""
    broken = {result.rule for result, _, verdict in report.findings if verdict.kind in DISAGREEMENTS}
    return table(("rule", "meaning"), [(f"`{rule}`", RULES[rule]) for rule in sorted(broken)])


def pictures(report: ComparisonReport) -> dict[str, str]:
    """Return the pictures by file name."""
    return {"compare.svg": picture(report), "compare.narrow.svg": narrow(report)}


def _legend(canvas: Canvas, width: float) -> float:
    """Draw the legend in lines of a width, and return the end of the last one."""
    labels: dict[str, list[str]] = defaultdict(list)
    for group, fill in COLOURS.items():
        labels[fill].append(format_label(group))
    x, y = 24.0, 22.0
    for fill, names in labels.items():
        text = ", ".join(names)
        if x + 28 + 7 * len(text) > width:
            x, y = 24.0, y + 22
        canvas.add_rect(x, y, 14, 14, fill)
        canvas.add_text(x + 20, y + 12, text, size=13)
        x += 44 + 7 * len(text)
    return y


def narrow(report: ComparisonReport) -> str:
    """Draw the number of cases in each group for each implementation, for a phone."""
    width, row, left = 360, 26, 150
    canvas = Canvas("How many results of each kind each implementation has")
    top = _legend(canvas, width) + 34
    counts = count_groups(report)
    for index, info in enumerate(report.implementations):
        canvas.add_text(left - 8, top + row * index + 15, info.name, size=12, anchor="end")
        x = float(left)
        for group, fill in COLOURS.items():
            share = (width - left - 12) * counts[info.name][group] / len(report.cases)
            if share:
                canvas.add_rect(x, top + row * index, share, row - 6, fill)
            x += share
    return canvas.to_document(width, top + row * len(report.implementations) + 12)


def picture(report: ComparisonReport) -> str:
    """Draw every verdict: a row for each implementation, a column for each case, grouped by operator."""
    left, top, row, case, gap = 180, 108, 20, 1.4, 8
    canvas = Canvas("The result of each implementation for each case")
    _legend(canvas, 960)
    for index, info in enumerate(report.implementations):
        canvas.add_text(left - 10, top + row * index + 14, info.name, size=13, anchor="end")
    x = left
    for operator, found in groupby(report.cases, lambda result: result.operator):
        results = sorted(found, key=lambda result: result.rule)
        canvas.add_text(
            x,
            top - 8,
            operator.replace("openvino:", ""),
            size=11,
            fill=FAINT,
            transform=f"rotate(-24 {x:g} {top - 8})",
        )
        for index, info in enumerate(report.implementations):
            y, at = top + row * index, 0
            for group, run in groupby(get_group(result.verdicts.get(info.name)) for result in results):
                count = len(list(run))
                canvas.add_rect(x + at * case, y, count * case, row - 4, COLOURS[group])
                at += count
        x += len(results) * case + gap
    return canvas.to_document(x + 24, top + row * len(report.implementations) + 16)


TEMPLATE: Final = """<!-- Made by dev/pages/compare.py. -->

# Compare runtimes

`splitops-compare` runs the split test suite on every installed runtime, compiler, converter and
simplifier. It compares each result with [the specification](../../docs/semantics.md), bit for bit. It
confirms every disagreement, reduces it to the smallest case, and names the rule.

```console
$ pip install ./splitops "./splitops/compare[runtimes]"  # from a clone: they are not on the package index yet
$ pip install "splitops-compare[runtimes]"               # once they are
```

```sh
splitops-compare --html report.html
splitops-compare onnxruntime --op Split-18 --setting onnxruntime=threads=1
splitops-compare onnxruntime --generate 1000 --seed 7
splitops-compare onnxruntime --python onnxruntime=../newer/bin/python
splitops-compare onnxruntime --repro split-18/ceil/5-into-4/float32/static -o reproduction
```

![Results of each implementation for each case](pictures/compare.svg)

[**Open the page of all results**](page.html), with a permalink for each case and each finding, or [its
data](data/report.json), of {date}.

## How results are judged

- **Each implementation runs in a separate process.** If it crashes, hangs, prints or uses too much
  memory, that is its result, and the next case runs in a new process. The process has no network, where the
  system allows that.
- **A disagreement counts only after it was confirmed alone.** Two new processes, each with different
  garbage in freed memory (`MALLOC_PERTURB_`), have to repeat it. Otherwise it is shown and
  counted as unconfirmed. A value that changes with the garbage was read outside the tensor.
- **A rejection counts only if the valid baseline case works.** Each case names a similar valid case. If an
  implementation fails that one too, it has no result for the case.
- **Settings are columns**: `openvino[threads=1]` is tested next to `openvino`.
- **A converter or simplifier is judged by its model.** An implementation that was right about the source
  runs it.

| verdict | the implementation |
|---|---|
{groups}

## Results

{numbers}. [The page of all results](page.html) has each of them. If a
specification does not define a case, [what each operator means](../../docs/semantics.md) documents our
decision and its reason.
An implementation may have chosen another interpretation in good faith. Many cases are corner cases that
no model of today contains.

{implementations}

The page of an implementation has its wrong results first, and a badge. These are the rules that at least one
implementation breaks:

{rules}

## What was not tested

- Interrupted cases, which have no result. Most of the compilers were tested with a part of the cases.
- pnnx, PyTorch through onnx2torch and TensorFlow through onnx2tf, which have adapters.
- Devices other than the CPU, systems other than Linux on x86-64, and other releases.
- Speed, gradients, and quantised or sparse tensors.
- Splits among other operators, except for a few cases (a Transpose after the parts, a constant before the
  split, a second split of the same data) and the patterns that networks contain.
  `splitops-compare --model FILE` tests your own model.
- TensorRT, Core ML, DirectML and QNN, which cannot be installed next to the others.
- Whether an implementation returns correct values for input that the rules do not allow.

## Use it in the CI of a runtime

`--expect FILE` compares the results with the known findings. The file is the output of an earlier
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
| 1 | an unexpected finding, or an expected one that is resolved |
| 2 | wrong usage, or an expectation for an unknown case |
| 3 | an implementation did not start |

`--sarif` writes the findings for code-hosting sites. `--diff OLD.json` shows new, resolved and
changed findings since an earlier report.

## Report a finding upstream

`splitops-compare NAME --repro CASE -o FOLDER` writes a folder for the engineers of the implementation: the
model, its inputs as ONNX's own test data has them, `reproduce.py` with the adapter that called it, and
`report.md`. The script needs the implementation and onnx, and no splitops. The report has the rule
of the specification and its source, the result, and the versions.

## The data

`compare/docs/data/verdicts` has a file for each operator: case, implementation, release, verdict. `known.yml`
in it has links to reports upstream. `python -m dev.pages.compare --show REPORT.json` adds a report and writes
these pages."""


HEAD_OF_IMPLEMENTATION: Final = """<!-- Made by dev/pages/compare.py. -->

"""
BADGE: Final = """
## Show the badge

Copy [the file](badges/{name}.svg) to your site, and link it:

```markdown
![Split: {score}]({name}.svg)
```
"""


def files(report: ComparisonReport) -> dict[str, str]:
    """Return the pages, pictures and badges, by their paths in the documentation."""
    found = {"index.md": page(report)}
    found |= {f"pictures/{name}": drawn for name, drawn in pictures(report).items()}
    for info in report.implementations:
        found |= {f"implementations/{info.name}.md": page_of(report, info)}
        found |= {f"implementations/badges/{info.name}.svg": badge(report, info)}
    return found


def whole() -> str:
    """Return the page of all results."""
    return to_html(shown(), __version__, home="../../index.html")


def together(reports: list[ComparisonReport]) -> ComparisonReport:
    """Return reports of the same cases as one: not all implementations fit into one environment."""
    infos = {info.name: info for report in reports for info in report.implementations}
    verdicts: dict[str, dict[str, Verdict]] = defaultdict(dict)
    results: dict[str, CaseResult] = {}
    for report in reports:
        for result in report.cases:
            results.setdefault(result.id, result)
            verdicts[result.id] |= result.verdicts
    rows = tuple(
        replace(result, verdicts={name: verdicts[case][name] for name in infos if name in verdicts[case]})
        for case, result in results.items()
    )
    return replace(reports[0], implementations=tuple(infos.values()), cases=rows)


def write() -> None:
    """Write the pages and pictures of this module."""
    for name, content in files(shown()).items():
        (COMPARE_DOCS / name).write_text(content)


def main(arguments: list[str]) -> None:
    """Add the reports that the arguments name, and write the pages."""
    if arguments:
        action, *paths = arguments
        reports = [read_report(Path(path)) for path in paths]
        for report in reports:
            add(report)
        if action == "--show":
            content = json.dumps(together(reports).to_json(), separators=(",", ":"))
            DATA.write_text(f"{content}\n")
    write()


if __name__ == "__main__":
    main(sys.argv[1:])
