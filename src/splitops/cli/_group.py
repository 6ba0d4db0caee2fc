"""The ``splitops`` command: finds subcommands, and reports errors as messages and exit codes."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from splitops import cli as package
from splitops.cli._console import escape
from splitops.cli._options import suggest
from splitops.cli._progress import show_progress
from splitops.common.signals import get_exit_code
from splitops.common.version import __version__
from splitops.errors import SplitError, format_bytes

INVALID: Final = 1
"""Exit code for an invalid model or invalid data. Click's code for wrong usage is 2."""
_COMMAND: Final = "splitops.command"
"""Key in the ``meta`` of a click context under which the command-line arguments are stored."""
_MAX_COMMAND: Final = 1000
"""Maximum total length of the command and the folder in a message about an interrupted run."""

_SYNONYMS: Final = {
    "--apply": ("--out",),
    "--dtype": ("--to",),
    "--engine": ("--for",),
    "--explain": ("--dry-run",),
    "--format": ("--output-format", "--to"),
    "--out-dir": ("--out",),
    "--outdir": ("--out",),
    "--output": ("--out", "--output-format"),
    "--preview": ("--dry-run",),
    "--prove": ("--verify",),
    "--runtime": ("--for",),
    "--sarif": ("--output-format",),
    "--target": ("--for", "--to"),
    "cat": ("inspect",),
    "doctor": ("report-environment",),
    "explain-rule": ("rule",),
    "legalize": ("fix",),
    "lint": ("check",),
    "optimize": ("simplify",),
    "repair": ("fix",),
    "show": ("inspect",),
    "validate": ("check",),
    "version": ("report-environment",),
}
"""Names of commands and options in other tools, with the splitops names for the same thing."""


class Command(click.Command):
    """A command that shows the progress of its work, and turns errors into messages and exit codes.

    Errors of models, files and memory, and interrupts, are one line each. Usage errors suggest similar names.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_COMMAND] = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise _make_option_error(error) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with show_progress():
                return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise _make_option_error(error) from error
        except click.BadParameter as error:
            kind, word = getattr(error.param, "type", None), re.match("'(.*)' is not one of", error.message)
            if word is None or not isinstance(kind, click.Choice):
                raise
            meant = f"{error.message}{suggest(word[1], kind.choices)}"
            raise click.BadParameter(meant, error.ctx, error.param) from error
        except SplitError as error:
            _fail(ctx, str(error), INVALID)
        except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
            with contextlib.suppress(OSError):
                sys.stdout.close()
            ctx.exit(0)
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            _fail(ctx, f"{place}{error.strerror or error}".lower(), INVALID)
        except MemoryError:
            _fail(ctx, "not enough memory", INVALID)
        except KeyboardInterrupt as error:
            with contextlib.suppress(OSError):  # the terminal may be closed
                _fail(ctx, _describe_interrupt(error, ctx.meta[_COMMAND]), get_exit_code(error))
            ctx.exit(get_exit_code(error))


class _Commands(Command, click.Group):
    """A group with one command for each module of this package without a leading underscore."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        modules = pkgutil.iter_modules(package.__path__)
        return sorted(module.name.replace("_", "-") for module in modules if not module.name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"{package.__name__}.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is not None:
            return super().resolve_command(ctx, args)
        raise _make_error(ctx, "command", args[0], self.list_commands(ctx))


def _describe_interrupt(error: KeyboardInterrupt, words: Sequence[str]) -> str:
    """Return the message for an interrupted command: the bytes it has kept, and how to resume it.

    ``words`` are the command-line arguments.
    """
    if not hasattr(error, "__notes__"):
        return "interrupted"
    from splitops.files.plan_types import Kept

    kept = next((note for note in error.__notes__ if isinstance(note, Kept)), None)
    if kept is None:
        return "interrupted"
    done, total = format_bytes(kept.done), format_bytes(kept.total)
    if kept.folder is None:
        return f"interrupted; none of the {total} was kept"
    # The option follows the name of the command, since there may be a "--" later.
    again = ["splitops", words[0], *(["--resume"] * ("--resume" not in words)), *words[1:]]
    command, folder = " ".join(map(_quote, again)), _quote(str(kept.folder))
    if len(command) + len(folder) > _MAX_COMMAND:
        command = "the same command with --resume"
    return f"interrupted; {done} of {total} are kept in {folder}: delete it, or continue with: {command}"


def _quote(word: str) -> str:
    """Quote an argument for a shell, with ``$'...'`` escapes for characters that cannot be printed."""
    import shlex

    if word.isprintable():
        return shlex.quote(word)
    octal = "\\{:03o}".format
    safe = (c if c.isprintable() and c not in "\\'" else "".join(map(octal, os.fsencode(c))) for c in word)
    return f"$'{''.join(safe)}'"


def _make_option_error(error: click.NoSuchOption) -> click.UsageError:
    context = error.ctx
    assert context is not None
    names = [name for option in context.command.get_params(context) for name in option.opts]
    known = [name for name in names if name.startswith("--")]
    return _make_error(context, "option", error.option_name, known)


def _make_error(ctx: click.Context, kind: str, word: str, known: Sequence[str]) -> click.UsageError:
    """Return the error for an unknown command or option. It suggests a synonym or the most similar one."""
    likely = next((name for name in _SYNONYMS.get(word, ()) if name in known), None)
    meant = f" Did you mean {likely!r}?" if likely else suggest(word, known)
    return click.UsageError(f"No such {kind} {escape(word, 80)!r}.{meant}", ctx)


def _fail(ctx: click.Context, message: str, code: int) -> None:
    name = "splitops" if isinstance(ctx.command, click.Group) else ctx.command.name
    click.echo(f"{name}: {escape(message)}", err=True)
    ctx.exit(code)


_HELP = """Find and fix broken splits in ONNX and OpenVINO models; split arrays, files and checkpoints.

\b
Examples:
  splitops check model.onnx --for onnxruntime
  splitops fix model.onnx --for onnxruntime -o fixed.onnx
  splitops rule "Invalid num_outputs value of 4"
  splitops explain --shape 6,12,10,24 --axis 1 --parts 3
  splitops split data.npy --axis 1 --sizes 2,4 --out parts
  splitops run model.onnx --input x=data.npy --out results
  splitops infer model.onnx -o shaped.onnx
  splitops convert model.onnx --to openvino -o model.xml
  splitops shard model --ranks 8 --plan auto --out ranks
  splitops spec Split --opset 13
  splitops diff Split 13 18

Exit codes: 0 success; 1 the model or the data is invalid: one line on stderr names the rule and the place;
2 wrong usage; 130 interrupted by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP. A command writes all of its files or
none.
"""


@click.command(
    cls=_Commands,
    help=_HELP,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
        "show_default": True,
    },
)
@click.version_option(__version__, prog_name="splitops")
def cli() -> None:
    """Find and run a command."""
