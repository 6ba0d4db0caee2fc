"""Arithmetic in plans: integers, names, ``+ - * //`` and parentheses; parsed, never evaluated as code."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from splitops.errors import PlanError, shown

_LONGEST: Final = 200
_LARGEST: Final = 1 << 63
_OPERATIONS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_DEFAULTS: Final = {
    "head_dim": "hidden_size // num_attention_heads",
    "num_key_value_heads": "num_attention_heads",
}
"""What a configuration leaves out where it follows from the rest, as transformers has it."""


class Names:
    """The names that a plan's expressions may use: its variables first, then those of the configuration.

    Examples:
        >>> names = Names({"q": "num_attention_heads * head_dim"}, {"num_attention_heads": 4, "head_dim": 8})
        >>> names.value("2 * q")
        64
    """

    def __init__(self, variables: Mapping[str, int | str], config: Mapping[str, Any]) -> None:
        """Take variables, and a model's ``config.json``; of a larger one, the part about text."""
        inner = config.get("text_config")
        self._config = {**inner, **config} if isinstance(inner, Mapping) else config
        self._variables = variables
        self._known: dict[str, int] = {}
        self._open: list[str] = []

    def value(self, expression: int | str) -> int:
        """Return the value of an expression."""
        if isinstance(expression, int):
            return _bounded(expression, str(expression))
        try:
            tree = (
                ast.parse(expression.strip(), mode="eval").body if len(expression) <= _LONGEST else ast.Pass()
            )
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            tree = ast.Pass()
        return self._of(tree, expression)

    def _of(self, node: ast.AST, text: str) -> int:
        match node:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return _bounded(value, text)
            case ast.Name(id=name):
                return self._named(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._of(operand, text)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
                one, other = self._of(left, text), self._of(right, text)
                if other == 0 and isinstance(op, ast.FloorDiv):
                    raise PlanError(f"{shown(text)} divides by 0")
                return _bounded(_OPERATIONS[type(op)](one, other), text)
        raise PlanError(f"{shown(text)} is not an expression of integers, names and + - * //")

    def _named(self, name: str) -> int:
        if name in self._open:
            raise PlanError(f"variable {shown(name)} refers to itself: {' -> '.join([*self._open, name])}")
        found = self._variables.get(name, self._config.get(name))
        if name not in self._variables and found is not None and type(found) is not int:
            raise PlanError(f"{shown(name)} in config.json is {shown(found)}, and no integer")
        if found is None and name not in _DEFAULTS:
            raise PlanError(f"name {shown(name)} is neither in the plan's vars nor in config.json")
        if name not in self._known:
            self._open.append(name)
            try:
                self._known[name] = self.value(_DEFAULTS[name] if found is None else found)
            finally:
                self._open.pop()
        return self._known[name]


def _bounded(value: int, text: str) -> int:
    if -_LARGEST <= value < _LARGEST:
        return value
    raise PlanError(f"{shown(text)} is more than 63 bits can count")
