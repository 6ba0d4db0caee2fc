"""Parameter types and options for model files, runtimes and conversion targets."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from splitops.cli._console import escape, make_console, print_model_written
from splitops.cli._options import Read
from splitops.cli._paths import Existing, add_path, has_file_to_replace
from splitops.errors import ModelError, shown_path
from splitops.models import is_openvino

if TYPE_CHECKING:
    from splitops.models.check import Target as Runtime
    from splitops.models.convert import ConversionTarget

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _check_format(path: Path, param_type: click.Path, param: click.Parameter | None, ctx: Any) -> None:
    try:
        is_openvino(path)
    except ModelError as error:
        param_type.fail(error.message, param, ctx)


class _ModelFile(Existing):
    """The path of a model to read. Its extension determines the format."""

    name = "model file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        _check_format(Path(value), self, param, ctx)
        return super().convert(value, param, ctx)


class _NewModelFile(click.Path):
    """The path of a model to write. Its extension determines the format."""

    name = "model file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        _check_format(path, self, param, ctx)
        for each in (path, path.with_suffix(".bin") if is_openvino(path) else Path(f"{path}.data")):
            add_path(each, "--out", written=True)
        return path


def _read_target(text: str) -> ConversionTarget:
    from splitops.models.convert import parse_target

    if text.isascii() and text.isdigit():
        hint = f"Use onnx:{text} or openvino:opset{text}."
        raise click.BadParameter(f"{text} does not name a format. {hint}")
    return parse_target(text)


def _read_runtime(text: str) -> Runtime:
    """Load a target by name, by a release such as ``onnxruntime==1.28``, or from a .toml file of limits."""
    from splitops.models.check import Target

    return Target.load(text)


def _list_runtimes() -> Iterable[str]:
    from splitops.models.check.targets import list_target_names

    return list_target_names()


MODEL_FILE = _ModelFile()
NEW_MODEL_FILE = _NewModelFile()
TARGET = Read("target", _read_target)
RUNTIME = Read("runtime", _read_runtime, _list_runtimes)

links_option = click.option(
    "--allow-links",
    is_flag=True,
    help="Follow links that lead to files outside of the model's folder, as in caches of model hubs. "
    "In a folder that you do not trust, a link could name any file.",
)

strict_option = click.option(
    "--strict",
    is_flag=True,
    help="Fail if the folder contains a tensor file that its model does not use, instead of warning.",
)

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show what would be written, without writing it."
)


def make_out_option(
    help_: str = "File to write. Without it, only show the changes.",
) -> Callable[[_Function], _Function]:
    """Return a decorator for ``--out``, the model file to write. The command receives it as ``out``."""
    return click.option("-o", "--out", type=NEW_MODEL_FILE, help=help_)


def make_for_option(help_: str) -> Callable[[_Function], _Function]:
    """Return a decorator for ``--for``, which may be repeated. The command receives a tuple ``targets``."""
    return click.option("--for", "targets", multiple=True, type=RUNTIME, metavar="RUNTIME", help=help_)


def print_outcome(out: Path | None, files: Sequence[Path]) -> None:
    """Print the written files. If there are none, print the file of a dry run, or advice to use ``-o``."""
    if files:
        print_model_written(files)
    elif out is not None:
        make_console().print(f"Would write {escape(str(out))}.", soft_wrap=True)
    else:
        make_console().print("Nothing was written: add -o FILE to write the model.")


def format_command(model: Path, runtimes: Iterable[str], **options: str | bool | None) -> str:
    """Return the ``splitops fix`` command that writes the fixed model next to ``model``.

    ``options`` that are None or False are left out.

    Examples:
        >>> format_command(Path("my models/m.onnx"), ["onnxruntime"], keep_data=True, unbind=None)
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
    """Register the weight files of a model that the command reads. Check that it replaces none of them.

    An ONNX model is read for this only if the command has registered an existing file that it replaces.
    """
    if is_openvino(model):
        add_path(model.with_suffix(".bin"), "the weights of MODEL")
        return
    if not has_file_to_replace():  # the usual case, in which the model need not be read
        return
    from splitops.models.formats.onnx.storage import find_weight_files

    for path in find_weight_files(model):
        add_path(path, "the weights of MODEL")


def check_extension(model: Path, out: Path | None, *, openvino: bool, keep_data: bool = False) -> None:
    """Check the extension of ``out``, and that writing it replaces no weights of ``model``.

    If ``openvino`` is set, ``out`` must be an IR, otherwise an ONNX model. If ``out`` is ``model`` itself,
    its weights may be replaced with it. With ``keep_data``, no weights are written.
    """
    if not keep_data and (out is None or not (out.exists() and out.samefile(model))):
        add_weights(model)
    if out is not None and is_openvino(out) is not openvino:
        expected = "OpenVINO IR: use .xml" if openvino else "ONNX: use .onnx"
        raise click.BadParameter(f"{shown_path(out)} must have the extension of {expected}.", param_hint="-o")
