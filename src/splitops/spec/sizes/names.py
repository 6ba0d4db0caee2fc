"""Names of sizes that are not known: a symbol, or an expression in symbols such as ``N/2`` or ``N - 3``.

ONNX writes both as ``dim_param``. Expressions are kept as sums with rational coefficients, written in one
canonical form: equal ones get equal names, and the parts of a symbol add up to it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Final

MAX_LENGTH: Final = 200
"""A longer expression loses its name; the size it stands for is then merely a range."""

_CEIL: Final = re.compile(r"ceil\((.+)/([1-9][0-9]*)\)")
_SYMBOL: Final = re.compile(r"[^-\s*/()+][^\s*/()+]*")
_TERM: Final = re.compile(r"(?:([0-9]+)\*)?(.+?)(?:/([1-9][0-9]*))?")

Sum = Mapping[str, Fraction]
"""Coefficients by symbol or ``ceil(...)``; that of ``""`` is the constant."""


def add(*names: str | int) -> str | int | None:
    """Return the sum of sizes; an integer where the symbols cancel, None where it has no short name.

    Examples:
        >>> add("N/2", "N/2"), add("N - 3", 3), add("ceil(N/2)", "N - ceil(N/2)"), add("N", "M", 1)
        ('N', 'N', 'N', 'M + N + 1')
    """
    return _write(_total((name, 1) for name in names))


def subtract(name: str | int, other: str | int) -> str | int | None:
    """Return the difference of two sizes, as :func:`add` returns sums.

    Examples:
        >>> subtract("N", 3), subtract("N + 2", "N")
        ('N - 3', 2)
    """
    return _write(_total([(name, 1), (other, -1)]))


def multiply(name: str | int, factor: int) -> str | int | None:
    """Return a multiple of a size, as :func:`add` returns sums.

    Examples:
        >>> multiply("N/2 + 1", 4)
        '2*N + 4'
    """
    return _write(_total([(name, factor)]))


def divide(name: str | int, divisor: int) -> str | int | None:
    """Return an exact quotient: the size is known to be divisible.

    Examples:
        >>> divide("N", 2), divide("2*N", 2), divide("N", 1)
        ('N/2', 'N', 'N')
    """
    return _write({atom: coefficient / divisor for atom, coefficient in _read(name).items()})


def ceil_divide(name: str | int, divisor: int) -> str | int | None:
    """Return a quotient that is rounded up.

    Examples:
        >>> ceil_divide("N", 2), ceil_divide("4*N", 2)
        ('ceil(N/2)', '2*N')
    """
    terms = _read(name)
    quotient = {atom: coefficient / divisor for atom, coefficient in terms.items()}
    if all(coefficient.denominator == 1 for coefficient in quotient.values()):
        return _write(quotient)
    whole = _write(terms)
    if isinstance(whole, int):
        return -(-whole // divisor)
    if whole is None or (whole in terms and not _is_atom(whole)):
        return None
    operand = f"({whole})" if re.search(r"[ */]", whole) else whole
    return _bounded(f"ceil({operand}/{divisor})")


def evaluate(name: str, sizes: Mapping[str, int]) -> int | None:
    """Return the value of an expression, None where a symbol has no size or the value is not an integer.

    Examples:
        >>> evaluate("N - ceil(N/2)", {"N": 7}), evaluate("N/2", {"N": 7}), evaluate("N", {})
        (3, None, None)
    """
    total = Fraction(0)
    for atom, coefficient in _read(name).items():
        match = _CEIL.fullmatch(atom)
        value: int | None
        if match:
            inner = evaluate(_operand(match), sizes)
            value = None if inner is None else -(-inner // int(match[2]))
        else:
            value = sizes.get(atom) if atom else 1
        if value is None:
            return None
        total += coefficient * value
    return int(total) if total.denominator == 1 else None


def symbols(name: str) -> frozenset[str]:
    """Return the symbols of an expression.

    Examples:
        >>> sorted(symbols("N - ceil((M + 1)/2)")), sorted(symbols("N"))
        (['M', 'N'], ['N'])
    """
    found: set[str] = set()
    for atom in _read(name):
        match = _CEIL.fullmatch(atom)
        found |= symbols(_operand(match)) if match else {atom} - {""}
    return frozenset(found)


def _total(names: Iterable[tuple[str | int, int]]) -> Sum:
    total: dict[str, Fraction] = {}
    for name, factor in names:
        for atom, coefficient in _read(name).items():
            total[atom] = total.get(atom, Fraction(0)) + factor * coefficient
    return total


def _operand(match: re.Match[str]) -> str:
    """Return what a ``ceil`` divides, without its parentheses."""
    text = match[1]
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def _parse(name: str | int) -> Sum:
    """Read an expression in the form that :func:`_write` gives it; any other text is one symbol."""
    if isinstance(name, int):
        return {"": Fraction(name)}
    if len(name) > MAX_LENGTH:
        return {name: Fraction(1)}
    terms: dict[str, Fraction] = {}
    sign = 1
    for index, token in enumerate(_tokens(name)):
        if index % 2:
            if token not in ("+", "-"):
                return {name: Fraction(1)}
            sign = 1 if token == "+" else -1  # noqa: S105 - an operator
            continue
        term = _read_term(token)
        if term is None:
            return {name: Fraction(1)}
        atom, coefficient = term
        terms[atom] = terms.get(atom, Fraction(0)) + sign * coefficient
    return terms


_read = lru_cache(maxsize=4096)(_parse)


def _tokens(text: str) -> list[str]:
    """Cut at spaces outside parentheses; one token, the whole, where that gives no sum."""
    tokens = [""]
    for character in text:
        if character == " " and tokens[-1].count("(") == tokens[-1].count(")"):
            tokens.append("")
        else:
            tokens[-1] += character
    return tokens if len(tokens) % 2 else [text]


def _read_term(text: str) -> tuple[str, Fraction] | None:
    match = _TERM.fullmatch(text.removeprefix("-"))
    if match is None:
        return None
    factor, atom, divisor = match.groups()
    coefficient = Fraction(int(factor or 1), int(divisor or 1))
    if text.startswith("-"):
        coefficient = -coefficient
    if atom.isascii() and atom.isdigit():
        return "", coefficient * int(atom)
    return (atom, coefficient) if _is_atom(atom) else None


def _is_atom(text: str) -> bool:
    return bool(_SYMBOL.fullmatch(text) or _CEIL.fullmatch(text)) and text.count("(") == text.count(")")


def _write(terms: Sum) -> str | int | None:
    """Write a sum: symbols in order, then the constant."""
    constant = terms.get("", Fraction(0))
    # Positive terms first, so that an expression does not begin with a sign.
    named = sorted((c < 0, atom, c) for atom, c in terms.items() if atom and c)
    if not named:
        return int(constant) if constant.denominator == 1 else None
    _, first, coefficient = named[0]
    if len(named) == 1 and coefficient == 1 and not constant:
        return first
    if not all(_is_atom(atom) for _, atom, _ in named):
        return None  # a name of any other form could not be told from its surroundings
    if constant:
        named.append((constant < 0, "", constant))
    text = "".join(f" {'-' if minus else '+'} {_write_term(atom, abs(c))}" for minus, atom, c in named)
    return _bounded(f"-{text[3:]}" if text.startswith(" -") else text[3:])


def _write_term(atom: str, coefficient: Fraction) -> str:
    if not atom:
        return str(coefficient)
    factor = "" if coefficient.numerator == 1 else f"{coefficient.numerator}*"
    return f"{factor}{atom}" + ("" if coefficient.denominator == 1 else f"/{coefficient.denominator}")


def _bounded(text: str) -> str | None:
    return text if len(text) <= MAX_LENGTH else None
