"""Names of sizes against exact arithmetic: what is written is read back and stands for the right number."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitops.spec.sizes import names

SYMBOLS = ["N", "M", "batch_size", "unk__7", "N.1", "x-y"]

Term = tuple[Fraction, str, int]
"""A coefficient, a symbol and a divisor: ``coefficient * ceil(symbol / divisor)``."""

coefficients = st.fractions(-6, 6, max_denominator=6)
terms = st.tuples(coefficients, st.sampled_from(SYMBOLS), st.sampled_from([1, 1, 2, 3]))
sums = st.tuples(st.lists(terms, max_size=4), coefficients)


def symbols_in(name: str) -> frozenset[str]:
    """The symbols that an expression is made of."""
    found: set[str] = set()
    for atom in names._parse_cached(name):
        ceiling = names._ROUNDED.fullmatch(atom)
        found |= symbols_in(names._get_operand(ceiling)) if ceiling else {atom} - {""}
    return frozenset(found)


def stated(made: tuple[list[Term], Fraction]) -> str | int | None:
    """A sum, made with the functions under test, term by term."""
    total: str | int | None = _scaled(1, made[1])
    for coefficient, symbol, divisor in made[0]:
        atom = names.divide_up(symbol, divisor)
        assert atom is not None
        term = _scaled(atom, coefficient)
        total = None if total is None or term is None else names.add(total, term)
    return total


def _scaled(name: str | int, factor: Fraction) -> str | int | None:
    # A fraction alone has no name, so the constant of a sum is whole.
    multiple = names.multiply(name, factor.numerator)
    assert multiple is not None
    return multiple if isinstance(multiple, int) else names.divide(multiple, factor.denominator)


def value(made: tuple[list[Term], Fraction], sizes: dict[str, int]) -> Fraction:
    """The same sum as a number."""
    return Fraction(made[1].numerator) + sum(
        (coefficient * ceil(Fraction(sizes[symbol], divisor)) for coefficient, symbol, divisor in made[0]),
        Fraction(0),
    )


@given(sums, st.tuples(*(st.integers(0, 40) for _ in SYMBOLS)))
def test_a_sum_stands_for_its_number(made: tuple[list[Term], Fraction], numbers: tuple[int, ...]) -> None:
    sizes = dict(zip(SYMBOLS, numbers, strict=True))
    name, expected = stated(made), value(made, sizes)
    if isinstance(name, str):
        found = names.evaluate(name, sizes)
        assert found == (int(expected) if expected.denominator == 1 else None)
    else:
        assert name == expected


@given(sums, sums)
def test_equal_sums_have_equal_names(
    one: tuple[list[Term], Fraction], other: tuple[list[Term], Fraction]
) -> None:
    """In whichever order it is added up, and after something is added and taken away again."""
    name, more = stated(one), stated(other)
    assert stated((one[0][::-1], one[1])) == name
    if name is not None and more is not None:
        total = names.add(name, more)
        assert total == names.add(more, name)
        assert total is None or names.subtract(total, more) == name


@given(sums, st.integers(1, 9))
def test_a_multiple_divides_again(made: tuple[list[Term], Fraction], factor: int) -> None:
    name = stated(made)
    if name is not None:
        multiple = names.multiply(name, factor)
        assert multiple is not None
        assert names.divide(multiple, factor) == name
        if "/" not in str(name).replace("/2)", "").replace("/3)", ""):
            assert names.divide_up(multiple, factor) == name
        assert names.add(*[name] * factor) == multiple


@given(sums, st.integers(1, 9), st.tuples(*(st.integers(0, 40) for _ in SYMBOLS)))
def test_a_quotient_is_rounded_up(
    made: tuple[list[Term], Fraction], divisor: int, numbers: tuple[int, ...]
) -> None:
    name, sizes = stated(made), dict(zip(SYMBOLS, numbers, strict=True))
    if name is None:
        return
    quotient = names.divide_up(name, divisor)
    if isinstance(name, int):
        assert quotient == ceil(Fraction(name, divisor))
        return
    whole = names.evaluate(name, sizes)
    if isinstance(quotient, str) and whole is not None:
        assert names.evaluate(quotient, sizes) == ceil(Fraction(whole, divisor))
        assert symbols_in(quotient) == symbols_in(name)


@given(sums)
def test_the_symbols_of_a_sum_are_those_that_it_needs(made: tuple[list[Term], Fraction]) -> None:
    name = stated(made)
    if not isinstance(name, str):
        return
    needed = symbols_in(name)
    assert needed <= {symbol for _, symbol, _ in made[0]}
    sizes = dict.fromkeys(needed, 720)  # which every denominator divides
    assert names.evaluate(name, sizes) is not None
    for symbol in needed:
        assert names.evaluate(name, {other: 720 for other in needed if other != symbol}) is None


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (names.add, ("N", "M", 1), "M + N + 1"),
        (names.add, ("N", "N"), "2*N"),
        (names.add, ("N/2", "N/3"), "5*N/6"),
        (names.add, ("N", -3), "N - 3"),
        (names.add, ("-N", "M"), "M - N"),
        (names.add, ("-N", -1), "-N - 1"),
        (names.add, ("-M", "N"), "N - M"),
        (names.add, ("A/2", "B", 1), "A/2 + B + 1"),
        (names.add, ("N", "-M", -1), "N - M - 1"),
        (names.add, ("N - M", "-N"), "-M"),
        (names.add, ("N", "ceil(M/2)"), "N + ceil(M/2)"),
        (names.add, ("2*N", "-N"), "N"),
        (names.add, ("x-y", "x-y"), "2*x-y"),
        (names.add, (2, 3), 5),
        (names.add, (), 0),
        (names.subtract, ("N", "N"), 0),
        (names.subtract, (7, "N"), "-N + 7"),
        (names.multiply, ("N", 0), 0),
        (names.multiply, ("N - 1", -2), "-2*N + 2"),
        (names.divide, ("N + 1", 2), "N/2 + 1/2"),
        (names.divide, (1, 2), None),
        (names.divide, (6, 2), 3),
        (names.divide_up, ("N", 2), "ceil(N/2)"),
        (names.divide_up, ("N + 1", 2), "floor(N/2) + 1"),
        (names.divide_up, ("N - 1", 3), "ceil((N - 1)/3)"),
        (names.divide_up, ("N + 7", 3), "floor(N/3) + 3"),
        (names.divide_down, ("N", 3), "floor(N/3)"),
        (names.divide_down, ("N - 1", 2), "ceil(N/2) - 1"),
        (names.divide_down, ("floor(N/2)", 2), "floor((floor(N/2))/2)"),
        (names.divide_down, (7, 2), 3),
        (names.divide_up, ("3*N", 2), "N + ceil(N/2)"),
        (names.divide_up, ("N/3", 2), "ceil((N/3)/2)"),
        (names.divide_up, ("ceil(N/2)", 3), "ceil((ceil(N/2))/3)"),
        (names.divide_up, ("2*N + 4", 2), "N + 2"),
        (names.divide_up, ("2*N + 3", 2), "N + 2"),
        (names.divide_up, (7, 2), 4),
    ],
)
def test_the_canonical_form(
    function: Callable[..., str | int | None], arguments: tuple[str | int, ...], expected: str | int | None
) -> None:
    assert function(*arguments) == expected


@pytest.mark.parametrize(
    ("text", "sizes", "expected"),
    [
        ("3*N/2 - 1", {"N": 4}, 5),
        ("3*N/2 - 1", {"N": 3}, None),
        ("N + N", {"N": 4}, 8),
        ("-N + 7", {"N": 4}, 3),
        ("7", {}, 7),
        ("2*3", {}, 6),
        ("6/3", {}, 2),
        ("ceil((N + 1)/4)", {"N": 4}, 2),
        ("2*ceil(N/4)/2 + 1", {"N": 5}, 3),
        ("ceil((ceil(N/2))/3)", {"N": 13}, 3),
        ("ceil((M + 1)/2) + N", {"M": 3, "N": 5}, 7),
        ("ceil(2*(N)/3)", {"2*(N)": 7}, 3),
        ("floor(N/2) - floor((M + 1)/3)", {"N": 7, "M": 4}, 2),
        ("ceil(N/2)", {}, None),
        ("N - ceil(M/2)", {"N": 5}, None),
    ],
)
def test_an_expression_has_its_number(text: str, sizes: dict[str, int], expected: int | None) -> None:
    assert names.evaluate(text, sizes) == expected


@pytest.mark.parametrize(
    "text",
    [
        "two words",
        "N * 2",
        "N +",
        "+ N",
        "N + ",
        "N  + 1",
        "N + + 1",
        "N + (M",
        "N) + (M",
        "(N)",
        "f(N)",
        "2*",
        "*2",
        "N/0",
        "N/02",
        "-",
        "--N",
        "-/2",
        "2*two words",
        "N / 2",
        "ceil(N)",
        "ceil(N/0)",
        "\u0663*N",
        " ",
        "",
        "N\t+ 1",
    ],
)
def test_any_other_text_is_one_symbol(text: str) -> None:
    """It stands for a size of its own and is never taken apart."""
    assert symbols_in(text) == frozenset({text} - {""})
    if text:
        assert names.evaluate(text, {text: 11}) == 11
        assert names.multiply(text, 1) == text


@pytest.mark.parametrize("text", ["two words", "N + (M", "f(N)", "N / 2", "-", "--N", "-/2"])
def test_a_symbol_that_could_not_be_told_from_its_surroundings_has_no_expression(text: str) -> None:
    assert names.add(text, 1) is None
    assert names.multiply(text, 2) is None
    assert names.add(text, "N") is None
    assert names.divide_up(text, 2) is None
    assert names.add(text, 1, -1) == text


def test_a_name_has_a_greatest_length() -> None:
    longest = "x" * names.MAX_LENGTH
    assert names.evaluate(longest, {longest: 3}) == 3
    assert names.multiply(longest, 1) == longest
    assert names.add(longest, 1) is None
    shorter = longest[:-4]
    assert names.add(shorter, 1) == f"{shorter} + 1"
    assert names.add(shorter + "x", 1) is None
    atom = longest[: -len("ceil(/2)")]
    assert names.divide_up(atom, 2) == f"ceil({atom}/2)"
    assert names.divide_up(atom + "x", 2) is None
    at_limit = "N + " + longest[4:]
    assert symbols_in(at_limit) == {"N", longest[4:]}
    beyond = at_limit + "x"  # not even read: texts come from files
    assert symbols_in(beyond) == {beyond}
    assert names.evaluate(beyond, {beyond: 3}) == 3


@pytest.mark.parametrize(
    "name",
    [
        "floor(N/2 - 1/2)",  # SymPy: a rounded sum
        "floor(N - 3/2)",
        "ceil(N+1/2)",
        "floor((N) - (3)/2)",
        "ceil(N/2)+floor(M/3)",
        "ceil((N)/2)+floor((M)/3)",
    ],
)
def test_expressions_of_other_programs_are_single_symbols(name: str) -> None:
    assert names.find_symbols(name) == {name}
    assert names.evaluate(name, {"N": 8, "M": 6}) is None
    assert names.evaluate(name, {name: 3}) == 3
    assert names.add(name, 1) is None  # it would be ambiguous
