"""Turns the arguments of a call into what a node would state: attributes, inputs and declared outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from splitops.binding import Binding, Fact, bind, exact_integer, fact_of, foreign_type
from splitops.dtypes import ELEMENT_TYPES
from splitops.errors import ArrayError, Rule, rule_error, shown
from splitops.execute import Plan, as_array, data_fact, execute, make_plan
from splitops.operators import schema as find_schema
from splitops.operators.schema import Given, OperatorSchema

__all__ = ["bind_call", "call", "plan"]

_INT64: Final = ELEMENT_TYPES["int64"]
_BOOL: Final = ELEMENT_TYPES["bool"]


def call(
    schema: OperatorSchema,
    data: Any,
    arguments: dict[str, Any],
    copy: bool | None,
    out: Sequence[Any] | None,
) -> tuple[Any, ...]:
    """Split an array as one operator version does with these arguments; None is an absent argument."""
    data = as_array(data)
    binding = bind_call(schema, data_fact(data), arguments)
    return execute(make_plan(binding.request()), data, copy=copy, out=out)


def plan(
    name: str,
    /,
    *,
    shape: Sequence[int],
    dtype: Any = None,
    opset: int | None = None,
    domain: str | None = None,
    **arguments: Any,
) -> Plan:
    """Bind the arguments of a split once, for arrays of one shape.

    Args:
        name: the operator: ``"Split"``, ``"SplitToSequence"`` or ``"VariadicSplit"``.
        shape: shape of the data.
        dtype: NumPy dtype of the data, checked against the types that the version takes; None leaves
            it open.
        opset: the opset that selects the version; None is the newest.
        domain: ``""`` for ONNX, ``"openvino"``; None is the first of them that has the operator.
        **arguments: those of the operator's function, for example ``axis``, ``split``, ``num_outputs``.

    Returns:
        The plan: ``axis``, ``sizes``, ``offsets`` and ``shapes``; call it to split an array.

    Raises:
        RuleError: a rule is broken, as in the operator's function.

    Examples:
        >>> plan("VariadicSplit", shape=(6, 4), axis=0, split_lengths=[1, -1]).sizes
        (1, 5)
    """
    schema = find_schema(name, opset, domain)
    element_type = None
    if dtype is not None:
        element_type = fact_of(np.empty(0, dtype), value=False).type
    fact = Fact(element_type, _shape(shape))
    return make_plan(bind_call(schema, fact, arguments).request())


def _shape(shape: Sequence[int]) -> tuple[int, ...]:
    sizes: tuple[int | None, ...] = (None,)
    if isinstance(shape, Sequence | np.ndarray) and not isinstance(shape, str | bytes):
        sizes = tuple(map(exact_integer, shape))
    known = tuple(size for size in sizes if size is not None and size >= 0)
    if len(known) < len(sizes):
        raise ArrayError(f"shape = {shown(shape)}, but it must be a sequence of integers >= 0")
    return known


def bind_call(schema: OperatorSchema, data: Fact, arguments: dict[str, Any]) -> Binding:
    """Bind one call: each argument becomes the attribute or input that the version has for it."""
    attributes: dict[str, Any] = {}
    inputs: list[Fact | None] = [data] + [None] * (len(schema.inputs) - 1)
    outputs: int | None = None
    names = [parameter.name for parameter in schema.inputs]
    for name, value in arguments.items():
        if value is None:
            continue
        if name == "num_outputs" and schema.count is not None and schema.count.given is Given.OUTPUTS:
            outputs = _declared_outputs(schema, value)
        elif schema.attribute(name) is not None and not (name in names and _is_floating(value)):
            attributes[name] = _attribute(value)
        elif name in names[1:]:
            inputs[names.index(name)] = _input(value, data)
        else:
            attributes[name] = value  # binding says that this version has none of that name
    return bind(schema, attributes, inputs, outputs=outputs)


def _declared_outputs(schema: OperatorSchema, value: Any) -> int:
    count = exact_integer(value)
    if count is not None and count >= 1:
        return count
    got = f"num_outputs = {shown(value)}"
    raise rule_error(str(schema), Rule.PARTS_COUNT, got, "it must be a 64-bit integer >= 1", count=value)


def _is_floating(value: Any) -> bool:
    """Return whether lengths are floating-point, as the input of Split-1 wants them."""
    if isinstance(value, np.ndarray):
        return bool(value.dtype.kind == "f")
    return isinstance(value, list | tuple) and any(isinstance(entry, float | np.floating) for entry in value)


def _attribute(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) and value.ndim == 1 else value


def _input(value: Any, data: Fact) -> Fact:
    """Return what an argument says of an input: Python numbers are int64, or floats of the data's type."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Fact(_INT64, (), value)
    if isinstance(value, list | tuple | range):
        entries = tuple(value)
        if any(isinstance(entry, bool | np.bool_) for entry in entries):
            return Fact(_BOOL, (len(entries),))
        if all(isinstance(entry, int | np.integer) for entry in entries):
            return Fact(_INT64, (len(entries),), tuple(int(entry) for entry in entries))
        if all(isinstance(entry, int | float | np.integer | np.floating) for entry in entries):
            kind = data.type if data.type is not None and "float" in data.type.name else None
            return Fact(kind or ELEMENT_TYPES["float64"], (len(entries),), tuple(map(float, entries)))
    array = as_array(value)
    if not isinstance(array, np.ndarray):
        return Fact(foreign_type(type(array).__name__), None)
    return fact_of(array, value=True)
