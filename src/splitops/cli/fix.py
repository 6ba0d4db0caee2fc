"""``splitops fix``: a model whose splits its runtimes execute correctly."""

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
    say_model_written,
)
from splitops.cli._models import (
    MODEL_FILE,
    dry_run_option,
    fix_command,
    for_option,
    hold,
    links_option,
    out_option,
)
from splitops.cli._verification import hold_inputs, print_verifications, verify_in, verify_options
from splitops.errors import ModelError, count_of, shown_path
from splitops.models import is_openvino

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from splitops.models.check import Finding, Target
    from splitops.models.fix import FixReport, SplitReport
    from splitops.models.verify import Verification

_MAX_ROWS: Final = 200


def _opening(ctx: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """Check what --open says."""
    from splitops.models.fix.opening import opening_of

    try:
        opening_of(text)
    except ModelError as error:
        raise click.BadParameter(f"{error.message.removeprefix('open is ')}.") from None
    return text


@click.command(short_help="Rewrite a model's splits so that a given runtime executes them correctly.")
@click.argument("model", type=MODEL_FILE)
@for_option(
    "Runtime that the model is for: a name, a release such as onnxruntime==1.28, or a .toml file of limits; "
    "see splitops targets. Repeatable.  [default: onnxruntime for ONNX and openvino for IR, if installed]"
)
@out_option()
@verify_options("the fixed model", "each runtime")
@click.option("--partial", is_flag=True, help="Write the model even if some of its splits cannot be fixed.")
@click.option(
    "--unbind",
    type=click.Choice(["as-written", "as-pytorch"]),
    help="What SplitToSequence with chunks of 1 and keepdims = 0 means. PyTorch exports a scripted unbind "
    "this way and drops the axis; as written, the axis stays.",
)
@click.option(
    "--open",
    "opening",
    metavar="even|chunk|rest=INDEX",
    callback=_opening,
    help="How constant lengths follow an axis whose size MODEL leaves open. Exporters write those of one "
    "size. even: equal parts, if the lengths are equal. rest=INDEX: that part takes what the others leave. "
    "chunk: parts of the first length, the last one smaller, as torch.split.",
)
@click.option(
    "--keep-data",
    is_flag=True,
    help="Leave data of MODEL that is in other files where it is: the fixed model names it, and has to be in "
    "the same folder.",
)
@dry_run_option
@links_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: Path,
    targets: tuple[Target, ...],
    out: Path | None,
    verify: bool,
    inputs: tuple[str, ...],
    partial: bool,
    unbind: str | None,
    opening: str | None,
    keep_data: bool,
    dry_run: bool,
    allow_links: bool,
    as_json: bool,
) -> None:
    """Rewrite the splits of MODEL, a .onnx file or the .xml of an OpenVINO IR, so that runtimes execute them.

    A split that breaks a rule is repaired where only one meaning is possible. A split that a runtime rejects
    or gets wrong (see splitops check) gets a form that the runtime executes correctly. All others stay as
    they are. If a split cannot be fixed, nothing is written and the exit code is 1.

    \b
    Examples:
      splitops fix model.onnx
      splitops fix model.onnx --for onnxruntime -o fixed.onnx
      splitops fix model.onnx --for onnxruntime --verify -o fixed.onnx
      splitops fix model.onnx --for npu.toml --verify --input x=data.npy -o fixed.onnx
      splitops fix model.onnx --for npu.toml -o fixed.onnx
      splitops fix model.onnx --unbind as-pytorch -o fixed.onnx
      splitops fix large.onnx --keep-data -o large.fixed.onnx
      splitops fix model.onnx --open rest=0 --verify -o fixed.onnx
      splitops fix model.xml -o fixed.xml --json
    """
    from splitops.models.fix import fix
    from splitops.models.formats.files import write_model

    if verify and unbind == "as-pytorch":
        raise click.UsageError("--verify compares with MODEL as written, which --unbind as-pytorch changes.")
    hold_inputs(inputs, verify=verify)
    hold(model, out, openvino=is_openvino(model), keep_data=keep_data)
    if keep_data:
        _hold_data(model, out)
    report = fix(
        model,
        targets or None,
        unbind=unbind,
        open=opening,
        partial=True,
        allow_links=allow_links,
        keep_data=keep_data,
        report=True,
    )
    failed = report.error is not None and not partial
    opened = opening is not None
    checks = _verified(model, report, inputs, allow_links, opened=opened) if verify and not failed else []
    failed |= any(not found.holds for found in checks)
    written = None if failed or dry_run else out
    files = () if written is None else write_model(report, written)
    if as_json:
        print_json(_json(report, model, files, checks if verify else None))
    else:
        _print(report, checks)
        options = {name: ctx.params[name] for name in ("partial", "unbind", "keep_data", "allow_links")}
        again = fix_command(model, map(str, targets), open=opening, **options)
        _print_end(report, again, out, files, checks, failed=failed)
    if failed:
        ctx.exit(1)


def _hold_data(model: Path, out: Path | None) -> None:
    """Check that a fixed model can name the data of its source."""
    if is_openvino(model):
        raise click.UsageError("--keep-data is for ONNX models: the data of OpenVINO IR is in its .bin.")
    if out is not None and out.parent.resolve() != model.parent.resolve():
        raise click.BadParameter(
            f"{shown_path(out)} is not in the folder of {shown_path(model)}, whose data --keep-data leaves "
            "where it is: write into that folder.",
            param_hint="-o",
        )


def _verified(
    model: Path, report: FixReport, inputs: Sequence[str], allow_links: bool, *, opened: bool
) -> list[Verification]:
    """Verify the fixed model in each of its runtimes that can run here, or in the one that is installed."""
    from splitops.models.fix import installed_runtimes
    from splitops.models.verify import VERIFIABLE

    named = [name.partition("==")[0] for name in report.runtimes]
    runtimes = [name for name in named if name in VERIFIABLE] or installed_runtimes(model)
    if not runtimes:
        cure = "install onnxruntime or openvino" if named else "name one with --for"
        raise click.UsageError(f"--verify needs a runtime: {cure}.")
    return verify_in(
        dict.fromkeys(runtimes), model, report.model, inputs, opened=opened, allow_links=allow_links
    )


def _elsewhere(report: FixReport, checks: Sequence[Verification]) -> str:
    """Say which runtimes, or releases, the fixed model was not run on; empty if it was run on all."""
    releases = {found.runtime: found.release for found in checks}
    missed = [
        label.replace("==", " ")
        for label in report.runtimes
        if (name := label.partition("==")[0]) not in releases
        or not f"{releases[name]}.".startswith(f"{label.partition('==')[2] or releases[name]}.")
    ]
    if not checks or not missed:
        return ""
    ran = " and ".join(f"{name} {release}" for name, release in releases.items())
    return f"{', '.join(missed)} cannot be run here: the fixed model ran on {ran}, which is installed."


def _json(
    report: FixReport, model: Path, files: Sequence[Path], checks: list[Verification] | None
) -> dict[str, Any]:
    from splitops.models.check import to_json

    return {
        "model": str(model),
        "runtimes": list(report.runtimes),
        "output": str(files[-1]) if files else None,
        "files": [str(path) for path in reversed(files)],
        "untested": [target.label for target in report.untested],
        "splits": [split.as_dict() for split in report.splits],
        "findings": to_json(report.findings),
        "verified": None if checks is None else [found.as_dict() for found in checks],
    }


def _print(report: FixReport, checks: list[Verification]) -> None:
    out = console()
    if report.splits:
        groups = alike(sorted(report.splits, key=_order), _what)
        for group in groups[:_MAX_ROWS]:
            for line in _lines(group):
                out.print(line, soft_wrap=True)
        if len(groups) > _MAX_ROWS:
            out.print(f"... and {len(groups) - _MAX_ROWS} more; --json lists all")
    for finding in report.findings:
        for line in _left(finding):
            out.print(one_line(line, 400), soft_wrap=True)
    out.print(_summary(report), soft_wrap=True)
    print_verifications(checks)
    elsewhere = _elsewhere(report, checks)
    if elsewhere:
        out.print(one_line(elsewhere), soft_wrap=True)


def _summary(report: FixReport) -> str:
    """Say how many splits were rewritten, and what is left."""
    from splitops.models.check.targets import sentence_of, untested_words

    untested = untested_words(report.untested, _met(report))
    names = ", ".join(map(_with_release, report.runtimes))
    told = f" for {names}" if names else ""
    rewritten, left = len(report.rewritten), len(report.unfixable)
    sentences = []
    if not report.splits:
        sentences.append("The model has no split")
    elif rewritten or left or report.findings:
        breaks = "break a rule" if left > 1 else "breaks a rule"
        run = {0: breaks, 1: "it cannot run"}.get(len(report.runtimes), "one of them cannot run")
        run = "meets a limit or breaks a rule" if untested and not left else run
        sentences.append(f"{count_of(rewritten, 'split')} rewritten{told}; {left or 'none'} left that {run}")
    else:
        none = "Nothing to rewrite" if report.possible else "No problems found"
        sentences.append(f"{none} ({count_of(len(report.splits), 'split')} checked{told})")
    if untested and not (rewritten or left or report.findings):
        sentences[0] += f": {untested}"
    if report.findings:
        sentences.append(f"A check finds {count_of(len(report.findings), 'other error')}")
    if report.possible:
        splits = count_of(len(report.possible), "split")
        sentences.append(f"{splits} can still go wrong, depending on the input")
    text = " ".join(f"{sentence}." for sentence in sentences)
    return f"{text}\n{sentence_of(untested)}" if untested and untested not in text else text


def _met(report: FixReport) -> set[str]:
    """Return the runtimes of which a limit is met, or may be."""
    reasons = (reason for split in report.splits for reason in (*split.reasons, *split.possible))
    return {reason.code.partition(".")[0] for reason in reasons}


def _with_release(runtime: str) -> str:
    """Return a runtime's name, with the release if it is installed."""
    from importlib import metadata

    if "==" in runtime:
        return runtime.replace("==", " ")
    try:
        return f"{runtime} {metadata.version(runtime)}"
    except metadata.PackageNotFoundError:
        return runtime


def _print_end(
    report: FixReport,
    again: str,
    output: Path | None,
    files: Sequence[Path],
    checks: Sequence[Verification],
    *,
    failed: bool,
) -> None:
    """Say what was written, or how to write it: ``again`` is the command."""
    say_model_written(files)
    screen = console()
    if not report.runtimes and report.splits:
        screen.print("Only broken rules were looked for: name a runtime with --for.")
    if any(found.failures for found in checks):
        screen.print("Nothing was written: the fixed model failed in a runtime.")
    elif not all(found.holds for found in checks):
        screen.print("Nothing was written: no sample could be compared. Set inputs with --input.")
    elif failed:
        splits = count_of(len(report.unfixable), "split") if report.unfixable else ""
        others = (
            count_of(len(report.findings), "other error" if splits else "error") if report.findings else ""
        )
        count = " and ".join(filter(None, (splits, others)))
        screen.print(f"Nothing was written: {count} cannot be fixed. --partial writes the rest.")
    elif not files and output is not None:
        screen.print(f"Would write {one_line(str(output))}.", soft_wrap=True)
    elif not files and report.rewritten:
        screen.print(f"Write it: {again}", soft_wrap=True)


def _lines(group: list[SplitReport]) -> Iterator[str]:
    """Describe splits that are alike: in lines, since a table of so much fits no terminal."""
    first = group[0]
    where = places([place(split.where) for split in group])
    yield f"{where}: {first.status.value}, {one_line(first.before, 200)}"
    if first.after != first.before:
        yield f"  now: {one_line(first.after, 200)}"
    for reason in first.reasons:
        yield f"  why: {one_line(str(reason), 400)}"
    for reason in first.possible:
        yield f"  left: {one_line(str(reason), 400)}"
    if first.cost:
        yield f"  cost: {one_line(first.cost, 200)}"


def _left(finding: Finding) -> Iterator[str]:
    """Describe an error that a check finds in the fixed model."""
    where = place(finding.where)
    operator = f", {finding.operator}" if finding.operator else ""
    yield f"{where or 'the model'}: left as it is{operator}"
    yield f"  why: {finding.message} [{finding.code}]"
    if finding.fix:
        yield f"  help: {finding.fix}"


def _order(split: SplitReport) -> int:
    """Unfixable splits first, then those that changed."""
    return ("unfixable", "rewritten", "unchanged").index(split.status.value)


def _what(split: SplitReport) -> tuple[str, ...]:
    return split.before, split.status.value, split.after, *map(str, (*split.reasons, *split.possible))
