"""The ``splitops`` command itself: finds its commands, and turns errors into one line and an exit code."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import sys
from typing import Any, Final

import click

from splitops import cli as package
from splitops.cli._console import one_line
from splitops.cli._progress import showing_progress
from splitops.errors import SplitError
from splitops.ground.version import __version__

INVALID: Final = 1
"""Exit code where the model or the data is invalid; 2 is wrong usage, as click has it."""
INTERRUPTED: Final = 130
"""Exit code after Ctrl-C."""


class _Commands(click.Group):
    """The modules of this package that do not begin with an underscore."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        modules = pkgutil.iter_modules(package.__path__)
        return sorted(module.name.replace("_", "-") for module in modules if not module.name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"{package.__name__}.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with showing_progress():
                return super().invoke(ctx)
        except SplitError as error:
            _fail(ctx, str(error), INVALID)
        except BrokenPipeError:  # the reader, such as `head`, has seen enough
            with contextlib.suppress(OSError):
                sys.stdout.close()
            ctx.exit(0)
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            _fail(ctx, f"{place}{error.strerror or error}".lower(), INVALID)
        except MemoryError:
            _fail(ctx, "not enough memory", INVALID)
        except KeyboardInterrupt:
            _fail(ctx, "interrupted", INTERRUPTED)


def _fail(ctx: click.Context, message: str, code: int) -> None:
    click.echo(f"splitops: {one_line(message)}", err=True)
    ctx.exit(code)


_HELP = """The tensor split operators of ONNX and OpenVINO, on arrays and models.

\b
Examples:
  splitops explain --shape 6,12,10,24 --axis 1 --parts 3
  splitops split data.npy --axis 1 --sizes 2,4 --out parts
  splitops run model.onnx --input x=data.npy --out results
  splitops check model.onnx --target onnxruntime --target openvino
  splitops infer model.onnx -o shaped.onnx
  splitops convert model.onnx --to openvino -o model.xml
  splitops shard model --ranks 8 --plan auto --out ranks
  splitops spec Split --opset 13
  splitops diff Split 13 18

Exit codes: 0 done; 1 the model or the data is invalid, with the rule and the place in one line on stderr;
2 wrong usage; 130 interrupted. Files appear whole, and all of a command's files together, or not at all.
"""


@click.command(
    cls=_Commands,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="splitops")
def cli() -> None:
    """Find and run a command."""
