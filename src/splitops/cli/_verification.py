"""``--verify``: a written model runs in its runtime, and the bits are compared with those of the source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from splitops.cli._console import console, one_line
from splitops.models import is_openvino

if TYPE_CHECKING:
    from pathlib import Path

    from splitops.models.formats.files import ModelInMemory
    from splitops.models.verify import Verification

_Function = TypeVar("_Function", bound=Callable[..., Any])


def verify_options(result: str, runtime: str = "its runtime") -> Callable[[_Function], _Function]:
    """Return the options ``--verify`` and ``--input``, which a command gets as ``verify`` and ``inputs``.

    Args:
        result: what the command writes.
        runtime: where it is run.
    """

    def decorate(command: _Function) -> _Function:
        command = click.option(
            "--input",
            "inputs",
            multiple=True,
            metavar="NAME=VALUE",
            help="One input for --verify, as in splitops run, instead of samples. Repeat it for each input.",
        )(command)
        return click.option(
            "--verify",
            is_flag=True,
            help=f"Run MODEL with the reference and {result} in {runtime}, in a separate process, and "
            "compare the bits. The inputs are samples: sizes around those at which the divisions change.",
        )(command)

    return decorate


def hold_inputs(inputs: Sequence[str], *, verify: bool) -> None:
    """Check that inputs are verified with.

    Raises:
        click.UsageError: they are not.
    """
    if inputs and not verify:
        raise click.UsageError("--input is for --verify.")


def verify_in(
    runtimes: Iterable[str],
    source: Path,
    model: ModelInMemory,
    inputs: Sequence[str],
    *,
    opened: bool = False,
    allow_links: bool,
) -> list[Verification]:
    """Compare a model that was made with its source in each runtime, on samples or the given inputs.

    ``opened`` says that the model accepts sizes that its source rejects.
    """
    from splitops.models.sessions import session
    from splitops.models.verify import verify

    feeds = None
    if inputs:
        from splitops.cli._inputs import read_inputs

        with session(model, "reference") as ready:  # the source may not run
            feeds = read_inputs(inputs, ready.inputs)
    return [
        verify(source, model, name, inputs=feeds, opened=opened, allow_links=allow_links) for name in runtimes
    ]


def runtime_of(model: ModelInMemory) -> str:
    """Return the runtime of a model's format."""
    return "openvino" if is_openvino(model) else "onnxruntime"


def print_verifications(checks: Iterable[Verification]) -> None:
    """Print the counts of each verification, and each sample that failed."""
    out = console()
    for found in checks:
        out.print(one_line(str(found)), soft_wrap=True)
        for trial in found.failures:
            out.print(one_line(f"  {trial}"), style="bold red", soft_wrap=True)


def print_failed(result: str) -> None:
    """Print why nothing was written. ``result`` names the model that was verified."""
    screen = console()
    screen.print(f"Nothing was written: {result} failed in its runtime.")
    screen.print("splitops check MODEL --for RUNTIME shows whether MODEL itself fails there.")
