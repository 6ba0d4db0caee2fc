"""Sessions: a model made ready once, on one engine, and run any number of times."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from splitops.errors import ModelError, count_of, shown
from splitops.models.engines import AUTO, ENGINES, REFERENCE, is_installed, make_engine
from splitops.models.engines.engine import Engine, EngineError, Event
from splitops.models.engines.profile_events import collect_events
from splitops.models.formats.files import is_openvino

if TYPE_CHECKING:
    from splitops.models.formats.files import AnyModel
    from splitops.models.running.input_specs import InputSpec
    from splitops.models.sessions.program import SessionProgram
    from splitops.models.split_nodes import SplitNode

__all__ = ["EngineError", "Event", "Session", "find_splits_for", "session"]

_LOG = logging.getLogger("splitops")


def session(
    model: AnyModel,
    engine: str = AUTO,
    *,
    isolate: bool = False,
    profile: bool = False,
    max_iterations: int | None = None,
    allow_links: bool = False,
    **options: Any,
) -> Session:
    """Make a model ready to run any number of times.

    One engine runs the whole model. Splits are rewritten for it in memory, as :func:`splitops.fix` does, and
    checked in the graph where it does not check them. See ``docs/models.md``.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model`` or
            :class:`OpenVINOModel`. A model in memory must not change while the session lives.
        engine: ``"auto"`` is onnxruntime for ONNX and OpenVINO for IR if it is installed, and the reference
            for whatever that cannot run as specified; ``"onnxruntime"`` and ``"openvino"`` name the runtime;
            ``"reference"`` is ONNX's own evaluator.
        isolate: whether the engine runs in a process of its own, so that its end is an error.
        profile: whether the time of each operator is recorded, for :meth:`Session.events`.
        max_iterations: how often loops and functions may run in one run, all together, on the reference. A
            model with loops or functions runs there if it is set. None is 4194304.
        allow_links: of a path, whether links to the model's other files may lead out of its folder, as in
            :func:`splitops.load`.
        **options: the engine's own: ``providers``, ``provider_options`` and ``session_options`` of
            onnxruntime, ``device_name`` and ``config`` of OpenVINO.

    Returns:
        The session, which threads may share.

    Raises:
        ModelError: the model is not well formed, the engine is not installed or rejects the model
            (:class:`EngineError`), or has no such option.
        RuleError: no run can make a split of the main graph valid; ``op.version`` where a split does not
            exist at the imported opset.

    Examples:
        >>> import numpy as np, onnx.parser, splitops
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 9, opset_import: ["": 18]>
        ...     g (float[N] x) => (float[n] a, float[m] b) { a, b = Split<num_outputs = 2>(x) }''')
        >>> with splitops.session(model, "reference") as halves:
        ...     halves.run({"x": np.arange(3, dtype=np.float32)})["a"]
        array([0., 1.], dtype=float32)
    """
    if engine not in ENGINES:
        raise ModelError(f"there is no engine {shown(engine)}; there are {', '.join(ENGINES)}")
    if max_iterations is not None and not isinstance(max_iterations, int):
        raise ModelError(f"max_iterations = {shown(max_iterations)} is not an integer")
    of_ir = is_openvino(model)
    name = _runtime(engine, of_ir=of_ir)
    if name is None and options:
        raise ModelError(f"the reference has no option {shown(min(options))}")
    isolated = partial(make_engine, name or "", options, isolate=True, profile=profile)
    runtime = None if name is None else make_engine(name, options, isolate=isolate, profile=profile)
    asked: dict[str, Any] = {
        "fallback": engine == AUTO,
        "max_iterations": max_iterations,
        "isolated": isolated,
    }
    given: Any = model
    program: SessionProgram
    if of_ir:
        from splitops.models.sessions.openvino import OpenVINOIRProgram

        program = OpenVINOIRProgram(given, runtime, **asked, allow_links=allow_links)
    else:
        from splitops.models.sessions.onnx import OnnxProgram

        program = OnnxProgram(given, runtime, **asked, allow_links=allow_links)
    made = Session(engine, runtime, program, [] if profile else None)
    _LOG.info("%s", made.describe())
    return made


def find_splits_for(model: AnyModel, inputs: Mapping[str, Any]) -> list[SplitNode]:
    """Find the split nodes of a model with the types, shapes and lengths inferred for some inputs.

    Args:
        model: as in :func:`session`.
        inputs: arrays by input name.

    Returns:
        The split nodes in the order in which they run. One in a function appears once for each call.

    Raises:
        ModelError: the model is not well formed.

    Examples:
        >>> import numpy as np, onnx.parser
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 9, opset_import: ["": 18]>
        ...     g (float[N] x) => (float[n] a, float[m] b) { a, b = Split<num_outputs = 2>(x) }''')
        >>> [split] = find_splits_for(model, {"x": np.zeros(3, np.float32)})
        >>> split.inference.parts
        ((2,), (1,))
    """
    from splitops.models.formats.model import CheckedModel
    from splitops.models.sessions.inferred_splits import infer_splits

    opened = CheckedModel.read(model)
    return infer_splits(opened.nodes, opened.where, inputs)


class Session:
    """A model that is ready to run; made by :func:`session`."""

    def __init__(
        self, asked: str, runtime: Engine | None, program: SessionProgram, events: list[Event] | None
    ) -> None:
        self._asked, self._runtime, self._program, self._events = asked, runtime, program, events
        self._process = os.getpid()
        self._closed = False

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run the model.

        Args:
            inputs: arrays by input name; lists of arrays for ONNX sequences.

        Returns:
            The outputs by name, in the model's order: arrays, lists of arrays for sequences. What shares
            memory with an input or a constant of the model is a new read-only view; ``np.array(output)`` is a
            copy.

        Raises:
            RuleError: a rule of the split family is broken; ``error.where`` names the node.
            EngineError: the engine fails; the message names it.
            ModelError: an input does not fit, another operator fails, bodies run too often, or the session is
                closed.
        """
        if self._closed:
            raise ModelError("the session is closed")
        if self._is_forked and self._program.engine is not None:
            problem = "does not survive a fork: make the session in the process that runs it"
            raise EngineError(self.engine, problem)
        if self._events is None:
            return self._program.run(inputs)
        with collect_events(self._events):
            return self._program.run(inputs)

    @property
    def engine(self) -> str:
        """The engine that runs the model: ``"reference"``, ``"onnxruntime"`` or ``"openvino"``."""
        runs = self._program.engine
        return REFERENCE if runs is None else str(runs.name)

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """What the model declares of its inputs, in order."""
        return tuple(self._program.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return tuple(self._program.outputs)

    @property
    def splits(self) -> tuple[SplitNode, ...]:
        """The split operators of the model."""
        return self._program.splits

    def infer_splits(self, inputs: Mapping[str, Any]) -> Iterator[SplitNode]:
        """Yield the splits that the runtime runs, as inference knows them for some inputs.

        Args:
            inputs: arrays by input name.
        """
        return self._program.infer_engine_splits(inputs)

    def describe(self) -> str:
        """Return one sentence: the engine that runs the model, and why another one does not.

        After a run, it is about the last run in this thread.
        """
        program, splits = self._program, len(self.splits)
        every = f", including {'its split' if splits == 1 else f'all {splits:,} splits'}" if splits else ""
        failure = program.rejection if program.engine is None else program.last.failure
        if program.engine is None or failure is not None:
            reason = f", since {failure.message}" if failure else ""
            absent = "; no runtime is installed" if self._asked == AUTO and self._runtime is None else ""
            return f"Runs on the reference evaluator{every}{reason}{absent}"
        count = len(program.rewritten)
        rewritten = f"; {count_of(count, 'split')} rewritten (splitops fix shows how)" if count else ""
        return f"Runs on {program.engine.name}{every}{rewritten}"

    def __repr__(self) -> str:
        return "Session(closed)" if self._closed else f"Session({self.describe()})"

    def events(self) -> list[Event]:
        """Return the times of all operators in the runs so far, and end the profile.

        Raises:
            ModelError: the session was made without ``profile=True``, or is closed.
        """
        if self._closed:
            raise ModelError("the session is closed")
        if self._events is None:
            raise ModelError("the session records no events; profile=True does")
        return [*self._events, *(event for program in self._program.programs for event in program.events())]

    def close(self) -> None:
        """Give back at once what the engine holds; the session does not run any more."""
        self._closed = True
        if not self._is_forked:
            self._program.close()
            if self._runtime is not None:
                self._runtime.close()

    @property
    def _is_forked(self) -> bool:
        """Whether the threads, or the own process, of a runtime belong to another process than this one."""
        return os.getpid() != self._process

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _runtime(engine: str, *, of_ir: bool) -> str | None:
    """Return the runtime that an engine's name stands for; None is the reference.

    Raises:
        ModelError: it does not run models of this format.
    """
    if engine == REFERENCE:
        return None
    if engine == AUTO:
        name = "openvino" if of_ir else "onnxruntime"
        return name if is_installed(name) else None
    if of_ir and engine != "openvino":
        raise ModelError(f"engine {engine!r} does not run OpenVINO IR; convert the model to ONNX")
    return engine
