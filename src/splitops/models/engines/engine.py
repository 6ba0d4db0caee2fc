"""The engine protocol: compile a model once and run it any number of times, from any thread."""

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
    """A runtime rejects a model, fails to run it, or crashes.

    Attributes:
        engine: name of the runtime.
        node: name of the node at which the runtime fails or would fail, or None.
        operator: operator of that node, or None.
        process_ended: whether the process of the runtime has ended.
    """

    def __init__(
        self,
        engine: str,
        problem: str,
        where: Where | None = None,
        *,
        node: str | None = None,
        operator: str | None = None,
        process_ended: bool = False,
    ) -> None:
        super().__init__(f"{engine} {one_line(problem, 400)}", where)
        self.engine = engine
        self.node = node
        self.operator = operator
        self.process_ended = process_ended


@dataclass(frozen=True, slots=True)
class Program:
    """A model for an engine.

    Attributes:
        content: a serialised ONNX model, the XML of OpenVINO IR, or the path of either.
        outputs: names of the requested outputs, in order; for OpenVINO IR, only their number matters.
        where: location of the model, for errors.
        weights: arrays of ONNX initializers that ``content`` declares as external data in memory, keyed by
            name. onnxruntime shares their memory; OpenVINO gets a copy inside the model.
        binary: the constants of OpenVINO IR.
        folder: the folder of the external data of ``content``.
        sizes: for OpenVINO IR, the name of each split whose parts have known sizes, with the axis and size
            of each part. The engine must infer the same: a file can declare shapes that its layers do not
            have.
        as_it_is: whether the engine runs even models that it gets wrong (empty tensors in OpenVINO), so that
            its results can be verified.
        guarded: whether to check, after each run on OpenVINO, the sizes of tensors that may be empty.
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
    """The execution of one operator.

    Attributes:
        operator: operator name, such as ``"Conv"``.
        node: node name, as the engine reports it.
        engine: name of the engine that ran it.
        begin: start in seconds since the epoch.
        seconds: duration.
    """

    operator: str
    node: str
    engine: str
    begin: float
    seconds: float


class Compiled(Protocol):
    """A program that is ready to run, any number of times and from any thread."""

    def run(self, feeds: Mapping[Any, Any]) -> Sequence[Any]:
        """Run the program on inputs by name or, for OpenVINO IR, by position.

        Return the outputs: arrays, or lists of arrays for sequences.

        Raises:
            EngineError: the runtime fails.
        """

    def events(self) -> Sequence[Event]:
        """Return the events since the program was compiled. Call it once, because it may stop profiling."""

    def close(self) -> None:
        """Release the resources of the runtime. The program must not be run afterwards."""


class Engine(Protocol):
    """A runtime that compiles and runs models."""

    @property
    def name(self) -> str:
        """Name of the runtime."""

    @property
    def version(self) -> str:
        """Release of the runtime."""

    def compile(self, program: Program) -> Compiled:
        """Compile a program.

        Raises:
            EngineError: the runtime rejects the program.
        """

    def close(self) -> None:
        """Release the resources of the engine. Its programs must not be run afterwards."""


def check_options(name: str, options: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise ModelError if ``options`` has an option that is not in ``known``. ``name`` is the engine."""
    for option in options:
        if option not in known:
            has = ", ".join(sorted(known))
            raise ModelError(f"engine {name!r} has no option {shown(option)}: use {has}")
