"""Run Python functions on symbolic integers, and prove with Z3 what holds at the end of every path.

A :class:`Whole` stands for any integer. Arithmetic on it builds a term. A comparison in a condition asks Z3
which outcomes the path so far allows, and the function runs again for the other one. So the code that ships
is what runs. There is no model of it. Z3 is limited by steps, not by time, so a slow machine gives the same
answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import z3

STEPS = 4_000_000
"""Z3's limit for one question."""


class Verdict(Enum):
    """What became of a claim."""

    CONFIRMED = "confirmed over all paths"
    REFUTED = "refuted"
    UNKNOWN = "not decided"


@dataclass(frozen=True)
class Outcome:
    """The verdict on a claim, the number of paths, and a counterexample where there is one."""

    verdict: Verdict
    paths: int
    example: str = ""


class _ImpossibleError(Exception):
    """No integers follow this path."""


class Paths:
    """The paths of one function: what is assumed, and which way each condition goes."""

    def __init__(self) -> None:
        self.pending: list[list[tuple[str, bool]]] = [[]]
        self.begin()

    def begin(self) -> None:
        """Begin the next path."""
        self.solver = z3.Solver()
        self.solver.set("rlimit", STEPS)
        self.planned = self.pending.pop()
        self.taken: list[tuple[str, bool]] = []
        self.names = self.made = 0
        self.divided: dict[tuple[str, str], tuple[z3.ArithRef, z3.ArithRef]] = {}

    def fresh(self, name: str) -> z3.ArithRef:
        """Return a new integer of which nothing is known."""
        self.names += 1
        return z3.Int(f"{name}!{self.names}")

    def serial(self) -> int:
        """Return the number of symbolic integers that the path made before."""
        self.made += 1
        return self.made

    def assume(self, fact: Any) -> None:
        """Restrict the path to where a fact holds."""
        self.solver.add(_term(fact))

    def decide(self, condition: z3.BoolRef) -> bool:
        """Return which way a condition goes on this path; the other way is run later."""
        condition = z3.simplify(condition)
        if z3.is_true(condition) or z3.is_false(condition):
            return z3.is_true(condition)
        text = condition.sexpr()
        if len(self.taken) < len(self.planned):
            same, choice = self.planned[len(self.taken)]
            if same != text:
                raise RuntimeError("the function asks something else when it runs again")
        else:
            possible = [self.solver.check(way) != z3.unsat for way in (condition, z3.Not(condition))]
            if not any(possible):
                raise _ImpossibleError
            choice = possible[0]
            if all(possible):
                self.pending.append([*self.taken, (text, False)])
        self.taken.append((text, choice))
        self.solver.add(condition if choice else z3.Not(condition))
        return choice

    def value(self, term: z3.ArithRef) -> int:
        """Return an integer that a term has on this path, of the few that it can have."""
        at = 0
        while not self.decide(term == at):
            at += 1
        return at


_paths = Paths()


def whole(name: str, least: int | Whole | None = None, most: int | Whole | None = None) -> Whole:
    """Return any integer within these bounds."""
    made = Whole(_paths.fresh(name))
    if least is not None:
        _paths.assume(made >= least)
    if most is not None:
        _paths.assume(made <= most)
    return made


def assume(fact: Any) -> None:
    """Restrict a claim to where a fact holds."""
    _paths.assume(fact)


def products_rise(factor: Any, low: Any, high: Any) -> None:
    """Tell Z3 an instance of the lemma ``Products.rises``, which is proved in ``split.mlw``."""
    factor, low, high = (Whole(_term(value)).term for value in (factor, low, high))
    given = z3.And(factor >= 0, low <= high)
    _paths.assume(z3.Implies(given, factor * low <= factor * high))


def confirm(claim: Callable[[], Any], max_paths: int = 20_000) -> Outcome:
    """Run a claim along every path; what it returns or yields must hold at the end of each.

    A claim that raises an error on a path that some integers follow is refuted.
    """
    global _paths
    _paths, paths = Paths(), 0
    while True:
        try:
            paths += 1
            refuted = _refute(claim)
        except _ImpossibleError:
            refuted = None
        if refuted is not None:
            return Outcome(refuted[0], paths, refuted[1])
        if not _paths.pending:
            return Outcome(Verdict.CONFIRMED, paths)
        if paths == max_paths:
            return Outcome(Verdict.UNKNOWN, paths)
        _paths.begin()


def _refute(claim: Callable[[], Any]) -> tuple[Verdict, str] | None:
    """Return why a claim is not confirmed on the current path; None where it is."""
    raised = ""
    try:
        found = claim()
        facts = list(found) if isinstance(found, Iterator) else [found]
    except (AssertionError, ArithmeticError, ValueError, LookupError, TypeError) as error:
        raised, facts = f"{type(error).__name__}: {error}", [False]
    terms = [fact.term if isinstance(fact, Fact) else z3.BoolVal(bool(fact)) for fact in facts]
    answer = _paths.solver.check(z3.Not(z3.And(terms)))
    if answer == z3.unsat:
        return None
    if answer == z3.unknown:
        return Verdict.UNKNOWN, raised
    model = _paths.solver.model()
    named = sorted((str(name).partition("!")[0], str(model[name])) for name in model)
    values = ", ".join(f"{name} = {value}" for name, value in named if name not in ("quotient", "rest"))
    return Verdict.REFUTED, f"{values} {raised}".strip()


def _term(value: Any) -> Any:
    return value.term if isinstance(value, Whole | Fact) else value


class Fact:
    """A condition on symbolic integers."""

    def __init__(self, term: z3.BoolRef) -> None:
        self.term = term

    def __bool__(self) -> bool:
        return _paths.decide(self.term)


class Whole:
    """Any integer, or a term of such integers."""

    def __init__(self, term: Any) -> None:
        self.term = z3.IntVal(term) if isinstance(term, int) else term
        self.serial = _paths.serial()

    def __hash__(self) -> int:
        # A set keeps equal integers apart: the functions here take only the least and the greatest of one.
        return self.serial

    def __add__(self, other: Any) -> Whole:
        return Whole(self.term + _term(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Whole:
        return Whole(self.term - _term(other))

    def __rsub__(self, other: Any) -> Whole:
        return Whole(_term(other) - self.term)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, tuple):
            return other * self.__index__()
        return Whole(self.term * _term(other))

    __rmul__ = __mul__

    def _divided(self, other: Any) -> tuple[z3.ArithRef, z3.ArithRef]:
        divisor = _term(other)
        if _paths.solver.check(z3.simplify(Whole(divisor).term <= 0)) != z3.unsat:
            raise ZeroDivisionError("a divisor that is not proved to be positive")
        key = z3.simplify(self.term).sexpr(), str(divisor)
        if key in _paths.divided:
            return _paths.divided[key]
        quotient, rest = _paths.fresh("quotient"), _paths.fresh("rest")
        _paths.divided[key] = quotient, rest
        _paths.assume(z3.And(self.term == divisor * quotient + rest, rest >= 0, rest < divisor))
        return quotient, rest

    def __floordiv__(self, other: Any) -> Whole:
        return Whole(self._divided(other)[0])

    def __mod__(self, other: Any) -> Whole:
        return Whole(self._divided(other)[1])

    def __rfloordiv__(self, other: int) -> Whole:
        return Whole(other) // self

    def __eq__(self, other: object) -> Any:
        return Fact(self.term == _term(other))

    def __ne__(self, other: object) -> Any:
        return Fact(self.term != _term(other))

    def __lt__(self, other: Any) -> Any:
        return Fact(self.term < _term(other))

    def __le__(self, other: Any) -> Any:
        return Fact(self.term <= _term(other))

    def __gt__(self, other: Any) -> Any:
        return Fact(self.term > _term(other))

    def __ge__(self, other: Any) -> Any:
        return Fact(self.term >= _term(other))

    def __bool__(self) -> bool:
        return _paths.decide(self.term != 0)

    def __index__(self) -> int:
        return _paths.value(self.term)

    def __str__(self) -> str:
        return str(self.term)
