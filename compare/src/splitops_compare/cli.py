"""The command ``splitops-compare``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from splitops.errors import count_of
from splitops.extension import (
    BYTES,
    MODEL_FILE,
    NEW_FILE,
    Command,
    StagedFiles,
    add_path,
    add_weights,
    escape,
    json_option,
    links_option,
    make_console,
    make_table,
    print_json,
    print_written,
    read_inputs,
    run_command,
)
from splitops_compare.version import __version__

if TYPE_CHECKING:
    from splitops_compare.data import ComparisonReport
    from splitops_compare.reports.report_diff import Unexpected

_FILE = click.Path(path_type=Path, dir_okay=False)
_NOT_STARTED: Final = 3
_INTERRUPTED: Final = 130
_STATES: Final = {"no-result": "no result", "absent": "not installed", "failed": "did not start"}


@click.command(
    "splitops-compare",
    cls=Command,
    short_help="Compare the installed runtimes, and report where they deviate.",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
        "show_default": True,
    },
)
@click.argument("implementations", metavar="[NAME[=COMMAND]]...", nargs=-1)
@click.option("--op", "operators", multiple=True, help="Run only cases of this operator, such as Split-18. "
              "Repeatable.")  # fmt: skip
@click.option("--case", "cases", multiple=True, metavar="ID", help="Run only this case and its baseline. "
              "Repeatable.")  # fmt: skip
@click.option("--generate", type=click.IntRange(0, 9999), default=0, metavar="N", help="Run N random cases "
              "too.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of --generate.")
@click.option("--python", "pythons", multiple=True, metavar="NAME=PATH", help="Run an implementation of "
              "another environment too: its name, and the Python of that environment.")  # fmt: skip
@click.option("--setting", "settings", multiple=True, metavar="NAME=KEY=VALUE", help="Run an implementation "
              "with a setting too, such as onnxruntime=threads=1.")  # fmt: skip
@click.option(
    "--model", type=MODEL_FILE, help="Run this model, whole and split by split, instead of the listed cases."
)
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="An input of --model, as for "
              "splitops run.  [default: generated inputs]")  # fmt: skip
@links_option
@click.option("--html", type=NEW_FILE, help="Write the report as a page.")
@click.option("--sarif", type=NEW_FILE, help="Write the findings as SARIF.")
@click.option("--diff", type=_FILE, help="Show new, resolved and changed findings since a report in JSON.")
@click.option("--expect", type=_FILE, help="Compare with a TOML file of known findings, or with a report in "
              "JSON. New findings fail, and so do resolved ones.")  # fmt: skip
@click.option("--repro", metavar="CASE", help="Run this case in the one named implementation, and write a "
              "folder for its engineers to --out: model, script and report.")  # fmt: skip
@click.option("--export", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Write the "
              "ONNX cases as test folders for onnx.backend.test, and run nothing.")  # fmt: skip
@click.option("-o", "--out", type=click.Path(path_type=Path, file_okay=False), help="The folder of --repro.")
@click.option("--seconds", type=click.FloatRange(0.1, 3600), default=30, help="Time limit for one case.")
@click.option("--memory", type=BYTES, default="4G", help="Memory limit for one implementation.")
@click.option("--jobs", type=click.IntRange(1, 64), help="How many implementations run at the same time.  "
              "[default: the number of cores, at most 8]")  # fmt: skip
@click.option("--shrink/--no-shrink", default=True, help="Look for the smallest case of each finding.")
@json_option
@click.version_option(__version__, prog_name="splitops-compare")
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

    NAME is an implementation, such as onnxruntime or openvino. Without a name, all installed ones are
    compared. NAME=COMMAND is any executable that follows the protocol. Each runs in separate processes. A
    deviation is a finding once two new processes have repeated it. After Ctrl-C, the report has the results
    so far.

    Exit codes: 0 no finding, or all as expected; 1 a finding, or one that is not as expected; 2 wrong
    usage; 3 an implementation did not start or fails every valid case, or a named one is not installed; 130
    interrupted.

    \b
    Examples:
      splitops-compare --html report.html
      splitops-compare onnxruntime openvino
      splitops-compare onnxruntime --op Split-18
      splitops-compare --generate 1000 --seed 7 --html report.html
      splitops-compare onnxruntime --python onnxruntime=../new/bin/python
      splitops-compare mine="node worker.mjs" --json > report.json
      splitops-compare --diff report.json
      splitops-compare --model mine.onnx --html mine.html
      splitops-compare --op Split-18 --export folder
      splitops-compare onnxruntime --repro split-18/ceil/5-into-4/float32/static -o reproduction
    """
    from splitops_compare.cases import build_case, find_case, list_cases
    from splitops_compare.data import CompareError, State, parse_name, parse_setting
    from splitops_compare.driver.comparison import choose_cases, compare
    from splitops_compare.reports.onnx_tests import write_tests
    from splitops_compare.reports.report_diff import (
        compare_reports,
        find_unexpected,
        read_expectations,
        read_report,
    )
    from splitops_compare.reports.reproduction import write_reproduction

    for path, label in ((diff, "--diff"), (expect, "--expect")):
        if path is not None:
            add_path(path, label)
    if model is not None:
        add_weights(model)
    if (repro is None) != (out is None):
        raise click.UsageError("--repro and --out require each other.", ctx)
    if repro is not None and len(implementations) != 1:
        raise click.UsageError(
            "--repro requires one implementation: splitops-compare NAME --repro CASE.", ctx
        )
    if model is not None and (cases or operators or repro or generate):
        message = "--case, --op, --generate and --repro choose listed cases; --model replaces them."
        raise click.UsageError(message, ctx)
    if inputs and model is None:
        raise click.UsageError("--input requires --model.", ctx)
    if export is not None and (implementations or model or repro or html or sarif or diff or expect):
        raise click.UsageError("--export only writes cases: it runs no implementation.", ctx)
    try:
        if export is not None:
            valid, invalid = write_tests(choose_cases(operators, cases, generate, seed), export)
            valid_tests, invalid_tests = count_of(valid, "valid test"), count_of(invalid, "invalid test")
            click.echo(f"{valid_tests} and {invalid_tests} written to {export}")
            return
        if repro is not None:
            full_name = implementations[0]
            name, setting = parse_name(full_name)
            cases, implementations, shrink = (repro,), (name,), False
            settings += (f"{name}={setting}",) if setting else ()
        names = [name for name in implementations if not _is_command(name)]
        commands = dict(_split_pair(text, "NAME=COMMAND") for text in implementations if _is_command(text))
        old = None if diff is None else read_report(diff)
        expected = None if expect is None else read_expectations(expect)
        report = compare(
            names or (None if not commands else []),
            commands=commands,
            operators=operators,
            cases=cases,
            generate=generate,
            seed=seed,
            pythons=[_split_pair(text, "--python") for text in pythons],
            settings=[parse_setting(text) for text in settings],
            seconds=seconds,
            memory=memory,
            shrink_seconds=5 if shrink else 0,
            jobs=jobs,
            model=model,
            inputs=_read_inputs(model, inputs, allow_links) if model is not None and inputs else None,
            allow_links=allow_links,
            report_line=_print_line,
        )
        unexpected = None if expected is None else find_unexpected(report, expected, list_cases())
        if repro is not None and out is not None:
            write_reproduction(report, build_case(find_case(repro)), full_name, out)
    except CompareError as error:
        raise click.UsageError(escape(str(error)), ctx) from error
    _write_files(report, html, sarif)
    if as_json:
        print_json(report.to_json())
    else:
        _print_report(report)
    if old is not None and not as_json:
        differences = compare_reports(old, report)
        for line in differences.pop("releases"):
            make_console().print(escape(line), soft_wrap=True)
        for heading, lines in differences.items():
            make_console().print(f"{heading}: {len(lines)}", style="bold")
            for line in lines:
                make_console().print(escape(f"  {line}"), soft_wrap=True)
    if unexpected is not None:
        _print_unexpected(report, unexpected)
    print_written(html, sarif, out, stderr=as_json)
    if report.environment["stopped"]:
        ctx.exit(_INTERRUPTED)
    if unexpected is not None:
        ctx.exit(unexpected.exit_code)
    if any(info.state in (State.FAILED, State.ABSENT) for info in report.implementations):
        ctx.exit(_NOT_STARTED)
    ctx.exit(int(bool(report.findings)))


def main() -> NoReturn:
    """Run the command with the arguments of the process, and exit."""
    run_command(command, "splitops-compare")


def _print_line(line: str) -> None:
    """Print a line about an implementation to stderr. On a terminal, it overwrites the progress bar."""
    bar = "\r\x1b[K" if sys.stderr.isatty() else ""
    click.echo(f"{bar}{escape(line)}", err=True)


def _read_inputs(model: Path, texts: Sequence[str], allow_links: bool) -> dict[str, Any]:
    from splitops.models import load
    from splitops.models.sessions import session

    with session(load(model, allow_links=allow_links), "reference") as reference:
        return read_inputs(texts, reference.inputs)


def _is_command(text: str) -> bool:
    """Return whether an argument is NAME=COMMAND. A name may have settings: NAME[KEY=VALUE]."""
    return "=" in text.partition("[")[0]


def _split_pair(text: str, option: str) -> tuple[str, str]:
    name, _, rest = text.partition("=")
    if not name or not rest:
        raise click.BadParameter(f"{escape(text, 80)!r} is not NAME=...", param_hint=option)
    return name, rest


def _write_files(report: ComparisonReport, html: Path | None, sarif: Path | None) -> None:
    """Write the HTML and SARIF files whose paths are set: either all of them, or none."""
    from splitops_compare.reports.html import to_html
    from splitops_compare.reports.sarif import to_sarif

    contents: dict[Path | None, Callable[[], str]] = {
        html: lambda: to_html(report, __version__),
        sarif: lambda: json.dumps(to_sarif(report, __version__), indent=2) + "\n",
    }
    with StagedFiles() as files:
        for path, make_content in contents.items():
            if path is not None:
                with files.open(path) as file:
                    file.write(make_content().encode())


def _print_report(report: ComparisonReport) -> None:
    from splitops_compare.data import State
    from splitops_compare.reports.verdicts import (
        GROUPS,
        count_groups,
        describe_verdict,
        format_label,
        format_releases,
    )

    screen = make_console()
    counts = count_groups(report)
    labels = {group: format_label(group) for group in GROUPS if any(counts[name][group] for name in counts)}
    implementations = make_table(
        "implementation", "release", *labels.values(), "", right=tuple(labels.values())
    )
    for info in report.implementations:
        cells = [str(counts[info.name][group] or "") for group in labels]
        state = "" if info.state is State.OK else escape(f"{_STATES[info.state.value]}: {info.detail}", 60)
        implementations.add_row(escape(info.name, 40), escape(format_releases(info), 40), *cells, state)
    screen.print(implementations)
    for result, info, verdict in report.findings:
        line = escape(f"{result.id}  {info.name}: {describe_verdict(verdict)}")
        screen.print(line, style="bold", soft_wrap=True)
        screen.print(escape(f"  {verdict.detail}", 300), soft_wrap=True)
    verdicts = [verdict for result in report.cases for verdict in result.verdicts.values()]
    unconfirmed = [verdict.was_repeated for verdict in verdicts if verdict.is_unconfirmed]
    unrepeated, interrupted = unconfirmed.count(True), unconfirmed.count(False)
    screen.print(
        f"{count_of(len(report.cases), 'case')}, {count_of(len(report.findings), 'finding')}"
        f"{f', {unrepeated} that did not repeat' if unrepeated else ''}"
        f"{f', {interrupted} not confirmed because the comparison was interrupted' if interrupted else ''}",
        soft_wrap=True,
    )


def _print_unexpected(report: ComparisonReport, unexpected: Unexpected) -> None:
    screen = make_console(stderr=True)
    lines: list[tuple[str, object]] = [("new", finding) for finding in unexpected.new]
    lines += [("resolved", expectation) for expectation in unexpected.resolved]
    lines += [
        (_STATES[info.state.value], info.name)
        for info in report.implementations
        if info.name in unexpected.missing
    ]
    for heading, line in lines:
        screen.print(escape(f"{heading}: {line}"), soft_wrap=True)
    if unexpected.exit_code == 0:
        screen.print("all as expected")
