"""``splitops check``: what is wrong with a model's splits, and which runtime will mind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from splitops.cli._console import (
    alike,
    console,
    json_option,
    one_line,
    place,
    places,
    print_json,
    say_written,
)
from splitops.cli._models import MODEL_FILE, RUNTIMES, hold, links_option
from splitops.errors import count_of

if TYPE_CHECKING:
    from splitops.models.check import Finding
    from splitops.models.fix import SiteReport

_MEANINGS: Final = ("as-written", "as-pytorch")
_STYLES: Final = {"error": "bold red", "warning": "yellow"}


@click.command(short_help="Find wrong splits, and those that a runtime will mind.")
@click.argument("model", type=MODEL_FILE)
@click.option(
    "--target",
    "targets",
    multiple=True,
    type=click.Choice(RUNTIMES),
    help="A runtime that the model is for; what it does not take is an error. Several may be stated.",
)
@click.option("--fix", is_flag=True, help="Apply the safe repairs, and write the model to --out.")
@click.option(
    "--unbind",
    type=click.Choice(_MEANINGS),
    help="With --fix: what SplitToSequence with chunks of 1 and keepdims = 0 means. PyTorch exports a "
    "scripted unbind so, and drops the axis; as written, it stays.",
)
@click.option("-o", "--out", type=MODEL_FILE, help="The repaired model.")
@click.option("--sarif", type=click.Path(path_type=Path, dir_okay=False), help="Write the findings as SARIF.")
@links_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: Path,
    targets: tuple[str, ...],
    fix: bool,
    unbind: str | None,
    out: Path | None,
    sarif: Path | None,
    allow_links: bool,
    as_json: bool,
) -> None:
    """Check MODEL: a .onnx file, the .xml of an OpenVINO IR, or an .xml with a lone <layer> of one.

    Every rule of the operators is checked as far as the model's sizes and values are known, and every limit
    of a runtime. Without --target, the limits of all runtimes are warnings. The exit code is 1 where there
    are errors; with --fix, where errors are left. A site that can be read in two ways is left until
    --unbind says which is meant.

    \b
    Examples:
      splitops check model.onnx
      splitops check model.onnx --target onnxruntime --target openvino
      splitops check model.onnx --fix -o model.fixed.onnx
      splitops check model.onnx --fix --unbind as-pytorch -o model.fixed.onnx
      splitops check model.xml --sarif findings.sarif
    """
    from splitops.models import is_openvino
    from splitops.models.check import Severity, check, to_json

    if fix is not (out is not None):
        raise click.UsageError("--fix and --out belong together")
    if unbind is not None and not fix:
        raise click.UsageError("--unbind belongs to --fix")
    repairs: tuple[SiteReport, ...] = ()
    if out is not None:
        hold(out, openvino=is_openvino(model))
        findings, repairs = _fixed(model, targets, unbind, out, allow_links)
    else:
        findings = check(model, targets, allow_links=allow_links)
    if sarif is not None:
        _write_sarif(findings, sarif)
    if as_json:
        print_json({"findings": to_json(findings), "repairs": [site.as_dict() for site in repairs]})
    else:
        _print(findings, repairs, out)
        say_written(sarif)
    if any(finding.severity is Severity.ERROR for finding in findings):
        ctx.exit(1)


def _fixed(
    model: Path, targets: Sequence[str], unbind: str | None, out: Path, allow_links: bool
) -> tuple[list[Finding], tuple[SiteReport, ...]]:
    from splitops.models import save
    from splitops.models.check import check
    from splitops.models.fix.onnx_models import repaired

    made, sites = repaired(model, targets, unbind=unbind, allow_links=allow_links)
    save(made, out)
    return check(out, targets), sites


def _write_sarif(findings: Sequence[Finding], path: Path) -> None:
    import json

    from splitops.ground.version import __version__
    from splitops.ground.writing import write_whole
    from splitops.models.check import to_sarif

    write_whole(path, json.dumps(to_sarif(findings, __version__), indent=2).encode() + b"\n")


def _print(findings: Sequence[Finding], repairs: Sequence[SiteReport], out: Path | None) -> None:
    screen = console()
    for repair in repairs:
        screen.print(one_line(f"repaired: {repair}"), style="green", soft_wrap=True)
    say_written(out)
    for group in alike(sorted(findings, key=_order), _what):
        finding = group[0]
        screen.print(_heading(group), style=_STYLES[str(finding.severity)], soft_wrap=True)
        screen.print(one_line(f"  {finding.message}"), soft_wrap=True)
        if finding.fix:
            screen.print(one_line(f"  fix: {finding.fix}"), soft_wrap=True)
    errors = sum(str(finding.severity) == "error" for finding in findings)
    warnings = len(findings) - errors
    said = f"{count_of(errors, 'error')}, {count_of(warnings, 'warning')}"
    screen.print(said if findings else "nothing found")


def _order(finding: Finding) -> tuple[bool, bool]:
    """Errors first; in each, splits before what concerns the model."""
    return str(finding.severity) != "error", not finding.operator


def _what(finding: Finding) -> tuple[str | None, ...]:
    """Return what a finding says without its place."""
    what = (finding.operator, finding.code, finding.target, finding.outcome, finding.message, finding.fix)
    return (str(finding.severity), *what)


def _heading(group: Sequence[Finding]) -> Any:
    finding = group[0]
    at = str(finding.where)
    if len(group) > 1:
        at = f"{len(group)} places: {places([place(one.where) for one in group])}"
    operator = f"{finding.operator} " if finding.operator else ""
    outcome = f" ({finding.target}: {finding.outcome})" if finding.target else ""
    return one_line(f"{finding.severity}: {operator}[{finding.code}]{outcome}{f' at {at}' if at else ''}")
