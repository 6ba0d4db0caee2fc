"""Schemas of OpenVINO: Split-1 and VariadicSplit-1, which all opsets contain."""

from __future__ import annotations

from typing import Final

from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.operators.schemas import (
    Attribute,
    OperatorSchema,
    Option,
    Parameter,
    SourceKind,
    TypeConstraint,
    ValueSource,
)
from splitops.spec.sizes.rules import SizeRule

_SPECIFICATION = (
    "https://docs.openvino.ai/2025/documentation/openvino-ir-format/operation-sets/operation-specs/movement/"
)

_ALL = frozenset(row for row in ELEMENT_TYPES.values() if row.openvino is not None)
_INTEGERS = frozenset(row for row in _ALL if row.integer)

SPLIT_1: Final = OperatorSchema(
    name="Split",
    domain="openvino",
    since_version=1,
    attributes=(Attribute(name="num_splits", required=True, minimum=1),),
    inputs=(Parameter(name="data", type="T"), Parameter(name="axis", type="T_AXIS", ranks=(0,))),
    outputs=(Parameter(name="outputs", type="T", option=Option.VARIADIC),),
    type_constraints=(
        TypeConstraint(name="T", types=_ALL, description="any arbitrary supported type"),
        TypeConstraint(name="T_AXIS", types=_INTEGERS, description="any integer type"),
    ),
    axis=ValueSource(SourceKind.INPUT, "axis"),
    count=ValueSource(SourceKind.ATTRIBUTE, "num_splits"),
    count_rule=SizeRule.EVEN,
    category="Data movement",
    source=_SPECIFICATION + "split-1.html",
    notes=(
        "num_splits is specified to be at most the size of the axis. An axis of size 0 has empty parts.",
        "An axis of shape [1] is an error, since a scalar is specified. VariadicSplit accepts it.",
    ),
)

VARIADIC_SPLIT_1: Final = OperatorSchema(
    name="VariadicSplit",
    domain="openvino",
    since_version=1,
    attributes=(),
    inputs=(
        Parameter(name="data", type="T1"),
        Parameter(name="axis", type="T2", ranks=(0, 1)),
        Parameter(name="split_lengths", type="T2", ranks=(1,), minimum=-1),
    ),
    outputs=(Parameter(name="outputs", type="T1", option=Option.VARIADIC),),
    type_constraints=(
        TypeConstraint(name="T1", types=_ALL, description="any arbitrary supported type"),
        TypeConstraint(name="T2", types=_INTEGERS, description="any integer type"),
    ),
    axis=ValueSource(SourceKind.INPUT, "axis"),
    lengths=(ValueSource(SourceKind.INPUT, "split_lengths"),),
    lengths_rule=SizeRule.REMAINDER,
    category="Data movement",
    source=_SPECIFICATION + "variadic-split-1.html",
    notes=(
        "T2 is the type of both axis and split_lengths. They may have different integer types.",
        "The part of -1 may have size 0. If its size would be negative, the lengths are an error.",
    ),
)

ROWS: Final = (SPLIT_1, VARIADIC_SPLIT_1)
