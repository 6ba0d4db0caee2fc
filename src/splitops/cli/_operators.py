"""Options for an operator version and the parameters of one split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from splitops.calls.arguments import bind_call
from splitops.cli._options import Read, collect_options
from splitops.common.json_values import select_json_values, to_json_values
from splitops.errors import RuleError
from splitops.native import Plan
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType, from_openvino, from_precision
from splitops.spec.operators import SCHEMAS, OperatorSchema, display_name, history, schema
from splitops.spec.sizes.rules import SizeRule
from splitops.splitting.binding import Fact
from splitops.splitting.planning import plan_request

_DOMAIN_NAMES = {"onnx": "", "ai.onnx": "", "openvino": "openvino"}


def find_operator(text: str, opset: int | None = None) -> OperatorSchema:
    """Return the operator version with a name such as ``Split``, ``Split-13`` or ``openvino:Split-1``.

    ``opset`` selects the version of a name without one; None selects the newest.
    """
    domain, colon, name = text.rpartition(":")
    if colon and domain not in _DOMAIN_NAMES:
        raise click.BadParameter(f"unknown domain {domain!r}: use onnx or openvino")
    name, dash, version = name.partition("-")
    try:
        key = _DOMAIN_NAMES[domain] if colon else None
        if not dash:
            return schema(name, opset, key)
        if opset is not None:
            raise click.BadParameter(f"{text!r} already sets the version: leave out the version or the opset")
        schemas = history(name, key)
    except RuleError as error:
        raise click.BadParameter(f"{error.got}, but {error.expected}") from error
    for op_schema in schemas:
        if str(op_schema.since_version) == version:
            return op_schema
    raise click.BadParameter(f"there is no {text}; the versions are {', '.join(map(display_name, schemas))}")


def convert_schema(schema: OperatorSchema) -> dict[str, Any]:
    """Return a schema as JSON-serialisable values, with its name and version as ``operator``."""
    return {
        "operator": str(schema),
        **to_json_values(schema),
        **select_json_values(schema, "size_rules", "gives_sequence"),
    }


def find_element_type(text: str) -> ElementType:
    """Return the element type with the given name in NumPy, OpenVINO or ONNX.

    Examples:
        >>> find_element_type("f32") is find_element_type("FLOAT") is find_element_type("float32")
        True
    """
    found = ELEMENT_TYPES.get(text) or from_openvino(text) or from_precision(text)
    found = found or next((row for row in ELEMENT_TYPES.values() if row.onnx == text.upper()), None)
    if found is None:
        raise click.BadParameter(f"unknown element type {text!r}: use one of {', '.join(ELEMENT_TYPES)}")
    return found


def read_ints(text: str, minimum: int | None = None) -> tuple[int, ...]:
    """Parse a list of 64-bit integers such as ``6,4``, each at least ``minimum`` if set. It may be empty."""
    try:
        integers = tuple(int(item) for item in text.split(",")) if text.strip() else ()
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a list of integers such as 6,4") from error
    for integer in integers:
        if not -(1 << 63) <= integer < 1 << 63:
            raise click.BadParameter(f"{integer} is not a 64-bit integer")
        if minimum is not None and integer < minimum:
            raise click.BadParameter(f"{integer} is less than {minimum}")
    return integers


def _list_operators() -> list[str]:
    names = {
        name for schema in SCHEMAS for name in (display_name(schema).partition("-")[0], display_name(schema))
    }
    return sorted(names)


def read_shape(text: str) -> tuple[int, ...]:
    return read_ints(text, 0)


OPERATOR = Read("operator", find_operator, _list_operators)
ELEMENT_TYPE = Read("type", find_element_type, lambda: ELEMENT_TYPES)
INTEGERS = Read("integers", read_ints)
SHAPE = Read("shape", read_shape)


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """The options of one split. An option that is not set is None."""

    operator: OperatorSchema | None = None
    axis: int | None = None
    sizes: tuple[int, ...] | None = None
    parts: int | None = None
    chunk: int | None = None
    keepdims: bool | None = None

    def resolve(self) -> OperatorSchema:
        """Return the operator version: ``--op`` or, without it, the newest version of an operator.

        The operator is SplitToSequence for ``--chunk``, VariadicSplit if a size is -1, and Split otherwise.

        Raises:
            click.UsageError: the options contradict each other, or are too few, too small or not supported.
        """
        for name in ("parts", "chunk"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise click.UsageError(f"--{name} must be at least 1.")
        given = [name for name in ("sizes", "parts", "chunk") if getattr(self, name) is not None]
        if len(given) > 1:
            raise click.UsageError(f"Use only one of {' and '.join(f'--{name}' for name in given)}.")
        schema = self.operator
        if schema is None:
            if not given:
                raise click.UsageError("Set one of --sizes, --parts and --chunk.")
            schema = _choose_operator(given[0], self.sizes or ())
        supported = _list_options(schema)
        if given and given[0] not in supported:
            ways = " or ".join(f"--{name}" for name in supported)
            raise click.UsageError(f"{display_name(schema)} does not support --{given[0]}: use {ways}.")
        if not given and schema.default_chunk is None:
            raise click.UsageError(
                f"{display_name(schema)} needs {' or '.join(f'--{name}' for name in supported)}."
            )
        if self.keepdims is not None and schema.keepdims is None:
            raise click.UsageError(f"{display_name(schema)} has no keepdims.")
        return schema

    def plan(self, shape: Sequence[int], element_type: ElementType | None) -> tuple[OperatorSchema, Plan]:
        """Return the operator version, and a plan for data with this shape and element type."""
        schema = self.resolve()
        arguments: dict[str, Any] = {"axis": 0 if self.axis is None else self.axis}
        if self.sizes is not None:
            arguments[schema.lengths[0].name] = list(self.sizes)
        elif self.chunk is not None:
            arguments[schema.lengths[0].name] = self.chunk
        elif self.parts is not None:
            assert schema.count is not None
            arguments[schema.count.name] = self.parts
        if self.keepdims is not None:
            assert schema.keepdims is not None
            arguments[schema.keepdims.name] = int(self.keepdims)
        binding = bind_call(schema, Fact(element_type, tuple(shape)), arguments)
        return schema, plan_request(binding.request())


def _choose_operator(request: str, sizes: Sequence[int]) -> OperatorSchema:
    if request == "chunk":
        return schema("SplitToSequence")
    return schema("VariadicSplit") if -1 in sizes else schema("Split")


def _list_options(schema: OperatorSchema) -> tuple[str, ...]:
    """Return which of the options ``sizes``, ``parts`` and ``chunk`` an operator version supports."""
    ways = {
        "sizes": bool(schema.lengths),
        "parts": schema.count is not None,
        "chunk": schema.scalar_rule is SizeRule.CHUNK,
    }
    return tuple(name for name, has in ways.items() if has)


split_options = collect_options(
    "options",
    SplitOptions,
    click.option("--axis", type=int, help="Axis to split; -1 is the last.  [default: 0]"),
    click.option(
        "--sizes",
        type=INTEGERS,
        metavar="N,N,...",
        help="Size of each part. One of them may be -1: the rest of the axis (VariadicSplit).",
    ),
    click.option("--parts", type=int, metavar="N", help="Number of parts."),
    click.option(
        "--chunk", type=int, metavar="N", help="Size of every part except the last, which may be smaller."
    ),
    click.option(
        "--op",
        "operator",
        type=OPERATOR,
        metavar="NAME[-VERSION]",
        help="Operator version, such as Split-18, Split-13, SplitToSequence-11, openvino:Split-1, "
        "VariadicSplit-1.  [default: the newest Split; VariadicSplit for a -1; SplitToSequence for --chunk]",
    ),
    click.option(
        "--keepdims/--no-keepdims",
        default=None,
        help="Whether the parts of SplitToSequence keep the axis, if neither --sizes nor --chunk is set.",
    ),
)
"""Decorator that adds the options of one split to a command, which receives them as ``options``."""
