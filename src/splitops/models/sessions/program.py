"""Run a model on an engine, and fall back to the reference for runs on which the engine fails."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from splitops.errors import RuleError, SplitError, Where
from splitops.models.check.targets import Target
from splitops.models.engines.empty_tensors import EmptyTensorError
from splitops.models.engines.engine import Compiled, Engine, EngineError, Program
from splitops.models.fix import FixStatus, SplitReport
from splitops.models.fix.driver import ModelSnapshot, fix_splits
from splitops.models.formats.walk import has_layers, iter_all_nodes
from splitops.models.quirks import may_be_in
from splitops.models.running.input_specs import InputSpec
from splitops.models.running.inputs import Inputs
from splitops.models.running.iterations import MAX_ITERATIONS
from splitops.models.sessions.checks import Checks, Rules
from splitops.models.sessions.fallback import (
    Analysis,
    analyse_splits,
    can_fit_32_bits,
    forget_shapes,
    make_key,
    may_not_iterate,
    needs_check,
    raise_limit,
)
from splitops.models.sessions.inferred_splits import infer_splits
from splitops.models.split_nodes import Origin, SplitNode
from splitops.spec.operators import FAMILY
from splitops.splitting.binding import Fact


class CheckError(EngineError):
    """A check before or after a run of the engine failed: its results, if any, are discarded."""


class _LastRun(threading.local):
    """The last run of each thread.

    Attributes:
        failure: the error of the engine if the reference ran the model instead, or None.
    """

    failure: EngineError | None = None


class Prepared(Protocol):
    """A model that is ready to run."""

    def run(self, inputs: Mapping[str, Any], *, max_iterations: int) -> dict[str, Any]:
        """Run the model on arrays by input name, and return the outputs by name."""


@dataclass(frozen=True)
class EngineModel:
    """A model that an engine has compiled.

    Attributes:
        inputs: the inputs, with their name or position in the engine.
        outputs: names of the outputs; the engine returns the numbers for ``rules`` after them.
        compiled: the compiled program.
        where: location of the model, for errors.
        engine: name of the engine.
        defaults: values of optional inputs, if the engine does not support defaults.
        rules: the checks after each run, or None.
        check_feeds: raises an EngineError for checked inputs on which the engine must not run, or None.
    """

    inputs: Inputs[Any]
    outputs: Sequence[str]
    compiled: Compiled
    where: Where
    engine: str
    defaults: Mapping[str, Any]
    rules: Rules | None
    check_feeds: Callable[[Mapping[Any, Any]], None] | None = None

    def run(self, inputs: Mapping[str, Any], *, max_iterations: int = MAX_ITERATIONS) -> dict[str, Any]:
        """Run the model. ``max_iterations`` is ignored.

        Raises:
            CheckError: a split is invalid, a loop does not iterate, or an input of OpenVINO does not fit
                into 32 bits.
            EngineError: the engine fails.
            ModelError: an input does not match its declaration.
        """
        feeds = {**self.defaults, **self.inputs.check(inputs, self.where)}
        if self.engine == "openvino":
            self._check_narrowing(feeds)
        if self.check_feeds is not None:
            self.check_feeds(feeds)
        found = self.compiled.run(feeds)
        if self.rules is not None and not self.rules.are_met(found[-1]):
            problem = "would run an invalid split, or a loop without iterations"
            raise CheckError(self.engine, problem, self.where)
        return dict(zip(self.outputs, found, strict=False))

    def _check_narrowing(self, feeds: Mapping[Any, Any]) -> None:
        """Check that 64-bit inputs keep their values in the 32 bits in which OpenVINO's CPU computes."""
        if not all(can_fit_32_bits(value) for value in feeds.values() if isinstance(value, np.ndarray)):
            problem = "computes in 32 bits, but an input does not fit into them [openvino.narrowed-values]"
            raise CheckError(self.engine, problem, self.where)


class SessionProgram(ABC):
    """A model that is ready to run on an engine, or on the reference.

    Attributes:
        engine: the engine, or None for the reference.
        rejection: the error of the requested engine if it cannot run the model, or None.
        last: the last run of each thread.
        inputs, outputs, splits: the declared inputs, the names of the outputs, and the splits.
        rewritten: reports on the splits that were rewritten for the engine.
    """

    inputs: Sequence[InputSpec]
    outputs: tuple[str, ...]
    splits: tuple[SplitNode, ...]
    _where: Where

    def __init__(
        self,
        engine: Engine | None,
        *,
        fallback: bool,
        max_iterations: int | None,
        isolated: Callable[[], Engine],
    ) -> None:
        self.engine = engine
        self.rejection: EngineError | None = None
        self.last = _LastRun()
        self.rewritten: tuple[SplitReport, ...] = ()
        self.programs: list[Compiled] = []
        self._fallback = fallback
        self._limit = MAX_ITERATIONS if max_iterations is None else max_iterations
        self._counts = max_iterations is not None
        self._isolated = isolated
        self._child: Engine | None = None
        self._lock = threading.Lock()
        self._reference: Prepared | None = None
        self._in_child: Prepared | EngineError | None = None
        self._constants: AbstractSet[str] = frozenset()  # inputs that the engine treats as constants

    def _start(self) -> None:
        """Prepare the model for the engine or, if it cannot run the model, for the reference.

        Raises:
            EngineError: the engine was requested by name and fails for a reason other than an empty tensor.
        """
        if self.engine is not None:
            try:
                self._prepared = self._prepare(self.engine)
            except EngineError as error:
                if not (self._fallback or isinstance(error, EmptyTensorError)):
                    problem = error.message.removeprefix(f"{error.engine} ")
                    hint = f"{problem[:300]}: use engine='auto' for another engine"
                    raise EngineError(
                        error.engine,
                        hint,
                        error.where,
                        node=error.node,
                        operator=error.operator,
                        process_ended=error.process_ended,
                    ) from error
                self.rejection, self.engine = error, None
        if self.engine is None:
            self._prepared = self._reference = self._prepare_reference()

    def _prepare(self, engine: Engine, *, guarded: bool = False) -> Prepared:
        try:
            return self._prepare_engine(engine, guarded=guarded)
        except EngineError:
            raise
        except SplitError as error:
            problem = f"cannot run the model: {error.message}"
            raise EngineError(engine.name, problem, self._where, node=error.where.node) from error

    def _rewrite(self, nodes: ir.Model, engine: Engine) -> tuple[Checks, list[SplitNode]]:
        """Rewrite the splits of a model for an engine, and add the checks, in place.

        Returns:
            The checks, and the splits of the rewritten model.

        Raises:
            EngineError: a limit of the engine still applies.
            ModelError: a check that is needed cannot be added.
        """
        target, is_ir = Target.load(engine.name), has_layers(nodes)
        loops = [node for node in iter_all_nodes(nodes) if may_not_iterate(node, engine.name)]
        declared = {} if is_ir else forget_shapes(nodes)
        look = partial(ModelSnapshot.take, nodes, self._where, (target,))
        first = look()
        checks = Checks(first.writer.editor)
        analysis = _analyse(first, nodes, engine)
        checks_lengths = target.checks_in(engine.version, "lengths") and engine.name != "openvino"
        for node, (split_node, *_) in first.calls.items():
            rewritten = make_key(split_node) in analysis.reasons
            if split_node.axis is not None and needs_check(split_node, analysis):
                checks.add_split(node, split_node, safe=is_ir or not (checks_lengths or rewritten))
        for loop in loops:
            if may_not_iterate(loop, engine.name):  # a second test, with the inferred inputs
                checks.add_loop(loop, endless=is_ir)
        checks.join()
        looks = chain([first], iter(look, None))
        reports, last = fix_splits(partial(next, looks), (target,), None, repair=False)
        remaining = _analyse(last, nodes, engine)
        raise_limit(remaining, engine, self._where)
        for value, shape in declared.items():
            if value.is_graph_input() or value.is_graph_output():  # onnxruntime needs them in bodies
                value.shape = shape
        self.rewritten = tuple(report for report in reports if report.status is FixStatus.REWRITTEN)
        return checks, list(remaining.split_nodes)

    def _compile(
        self,
        engine: Engine,
        program: Program,
        inputs: Inputs[Any],
        rules: Rules | None,
        *,
        defaults: Mapping[str, Any] | None = None,
        check_feeds: Callable[[Mapping[Any, Any]], None] | None = None,
    ) -> EngineModel:
        compiled = engine.compile(program)
        self.programs.append(compiled)
        return EngineModel(
            inputs, self.outputs, compiled, self._where, engine.name, defaults or {}, rules, check_feeds
        )

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run the model; see :meth:`Session.run`."""
        self.last.failure = None
        replaced = isinstance(inputs, Mapping) and not self._constants.isdisjoint(inputs)
        if self.engine is None or replaced:
            return self._get_reference().run(inputs, max_iterations=self._limit)
        try:
            return self._prepared.run(inputs, max_iterations=self._limit)
        except EngineError as error:
            if not (isinstance(error, EmptyTensorError) and error.unresolved):
                return self._fall_back(inputs, error)
        try:
            return self._get_guarded().run(inputs, max_iterations=self._limit)
        except EngineError as error:
            return self._fall_back(inputs, error)

    def _get_guarded(self) -> Prepared:
        """Return the model for the child process, with checks for empty tensors. It is prepared once.

        Raises:
            EngineError: the engine cannot run the model.
        """
        with self._lock:
            if self._in_child is None:
                try:
                    assert self.engine is not None
                    self._in_child = self._prepare(self.engine, guarded=True)
                except EngineError as error:
                    self._in_child = error
        if isinstance(self._in_child, EngineError):
            raise self._in_child
        return self._in_child

    def _fall_back(self, inputs: Mapping[str, Any], error: EngineError) -> dict[str, Any]:
        """Run the model on the reference after the engine failed. Return its outputs or raise its RuleError.

        Raise ``error`` if the reference fails for another reason. Raise it at once if the engine was
        requested by name, unless it failed at a split, a check or an empty tensor, or its child process
        crashed.
        """
        of_split = isinstance(error, EmptyTensorError | CheckError) or error.operator in FAMILY[""]
        if not (self._fallback or of_split or self._is_child(error)):
            raise error
        try:
            outputs = self._get_reference().run(inputs, max_iterations=self._limit)
        except RuleError:
            raise
        except SplitError:
            raise error from None
        self.last.failure = error
        return outputs

    def _is_child(self, error: EngineError) -> bool:
        """Return whether the model crashed the child process of :meth:`_get_child`."""
        return self._child is not None and error.process_ended

    def _get_reference(self) -> Prepared:
        with self._lock:
            self._reference = self._reference or self._prepare_reference()
            return self._reference

    def _get_child(self) -> Engine:
        """Return the engine in a child process, which a model may crash."""
        if self._child is None:
            self._child = self._isolated()
        return self._child

    def infer_engine_splits(self, inputs: Mapping[str, Any]) -> Iterator[SplitNode]:
        """Yield the splits of the model; see :meth:`Session.infer_splits`."""
        if self.engine is not None and self.last.failure is None:
            yield from infer_splits(self._make_nodes(), self._where, inputs)

    def close(self) -> None:
        """Close all compiled programs, and the child process."""
        for program in self.programs:
            program.close()
        self.programs.clear()
        if self._child is not None:
            self._child.close()

    # Methods that depend on the format

    @abstractmethod
    def _prepare_reference(self) -> Prepared:
        """Prepare the model for the reference, the evaluator of splitops."""

    @abstractmethod
    def _prepare_engine(self, engine: Engine, *, guarded: bool = False) -> Prepared:
        """Prepare the model for an engine.

        With ``guarded``, it runs in a child process, with checks of tensors that may be empty.

        Raises:
            SplitError: the engine cannot run the model.
        """

    @abstractmethod
    def _make_nodes(self) -> ir.Model:
        """Return the model in onnx-ir, which must not be changed."""


def _analyse(seen: ModelSnapshot, nodes: ir.Model, engine: Engine) -> Analysis:
    editor = seen.writer.editor if may_be_in(nodes) else None
    return analyse_splits(seen.inferred.splits, seen.context, editor, engine)


def reject_invalid(split_nodes: Iterable[SplitNode], inputs: Collection[str]) -> None:
    """Raise the error of a split in the main graph that is invalid in every run.

    Only constants and the declared types and shapes of ``inputs`` are used, since every run checks these.
    Other declarations may be wrong.
    """
    for split_node in split_nodes:
        if split_node.where.graph is None:
            facts = zip(split_node.facts, split_node.inputs, split_node.origins, strict=True)
            held = replace(
                split_node,
                facts=tuple(_drop_uncertain(known, name in inputs, at) for known, name, at in facts),
            )
            if held.error is not None:
                raise held.error.with_traceback(None)


def _drop_uncertain(known: Fact | None, is_input: bool, origin: Origin) -> Fact | None:
    if known is None or origin is Origin.MODEL:
        return known
    return replace(known, value=None) if is_input else Fact()
