"""``splitops check``: find invalid splits, and splits that a runtime rejects or gets wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from splitops.cli._console import (
    escape,
    format_place,
    group_equal_rows,
    json_option,
    make_console,
    print_json,
)
from splitops.cli._models import MODEL_FILE, format_command, links_option, make_for_option
from splitops.cli._options import suggest
from splitops.errors import count_of, format_list

if TYPE_CHECKING:
    from splitops.models.check import Finding, Target
    from splitops.models.check.checking import Examination

_STYLES: Final = {"error": "bold red", "warning": "yellow"}


def _read_codes(texts: Sequence[str], targets: Sequence[Target], option: str) -> tuple[str, ...]:
    """Parse comma-separated codes and groups of codes. Raise BadParameter if one matches no known code."""
    found = tuple(code.strip() for text in texts for code in text.split(",") if code.strip())
    if found:
        from splitops.models.check.codes import is_in_group, list_codes

        known = (*list_codes(), *(limit.code for target in targets for limit in target.limits))
        for code in found:
            if not any(is_in_group(one, code) for one in known):
                raise click.BadParameter(f"No such code {code!r}.{suggest(code, known)}", param_hint=option)
    return found


@click.command(short_help="Find invalid splits, and splits that a runtime rejects or gets wrong.")
@click.argument("models", metavar="MODEL...", type=MODEL_FILE, nargs=-1, required=True)
@make_for_option(
    "Runtime to check for: a name, a release such as onnxruntime==1.28, or a .toml file of limits; see "
    "splitops targets. Anything it cannot run is reported as an error. Repeatable.  [default: the limits of "
    "common runtimes are warnings]"
)
@click.option(
    "--select",
    metavar="CODES",
    multiple=True,
    help="Report only these codes or groups of codes, such as lengths.sum,onnxruntime.",
)
@click.option("--ignore", metavar="CODES", multiple=True, help="Do not report these codes or groups.")
@click.option(
    "--output-format",
    type=click.Choice(["text", "json", "sarif", "github"]),
    default="text",
    help="Format of the findings: text, JSON, SARIF, or annotations for GitHub Actions.",
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
    """Check each MODEL: a .onnx file, the .xml of an OpenVINO IR, or an .xml with a single <layer> of an IR.

    Checks all rules of the split operators, with the sizes and values that can be inferred, and all limits of
    the runtimes. The last line is the command that fixes the model, if there is one. The exit code is 1 if
    there are errors. splitops rule CODE explains a code.

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
    from splitops.models.check.codes import is_in_group

    select, ignore = _read_codes(select, targets, "--select"), _read_codes(ignore, targets, "--ignore")

    def is_selected(code: str) -> bool:
        chosen = not select or any(is_in_group(code, pattern) for pattern in select)
        return chosen and not any(is_in_group(code, pattern) for pattern in ignore)

    examined: _Examined = {}
    for model in models:
        found = examine(model, targets, allow_links=allow_links)
        examined[model] = found._replace(findings=[one for one in found.findings if is_selected(one.code)])
    _PRINTERS["json" if as_json else output_format](examined, targets, allow_links)
    if any(str(one.severity) == "error" for one in _list_findings(examined)):
        ctx.exit(1)


_Examined = dict[Path, "Examination"]


def _list_findings(examined: _Examined) -> list[Finding]:
    return [finding for found in examined.values() for finding in found.findings]


def _describe_untested(examined: Iterable[Examination], targets: Sequence[Target]) -> str:
    """Return a phrase about targets whose limits are documented but not tested, or "" if there are none."""
    from splitops.models.check.targets import describe_untested

    return describe_untested(targets, {name for found in examined for name in found.met})


def _list_untested(targets: Sequence[Target]) -> list[str]:
    return [target.label for target in targets if not target.is_tested]


def _print_text(examined: _Examined, targets: Sequence[Target], allow_links: bool) -> None:
    from splitops.models.check.targets import format_sentence
    from splitops.models.fix.suggesting import suggest

    screen = make_console()
    findings = _list_findings(examined)
    for group in group_equal_rows(sorted(findings, key=_get_sort_key), _get_group_key):
        finding = group[0]
        screen.print(_format_heading(group), style=_STYLES[str(finding.severity)], soft_wrap=True)
        for line in _iter_details(finding):
            screen.print(escape(f"  {line}"), soft_wrap=True)
    splits = count_of(sum(found.splits for found in examined.values()), "split")
    models = f" in {count_of(len(examined), 'model')}" if len(examined) > 1 else ""
    untested = _describe_untested(examined.values(), targets)
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
        screen.print(format_sentence(untested), soft_wrap=True)
    for model, fix in fixes.items():
        if fix.fixable:
            command = format_command(model, fix.runtimes, partial=fix.partial, allow_links=allow_links)
            screen.print(f"Fix: {command}", soft_wrap=True)


def _iter_details(finding: Finding) -> Iterator[str]:
    """Yield the message of a finding, how to fix it by hand, and the command that explains its code."""
    from splitops.models.check.codes import is_explained

    yield finding.message
    if finding.fix:
        yield f"help: {finding.fix}"
    if is_explained(finding.code):
        yield f"more: splitops rule {finding.code}"


def _print_json(examined: _Examined, targets: Sequence[Target], allow_links: bool) -> None:
    from splitops.models.check import to_json

    findings = _list_findings(examined)
    splits = sum(found.splits for found in examined.values())
    print_json({"findings": to_json(findings), "splits": splits, "untested": _list_untested(targets)})


def _print_sarif(examined: _Examined, targets: Sequence[Target], allow_links: bool) -> None:
    from splitops.common.version import __version__
    from splitops.models.check import to_sarif

    findings = _list_findings(examined)
    click.echo(json.dumps(to_sarif(findings, __version__, untested=_list_untested(targets)), indent=2))


def _print_github(examined: _Examined, targets: Sequence[Target], allow_links: bool) -> None:
    """Print the findings as workflow commands. GitHub Actions shows them next to the files of a change."""
    from splitops.models.fix.suggesting import suggest

    for model, found in examined.items():
        findings, file = found.findings, _escape_property(_decode_path(model))
        for finding in findings:
            title = f"{finding.operator} [{finding.code}]".lstrip()
            where = str(replace(finding.where, model=None))
            text = f"{where}: {finding.message}" if where else finding.message
            properties = f"file={file},title={_escape_property(title)}"
            click.echo(f"::{finding.severity} {properties}::{_escape_data(escape(text))}")
        if findings:
            fix = suggest(model, findings, targets, allow_links=allow_links)
            if fix.fixable:
                command = format_command(model, fix.runtimes, partial=fix.partial, allow_links=allow_links)
                click.echo(f"::notice file={file},title=Fix::{_escape_data(escape(command))}")
        untested = _describe_untested([found], targets)
        if untested:
            click.echo(f"::notice file={file},title=Not tested::{_escape_data(untested)}")


_PRINTERS: Final = {
    "text": _print_text,
    "json": _print_json,
    "sarif": _print_sarif,
    "github": _print_github,
}


def _escape_data(text: str) -> str:
    """Escape a message for a workflow command of GitHub Actions."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _decode_path(model: Path) -> str:
    """Return a path as valid Unicode, since a file name may contain any bytes."""
    return os.fsencode(model).decode(errors="replace")


def _escape_property(text: str) -> str:
    """Escape the value of a property for a workflow command of GitHub Actions."""
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def _get_sort_key(finding: Finding) -> tuple[bool, bool]:
    """Return the sort key: errors come before warnings, and findings on splits before those on the model."""
    return str(finding.severity) != "error", not finding.operator


def _get_group_key(finding: Finding) -> tuple[str | None, ...]:
    """Return all printed fields of a finding except its location. Findings with equal fields are grouped."""
    fields = (finding.operator, finding.code, finding.runtime, finding.outcome, finding.message, finding.fix)
    return (str(finding.severity), *fields)


def _format_heading(group: Sequence[Finding]) -> Any:
    finding = group[0]
    at = str(finding.where)
    if len(group) > 1:
        at = f"{len(group)} places: {format_list([format_place(one.where) for one in group], limit=3)}"
    operator = f"{finding.operator} " if finding.operator else ""
    outcome = f" ({finding.runtime}: {finding.outcome})" if finding.runtime else ""
    return escape(f"{finding.severity}: {operator}[{finding.code}]{outcome}{f' at {at}' if at else ''}")
