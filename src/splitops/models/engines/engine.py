"""What every engine does: compile a model once, run it any number of times, from any thread."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from splitops.errors import ModelError, Where, one_line, shown

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class EngineError(ModelError):
    """A runtime rejects a model, fails to run it, or ends its process.

    Attributes:
        engine: its name.
        node: the node that it names; None where it names none.
        operator: the operator of that node, where it names it.
    """

    def __init__(
        self,
        engine: str,
        problem: str,
        where: Where | None = None,
        *,
        node: str | None = None,
        operator: str | None = None,
    ) -> None:
        super().__init__(f"{engine} {one_line(problem, 400)}", where)
        self.engine = engine
        self.node = node
        self.operator = operator


@dataclass(frozen=True, slots=True)
class Program:
    """A model as an engine is given it.

    Attributes:
        content: the serialised model; of ONNX also the file that holds it, of OpenVINO IR the XML.
        outputs: the names of the outputs that are asked for, in order; of OpenVINO IR they are counted only.
        where: its place, for errors.
        weights: ONNX initializers by name that ``content`` declares as data of another file; onnxruntime
            takes them as they are, without a copy, OpenVINO with the model.
        binary: the constants of OpenVINO IR.
        folder: where ``content`` finds what it declares as data of other files.
        sizes: of OpenVINO IR, the splits that are left to the engine, by name: axis and size of each part,
            which the engine must infer too. A file can state shapes that are not those of its layers.
        as_it_is: whether the engine runs even what it gets wrong (empty tensors in OpenVINO), so that its
            results can be verified.
        guarded: whether OpenVINO looks at the sizes of all tensors that only values make empty.
    """

    content: bytes | os.PathLike[str]
    outputs: tuple[str, ...]
    where: Where
    weights: Mapping[str, npt.NDArray[Any]] | None = None
    binary: npt.NDArray[np.uint8] | None = None
    folder: str | None = None
    sizes: Sequence[tuple[str, Sequence[tuple[int, int]]]] = ()
    as_it_is: bool = False
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """One operator that ran.

    Attributes:
        operator: its name, such as ``"Conv"``.
        node: the name of the node, as the engine gives it.
        engine: who ran it.
        begin: when it began, in seconds since the epoch.
        seconds: how long it took.
    """

    operator: str
    node: str
    engine: str
    begin: float
    seconds: float


class Compiled(Protocol):
    """A program that is ready to run, any number of times and from any thread."""

    def run(self, feeds: Mapping[str, Any]) -> Sequence[Any]:
        """Return the outputs for the values of the inputs: arrays, and lists of arrays for sequences.

        Raises:
            EngineError: the runtime fails.
        """

    def events(self) -> Sequence[Event]:
        """Return what a profile has recorded since the program was compiled, and end it."""

    def close(self) -> None:
        """Give back what the runtime holds; the program does not run any more."""


class Engine(Protocol):
    """A runtime that evaluates operators."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def version(self) -> str:
        """Its release."""

    def compile(self, program: Program) -> Compiled:
        """Make a program ready to run.

        Raises:
            EngineError: the runtime rejects it.
        """

    def close(self) -> None:
        """Give back what the engine itself holds; what it compiled does not run any more."""


def check_options(name: str, options: Mapping[str, Any], known: Collection[str]) -> None:
    """Prove that an engine has the options that a caller gives."""
    for option in options:
        if option not in known:
            has = ", ".join(sorted(known))
            raise ModelError(f"engine {name!r} has no option {shown(option)}; it has {has}")
