"""Integer expressions in plans: numbers, names, ``+ - * //`` and parentheses. They are not run as code."""

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
"""Defaults of transformers for keys that a configuration omits."""


class Names:
    """Evaluates the expressions of a plan. Names are its variables or the integers of ``config.json``.

    Examples:
        >>> names = Names({"q": "num_attention_heads * head_dim"}, {"num_attention_heads": 4, "head_dim": 8})
        >>> names.evaluate("2 * q")
        64
    """

    def __init__(self, variables: Mapping[str, int | str], config: Mapping[str, Any]) -> None:
        """Look names up in the variables first, then in the configuration, then in its ``text_config``."""
        inner = config.get("text_config")
        outer = {name: value for name, value in config.items() if value is not None}
        self._config = {**inner, **outer} if isinstance(inner, Mapping) else outer
        self._variables = variables
        self._known: dict[str, int] = {}
        self._open: list[str] = []

    def evaluate(self, expression: int | str) -> int:
        """Return the value of an expression. Raise PlanError if it is invalid."""
        if isinstance(expression, int):
            return _check_range(expression, str(expression))
        try:
            tree = (
                ast.parse(expression.strip(), mode="eval").body if len(expression) <= _LONGEST else ast.Pass()
            )
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            tree = ast.Pass()
        return self._evaluate_node(tree, expression)

    def _evaluate_node(self, node: ast.AST, text: str) -> int:
        match node:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return _check_range(value, text)
            case ast.Name(id=name):
                return self._evaluate_name(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._evaluate_node(operand, text)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
                one, other = self._evaluate_node(left, text), self._evaluate_node(right, text)
                if other == 0 and isinstance(op, ast.FloorDiv):
                    raise PlanError(f"division by 0 in {shown(text)}")
                return _check_range(_OPERATIONS[type(op)](one, other), text)
        raise PlanError(f"{shown(text)} is not an expression of integers, names and + - * //")

    def _evaluate_name(self, name: str) -> int:
        if name in self._open:
            raise PlanError(f"variable {shown(name)} refers to itself: {' -> '.join([*self._open, name])}")
        found = self._variables.get(name, self._config.get(name))
        if name not in self._variables and found is not None and type(found) is not int:
            raise PlanError(f"{shown(name)} in config.json is {shown(found)}, not an integer")
        if found is None and name not in _DEFAULTS:
            raise PlanError(f"name {shown(name)} is neither in the plan's vars nor in config.json")
        if name not in self._known:
            self._open.append(name)
            try:
                self._known[name] = self.evaluate(_DEFAULTS[name] if found is None else found)
            finally:
                self._open.pop()
        return self._known[name]


def _check_range(value: int, text: str) -> int:
    if -_LARGEST <= value < _LARGEST:
        return value
    raise PlanError(f"the value of {shown(text)} does not fit into 63 bits")
