"""``splitops fix``: rewrite the splits of a model so that runtimes execute them correctly."""

from __future__ import annotations

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
    print_model_written,
)
from splitops.cli._models import (
    MODEL_FILE,
    check_extension,
    dry_run_option,
    format_command,
    links_option,
    make_for_option,
    make_out_option,
)
from splitops.cli._verification import (
    add_verify_options,
    check_verify_inputs,
    print_failed,
    print_verifications,
    verify_in,
)
from splitops.errors import ModelError, count_of, format_list, shown_path
from splitops.models import is_openvino

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from splitops.models.check import Finding, Target
    from splitops.models.fix import FixReport, SplitReport
    from splitops.models.verify import Verification

_MAX_ROWS: Final = 200


def _check_opening(ctx: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """Check and return the value of ``--open``."""
    from splitops.models.fix.opening import parse_opening

    try:
        parse_opening(text)
    except ModelError as error:
        raise click.BadParameter(f"{error.message.removeprefix('open = ')}.") from None
    return text


@click.command(short_help="Rewrite a model's splits so that a given runtime executes them correctly.")
@click.argument("model", type=MODEL_FILE)
@make_for_option(
    "Runtime that the model is for: a name, a release such as onnxruntime==1.28, or a .toml file of limits; "
    "see splitops targets. Repeatable.  [default: onnxruntime for ONNX and openvino for IR, if installed]"
)
@make_out_option()
@add_verify_options("the fixed model", "each runtime")
@click.option("--partial", is_flag=True, help="Write the model even if some splits cannot be fixed.")
@click.option(
    "--unbind",
    type=click.Choice(["as-written", "as-pytorch"]),
    help="Meaning of SplitToSequence with chunks of 1 and keepdims = 0. As written, the parts keep the axis. "
    "PyTorch exports a scripted unbind this way, whose parts do not have the axis.",
)
@click.option(
    "--open",
    "opening",
    metavar="even|chunk|rest=INDEX",
    callback=_check_opening,
    help="Replace constant lengths on an axis of open size. Exporters write the lengths of one size. even: "
    "equal parts, if the lengths are equal. rest=INDEX: that part is the rest of the axis. chunk: parts of "
    "the first length, the last one smaller, as in torch.split.",
)
@click.option(
    "--keep-data",
    is_flag=True,
    help="Do not copy external data of MODEL: the fixed model refers to it, and must be in the same folder.",
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

    A split that breaks a rule is repaired if only one meaning is possible. A split that a runtime rejects or
    gets wrong (see splitops check) is rewritten so that the runtime executes it correctly. All others stay
    unchanged. If a split cannot be fixed, nothing is written and the exit code is 1, unless --partial is set.

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
    from splitops.models.fix import fix_with_report
    from splitops.models.formats.files import write_model

    if verify and unbind == "as-pytorch":
        raise click.UsageError("--verify cannot be used with --unbind as-pytorch, which changes outputs.")
    check_verify_inputs(inputs, verify=verify)
    check_extension(model, out, openvino=is_openvino(model), keep_data=keep_data)
    if keep_data:
        _check_folder(model, out)
    report = fix_with_report(
        model,
        targets or None,
        unbind=unbind,
        open=opening,
        partial=True,
        allow_links=allow_links,
        keep_data=keep_data,
    )
    failed = report.error is not None and not partial
    opened = opening is not None
    checks = _verify(model, report, inputs, allow_links, opened=opened) if verify and not failed else []
    failed |= any(not found.holds for found in checks)
    written = None if failed or dry_run else out
    files = () if written is None else write_model(report, written)
    if as_json:
        print_json(_to_json(report, model, files, checks if verify else None))
    else:
        _print(report, checks)
        options = {name: ctx.params[name] for name in ("partial", "unbind", "keep_data", "allow_links")}
        again = format_command(model, map(str, targets), open=opening, **options)
        _print_outcome(report, again, out, files, checks, failed=failed)
    if failed:
        ctx.exit(1)


def _check_folder(model: Path, out: Path | None) -> None:
    """Check that a fixed model in the file ``out`` can refer to the external data of ``model``."""
    if is_openvino(model):
        raise click.UsageError("--keep-data works only for ONNX models, since IR has its data in a .bin.")
    if out is not None and out.parent.resolve() != model.parent.resolve():
        raise click.BadParameter(
            f"{shown_path(out)} is not in the folder of {shown_path(model)}. With --keep-data, write into "
            "that folder, where the data stays.",
            param_hint="-o",
        )


def _verify(
    model: Path, report: FixReport, inputs: Sequence[str], allow_links: bool, *, opened: bool
) -> list[Verification]:
    """Verify the fixed model in those of its runtimes that are in ``VERIFIABLE``.

    If there are none, use the default runtime of the model's format. Raise UsageError if it is not installed.
    """
    from splitops.models.fix import installed_runtimes
    from splitops.models.verify import VERIFIABLE

    named = [name.partition("==")[0] for name in report.runtimes]
    runtimes = [name for name in named if name in VERIFIABLE] or installed_runtimes(model)
    if not runtimes:
        advice = "install onnxruntime or openvino" if named else "name one with --for"
        raise click.UsageError(f"--verify needs a runtime: {advice}.")
    return verify_in(
        dict.fromkeys(runtimes), model, report.model, inputs, opened=opened, allow_links=allow_links
    )


def _describe_other_releases(report: FixReport, checks: Sequence[Verification]) -> str:
    """Return a sentence about the targets that the model was not verified on.

    Return "" if there are none, or if nothing was verified.
    """
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
    return f"{', '.join(missed)} cannot be run here: the fixed model ran on {ran} instead."


def _to_json(
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
    out = make_console()
    if report.splits:
        groups = group_equal_rows(sorted(report.splits, key=_get_sort_key), _get_group_key)
        for group in groups[:_MAX_ROWS]:
            for line in _describe_splits(group):
                out.print(line, soft_wrap=True)
        if len(groups) > _MAX_ROWS:
            out.print(f"... and {len(groups) - _MAX_ROWS} more; --json lists all")
    for finding in report.findings:
        for line in _describe_finding(finding):
            out.print(escape(line, 400), soft_wrap=True)
    out.print(_summarise(report), soft_wrap=True)
    print_verifications(checks)
    elsewhere = _describe_other_releases(report, checks)
    if elsewhere:
        out.print(escape(elsewhere), soft_wrap=True)


def _summarise(report: FixReport) -> str:
    """Return sentences about the rewritten splits and the remaining problems."""
    from splitops.models.check.targets import describe_untested, format_sentence

    untested = describe_untested(report.untested, _find_limited_runtimes(report))
    names = ", ".join(map(_format_runtime, report.runtimes))
    target = f" for {names}" if names else ""
    rewritten, left = len(report.rewritten), len(report.unfixable)
    sentences = []
    if not report.splits:
        sentences.append("The model has no split")
    elif rewritten or left or report.findings:
        sentences.append(f"{count_of(rewritten, 'split')} rewritten{target}")
        sentences.append(f"{count_of(left, 'split')} cannot be fixed" if left else "No split left to fix")
    else:
        none = "Nothing to rewrite" if report.possible else "No problems found"
        sentences.append(f"{none} ({count_of(len(report.splits), 'split')} checked{target})")
    if untested and not (rewritten or left or report.findings):
        sentences[0] += f": {untested}"
    if report.findings:
        sentences.append(f"A check finds {count_of(len(report.findings), 'other error')}")
    if report.possible:
        splits = count_of(len(report.possible), "split")
        sentences.append(f"{splits} can still go wrong, depending on the input")
    text = " ".join(f"{sentence}." for sentence in sentences)
    return f"{text}\n{format_sentence(untested)}" if untested and untested not in text else text


def _find_limited_runtimes(report: FixReport) -> set[str]:
    """Return the first part of each problem's code: the runtime of a limit, or the group of a rule."""
    reasons = (reason for split in report.splits for reason in (*split.reasons, *split.possible))
    return {reason.code.partition(".")[0] for reason in reasons}


def _format_runtime(runtime: str) -> str:
    """Return the name of a runtime, with the requested release or, without one, the installed one, if any."""
    from importlib import metadata

    if "==" in runtime:
        return runtime.replace("==", " ")
    try:
        return f"{runtime} {metadata.version(runtime)}"
    except metadata.PackageNotFoundError:
        return runtime


def _print_outcome(
    report: FixReport,
    again: str,
    output: Path | None,
    files: Sequence[Path],
    checks: Sequence[Verification],
    *,
    failed: bool,
) -> None:
    """Print the written files or, if nothing was written, why not or how to write the model.

    ``again`` is the command that writes it.
    """
    print_model_written(files)
    screen = make_console()
    if not report.runtimes and report.splits:
        screen.print("Only rules were checked. To check the limits of a runtime, name it with --for.")
    if not all(found.holds for found in checks):
        print_failed("the fixed model", checks)
    elif failed:
        splits = count_of(len(report.unfixable), "split") if report.unfixable else ""
        others = (
            count_of(len(report.findings), "other error" if splits else "error") if report.findings else ""
        )
        count = " and ".join(filter(None, (splits, others)))
        screen.print(f"Nothing was written: {count} cannot be fixed. To fix the others: --partial.")
    elif not files and output is not None:
        screen.print(f"Would write {escape(str(output))}.", soft_wrap=True)
    elif not files and report.rewritten:
        screen.print(f"Write it: {again}", soft_wrap=True)


def _describe_splits(group: list[SplitReport]) -> Iterator[str]:
    """Yield lines about a group of equal splits, since a table would be too wide."""
    first = group[0]
    where = format_list([format_place(split.where) for split in group], limit=3)
    yield f"{where}: {first.status.value}, {escape(first.before, 200)}"
    if first.after != first.before:
        yield f"  now: {escape(first.after, 200)}"
    for reason in first.reasons:
        yield f"  why: {escape(str(reason), 400)}"
    for reason in first.possible:
        yield f"  left: {escape(str(reason), 400)}"
    if first.cost:
        yield f"  cost: {escape(first.cost, 200)}"


def _describe_finding(finding: Finding) -> Iterator[str]:
    """Yield lines about an error in the fixed model that is not reported with a split."""
    where = format_place(finding.where)
    operator = f", {finding.operator}" if finding.operator else ""
    yield f"{where or 'the model'}: not fixed{operator}"
    yield f"  why: {finding.message} [{finding.code}]"
    if finding.fix:
        yield f"  help: {finding.fix}"


def _get_sort_key(split: SplitReport) -> int:
    """Return the sort key: unfixable splits come first, then rewritten ones, then unchanged ones."""
    return ("unfixable", "rewritten", "unchanged").index(split.status.value)


def _get_group_key(split: SplitReport) -> tuple[str, ...]:
    return split.before, split.status.value, split.after, *map(str, (*split.reasons, *split.possible))
