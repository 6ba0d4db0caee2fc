"""``--verify``: runs the new model in its runtime and compares its outputs with those of the source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from splitops.cli._console import escape, make_console
from splitops.models import is_openvino

if TYPE_CHECKING:
    from pathlib import Path

    from splitops.models.formats.files import ModelInMemory
    from splitops.models.verify import Verification

_Function = TypeVar("_Function", bound=Callable[..., Any])


def add_verify_options(result: str, runtime: str = "its runtime") -> Callable[[_Function], _Function]:
    """Return a decorator that adds ``--verify``, and ``--input``, which a command receives as ``inputs``.

    The help calls the new model ``result``, and its runtime ``runtime``.
    """

    def decorate(command: _Function) -> _Function:
        command = click.option(
            "--input",
            "inputs",
            multiple=True,
            metavar="NAME=VALUE",
            help="An input for --verify, as in splitops run, instead of a generated one. Repeatable.",
        )(command)
        return click.option(
            "--verify",
            is_flag=True,
            help=f"Run MODEL on the reference evaluator and {result} in {runtime}, in a separate process. "
            "Compare the outputs bit by bit. Generated inputs have axis sizes around those at which a split "
            "gets other parts.",
        )(command)

    return decorate


def check_verify_inputs(inputs: Sequence[str], *, verify: bool) -> None:
    """Check that ``--input`` is not used without ``--verify``."""
    if inputs and not verify:
        raise click.UsageError("--input requires --verify.")


def verify_in(
    runtimes: Iterable[str],
    source: Path,
    model: ModelInMemory,
    inputs: Sequence[str],
    *,
    opened: bool = False,
    allow_links: bool,
) -> list[Verification]:
    """Compare a new model in each runtime with its source, on the ``--input`` texts or generated inputs.

    ``opened`` means that the new model accepts axis sizes that its source rejects.
    """
    from splitops.models.sessions import session
    from splitops.models.verify import verify

    feeds = None
    if inputs:
        from splitops.cli._inputs import read_inputs

        with session(model, "reference") as ready:  # not the source, which may be invalid
            feeds = read_inputs(inputs, ready.inputs)
    return [
        verify(source, model, name, inputs=feeds, opened=opened, allow_links=allow_links) for name in runtimes
    ]


def get_runtime(model: ModelInMemory) -> str:
    """Return the default runtime for the format of a model: ``"openvino"`` or ``"onnxruntime"``."""
    return "openvino" if is_openvino(model) else "onnxruntime"


def print_verifications(checks: Iterable[Verification]) -> None:
    """Print the summary of each verification, and each sample that failed."""
    out = make_console()
    for found in checks:
        out.print(escape(str(found)), soft_wrap=True)
        for trial in found.failures:
            out.print(escape(f"  {trial}"), style="bold red", soft_wrap=True)


def print_failed(result: str, checks: Iterable[Verification], hint: str = "") -> None:
    """Print why nothing was written: ``result``, such as "the fixed model", failed or was never compared.

    ``hint`` follows if it failed.
    """
    screen = make_console()
    if any(found.failures for found in checks):
        screen.print(f"Nothing was written: {result} failed in a runtime.")
        if hint:
            screen.print(hint)
    else:
        screen.print("Nothing was written: no sample could be compared. Set inputs with --input.")


CHECK_MODEL: Final = "To see whether MODEL itself fails there: splitops check MODEL --for RUNTIME"
"""Hint for a model that failed after a conversion or simplification."""
