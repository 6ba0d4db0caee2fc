"""A model that is ready to run on an engine, and what is done where the engine fails."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, Protocol

import onnx_ir as ir

from splitops.errors import RuleError, SplitError, Where
from splitops.models.engines.emptiness import EmptyTensorError
from splitops.models.engines.engine import Compiled, Engine, EngineError
from splitops.models.fix import SplitReport
from splitops.models.running.bodies import MAX_BODY_RUNS
from splitops.models.running.declared import Declared
from splitops.models.sessions.legality import Place, place_of
from splitops.models.sessions.predicted import predict
from splitops.models.sites import Origin, Site
from splitops.spec.operators import FAMILY
from splitops.splitting.binding import Fact


class _LastRun(threading.local):
    """What is remembered of the last run, for each thread.

    Attributes:
        failure: at what the engine failed, which was evaluated here then.
    """

    failure: EngineError | None = None


class _Prepared(Protocol):
    def run(self, inputs: Mapping[str, Any], *, max_body_runs: int) -> dict[str, Any]: ...


class SessionProgram(ABC):
    """A model that is ready to run on an engine. What the engine fails at may be evaluated here.

    Attributes:
        engine: who runs it; None evaluates all of it here.
        rejection: why the engine that was asked for does not.
        last: what the last run of a thread needed.
        inputs, outputs, sites: what the model declares.
        reasons: why nodes are evaluated here and not by the engine.
        rewritten: the splits that the engine is given in another form.
    """

    inputs: Sequence[Declared]
    outputs: Sequence[str]
    sites: tuple[Site, ...]
    _where: Where

    def __init__(self, engine: Engine | None, *, fallback: bool, max_body_runs: int | None) -> None:
        self.engine = engine
        self.rejection: EngineError | None = None
        self.last = _LastRun()
        self.rewritten: tuple[SplitReport, ...] = ()
        self.reasons: Mapping[Place, str] = {}
        self._fallback = fallback
        self._most = MAX_BODY_RUNS if max_body_runs is None else max_body_runs
        self._counts = max_body_runs is not None
        self._lock = threading.Lock()
        self._apart: set[Place] = set()  # what is run before others, as what it gives tells
        self._here: _Prepared | None = None
        self._constants: AbstractSet[str] = frozenset()  # inputs that the engine has taken for constants
        self._foresee: Callable[[Mapping[str, Any]], EngineError | None] | None = None

    def _start(self, on_engine: Callable[[Engine], _Prepared], here: Callable[[], _Prepared]) -> None:
        """Prepare the model for the engine, or to be evaluated here."""
        if self.engine is not None:
            try:
                self._prepared = on_engine(self.engine)
            except EngineError as error:
                if not (self._fallback or isinstance(error, EmptyTensorError)):
                    raise
                self.rejection, self.engine = error, None
        if self.engine is None:
            self._prepared = self._here = here()

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run the model; see :meth:`Session.run`."""
        self.last.failure = None
        replaced = isinstance(inputs, Mapping) and not self._constants.isdisjoint(inputs)
        if self.engine is None or replaced:
            return self._by_reference().run(inputs, max_body_runs=self._most)
        foreseen = None if self._foresee is None else self._foresee(inputs)
        if foreseen is not None:
            return self._rescued(inputs, foreseen)
        while True:
            prepared = self._prepared
            try:
                return prepared.run(inputs, max_body_runs=self._most)
            except EngineError as error:
                if not self._set_apart(prepared, error):
                    return self._rescued(inputs, error)

    def _set_apart(self, prepared: _Prepared, error: EngineError) -> bool:
        """Prepare the model anew where other nodes are to be run first; return whether that is done."""
        if not (isinstance(error, EmptyTensorError) and error.undecided):
            return False
        with self._lock:
            assert self.engine is not None
            if self._prepared is prepared:  # else another thread has done it
                found = self._undecided(error)
                if found <= self._apart:
                    return False
                self._apart |= found
                self._prepared = self._prepared_anew(self.engine)
        return True

    def _rescued(self, inputs: Mapping[str, Any], error: EngineError) -> dict[str, Any]:
        """Evaluate here what an engine fails at: that knows which rule is broken, or does it right.

        The error is raised where the run here fails too, or is not asked for.
        """
        if not (self._fallback or isinstance(error, EmptyTensorError) or error.operator in FAMILY[""]):
            raise error
        try:
            found = self._by_reference().run(inputs, max_body_runs=self._most)
        except RuleError:
            raise
        except SplitError:
            raise error from None
        self.last.failure = error
        return found

    def _by_reference(self) -> _Prepared:
        with self._lock:
            self._here = self._here or self._without_engine()
            return self._here

    def predicted(self, inputs: Mapping[str, Any]) -> Iterator[Site]:
        """Yield what inference knows of the splits that the engine evaluates, on some inputs."""
        if self.engine is not None and self.last.failure is None:
            found = predict(self._nodes(), self._where, inputs)
            yield from (site for site in found if self.border(site) is None)

    def border(self, site: Site) -> str | None:
        """Return why a split node is evaluated here and not by the engine; None where it is not."""
        return self.reasons.get(place_of(site))

    def close(self) -> None:
        """Close what the engine has compiled."""
        for program in self.programs:
            program.close()

    # What depends on the format

    @property
    @abstractmethod
    def programs(self) -> Sequence[Compiled]:
        """What the engine has compiled so far."""

    @abstractmethod
    def _without_engine(self) -> _Prepared:
        """Prepare the model to be evaluated here."""

    @abstractmethod
    def _prepared_anew(self, engine: Engine) -> _Prepared:
        """Prepare the model for the engine once more, with what is to be apart now."""

    @abstractmethod
    def _undecided(self, error: EmptyTensorError) -> set[Place]:
        """Return what an error names of which only a run tells whether it gives empty tensors."""

    @abstractmethod
    def _nodes(self) -> ir.Model:
        """Return the model as nodes, for reading."""


def reject_invalid(sites: Iterable[Site], inputs: Collection[str]) -> None:
    """Raise the rule that a split of the main graph breaks whatever the run brings.

    Constants hold in every run, and so does what the model declares of its inputs, by these names: they are
    checked. What it claims of other values may be wrong.
    """
    for site in sites:
        if site.where.graph is None:
            facts = zip(site.facts, site.inputs, site.origins, strict=True)
            held = replace(
                site, facts=tuple(_certain(known, name in inputs, at) for known, name, at in facts)
            )
            if held.error is not None:
                raise held.error.with_traceback(None)


def _certain(known: Fact | None, is_input: bool, origin: Origin) -> Fact | None:
    if known is None or origin is Origin.MODEL:
        return known
    return replace(known, value=None) if is_input else Fact()
