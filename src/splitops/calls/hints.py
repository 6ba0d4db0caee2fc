"""Hints in errors: what to write instead of the names and arguments of other libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from splitops.errors import LengthsError, RuleError, rule_error
from splitops.spec.operators.schemas import OperatorSchema

_FUNCTIONS: Final = {
    "split": ("onnx", "openvino"),
    "split_to_sequence": ("onnx",),
    "variadic_split": ("openvino",),
}
"""The modules of splitops that have each function."""

_SINGLE: Final = "For parts of size 1 without the axis, use splitops.onnx.split_to_sequence(x, keepdims=0)"
_NEARLY_EQUAL: Final = (
    "Pass the size of each part: splitops.onnx.split(x, [D // n + 1] * (D % n) + [D // n] * (n - D % n)) "
    "splits an axis of size D into n parts that differ by at most 1"
)
_HABITS: Final = {
    "array_split": _NEARLY_EQUAL,
    "chunk": "For n parts of ceil(D / n) on an axis of size D, use splitops.onnx.split(x, num_outputs=n)",
    "tensor_split": _NEARLY_EQUAL,
    "unbind": _SINGLE,
    "unstack": _SINGLE,
}

_COUNTS: Final = ("num_outputs", "num_splits")
LENGTHS: Final = ("split", "split_lengths")
"""Names of the parameters that are lists of lengths."""
_MEANT: Final = {
    "dim": ("axis",),
    **dict.fromkeys(("chunks", "num_outputs", "num_splits", "sections"), _COUNTS),
    **dict.fromkeys(("lengths", "sizes", "split", "split_lengths", "split_size", "split_sizes"), LENGTHS),
    **dict.fromkeys(
        ("indices_or_sections", "num_or_size_splits", "split_size_or_sections"), LENGTHS + _COUNTS
    ),
}
"""The parameters that a parameter name of another library or operator may mean."""


def make_attribute_error(module: str, name: str) -> AttributeError:
    """Make the error for a name that a module does not have, with a hint if there is one.

    Examples:
        >>> str(make_attribute_error("splitops", "split"))
        "module 'splitops' has no attribute 'split'. Use splitops.onnx.split or splitops.openvino.split"
    """
    names = [f"splitops.{dialect}.{name}" for dialect in _FUNCTIONS.get(name, ())]
    hint = f"Use {' or '.join(names)}" if names else _HABITS.get(name, "")
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint and f'. {hint}'}")


def add_hints(body: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls ``body``, and may add a hint to the TypeError for wrong arguments."""

    def call_with_hint(*args: Any, **named: Any) -> Any:
        try:
            return body(*args, **named)
        except TypeError as error:
            own = error.__traceback__
            hint = _find_hint(body, len(args), named) if own is None or own.tb_next is None else ""
            if not hint:
                raise
            raise TypeError(f"{error}. {hint}") from None

    return call_with_hint


def _find_hint(body: Callable[..., Any], given: int, named: dict[str, Any]) -> str:
    code = body.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    unknown = next((name for name in named if name not in names), None)
    if unknown is None:
        extra = names[code.co_argcount]
        return f"Pass {extra} by name, for example {extra}=1" if given > code.co_argcount else ""
    meant = [name for name in _MEANT.get(unknown, ()) if name in names]
    return f"Use {' or '.join(meant)}" if meant else ""


def make_scalar_length_error(schema: OperatorSchema, name: str, value: int, error: LengthsError) -> RuleError:
    """Make the error for a number that was passed instead of a list of lengths."""
    if schema.domain:
        equal = f"{value} equal parts, use splitops.openvino.split(x, axis, {value})"
        sized = ""
    else:
        equal = f"{value} parts, use num_outputs={value}"
        sized = f"; for parts of size {value}, use split_to_sequence(x, {value})"
    expected = f"it must list the size of each part, such as [{value}, {value}]. For {equal}{sized}"
    got = f"{name} = {value}"
    return rule_error(str(schema), error.rule, got, expected, where=error.where, **error.values)
