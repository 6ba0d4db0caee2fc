"""Sessions: prepare a model once for an engine, and run it any number of times."""

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
from splitops.spec.sizes.dims import require_integer

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
    """Prepare a model to run any number of times.

    One engine runs the whole model. Splits that it does not run as specified are rewritten in memory, as
    :func:`splitops.fix` does. Splits that it does not check are checked in the graph. See ``docs/models.md``.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model`` or
            :class:`OpenVINOModel`. A model in memory must not change while the session lives.
        engine: ``"auto"`` is onnxruntime for ONNX and OpenVINO for IR, or the reference if this runtime is
            not installed or cannot run the model as specified. ``"onnxruntime"`` and ``"openvino"`` select
            a runtime. The reference then replaces it only if a check or a split fails, because of an empty
            tensor, or for an input that the runtime would treat as a constant. ``"reference"`` is ONNX's
            reference evaluator.
        isolate: whether a runtime runs in a separate process, so that a crash does not end this one.
        profile: whether to record the time of each operator, for :meth:`Session.events`.
        max_iterations: maximum number of iterations of loops and calls of functions in one run on the
            reference, by default 4194304. If it is set, only the reference runs models with loops or
            functions.
        allow_links: whether links to the files of a model at a path may leave its folder, as in
            :func:`splitops.load`.
        **options: options of the engine: ``providers``, ``provider_options`` and ``session_options`` of
            onnxruntime, ``device_name`` and ``config`` of OpenVINO.

    Returns:
        The session. Threads may share it.

    Raises:
        ModelError: the model is not well formed; the engine is unknown or not installed, rejects the model
            (:class:`EngineError`), or does not accept an option.
        RuleError: a split of the main graph is invalid in every run. The rule is ``op.version`` if its
            operator does not exist in the imported opset.

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
        raise ModelError(f"unknown engine {shown(engine)}: use {', '.join(ENGINES)}")
    if max_iterations is not None:
        max_iterations = require_integer(max_iterations, "max_iterations", ModelError, 0)
    of_ir = is_openvino(model)
    name = _choose_runtime(engine, of_ir=of_ir)
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
    """Find the split nodes of a model, with types, shapes and lengths inferred from ``inputs``.

    Args:
        model: as in :func:`session`.
        inputs: arrays by input name.

    Returns:
        The split nodes in the order of the model. A split in a function appears once for each call that
        inference enters, or once if the model does not call the function.

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
    """A prepared model, made by :func:`session`."""

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
            The outputs by name, in the model's order: arrays, or lists of arrays for sequences. An
            output that shares memory with an input or a constant is a read-only view;
            ``np.array(output)`` copies it.

        Raises:
            RuleError: a rule of the split family is broken; ``error.where`` names the node.
            EngineError: the engine fails and the reference does not replace it, or this process is a fork
                of the one that made the session.
            ModelError: an input does not match the model, another operator fails, loops and functions
                exceed ``max_iterations``, or the session is closed.
        """
        if self._closed:
            raise ModelError("the session is closed")
        if self._is_forked and self._program.engine is not None:
            problem = "cannot be used after a fork: make the session in the process that runs it"
            raise EngineError(self.engine, problem)
        if self._events is None:
            return self._program.run(inputs)
        with collect_events(self._events):
            return self._program.run(inputs)

    @property
    def engine(self) -> str:
        """The engine that runs the model: ``"reference"``, ``"onnxruntime"`` or ``"openvino"``.

        In a single run, the reference may still replace a runtime; see :meth:`describe`.
        """
        runs = self._program.engine
        return REFERENCE if runs is None else str(runs.name)

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """The declared inputs, in order."""
        return tuple(self._program.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return tuple(self._program.outputs)

    @property
    def splits(self) -> tuple[SplitNode, ...]:
        """The split nodes of the model, with types, shapes and lengths from the file, without inference."""
        return self._program.splits

    def infer_splits(self, inputs: Mapping[str, Any]) -> Iterator[SplitNode]:
        """Yield the splits of the model, before rewrites, with types and shapes inferred from ``inputs``.

        Yield nothing if the model runs on the reference, or if the runtime failed in the last run in this
        thread and the reference replaced it.

        Args:
            inputs: arrays by input name.
        """
        return self._program.infer_engine_splits(inputs)

    def describe(self) -> str:
        """Describe in one sentence which engine runs the model and, if the reference replaces one, why.

        This includes the last run in this thread, if the reference replaced the failed runtime in it.
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
        """Return the events of the operators in the runs so far. Call it once: it may stop profiling.

        Raises:
            ModelError: the session was made without ``profile=True``, or is closed.
        """
        if self._closed:
            raise ModelError("the session is closed")
        if self._events is None:
            raise ModelError("the session does not record events: make it with profile=True")
        return [*self._events, *(event for program in self._program.programs for event in program.events())]

    def close(self) -> None:
        """Release the resources of the engine, except in a fork. The session cannot run afterwards."""
        self._closed = True
        if not self._is_forked:
            self._program.close()
            if self._runtime is not None:
                self._runtime.close()

    @property
    def _is_forked(self) -> bool:
        """Whether this process is a fork of the one that made the session, and lacks its threads."""
        return os.getpid() != self._process

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _choose_runtime(engine: str, *, of_ir: bool) -> str | None:
    """Return the name of the runtime for an ``engine`` argument, or None for the reference.

    ``of_ir`` is whether the model is OpenVINO IR.

    Raises:
        ModelError: the runtime does not run this format.
    """
    if engine == REFERENCE:
        return None
    if engine == AUTO:
        name = "openvino" if of_ir else "onnxruntime"
        return name if is_installed(name) else None
    if of_ir and engine != "openvino":
        raise ModelError(f"engine {engine!r} does not run OpenVINO IR: convert the model to ONNX")
    return engine
