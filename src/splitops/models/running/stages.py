"""A graph divided between this package and an engine."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
Ends = Callable[[T], Iterable[Hashable]]


def stages(
    nodes: Iterable[T],
    is_own: Callable[[T], bool],
    reads: Ends[T],
    makes: Ends[T],
    begins: Callable[[T], bool] = lambda _: False,
) -> Iterator[tuple[bool, list[T]]]:
    """Divide nodes, which are in topological order, into few stages of own and of foreign ones, in turn.

    What is foreign depends on earlier stages and its own stage alone, so that it is one region. One that
    ``begins`` reads nothing of its own stage.
    """
    depth: dict[Hashable, int] = {}  # even: own, odd: foreign
    found: dict[int, list[T]] = {}
    for node in nodes:
        parity = 0 if is_own(node) else 1
        before = max((depth.get(end, -1) for end in reads(node)), default=-1)
        least = max(parity, before + ((before - parity) % 2))
        least += 2 if least == before and begins(node) else 0
        depth.update(dict.fromkeys(makes(node), least))
        found.setdefault(least, []).append(node)
    for number in sorted(found):
        yield number % 2 == 0, found[number]
