"""The options that choose an operator version and what it is asked to do, shared by several commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from splitops.calls.arguments import bind_call
from splitops.cli._options import Read, gathered
from splitops.errors import RuleError
from splitops.ground.records import select_json_values, to_json_values
from splitops.native import Plan
from splitops.spec.elements.types import ELEMENT_TYPES, ElementType, from_openvino, from_precision
from splitops.spec.operators import SCHEMAS, OperatorSchema, display_name, history, schema
from splitops.spec.sizes.rules import SizeRule
from splitops.splitting.binding import Fact
from splitops.splitting.planning import plan_request

_DOMAIN_NAMES = {"onnx": "", "ai.onnx": "", "openvino": "openvino"}


def find_operator(text: str, opset: int | None = None) -> OperatorSchema:
    """Return the row that a name means: ``Split``, ``Split-13``, ``openvino:Split-1``.

    The opset selects the version for a name without one; None is the newest.
    """
    domain, colon, name = text.rpartition(":")
    if colon and domain not in _DOMAIN_NAMES:
        raise click.BadParameter(f"{domain!r} is not a domain; these are onnx and openvino")
    name, dash, version = name.partition("-")
    try:
        key = _DOMAIN_NAMES[domain] if colon else None
        if not dash:
            return schema(name, opset, key)
        if opset is not None:
            raise click.BadParameter(f"{text!r} declares the version; an opset is for a name without one")
        rows = history(name, key)
    except RuleError as error:
        raise click.BadParameter(f"{error.got}, but {error.expected}") from error
    for row in rows:
        if str(row.since_version) == version:
            return row
    raise click.BadParameter(f"there is no {text}; the versions are {', '.join(map(display_name, rows))}")


def schema_json(row: OperatorSchema) -> dict[str, Any]:
    """Return a row as JSON: its fields by name, after ``operator``, for example ``"Split-18"``."""
    return {
        "operator": str(row),
        **to_json_values(row),
        **select_json_values(row, "size_rules", "gives_sequence"),
    }


def find_element_type(text: str) -> ElementType:
    """Return the element type of a NumPy, OpenVINO or ONNX name.

    Examples:
        >>> find_element_type("f32") is find_element_type("FLOAT") is find_element_type("float32")
        True
    """
    found = ELEMENT_TYPES.get(text) or from_openvino(text) or from_precision(text)
    found = found or next((row for row in ELEMENT_TYPES.values() if row.onnx == text.upper()), None)
    if found is None:
        raise click.BadParameter(f"{text!r} is not an element type; these are {', '.join(ELEMENT_TYPES)}")
    return found


def read_integers(text: str, minimum: int | None = None) -> tuple[int, ...]:
    """Read integers between commas; an empty text is an empty list."""
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


def _operators() -> list[str]:
    names = {name for row in SCHEMAS for name in (display_name(row).partition("-")[0], display_name(row))}
    return sorted(names)


def read_shape(text: str) -> tuple[int, ...]:
    """Read the sizes of a shape between commas."""
    return read_integers(text, 0)


OPERATOR = Read("operator", find_operator, _operators)
ELEMENT_TYPE = Read("type", find_element_type, lambda: ELEMENT_TYPES)
INTEGERS = Read("integers", read_integers)
SHAPE = Read("shape", read_shape)


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """What the options of one split ask for; None where one is not given."""

    operator: OperatorSchema | None = None
    axis: int | None = None
    sizes: tuple[int, ...] | None = None
    parts: int | None = None
    chunk: int | None = None
    keepdims: bool | None = None

    def resolve(self) -> OperatorSchema:
        """Return the operator version: the chosen one, or the newest that has the request's size rule."""
        for name in ("parts", "chunk"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise click.UsageError(f"--{name} must be at least 1.")
        given = [name for name in ("sizes", "parts", "chunk") if getattr(self, name) is not None]
        if len(given) > 1:
            raise click.UsageError(f"{' and '.join(f'--{name}' for name in given)} exclude each other.")
        row = self.operator
        if row is None:
            if not given:
                raise click.UsageError("One of --sizes, --parts and --chunk is needed.")
            row = _default_operator(given[0], self.sizes or ())
        taken = _requests(row)
        if given and given[0] not in taken:
            ways = " or ".join(f"--{name}" for name in taken)
            raise click.UsageError(f"{display_name(row)} takes {ways}, not --{given[0]}.")
        if not given and row.default_chunk is None:
            raise click.UsageError(f"{display_name(row)} needs {' or '.join(f'--{name}' for name in taken)}.")
        if self.keepdims is not None and row.keepdims is None:
            raise click.UsageError(f"{display_name(row)} has no keepdims.")
        return row

    def plan(self, shape: Sequence[int], element_type: ElementType | None) -> tuple[OperatorSchema, Plan]:
        """Bind the request to data of this shape and type.

        Raises:
            click.UsageError: the options do not fit one another.
            RuleError: a rule of the operator is broken.
        """
        row = self.resolve()
        arguments: dict[str, Any] = {"axis": 0 if self.axis is None else self.axis}
        if self.sizes is not None:
            arguments[row.lengths[0].name] = list(self.sizes)
        elif self.chunk is not None:
            arguments[row.lengths[0].name] = self.chunk
        elif self.parts is not None:
            assert row.count is not None
            arguments[row.count.name] = self.parts
        if self.keepdims is not None:
            assert row.keepdims is not None
            arguments[row.keepdims.name] = int(self.keepdims)
        binding = bind_call(row, Fact(element_type, tuple(shape)), arguments)
        return row, plan_request(binding.request())


def _default_operator(request: str, sizes: Sequence[int]) -> OperatorSchema:
    if request == "chunk":
        return schema("SplitToSequence")
    return schema("VariadicSplit") if -1 in sizes else schema("Split")


def _requests(row: OperatorSchema) -> tuple[str, ...]:
    """Return the options that an operator version has."""
    ways = {
        "sizes": bool(row.lengths),
        "parts": row.count is not None,
        "chunk": row.scalar_rule is SizeRule.CHUNK,
    }
    return tuple(name for name, has in ways.items() if has)


split_options = gathered(
    "options",
    SplitOptions,
    click.option("--axis", type=int, help="The axis; a negative one counts from the last.  [default: 0]"),
    click.option(
        "--sizes",
        type=INTEGERS,
        metavar="N,N,...",
        help="The size of each part. One -1 takes what the others leave (VariadicSplit).",
    ),
    click.option("--parts", type=int, metavar="N", help="The number of parts."),
    click.option("--chunk", type=int, metavar="N", help="The size of every part but the last one."),
    click.option(
        "--op",
        "operator",
        type=OPERATOR,
        metavar="NAME[-VERSION]",
        help="The exact operator, such as Split-18, Split-13, SplitToSequence-11, openvino:Split-1, "
        "VariadicSplit-1.  [default: the newest that fits: Split; VariadicSplit for a -1; "
        "SplitToSequence for --chunk]",
    ),
    click.option(
        "--keepdims/--no-keepdims",
        default=None,
        help="SplitToSequence without --sizes and --chunk: whether its parts of size 1 keep the axis.",
    ),
)
"""Adds the options of one split to a command, which gets them as one argument named ``options``."""
