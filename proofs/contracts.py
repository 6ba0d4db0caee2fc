"""What is claimed of ``splitops.spec.sizes``, and proved of the code that ships.

``python proofs/contracts.py`` runs each claim on symbolic integers (:mod:`symbolic`). For any number of
parts, the claims are on the offsets: they begin at 0, rise, and end at the size D. The theory ``Offsets`` of
``split.mlw`` shows that the parts then cover the axis. A bound such as "up to 4 lengths" means that the claim
is confirmed for all integers within the bound. Nothing is said beyond it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from symbolic import Outcome, Verdict, assume, confirm, products_rise, whole

from splitops.spec.sizes import arithmetic, ranges
from splitops.spec.sizes.dims import Range
from splitops.spec.sizes.rules import SizeRule

MAX_LENGTHS = 4
MAX_PARTS = 4


@dataclass(frozen=True)
class Claim:
    """A claim in words, the bound within which it is proved, and the function that makes it.

    Attributes:
        words: what is claimed.
        bound: empty where it holds for all integers.
        makes: the claim for each value of the bound, given the modules to ask.
    """

    words: str
    bound: str
    makes: Callable[[ModuleType, ModuleType, int], Any]
    values: range = field(default_factory=lambda: range(1))

    def outcomes(self, sizes: ModuleType = arithmetic, spans: ModuleType = ranges) -> Iterator[Outcome]:
        """Yield the outcome for each value of the bound."""
        for value in self.values:
            yield confirm(lambda value=value: self.makes(sizes, spans, value))  # type: ignore[misc]


CLAIMS: list[Claim] = []


def claim(words: str, bound: str = "", values: range = range(1)) -> Callable[[Any], Any]:
    """Add a claim to the list."""

    def add(makes: Callable[[ModuleType, ModuleType, int], Any]) -> Any:
        CLAIMS.append(Claim(words, bound, makes, values))
        return makes

    return add


LENGTHS = f"up to {MAX_LENGTHS} lengths", range(MAX_LENGTHS + 1)
PARTS = f"up to {MAX_PARTS} parts", range(1, MAX_PARTS + 1)


@claim("EXPLICIT: there is a violation exactly where the lengths do not sum to D", *LENGTHS)
def explicit_fits(sizes: ModuleType, spans: ModuleType, count: int) -> Any:
    lengths = tuple(whole(f"length{i}", 0) for i in range(count))
    size = whole("D", 0)
    fits = sizes.find_violation(sizes.Division(SizeRule.EXPLICIT, lengths=lengths), size) is None
    return sum(lengths) == size if fits else sum(lengths) != size


@claim("EXPLICIT: the parts are the lengths, and lie one behind the other up to D", *LENGTHS)
def explicit_covers(sizes: ModuleType, spans: ModuleType, count: int) -> Iterator[Any]:
    lengths = tuple(whole(f"length{i}", 0) for i in range(count))
    size = whole("D", 0)
    division = sizes.Division(SizeRule.EXPLICIT, lengths=lengths)
    yield sizes.count_parts(division, size) == count
    if sizes.find_violation(division, size) is None:
        yield from _cover(sizes, division, size, count)
        for i in range(count):
            yield sizes.compute_part_size(division, size, i) == lengths[i]


def _cover(sizes: ModuleType, division: Any, size: Any, count: int) -> Iterator[Any]:
    begin: Any = 0
    for i in range(count):
        part = sizes.compute_part_size(division, size, i)
        yield part >= 0
        yield part <= size
        begin = begin + part
    yield begin == size


@claim("REMAINDER: a violation exactly where the others exceed D; else the parts cover the axis", *LENGTHS)
def remainder_covers(sizes: ModuleType, spans: ModuleType, count: int) -> Iterator[Any]:
    size = whole("D", 0)
    for at in range(count):
        others = tuple(whole(f"length{i}", 0) for i in range(count - 1))
        division = sizes.Division(SizeRule.REMAINDER, lengths=(*others[:at], -1, *others[at:]))
        yield sizes.count_parts(division, size) == count
        fits = sizes.find_violation(division, size) is None
        yield (size >= sum(others)) if fits else (size < sum(others))
        if fits:
            yield from _cover(sizes, division, size, count)
            yield sizes.compute_part_size(division, size, at) == size - sum(others)


@claim("EVEN: a violation exactly where n does not divide D; else n parts of D / n")
def even_divides(sizes: ModuleType, spans: ModuleType, _: int) -> Iterator[Any]:
    size, count, index = whole("D", 0), whole("n", 1), whole("i", 0)
    assume(index < count)
    division = sizes.Division(SizeRule.EVEN, count=count)
    yield sizes.count_parts(division, size) == count
    if sizes.find_violation(division, size) is None:
        yield count * sizes.compute_part_size(division, size, index) == size
    else:
        quotient = whole("q")
        assume(quotient * count == size)  # then D / n has no rest
        products_rise(count, quotient + 1, size // count)
        products_rise(count, size // count + 1, quotient)
        yield False


@claim("CEIL: the offsets min(D, i * c) begin at 0, rise by the parts, and end at D, where c is ceil(D / n)")
def ceil_covers(sizes: ModuleType, spans: ModuleType, _: int) -> Iterator[Any]:
    size, count, index = whole("D", 0), whole("n", 1), whole("i", 0)
    division = sizes.Division(SizeRule.CEIL, count=count)
    yield sizes.find_violation(division, size) is None
    yield sizes.count_parts(division, size) == count
    chunk = sizes.compute_part_size(division, size, 0)  # the first part is a whole chunk
    yield from _chunked(sizes, division, size, index, chunk)
    yield count * chunk >= size
    yield min(size, count * chunk) == size


@claim("CEIL: the chunk is the least whose n-fold reaches D")
def ceil_least(sizes: ModuleType, spans: ModuleType, _: int) -> Iterator[Any]:
    size, count, other = whole("D", 0), whole("n", 1), whole("c", 0)
    assume(count * other >= size)
    chunk = sizes.compute_part_size(sizes.Division(SizeRule.CEIL, count=count), size, 0)
    products_rise(count, other + 1, chunk)
    yield chunk <= other


def _chunked(sizes: ModuleType, division: Any, size: Any, index: Any, chunk: Any) -> Iterator[Any]:
    part = sizes.compute_part_size(division, size, index)
    yield part >= 0
    yield part <= size
    yield part <= chunk
    products_rise(chunk, 0, index)
    yield min(size, index * chunk) + part == min(size, index * chunk + chunk)


@claim("CHUNK: as many parts of s as it takes, none empty, all but the last one whole")
def chunk_covers(sizes: ModuleType, spans: ModuleType, _: int) -> Iterator[Any]:
    size, chunk, index = whole("D", 0), whole("s", 1), whole("i", 0)
    division = sizes.Division(SizeRule.CHUNK, chunk=chunk)
    yield sizes.find_violation(division, size) is None
    count = sizes.count_parts(division, size)
    yield count >= 0
    yield count * chunk >= size
    yield from _chunked(sizes, division, size, index, chunk)
    if index < count:
        products_rise(chunk, index + 1, count)
        part = sizes.compute_part_size(division, size, index)
        yield part >= 1
        if index + 1 < count:
            products_rise(chunk, index + 2, count)
            yield part == chunk


@claim("compute_part_sizes is compute_part_size of the first parts, for every rule", *PARTS)
def sizes_agree(sizes: ModuleType, spans: ModuleType, count: int) -> Iterator[Any]:
    size = whole("D", 0)
    rule = _chosen(len(RULES))
    number = whole("n", 1)
    lengths = tuple(whole(f"length{i}", 0) for i in range(count))
    at = _chosen(count)
    division = (
        sizes.Division(SizeRule.EXPLICIT, lengths=lengths),
        sizes.Division(SizeRule.REMAINDER, lengths=(*lengths[:at], -1, *lengths[at + 1 :])),
        sizes.Division(SizeRule.EVEN, count=number),
        sizes.Division(SizeRule.CEIL, count=number),
        sizes.Division(SizeRule.CHUNK, chunk=number),
    )[rule]
    if sizes.find_violation(division, size) is None:
        if rule == 2:
            assume(number >= count)
        found = sizes.compute_part_sizes(division, size, count)
        yield len(found) == count
        for i in range(count):
            yield found[i] == sizes.compute_part_size(division, size, i)


RULES = tuple(SizeRule)


def _chosen(count: int) -> int:
    """Return each number below a count, on paths of their own."""
    return int(whole("choice", 0, count - 1).__index__())


def _division(sizes: ModuleType, rule: SizeRule, number: int) -> Any:
    match rule:
        case SizeRule.EXPLICIT:
            return sizes.Division(rule, lengths=tuple(whole(f"length{i}", 0) for i in range(number)))
        case SizeRule.REMAINDER:
            return sizes.Division(rule, lengths=(number - 1, -1))  # a symbolic one takes Z3 too long
        case SizeRule.CHUNK:
            return sizes.Division(rule, chunk=number)
        case _:
            return sizes.Division(rule, count=number)


def _within(found: Any, value: Any) -> Iterator[Any]:
    if isinstance(found, Range):
        yield found.lo <= value
        if found.hi is not None:
            yield value <= found.hi
    else:
        yield found == value


def _ranges(rule: SizeRule, bounded: bool) -> Callable[[ModuleType, ModuleType, int], Iterator[Any]]:
    def makes(sizes: ModuleType, spans: ModuleType, number: int) -> Iterator[Any]:
        division = _division(sizes, rule, number)
        low, size = whole("lo", 0), whole("D", 0)
        high = whole("hi", 0) if bounded else None
        assume(low <= size)
        if high is not None:
            assume(size <= high)
            assume(low < high)
        if sizes.find_violation(division, size) is not None:
            return
        axis = Range(low, high)
        match _chosen(3):
            case 0:
                yield from _within(spans.find_valid_sizes(division, axis), size)
            case 1:
                yield from _within(spans.bound_count(division, axis), sizes.count_parts(division, size))
            case _:
                index = _chosen(number)
                if index < sizes.count_parts(division, size):
                    part = sizes.compute_part_size(division, size, index)
                    yield from _within(spans.bound_part(division, axis, index), part)

    return makes


_BOUNDS = {
    SizeRule.EXPLICIT: (2, "up to 2 lengths"),
    SizeRule.REMAINDER: (3, "-1 and a length from 0 to 2"),
    SizeRule.EVEN: (3, "n up to 3"),
    SizeRule.CEIL: (3, "n up to 3"),
    SizeRule.CHUNK: (3, "s up to 3, the first 3 parts"),
}
for _rule, (_most, _words) in _BOUNDS.items():
    for _bounded in (True, False):
        claim(
            f"{_rule.name}, sizes from lo {'to hi' if _bounded else 'on'}: ranges hold what every D gives",
            _words,
            range(1, _most + 1),
        )(_ranges(_rule, _bounded))


LENGTHS_SUM = "sum(division.lengths) + 1\n            if total"
PART = "max(0, min(chunk, size - index * chunk))"
CEIL_DIV = "(dividend + divisor - 1) // divisor"
FULL = "full = min(count, size // max(chunk, 1))"
MUTANTS = (
    ("EXPLICIT", "arithmetic", "if total != size:", "if total < size:"),
    ("EXPLICIT", "arithmetic", "if total != size:", "if total > size:"),
    ("REMAINDER", "arithmetic", f"{LENGTHS_SUM} > size", f"{LENGTHS_SUM} >= size"),
    ("REMAINDER", "arithmetic", "size - (sum(division.lengths) + 1)\n", "size - sum(division.lengths)\n"),
    ("EVEN", "arithmetic", "if size % division.count:", "if size < division.count:"),
    ("EVEN", "arithmetic", "return size // division.count", "return size // division.count + 1"),
    ("CEIL", "arithmetic", PART, "min(chunk, size - index * chunk)"),
    ("CEIL", "arithmetic", PART, "max(0, min(chunk, size - (index + 1) * chunk))"),
    ("CEIL", "arithmetic", CEIL_DIV, "dividend // divisor"),
    ("CEIL: the chunk", "arithmetic", CEIL_DIV, "(dividend + divisor) // divisor"),
    ("CHUNK", "arithmetic", "return _divide_up(size, division.chunk)", "return size // division.chunk"),
    ("compute_part_sizes", "arithmetic", "(size - full * chunk,)", "(chunk,)"),
    ("compute_part_sizes", "arithmetic", FULL, f"{FULL[:-1]} + 1)"),
    ("CHUNK, sizes from lo to", "ranges", "candidates = {lo, hi, block}", "candidates = {lo, block}"),
    ("CEIL, sizes from lo on", "ranges", "return Range(min(values))", "return 0"),
)
"""Small changes of the code: the claims that must refute each, the module, the code, and the change."""


def mutated(module: str, old: str, new: str) -> tuple[ModuleType, ModuleType]:
    """Return the two modules with a change in one of them, which the rest of the package does not see."""
    made = {}
    for original in (arithmetic, ranges):
        source = Path(str(original.__file__)).read_text()
        name = original.__name__.rpartition(".")[2]
        if name == module:
            assert source.count(old) == 1, f"{old!r} is not in {name} once"
            source = source.replace(old, new)
        copy = ModuleType(f"mutated_{name}")
        sys.modules[copy.__name__] = copy  # dataclasses look for the module of a class
        exec(compile(source, f"{name}.py", "exec"), copy.__dict__)  # noqa: S102
        made[name] = copy
    for name in ("Division", "count_parts", "compute_part_size", "find_violation"):
        setattr(made["ranges"], name, getattr(made["arithmetic"], name))
    return made["arithmetic"], made["ranges"]


def refuted(claims: str, module: str, old: str, new: str) -> tuple[Claim, Outcome] | None:
    """Return the first of these claims that a mutant does not meet."""
    found = (pair for pair in prove(*mutated(module, old, new), claims) if pair[1].verdict is Verdict.REFUTED)
    return next(found, None)


def prove(
    sizes: ModuleType = arithmetic, spans: ModuleType = ranges, only: str = ""
) -> Iterator[tuple[Claim, Outcome]]:
    """Yield each claim with its outcome: the first that is not confirmed, or the last, with all paths."""
    for each in CLAIMS:
        if each.words.startswith(only):
            paths, outcome = 0, None
            for outcome in each.outcomes(sizes, spans):
                paths += outcome.paths
                if outcome.verdict is not Verdict.CONFIRMED:
                    break
            assert outcome is not None
            yield each, Outcome(outcome.verdict, paths, outcome.example)


def main(arguments: list[str]) -> int:
    """Print the outcome of each claim, or of each mutant; return the exit code."""
    failed = 0
    if arguments == ["--mutants"]:
        for claims, module, old, new in MUTANTS:
            found = refuted(claims, module, old, new)
            failed += found is None
            told = "NOT REFUTED" if found is None else f"refuted at {found[1].example}: {found[0].words}"
            print(f"{module}: {old!r} -> {new!r}: {told}", flush=True)
        return 1 if failed else 0
    for each, outcome in prove(only=" ".join(arguments)):
        failed += outcome.verdict is not Verdict.CONFIRMED
        bound = f" [{each.bound}]" if each.bound else ""
        print(
            f"{outcome.verdict.value}, {outcome.paths} paths: {each.words}{bound} {outcome.example}",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
