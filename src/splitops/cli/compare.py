"""``splitops compare``: where runtimes deviate from the specification of the split operators."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from splitops.cli._console import console, json_option, one_line, print_json, say_written, table
from splitops.cli._models import MODEL_FILE, add_weights, links_option
from splitops.cli._options import BYTES
from splitops.cli._paths import NEW_FILE, add_path
from splitops.errors import count_of

if TYPE_CHECKING:
    from splitops.comparison import Report
    from splitops.comparison.reports.earlier import Unexpected

_FILE = click.Path(path_type=Path, dir_okay=False)
_NOT_STARTED: Final = 3
_INTERRUPTED: Final = 130
_STATES: Final = {"no-result": "no result", "absent": "not installed", "failed": "did not start"}


@click.command(short_help="Compare the installed runtimes, and report where they deviate.")
@click.argument("implementations", metavar="[NAME[=COMMAND]]...", nargs=-1)
@click.option("--op", "operators", multiple=True, help="Run only cases of this operator, such as Split-18. "
              "Repeatable.")  # fmt: skip
@click.option("--case", "cases", multiple=True, metavar="ID", help="Run only this case and its baseline. "
              "Repeatable.")  # fmt: skip
@click.option("--generate", type=click.IntRange(0, 9999), default=0, metavar="N", help="Run N more cases, "
              "drawn at random.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of --generate.")
@click.option("--python", "pythons", multiple=True, metavar="NAME=PATH", help="Run an implementation of "
              "another environment too: its name, and the Python of that environment.")  # fmt: skip
@click.option("--setting", "settings", multiple=True, metavar="NAME=KEY=VALUE", help="Run an implementation "
              "with a setting too, such as onnxruntime=threads=1.")  # fmt: skip
@click.option(
    "--model", type=MODEL_FILE, help="Run this model, whole and split by split, instead of the listed cases."
)
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="An input of --model, as for "
              "run.  [default: generated inputs]")  # fmt: skip
@links_option
@click.option("--html", type=NEW_FILE, help="Write the report as a page.")
@click.option("--sarif", type=NEW_FILE, help="Write the findings as SARIF.")
@click.option("--diff", type=_FILE, help="Show what is new, fixed and changed since a report in JSON.")
@click.option("--expect", type=_FILE, help="Compare with a TOML file of known deviations, or with a report "
              "in JSON. New deviations fail, and so do those that are gone.")  # fmt: skip
@click.option("--repro", metavar="CASE", help="Run this case in the one named implementation, and write a "
              "folder for its engineers to --out: model, script, and the text of a report.")  # fmt: skip
@click.option("--export", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Write the "
              "ONNX cases as test folders for onnx.backend.test, and run nothing.")  # fmt: skip
@click.option("-o", "--out", type=click.Path(path_type=Path, file_okay=False), help="The folder of --repro.")
@click.option("--seconds", type=click.FloatRange(0.1, 3600), default=30, help="Time limit for one case.")
@click.option("--memory", type=BYTES, default="4G", help="Memory limit for one implementation.")
@click.option("--jobs", type=click.IntRange(1, 64), help="How many implementations run at the same time.  "
              "[default: the number of cores]")  # fmt: skip
@click.option("--shrink/--no-shrink", default=True, help="Look for the smallest case of each finding.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    implementations: tuple[str, ...],
    operators: tuple[str, ...],
    cases: tuple[str, ...],
    generate: int,
    seed: int,
    pythons: tuple[str, ...],
    settings: tuple[str, ...],
    model: Path | None,
    inputs: tuple[str, ...],
    allow_links: bool,
    html: Path | None,
    sarif: Path | None,
    diff: Path | None,
    expect: Path | None,
    repro: str | None,
    export: Path | None,
    out: Path | None,
    seconds: float,
    memory: int,
    jobs: int | None,
    shrink: bool,
    as_json: bool,
) -> None:
    """Run the split test suite on runtimes, compilers, converters and simplifiers, and report where they
    deviate from the specification.

    NAME is an implementation, such as onnxruntime or openvino. Without a name, all that are installed are
    compared. NAME=COMMAND is any executable that speaks the protocol. Each runs in processes of its own. A
    deviation counts once two new processes have reproduced it. Ctrl-C stops everything and keeps what is
    known.

    Exit codes: 0 no deviation, or all as expected; 1 a deviation, or one that is not as expected; 2 wrong
    usage; 3 a named implementation did not start; 130 interrupted.

    \b
    Examples:
      splitops compare --html report.html
      splitops compare onnxruntime openvino
      splitops compare onnxruntime --op Split-18
      splitops compare --generate 1000 --seed 7 --html report.html
      splitops compare onnxruntime --python onnxruntime=../new/bin/python
      splitops compare mine="node worker.mjs" --json > report.json
      splitops compare --diff report.json
      splitops compare --model mine.onnx --html mine.html
      splitops compare --op Split-18 --export folder
      splitops compare onnxruntime --repro split-18/ceil/5-into-4/float32/static -o reproduction
    """
    from splitops.comparison.cases import build, find, listed
    from splitops.comparison.driver.comparing import chosen_cases, compare
    from splitops.comparison.records import CompareError, State, parse_column, parse_setting
    from splitops.comparison.reports.earlier import differences, read_expectations, read_report, unexpected
    from splitops.comparison.reports.exporting import write_tests
    from splitops.comparison.reports.html import require_jinja
    from splitops.comparison.reports.reproduction import write_reproduction

    for path, label in ((diff, "--diff"), (expect, "--expect")):
        if path is not None:
            add_path(path, label)
    if model is not None:
        add_weights(model)
    if (repro is None) != (out is None):
        raise click.UsageError("--repro and --out belong together.", ctx)
    if repro is not None and len(implementations) != 1:
        raise click.UsageError("--repro takes one implementation: splitops compare NAME --repro CASE.", ctx)
    if model is not None and (cases or operators or repro or generate):
        message = "--case, --op, --generate and --repro choose listed cases; --model replaces them."
        raise click.UsageError(message, ctx)
    if inputs and model is None:
        raise click.UsageError("--input is an input of --model.", ctx)
    if export is not None and (implementations or model or repro or html or sarif or diff or expect):
        raise click.UsageError("--export only writes cases: it runs no implementation.", ctx)
    try:
        if export is not None:
            valid, invalid = write_tests(chosen_cases(operators, cases, generate, seed), export)
            valid_tests, invalid_tests = count_of(valid, "valid test"), count_of(invalid, "invalid test")
            click.echo(f"{valid_tests} and {invalid_tests} written to {export}")
            return
        if repro is not None:
            column = implementations[0]
            name, setting = parse_column(column)
            cases, implementations, shrink = (repro,), (name,), False
            settings += (f"{name}={setting}",) if setting else ()
        named = [name for name in implementations if not _is_command(name)]
        commands = dict(_pair(text, "NAME=COMMAND") for text in implementations if _is_command(text))
        if html is not None:
            require_jinja()
        old = None if diff is None else read_report(diff)
        expected = None if expect is None else read_expectations(expect)
        report = compare(
            named or (None if not commands else []),
            commands=commands,
            operators=operators,
            cases=cases,
            generate=generate,
            seed=seed,
            pythons=[_pair(text, "--python") for text in pythons],
            settings=[parse_setting(text) for text in settings],
            seconds=seconds,
            memory=memory,
            shrink_seconds=5 if shrink else 0,
            jobs=jobs,
            model=model,
            inputs=_inputs(model, inputs, allow_links) if model is not None and inputs else None,
            allow_links=allow_links,
            tell=_tell,
        )
        surprise = None if expected is None else unexpected(report, expected, listed())
        if repro is not None and out is not None:
            write_reproduction(report, build(find(repro)), column, out)
    except CompareError as error:
        raise click.UsageError(one_line(str(error)), ctx) from error
    _write(report, html, sarif)
    if as_json:
        print_json(report.to_json())
    else:
        _print(report)
    if old is not None and not as_json:
        found = differences(old, report)
        for line in found.pop("releases"):
            console().print(one_line(line), soft_wrap=True)
        for heading, lines in found.items():
            console().print(f"{heading}: {len(lines)}", style="bold")
            for line in lines:
                console().print(one_line(f"  {line}"), soft_wrap=True)
    if surprise is not None:
        _print_unexpected(surprise)
    say_written(html, sarif, out, stderr=as_json)
    if report.environment["stopped"]:
        ctx.exit(_INTERRUPTED)
    if surprise is not None:
        ctx.exit(surprise.exit_code)
    if any(peer.state in (State.FAILED, State.ABSENT) for peer in report.peers):
        ctx.exit(_NOT_STARTED)
    ctx.exit(int(bool(report.findings)))


def _tell(line: str) -> None:
    """Print a line about an implementation to stderr, over a bar that may be there."""
    bar = "\r\x1b[K" if sys.stderr.isatty() else ""
    click.echo(f"{bar}{one_line(line)}", err=True)


def _inputs(model: Path, texts: Sequence[str], allow_links: bool) -> dict[str, Any]:
    from splitops.cli._inputs import read_inputs
    from splitops.models import load
    from splitops.models.sessions import session

    with session(load(model, allow_links=allow_links), "reference") as ours:
        return read_inputs(texts, ours.inputs)


def _is_command(text: str) -> bool:
    """Tell NAME=COMMAND from the name of an implementation, which may have settings: NAME[KEY=VALUE]."""
    return "=" in text.partition("[")[0]


def _pair(text: str, option: str) -> tuple[str, str]:
    name, _, rest = text.partition("=")
    if not name or not rest:
        raise click.BadParameter(f"{one_line(text, 80)!r} is not NAME=...", param_hint=option)
    return name, rest


def _write(report: Report, html: Path | None, sarif: Path | None) -> None:
    """Write the files that are asked for, all or none."""
    from splitops.comparison.reports.html import to_html
    from splitops.comparison.reports.sarif import to_sarif
    from splitops.ground.version import __version__
    from splitops.ground.writing import StagedFiles

    contents: dict[Path | None, Callable[[], str]] = {
        html: lambda: to_html(report, __version__),
        sarif: lambda: json.dumps(to_sarif(report, __version__), indent=2) + "\n",
    }
    with StagedFiles() as files:
        for path, content in contents.items():
            if path is not None:
                with files.open(path) as file:
                    file.write(content().encode())


def _print(report: Report) -> None:
    from splitops.comparison.records import State, Word
    from splitops.comparison.reports.verdicts import UNCONFIRMED, counts, described, releases

    screen = console()
    numbers = counts(report)
    shown = [word for word in (*Word, UNCONFIRMED) if any(numbers[name][word] for name in numbers)]
    peers = table("implementation", "release", *shown, "", right=tuple(shown))
    for peer in report.peers:
        cells = [str(numbers[peer.name][word] or "") for word in shown]
        state = "" if peer.state is State.OK else one_line(f"{_STATES[peer.state.value]}: {peer.detail}", 60)
        peers.add_row(one_line(peer.name, 40), one_line(releases(peer), 40), *cells, state)
    screen.print(peers)
    for entry, peer, verdict in report.findings:
        screen.print(one_line(f"{entry.id}  {peer.name}: {described(verdict)}"), style="bold", soft_wrap=True)
        screen.print(one_line(f"  {verdict.detail}", 300), soft_wrap=True)
    verdicts = [verdict for entry in report.entries for verdict in entry.verdicts.values()]
    unsure = [verdict.is_asked_again for verdict in verdicts if verdict.is_unsure]
    loose, left = unsure.count(True), unsure.count(False)
    screen.print(
        f"{count_of(len(report.entries), 'case')}, {count_of(len(report.findings), 'deviation')}"
        f"{f', {loose} that did not repeat' if loose else ''}"
        f"{f', {left} not confirmed because the comparison was interrupted' if left else ''}",
        soft_wrap=True,
    )


def _print_unexpected(found: Unexpected) -> None:
    screen = console(stderr=True)
    for heading, lines in (("new", found.new), ("gone", found.gone), ("did not start", found.missing)):
        for line in lines:
            screen.print(one_line(f"{heading}: {line}"), soft_wrap=True)
    if found.exit_code == 0:
        screen.print("all as expected")
