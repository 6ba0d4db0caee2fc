"""``splitops check``: invalid splits of models, and splits that a runtime rejects or gets wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from splitops.cli._console import alike, console, json_option, one_line, place, places, print_json
from splitops.cli._models import MODEL_FILE, fix_command, for_option, links_option
from splitops.cli._options import did_you_mean
from splitops.errors import count_of

if TYPE_CHECKING:
    from splitops.models.check import Finding, Target
    from splitops.models.check.checking import Examination

_STYLES: Final = {"error": "bold red", "warning": "yellow"}


def _codes(texts: Sequence[str], targets: Sequence[Target], option: str) -> tuple[str, ...]:
    """Read codes, or groups of codes; each must match a known one."""
    found = tuple(code.strip() for text in texts for code in text.split(",") if code.strip())
    if found:
        from splitops.models.check.codes import every_code, matches

        known = (*every_code(), *(limit.code for target in targets for limit in target.limits))
        for code in found:
            if not any(matches(one, code) for one in known):
                raise click.BadParameter(
                    f"No such code {code!r}.{did_you_mean(code, known)}", param_hint=option
                )
    return found


@click.command(short_help="Find invalid splits, and splits that a runtime rejects or gets wrong.")
@click.argument("models", metavar="MODEL...", type=MODEL_FILE, nargs=-1, required=True)
@for_option(
    "Runtime to check for: a name, a release such as onnxruntime==1.28, or a .toml file of limits; see "
    "splitops targets. Anything it cannot run is reported as an error. Repeatable.  [default: the limits of "
    "common runtimes are warnings]"
)
@click.option(
    "--select",
    metavar="CODES",
    multiple=True,
    help="Report only these codes or groups, such as lengths.sum,onnxruntime.",
)
@click.option("--ignore", metavar="CODES", multiple=True, help="Do not report these codes or groups.")
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "sarif", "github"]),
    default="text",
    help="How to print findings: as text, JSON, SARIF, or annotations of GitHub Actions.",
)
@links_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    models: tuple[Path, ...],
    targets: tuple[Target, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    output_format: str,
    allow_links: bool,
    as_json: bool,
) -> None:
    """Check each MODEL: a .onnx file, the .xml of an OpenVINO IR, or an .xml with a lone <layer> of one.

    Every rule of the operators is checked as far as the model's sizes and values are known, and every limit
    of a runtime. The last line is the command that fixes what can be fixed. The exit code is 1 if there are
    errors. splitops rule CODE explains a code.

    \b
    Examples:
      splitops check model.onnx
      splitops check model.onnx --for onnxruntime --for openvino
      splitops check model.onnx --for onnxruntime==1.28 --for npu.toml
      splitops check model.onnx --select lengths,onnxruntime.open-axis
      splitops check model.onnx --output-format sarif > findings.sarif
      splitops check a.onnx b.onnx --ignore opencv --output-format github
    """
    from splitops.models.check.checking import examine
    from splitops.models.check.codes import matches

    select, ignore = _codes(select, targets, "--select"), _codes(ignore, targets, "--ignore")

    def wanted(code: str) -> bool:
        chosen = not select or any(matches(code, pattern) for pattern in select)
        return chosen and not any(matches(code, pattern) for pattern in ignore)

    examined: _Examined = {}
    for model in models:
        found = examine(model, targets, allow_links=allow_links)
        examined[model] = found._replace(findings=[one for one in found.findings if wanted(one.code)])
    _PRINTERS["json" if as_json else output_format](examined, targets, allow_links)
    if any(str(one.severity) == "error" for one in _findings(examined)):
        ctx.exit(1)


_Examined = dict[Path, "Examination"]


def _findings(examined: _Examined) -> list[Finding]:
    return [finding for found in examined.values() for finding in found.findings]


def _untested(examined: Iterable[Examination], targets: Sequence[Target]) -> str:
    """Say which of the named targets were never run; empty if all were."""
    from splitops.models.check.targets import untested_words

    return untested_words(targets, {name for found in examined for name in found.met})


def _labels(targets: Sequence[Target]) -> list[str]:
    return [target.label for target in targets if not target.is_tested]


def _print_text(examined: _Examined, targets: Sequence[Target], allow_links: bool) -> None:
    from splitops.models.check.targets import sentence_of
    from splitops.models.fix.suggesting import suggest

    screen = console()
    findings = _findings(examined)
    for group in alike(sorted(findings, key=_order), _what):
        finding = group[0]
        screen.print(_heading(group), style=_STYLES[str(finding.severity)], soft_wrap=True)
        for line in _explained(finding):
            screen.print(one_line(f"  {line}"), soft_wrap=True)
    splits = count_of(sum(found.splits for found in examined.values()), "split")
    models = f" in {count_of(len(examined), 'model')}" if len(examined) > 1 else ""
    untested = _untested(examined.values(), targets)
    if not findings:
        more = f": {untested}" if untested else ""
        screen.print(f"No problems found ({splits} checked{models}){more}.", soft_wrap=True)
        return
    fixes = {
        model: suggest(model, found.findings, targets, allow_links=allow_links)
        for model, found in examined.items()
        if found.findings
    }
    errors = sum(str(finding.severity) == "error" for finding in findings)
    warnings = len(findings) - errors
    fixable = sum(fix.fixable for fix in fixes.values())
    screen.print(
        f"{count_of(errors, 'error')}, {count_of(warnings, 'warning')} ({splits} checked{models}) "
        f"[{fixable} of {len(findings)} fixable]"
    )
    if untested:
        screen.print(sentence_of(untested), soft_wrap=True)
    for model, fix in fixes.items():
        if fix.fixable:
            command = fix_command(model, fix.runtimes, partial=fix.partial, allow_links=allow_links)
            screen.print(f"Fix: {command}", soft_wrap=True)


def _explained(finding: Finding) -> Iterator[str]:
    """Say what is wrong, what the user can do by hand, and where more is said."""
    from splitops.models.check.codes import is_explained

    yield finding.message
    if finding.fix:
        yield f"help: {finding.fix}"
    if is_explained(finding.code):
        yield f"more: splitops rule {finding.code}"


def _print_json(examined: _Examined, targets: Sequence[Target], allow_links: bool) -> None:
    from splitops.models.check import to_json

    findings = _findings(examined)
    splits = sum(found.splits for found in examined.values())
    print_json({"findings": to_json(findings), "splits": splits, "untested": _labels(targets)})


def _print_sarif(examined: _Examined, targets: Sequence[Target], allow_links: bool) -> None:
    from splitops.ground.version import __version__
    from splitops.models.check import to_sarif

    findings = _findings(examined)
    click.echo(json.dumps(to_sarif(findings, __version__, untested=_labels(targets)), indent=2))


def _print_github(examined: _Examined, targets: Sequence[Target], allow_links: bool) -> None:
    """Print workflow commands, which GitHub Actions shows beside the files of a pull request."""
    from splitops.models.fix.suggesting import suggest

    for model, found in examined.items():
        findings = found.findings
        for finding in findings:
            title = f"{finding.operator} [{finding.code}]".lstrip()
            where = str(replace(finding.where, model=None))
            text = f"{where}: {finding.message}" if where else finding.message
            properties = f"file={_property(_name(model))},title={_property(title)}"
            click.echo(f"::{finding.severity} {properties}::{_data(one_line(text))}")
        if findings:
            fix = suggest(model, findings, targets, allow_links=allow_links)
            if fix.fixable:
                command = fix_command(model, fix.runtimes, partial=fix.partial, allow_links=allow_links)
                click.echo(f"::notice file={_property(_name(model))},title=Fix::{_data(one_line(command))}")
        untested = _untested([found], targets)
        if untested:
            click.echo(f"::notice file={_property(_name(model))},title=Not tested::{_data(untested)}")


_PRINTERS: Final = {
    "text": _print_text,
    "json": _print_json,
    "sarif": _print_sarif,
    "github": _print_github,
}


def _data(text: str) -> str:
    """Escape the message of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _name(model: Path) -> str:
    """Return a path as text, which a name in a folder need not be."""
    return os.fsencode(model).decode(errors="replace")


def _property(text: str) -> str:
    """Escape a property of a workflow command."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _order(finding: Finding) -> tuple[bool, bool]:
    """Errors first; in each, splits before what concerns the model."""
    return str(finding.severity) != "error", not finding.operator


def _what(finding: Finding) -> tuple[str | None, ...]:
    """Return what a finding says without its place."""
    what = (finding.operator, finding.code, finding.runtime, finding.outcome, finding.message, finding.fix)
    return (str(finding.severity), *what)


def _heading(group: Sequence[Finding]) -> Any:
    finding = group[0]
    at = str(finding.where)
    if len(group) > 1:
        at = f"{len(group)} places: {places([place(one.where) for one in group])}"
    operator = f"{finding.operator} " if finding.operator else ""
    outcome = f" ({finding.runtime}: {finding.outcome})" if finding.runtime else ""
    return one_line(f"{finding.severity}: {operator}[{finding.code}]{outcome}{f' at {at}' if at else ''}")
