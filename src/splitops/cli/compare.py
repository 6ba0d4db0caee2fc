"""``splitops compare``: run the split test suite on runtimes and report deviations from the specification."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from splitops.cli._console import (
    escape,
    json_option,
    make_console,
    make_table,
    print_json,
    print_written,
)
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
@click.option("--generate", type=click.IntRange(0, 9999), default=0, metavar="N", help="Run N random cases "
              "in addition.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of --generate.")
@click.option("--python", "pythons", multiple=True, metavar="NAME=PATH", help="Also run NAME with the "
              "Python interpreter of another environment.")  # fmt: skip
@click.option("--setting", "settings", multiple=True, metavar="NAME=KEY=VALUE", help="Also run NAME with a "
              "setting, such as onnxruntime=threads=1.")  # fmt: skip
@click.option(
    "--model", type=MODEL_FILE, help="Run this model, and each of its splits, instead of the test suite."
)
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="An input of --model, as in "
              "splitops run.  [default: generated inputs]")  # fmt: skip
@links_option
@click.option("--html", type=NEW_FILE, help="Write the report as an HTML page.")
@click.option("--sarif", type=NEW_FILE, help="Write the findings as SARIF.")
@click.option("--diff", type=_FILE, help="Show the changes since an earlier report (JSON).")
@click.option("--expect", type=_FILE, help="Compare with a TOML file of known deviations, or with a report "
              "in JSON. The command fails if a deviation is new or no longer occurs.")  # fmt: skip
@click.option("--repro", metavar="CASE", help="Run this case on the one named implementation, and write a "
              "bug report to --out: model, script and text.")  # fmt: skip
@click.option("--export", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Write the "
              "ONNX cases as test folders for onnx.backend.test, and run nothing.")  # fmt: skip
@click.option("-o", "--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for --repro.")
@click.option("--seconds", type=click.FloatRange(0.1, 3600), default=30, help="Time limit for one case.")
@click.option("--memory", type=BYTES, default="4G", help="Memory limit for one implementation.")
@click.option("--jobs", type=click.IntRange(1, 64), help="Maximum number of parallel implementations.  "
              "[default: the number of cores]")  # fmt: skip
@click.option("--shrink/--no-shrink", default=True, help="Search for the smallest case of each deviation.")
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
    """Run the split test suite on runtimes, compilers, converters and simplifiers, and report their
    deviations from the specification.

    NAME is an implementation, such as onnxruntime or openvino; the default is all that are installed.
    NAME=COMMAND is any executable that implements the protocol. Each one runs in separate processes. A
    deviation is reported after two new processes have reproduced it. Ctrl-C ends the comparison and reports
    the results so far.

    Exit codes: 0 no deviation, or all as expected; 1 a deviation, or an unexpected one; 2 wrong usage; 3 a
    named implementation did not start; 130 interrupted.

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
        raise click.UsageError("--repro requires --out, and --out requires --repro.", ctx)
    if repro is not None and len(implementations) != 1:
        raise click.UsageError("--repro needs one implementation: splitops compare NAME --repro CASE.", ctx)
    if model is not None and (cases or operators or repro or generate):
        message = "--model cannot be combined with --case, --op, --generate or --repro."
        raise click.UsageError(message, ctx)
    if inputs and model is None:
        raise click.UsageError("--input requires --model.", ctx)
    if export is not None and (implementations or model or repro or html or sarif or diff or expect):
        raise click.UsageError("--export runs nothing: leave out implementations, models and reports.", ctx)
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
        commands = dict(_parse_pair(text, "NAME=COMMAND") for text in implementations if _is_command(text))
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
            pythons=[_parse_pair(text, "--python") for text in pythons],
            settings=[parse_setting(text) for text in settings],
            seconds=seconds,
            memory=memory,
            shrink_seconds=5 if shrink else 0,
            jobs=jobs,
            model=model,
            inputs=_read_model_inputs(model, inputs, allow_links) if model is not None and inputs else None,
            allow_links=allow_links,
            tell=_print_progress_line,
        )
        surprise = None if expected is None else unexpected(report, expected, listed())
        if repro is not None and out is not None:
            write_reproduction(report, build(find(repro)), column, out)
    except CompareError as error:
        raise click.UsageError(escape(str(error)), ctx) from error
    _write_reports(report, html, sarif)
    if as_json:
        print_json(report.to_json())
    else:
        _print(report)
    if old is not None and not as_json:
        found = differences(old, report)
        for line in found.pop("releases"):
            make_console().print(escape(line), soft_wrap=True)
        for heading, lines in found.items():
            make_console().print(f"{heading}: {len(lines)}", style="bold")
            for line in lines:
                make_console().print(escape(f"  {line}"), soft_wrap=True)
    if surprise is not None:
        _print_unexpected(surprise)
    print_written(html, sarif, out, stderr=as_json)
    if report.environment["stopped"]:
        ctx.exit(_INTERRUPTED)
    if surprise is not None:
        ctx.exit(surprise.exit_code)
    if any(peer.state in (State.FAILED, State.ABSENT) for peer in report.peers):
        ctx.exit(_NOT_STARTED)
    ctx.exit(int(bool(report.findings)))


def _print_progress_line(line: str) -> None:
    """Print a line about an implementation to stderr, in place of the progress bar if there is one."""
    bar = "\r\x1b[K" if sys.stderr.isatty() else ""
    click.echo(f"{bar}{escape(line)}", err=True)


def _read_model_inputs(model: Path, texts: Sequence[str], allow_links: bool) -> dict[str, Any]:
    from splitops.cli._inputs import read_inputs
    from splitops.models import load
    from splitops.models.sessions import session

    with session(load(model, allow_links=allow_links), "reference") as ours:
        return read_inputs(texts, ours.inputs)


def _is_command(text: str) -> bool:
    """Return whether an argument is ``NAME=COMMAND``, not a name with settings: ``NAME[KEY=VALUE]``."""
    return "=" in text.partition("[")[0]


def _parse_pair(text: str, option: str) -> tuple[str, str]:
    name, _, rest = text.partition("=")
    if not name or not rest:
        raise click.BadParameter(f"{escape(text, 80)!r} is not NAME=...", param_hint=option)
    return name, rest


def _write_reports(report: Report, html: Path | None, sarif: Path | None) -> None:
    """Write the requested reports, all of them or none."""
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

    screen = make_console()
    numbers = counts(report)
    shown = [word for word in (*Word, UNCONFIRMED) if any(numbers[name][word] for name in numbers)]
    peers = make_table("implementation", "release", *shown, "", right=tuple(shown))
    for peer in report.peers:
        cells = [str(numbers[peer.name][word] or "") for word in shown]
        state = "" if peer.state is State.OK else escape(f"{_STATES[peer.state.value]}: {peer.detail}", 60)
        peers.add_row(escape(peer.name, 40), escape(releases(peer), 40), *cells, state)
    screen.print(peers)
    for entry, peer, verdict in report.findings:
        screen.print(escape(f"{entry.id}  {peer.name}: {described(verdict)}"), style="bold", soft_wrap=True)
        screen.print(escape(f"  {verdict.detail}", 300), soft_wrap=True)
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
    screen = make_console(stderr=True)
    for heading, lines in (("new", found.new), ("gone", found.gone), ("did not start", found.missing)):
        for line in lines:
            screen.print(escape(f"{heading}: {line}"), soft_wrap=True)
    if found.exit_code == 0:
        screen.print("all as expected")
