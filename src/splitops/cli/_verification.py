"""``--verify``: a written model runs in its runtime, and the bits are compared with those of the source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from splitops.cli._console import console, one_line
from splitops.models import is_openvino

if TYPE_CHECKING:
    from pathlib import Path

    from splitops.models.formats.files import ModelInMemory
    from splitops.models.verify import Verification

_Function = TypeVar("_Function", bound=Callable[..., Any])


def verify_option(result: str) -> Callable[[_Function], _Function]:
    """Return the option ``--verify``, which a command gets as ``verify``. ``result`` names what it writes."""
    return click.option(
        "--verify",
        is_flag=True,
        help=f"Run MODEL with the reference and {result} in its runtime, in a separate process, and compare "
        "the bits. The inputs are samples: sizes around those at which the divisions change.",
    )


def verify_in_own_runtime(source: Path, model: ModelInMemory, *, allow_links: bool) -> Verification:
    """Compare a model with its source in the runtime of its format: onnxruntime or OpenVINO."""
    from splitops.models.verify import verify

    return verify(source, model, "openvino" if is_openvino(model) else "onnxruntime", allow_links=allow_links)


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
