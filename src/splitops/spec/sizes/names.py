"""Arithmetic with symbolic sizes: symbols, and expressions such as ``N/2`` or ``N - 3``.

Both can be a ``dim_param`` of ONNX. Expressions are sums with rational coefficients in a canonical form, so
that symbols cancel out: the sizes of the parts of ``N`` add up to ``N``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Final

MAX_LENGTH: Final = 200
"""Maximum length of an expression. A longer result is None, and the size becomes an unnamed range.

A single symbol may be longer.
"""

_ROUNDED: Final = re.compile(r"(ceil|floor)\((\(.+\)|[^\s+]+)/([1-9][0-9]*)\)")
_SYMBOL: Final = re.compile(r"[^-\s*/()+][^\s*/()+]*")
_TERM: Final = re.compile(r"(?:([0-9]+)\*)?(.+?)(?:/([1-9][0-9]*))?")

Sum = Mapping[str, Fraction]
"""Coefficients by symbol, ``ceil(...)`` or ``floor(...)``. The key ``""`` has the constant."""


def add(*names: str | int) -> str | int | None:
    """Return the sum of sizes: an integer if the symbols cancel out, or None if it has no canonical form.

    Examples:
        >>> add("N/2", "N/2"), add("N - 3", 3), add("ceil(N/2)", "N - ceil(N/2)"), add("N", "M", 1)
        ('N', 'N', 'N', 'M + N + 1')
    """
    return _format(_sum((name, 1) for name in names))


def subtract(name: str | int, other: str | int) -> str | int | None:
    """Return the difference of two sizes; see :func:`add`.

    Examples:
        >>> subtract("N", 3), subtract("N + 2", "N")
        ('N - 3', 2)
    """
    return _format(_sum([(name, 1), (other, -1)]))


def multiply(name: str | int, factor: int) -> str | int | None:
    """Return a multiple of a size; see :func:`add`.

    Examples:
        >>> multiply("N/2 + 1", 4)
        '2*N + 4'
    """
    return _format(_sum([(name, factor)]))


def divide(name: str | int, divisor: int) -> str | int | None:
    """Return the quotient of a size that is divisible by ``divisor``; see :func:`add`.

    Examples:
        >>> divide("N", 2), divide("2*N", 2), divide("N", 1)
        ('N/2', 'N', 'N')
    """
    return _format({atom: coefficient / divisor for atom, coefficient in _parse_cached(name).items()})


def divide_up(name: str | int, divisor: int) -> str | int | None:
    """Return the quotient of a size, rounded up; see :func:`add`.

    Multiples of the divisor are divided separately: only the rest remains inside ``ceil(...)`` or
    ``floor(...)``.

    Examples:
        >>> divide_up("N", 2), divide_up("4*N", 2), divide_up("N + 3", 2)
        ('ceil(N/2)', '2*N', 'floor(N/2) + 2')
    """
    quotient: dict[str, Fraction] = {}
    rest: dict[str, Fraction] = {}
    for atom, coefficient in _parse_cached(name).items():
        # The rest of the constant is 0 or negative.
        whole = -(-coefficient // divisor) if not atom else coefficient // divisor
        if coefficient.denominator > 1:
            whole = 0
        quotient[atom] = Fraction(whole)
        rest[atom] = coefficient - whole * divisor
    if not any(rest.values()):
        return _format(quotient)
    rounds_down = rest.get("", Fraction(0)) == 1 - divisor
    operand = _format({**rest, "": Fraction(0)} if rounds_down else rest)
    if isinstance(operand, int):
        return _format({**quotient, "": quotient.get("", Fraction(0)) - (-operand // divisor)})
    if operand is None or (operand in rest and not _is_atom(operand)):
        return None
    operand = f"({operand})" if re.search(r"[ */]", operand) else operand
    rounded = f"{'floor' if rounds_down else 'ceil'}({operand}/{divisor})"
    return _format({**quotient, rounded: Fraction(1)}) if len(rounded) <= MAX_LENGTH else None


def divide_down(name: str | int, divisor: int) -> str | int | None:
    """Return the quotient of a size, rounded down; see :func:`add`.

    Examples:
        >>> divide_down("N", 2), divide_down("N + 1", 2), divide_down("N", 4)
        ('floor(N/2)', 'ceil(N/2)', 'floor(N/4)')
    """
    lower = subtract(name, divisor - 1)
    return None if lower is None else divide_up(lower, divisor)


def evaluate(name: str, sizes: Mapping[str, int]) -> int | None:
    """Return the value of an expression, or None if a symbol is not in ``sizes`` or the value is fractional.

    Examples:
        >>> evaluate("N - ceil(N/2)", {"N": 7}), evaluate("N/2", {"N": 7}), evaluate("N", {})
        (3, None, None)
    """
    total = Fraction(0)
    for atom, coefficient in _parse_cached(name).items():
        match = _match_rounded(atom)
        value: int | None
        if match:
            inner, divisor = evaluate(_get_operand(match), sizes), int(match[3])
            up = match[1] == "ceil"
            value = None if inner is None else -(-inner // divisor) if up else inner // divisor
        else:
            value = sizes.get(atom) if atom else 1
        if value is None:
            return None
        total += coefficient * value
    return int(total) if total.denominator == 1 else None


def find_symbols(name: str) -> frozenset[str]:
    """Return the symbols of an expression.

    Examples:
        >>> sorted(find_symbols("N - ceil((M + 1)/2)")), sorted(find_symbols("N"))
        (['M', 'N'], ['N'])
    """
    found: set[str] = set()
    for atom in _parse_cached(name):
        match = _match_rounded(atom)
        found |= find_symbols(_get_operand(match)) if match else {atom} - {""}
    return frozenset(found)


def _sum(names: Iterable[tuple[str | int, int]]) -> Sum:
    total: dict[str, Fraction] = {}
    for name, factor in names:
        for atom, coefficient in _parse_cached(name).items():
            total[atom] = total.get(atom, Fraction(0)) + factor * coefficient
    return total


def _match_rounded(text: str) -> re.Match[str] | None:
    """Match a rounded quotient of one dividend, unlike the ``floor(N/2 - 1/2)`` of other programs."""
    match = _ROUNDED.fullmatch(text)
    depths = accumulate((each == "(") - (each == ")") for each in _get_operand(match)) if match else ()
    return match if all(depth >= 0 for depth in depths) else None


def _get_operand(match: re.Match[str]) -> str:
    """Return the dividend of a rounded quotient, without its parentheses."""
    text = match[2]
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def _parse(name: str | int) -> Sum:
    """Parse a sum of terms with spaces around its signs. Any other text is one symbol."""
    if isinstance(name, int):
        return {"": Fraction(name)}
    if len(name) > MAX_LENGTH:
        return {name: Fraction(1)}
    terms: dict[str, Fraction] = {}
    sign = 1
    for index, token in enumerate(_tokenise(name)):
        if index % 2:
            if token not in ("+", "-"):
                return {name: Fraction(1)}
            sign = 1 if token == "+" else -1  # noqa: S105 - an operator
            continue
        term = _parse_term(token)
        if term is None:
            return {name: Fraction(1)}
        atom, coefficient = term
        terms[atom] = terms.get(atom, Fraction(0)) + sign * coefficient
    return terms


_parse_cached = lru_cache(maxsize=4096)(_parse)


def _tokenise(text: str) -> list[str]:
    """Split an expression at spaces outside of parentheses, or return one token if their number is even."""
    tokens = [""]
    for character in text:
        if character == " " and tokens[-1].count("(") == tokens[-1].count(")"):
            tokens.append("")
        else:
            tokens[-1] += character
    return tokens if len(tokens) % 2 else [text]


def _parse_term(text: str) -> tuple[str, Fraction] | None:
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
    return bool(_SYMBOL.fullmatch(text) or _match_rounded(text)) and text.count("(") == text.count(")")


def _format(terms: Sum) -> str | int | None:
    """Return the canonical form of a sum: positive terms by symbol, then negative ones, then the constant.

    Return None if it is too long, ambiguous, or a constant that is not an integer.
    """
    constant = terms.get("", Fraction(0))
    # Positive terms come first, so that an expression rarely begins with a sign.
    named = sorted((c < 0, atom, c) for atom, c in terms.items() if atom and c)
    if not named:
        return int(constant) if constant.denominator == 1 else None
    _, first, coefficient = named[0]
    if len(named) == 1 and coefficient == 1 and not constant:
        return first
    if not all(_is_atom(atom) for _, atom, _ in named):
        return None  # a symbol with operators in its name would be ambiguous
    if constant:
        named.append((constant < 0, "", constant))
    text = "".join(f" {'-' if minus else '+'} {_format_term(atom, abs(c))}" for minus, atom, c in named)
    text = f"-{text[3:]}" if text.startswith(" -") else text[3:]
    return text if len(text) <= MAX_LENGTH else None


def _format_term(atom: str, coefficient: Fraction) -> str:
    if not atom:
        return str(coefficient)
    factor = "" if coefficient.numerator == 1 else f"{coefficient.numerator}*"
    return f"{factor}{atom}" + ("" if coefficient.denominator == 1 else f"/{coefficient.denominator}")
