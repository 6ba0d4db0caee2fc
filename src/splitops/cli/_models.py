"""Model files and targets as arguments of commands: what cannot be right is wrong usage, before any work."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from splitops.cli._console import console, one_line, say_model_written
from splitops.cli._options import Read
from splitops.cli._paths import Existing, add_path, replaces_any
from splitops.errors import ModelError, shown_path
from splitops.models import is_openvino

if TYPE_CHECKING:
    from splitops.models.check import Target as Runtime
    from splitops.models.convert import Target

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _prove_ending(path: Path, param_type: click.Path, param: click.Parameter | None, ctx: Any) -> None:
    try:
        is_openvino(path)
    except ModelError as error:
        param_type.fail(error.message, param, ctx)


class _ModelFile(Existing):
    """The path of a model that is read, whose ending tells its format."""

    name = "model file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        _prove_ending(Path(value), self, param, ctx)
        return super().convert(value, param, ctx)


class _NewModelFile(click.Path):
    """The path of a model that is written, whose ending tells its format."""

    name = "model file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        _prove_ending(path, self, param, ctx)
        for each in (path, path.with_suffix(".bin") if is_openvino(path) else Path(f"{path}.data")):
            add_path(each, "--out", written=True)
        return path


def _read_target(text: str) -> Target:
    from splitops.models.convert import parse_target

    if text.isascii() and text.isdigit():
        hint = f"Use onnx:{text} or openvino:opset{text}."
        raise click.BadParameter(f"{text} does not name a format. {hint}")
    return parse_target(text)


def _read_runtime(text: str) -> Runtime:
    """Read what a model is for: a runtime, a release of one, or a file of limits."""
    from splitops.models.check import Target

    return Target.load(text)


def _runtimes() -> Iterable[str]:
    from splitops.models.check.targets import names

    return names()


MODEL_FILE = _ModelFile()
NEW_MODEL_FILE = _NewModelFile()
TARGET = Read("target", _read_target)
RUNTIME = Read("runtime", _read_runtime, _runtimes)

links_option = click.option(
    "--allow-links",
    is_flag=True,
    help="Follow links to the model's other files out of its folder, as caches of model hubs have them. "
    "In a folder that you do not trust, they could name any file.",
)

strict_option = click.option(
    "--strict",
    is_flag=True,
    help="Fail if the folder has a tensor file that its model does not name. Without it, a warning names it.",
)

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show what would be written, and write nothing."
)


def out_option(
    help_: str = "File to write. Without it, only show what would be done.",
) -> Callable[[_Function], _Function]:
    """Return the option that names the model file to write, which a command gets as ``out``."""
    return click.option("-o", "--out", type=NEW_MODEL_FILE, help=help_)


def for_option(help_: str) -> Callable[[_Function], _Function]:
    """Return the option that names targets, which a command gets as ``targets``."""
    return click.option("--for", "targets", multiple=True, type=RUNTIME, metavar="RUNTIME", help=help_)


def print_end(out: Path | None, files: Sequence[Path]) -> None:
    """Print the files that were written, what a dry run would write, or how to write it."""
    if files:
        say_model_written(files)
    elif out is not None:
        console().print(f"Would write {one_line(str(out))}.", soft_wrap=True)
    else:
        console().print("Nothing was written: add -o FILE to write the model.")


def fix_command(model: Path, runtimes: Iterable[str], **options: str | bool | None) -> str:
    """Return the command that writes the fixed model beside the given one.

    Args:
        model: the file to fix.
        runtimes: what it is for.
        options: options of the command by name; those that are false or None are left out.

    Examples:
        >>> fix_command(Path("my models/m.onnx"), ["onnxruntime"], keep_data=True, unbind=None)
        "splitops fix 'my models/m.onnx' --for onnxruntime --keep-data -o 'my models/m.fixed.onnx'"
    """
    named = [word for runtime in runtimes for word in ("--for", runtime)]
    more = []
    for name, value in options.items():
        if value:
            more += [f"--{name.replace('_', '-')}", *([value] if isinstance(value, str) else [])]
    fixed = model.with_name(f"{model.stem}.fixed{model.suffix}")
    return shlex.join(["splitops", "fix", str(model), *named, *more, "-o", str(fixed)])


def add_weights(model: Path) -> None:
    """Note the other files of a model that a command reads, so that none of its options may replace one.

    Raises:
        click.UsageError: an option would.
    """
    if is_openvino(model):
        add_path(model.with_suffix(".bin"), "the weights of MODEL")
        return
    if not replaces_any():  # most commands; then the model is not read for this
        return
    from splitops.models.formats.onnx.storage import weight_files

    for path in weight_files(model):
        add_path(path, "the weights of MODEL")


def hold(model: Path, out: Path | None, *, openvino: bool, keep_data: bool = False) -> None:
    """Check that the file to write has the ending of its format, and does not replace the model's weights.

    They may be replaced together with the model, whose place the new one takes. With ``keep_data``, no file
    of weights is written.
    """
    if not keep_data and (out is None or not (out.exists() and out.samefile(model))):
        add_weights(model)
    if out is not None and is_openvino(out) is not openvino:
        expected = "OpenVINO IR, which ends in .xml" if openvino else "an ONNX model, which ends in .onnx"
        raise click.BadParameter(f"{shown_path(out)} is to hold {expected}.", param_hint="-o")
