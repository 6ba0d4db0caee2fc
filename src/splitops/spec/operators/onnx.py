"""Schemas of ONNX: Split 1, 2, 11, 13, 18 and SplitToSequence 11, 24.

Each later version sets only the changes from an earlier one. A test compares all of them with ``onnx.defs``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.operators.schemas import (
    Attribute,
    AttributeType,
    OperatorSchema,
    Option,
    Parameter,
    SourceKind,
    TypeConstraint,
    ValueSource,
)
from splitops.spec.sizes.rules import SizeRule

_CHANGELOG = "https://github.com/onnx/onnx/blob/main/docs/Changelog.md#"

_FLOATS = frozenset(ELEMENT_TYPES[name] for name in ("float16", "float32", "float64"))
_INTEGERS = frozenset(ELEMENT_TYPES[f"{sign}int{bits}"] for sign in ("", "u") for bits in (8, 16, 32, 64))
_ALL_15 = (
    _FLOATS
    | _INTEGERS
    | frozenset(ELEMENT_TYPES[name] for name in ("bool", "string", "complex64", "complex128"))
)
_ALL_16 = _ALL_15 | {ELEMENT_TYPES["bfloat16"]}
_INT64 = TypeConstraint(name="tensor(int64)", types=frozenset({ELEMENT_TYPES["int64"]}))

_AXIS_SOURCE = ValueSource(SourceKind.ATTRIBUTE, "axis")
_SPLIT_ATTRIBUTE = ValueSource(SourceKind.ATTRIBUTE, "split")
_SPLIT_INPUT = ValueSource(SourceKind.INPUT, "split")

SPLIT_1: Final = OperatorSchema(
    name="Split",
    domain="",
    since_version=1,
    attributes=(Attribute(name="axis"), Attribute(name="split", type=AttributeType.INTS, minimum=0)),
    inputs=(
        Parameter(name="input", type="T"),
        Parameter(name="split", type="T", option=Option.OPTIONAL, ranks=(1,), minimum=0),
    ),
    outputs=(Parameter(name="outputs...", type="T", option=Option.VARIADIC),),
    type_constraints=(
        TypeConstraint(name="T", types=_FLOATS, description="Constrain input types to float tensors."),
    ),
    axis=_AXIS_SOURCE,
    default_axis=0,
    lengths=(_SPLIT_ATTRIBUTE, _SPLIT_INPUT),
    count=ValueSource(SourceKind.OUTPUTS, "num_outputs"),
    count_rule=SizeRule.EVEN,
    shape_inference=False,
    support_level="COMMON",
    source=_CHANGELOG + "Split-1",
    notes=(
        "The schema has no default for axis. A node without it splits axis 0.",
        "The summary reads the lengths from 'axis'. They are in 'split'.",
        "The input 'split' has the floating-point type of the data. Its lengths must be finite and integral.",
        "Precedence of attribute and input 'split' is undefined. Setting both is an error.",
        "Negative axes are not specified. They are accepted, since models rely on them.",
    ),
)

SPLIT_2: Final = replace(
    SPLIT_1,
    since_version=2,
    attributes=(
        Attribute(name="axis", default=0),
        Attribute(name="split", type=AttributeType.INTS, minimum=0),
    ),
    inputs=(Parameter(name="input", type="T"),),
    outputs=(Parameter(name="outputs", type="T", option=Option.VARIADIC),),
    type_constraints=(
        TypeConstraint(
            name="T", types=_ALL_15, description="Constrain input and output types to all tensor types."
        ),
    ),
    lengths=(_SPLIT_ATTRIBUTE,),
    shape_inference=True,
    source=_CHANGELOG + "Split-2",
    notes=("Negative axes are not specified. They are accepted, since models rely on them.",),
)

SPLIT_11: Final = replace(
    SPLIT_2,
    since_version=11,
    source=_CHANGELOG + "Split-11",
    notes=("Only the text changed: it adds negative axes, and lengths that must be >= 0.",),
)

SPLIT_13: Final = replace(
    SPLIT_11,
    since_version=13,
    attributes=(Attribute(name="axis", default=0),),
    inputs=(
        Parameter(name="input", type="T", differentiable=True),
        Parameter(
            name="split",
            type="tensor(int64)",
            option=Option.OPTIONAL,
            ranks=(1,),
            minimum=0,
            differentiable=False,
        ),
    ),
    outputs=(Parameter(name="outputs", type="T", option=Option.VARIADIC, differentiable=True),),
    type_constraints=(
        TypeConstraint(
            name="T", types=_ALL_16, description="Constrain input and output types to all tensor types."
        ),
        _INT64,
    ),
    lengths=(_SPLIT_INPUT,),
    source=_CHANGELOG + "Split-13",
    notes=("The rank of 'split' is not specified; a scalar or 2-D tensor is an error.",),
)

SPLIT_18: Final = replace(
    SPLIT_13,
    since_version=18,
    attributes=(Attribute(name="axis", default=0), Attribute(name="num_outputs", minimum=1)),
    count=ValueSource(SourceKind.ATTRIBUTE, "num_outputs"),
    count_rule=SizeRule.CEIL,
    exclusive=True,
    source=_CHANGELOG + "Split-18",
    notes=(
        "The rank of 'split' is not specified; a scalar or 2-D tensor is an error.",
        "'The last chunk will be smaller' is undefined for 5 into 4 (onnx/onnx issue 5766). Parts have size "
        "ceil(D / num_outputs) until the axis ends: then one part has the rest, and others have size 0.",
        "In the schema, neither 'split' nor num_outputs is required. Exactly one of them must be set.",
        "If a node declares fewer outputs than num_outputs, they are the first parts.",
    ),
)

SPLIT_TO_SEQUENCE_11: Final = OperatorSchema(
    name="SplitToSequence",
    domain="",
    since_version=11,
    attributes=(Attribute(name="axis", default=0), Attribute(name="keepdims", default=1, minimum=0)),
    inputs=(
        Parameter(name="input", type="T"),
        Parameter(name="split", type="I", option=Option.OPTIONAL, ranks=(0, 1), minimum=0),
    ),
    outputs=(Parameter(name="output_sequence", type="S"),),
    type_constraints=(
        TypeConstraint(name="T", types=_ALL_15, description="Constrain input types to all tensor types."),
        TypeConstraint(
            name="I",
            types=frozenset({ELEMENT_TYPES["int32"], ELEMENT_TYPES["int64"]}),
            description="Constrain split size to integral tensor.",
        ),
        TypeConstraint(
            name="S", types=_ALL_15, sequence=True, description="Constrain output types to all tensor types."
        ),
    ),
    axis=_AXIS_SOURCE,
    default_axis=0,
    lengths=(_SPLIT_INPUT,),
    scalar_rule=SizeRule.CHUNK,
    default_chunk=1,
    keepdims=ValueSource(SourceKind.ATTRIBUTE, "keepdims"),
    support_level="COMMON",
    source=_CHANGELOG + "SplitToSequence-11",
    notes=(
        "'Only positive numbers' in the summary contradicts '>= 0' of the input. 1-D lengths may be 0, a "
        "scalar may not.",
        "Empty 1-D lengths are valid only for an axis of size 0. The result is an empty sequence.",
        "keepdims is ignored if 'split' is set.",
    ),
)

SPLIT_TO_SEQUENCE_24: Final = replace(
    SPLIT_TO_SEQUENCE_11,
    since_version=24,
    type_constraints=tuple(
        constraint if constraint.name == "I" else replace(constraint, types=_ALL_16)
        for constraint in SPLIT_TO_SEQUENCE_11.type_constraints
    ),
    source=_CHANGELOG + "SplitToSequence-24",
)

ROWS: Final = (SPLIT_1, SPLIT_2, SPLIT_11, SPLIT_13, SPLIT_18, SPLIT_TO_SEQUENCE_11, SPLIT_TO_SEQUENCE_24)
