"""``splitops legalize``: a model whose splits a runtime runs as they are decided."""

from __future__ import annotations

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
from splitops.models import is_openvino

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splitops.models.fix import Legalization, SiteReport
    from splitops.models.proving import Proof

_MAX_ROWS: Final = 200


@click.command(short_help="State the splits of a model so that a runtime runs them right.")
@click.argument("model", type=MODEL_FILE)
@click.option(
    "--for",
    "target",
    required=True,
    type=click.Choice(RUNTIMES),
    help="The runtime.",
)
@click.option(
    "-o", "--out", "output", type=MODEL_FILE, help="Where to write the model. Without it, only report."
)
@click.option(
    "--unbind",
    type=click.Choice(["as-written", "as-pytorch"]),
    help="What SplitToSequence with chunks of 1 and keepdims = 0 means. PyTorch exports a scripted unbind "
    "so, and drops the axis; as written, it stays.",
)
@click.option(
    "--prove",
    "proved",
    is_flag=True,
    help="Run MODEL here and the new model in the runtime, in a process of its own, on made inputs at the "
    "sizes where the divisions change, and compare the bits.",
)
@click.option("--keep-illegal", is_flag=True, help="Leave a site without a legal form as it is.")
@links_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: Path,
    target: str,
    output: Path | None,
    unbind: str | None,
    proved: bool,
    keep_illegal: bool,
    allow_links: bool,
    as_json: bool,
) -> None:
    """Restate the splits of MODEL (.onnx or .xml) for a runtime, and report every site.

    A site that meets no limit of the runtime (see splitops check) stays as it is; one that does is stated in
    a form in which the runtime gives the same parts. Where there is none, it is named with the code of the
    limit, nothing is written, and the exit code is 1; with --keep-illegal it stays as it is.

    \b
    Examples:
      splitops legalize model.onnx --for onnxruntime --prove -o legal.onnx
      splitops legalize model.onnx --for onnxruntime --unbind as-pytorch -o legal.onnx
      splitops legalize model.xml --for openvino --json
    """
    from splitops.models.fix import legalize

    if proved and unbind == "as-pytorch":
        raise click.UsageError("--prove compares with what is written, which --unbind as-pytorch changes")
    hold(output, openvino=is_openvino(model))
    report = legalize(model, target, unbind=unbind, on_illegal="keep", allow_links=allow_links, report=True)
    refused = bool(report.illegal) and not keep_illegal
    proof = _proof(model, report, allow_links) if proved and not refused else None
    failed = refused or (proof is not None and not proof.holds)
    written = None if failed else output
    if written is not None:
        report.save(written)
    if as_json:
        print_json(_json(report, model, written, proof))
    else:
        _print(report, written, proof)
    if failed:
        ctx.exit(1)


def _proof(model: Path, report: Legalization, allow_links: bool) -> Proof:
    from splitops.models.proving import prove

    return prove(model, report, allow_links=allow_links)


def _json(report: Legalization, model: Path, output: Path | None, proof: Proof | None) -> dict[str, Any]:
    return {
        "model": str(model),
        "target": report.target,
        "output": None if output is None else str(output),
        "sites": [site.as_dict() for site in report.sites],
        "proof": None if proof is None else [trial.as_dict() for trial in proof.trials],
    }


def _print(report: Legalization, output: Path | None, proof: Proof | None) -> None:
    out = console()
    if not report.sites:
        out.print("The model has no split.")
    else:
        groups = alike(sorted(report.sites, key=_order), _what)
        for group in groups[:_MAX_ROWS]:
            for line in _lines(group):
                out.print(line, soft_wrap=True)
        if len(groups) > _MAX_ROWS:
            out.print(f"... and {len(groups) - _MAX_ROWS} more; --json lists all")
        restated, illegal = len(report.restated), len(report.illegal)
        legal = len(report.sites) - restated - illegal
        out.print(f"{legal} legal, {restated} restated, {illegal} illegal for {report.target}.")
    if proof is not None:
        out.print(one_line(str(proof)), soft_wrap=True)
        for trial in proof.failures:
            out.print(one_line(f"  {trial}"), style="bold red", soft_wrap=True)
    say_written(output)


def _lines(group: list[SiteReport]) -> Iterator[str]:
    """Say what became of sites that are alike: in lines, since a table of so much fits no terminal."""
    first = group[0]
    where = places([place(site.where) for site in group])
    yield f"{where}: {first.fate.value}, {one_line(first.before, 200)}"
    if first.after != first.before:
        yield f"  now: {one_line(first.after, 200)}"
    for reason in first.reasons:
        yield f"  why: {one_line(str(reason), 400)}"
    if first.cost:
        yield f"  cost: {one_line(first.cost, 200)}"


def _order(site: SiteReport) -> int:
    """Illegal sites first, then what changed."""
    return ("illegal", "restated", "legal").index(site.fate.value)


def _what(site: SiteReport) -> tuple[str, ...]:
    return site.before, site.fate.value, site.after, *map(str, site.reasons)
