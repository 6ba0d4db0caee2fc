"""Every ONNX row is what onnx publishes, in full, and onnx publishes no other version of the family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

from splitops import difference, schema
from splitops.spec import ELEMENT_TYPES, SCHEMAS, Attribute, OperatorSchema, Option, Parameter
from splitops.spec.elements.types import from_onnx, from_onnx_name
from splitops.spec.operators.differences import compare

NEWEST = onnx.defs.onnx_opset_version()
ROWS = [
    row for row in SCHEMAS if row.domain == "" and row.since_version <= NEWEST
]  # onnx may be an older one
PUBLISHED = {(s.domain, s.name, s.since_version): s for s in onnx.defs.get_all_schemas_with_history()}

# What the rows need not say, because it holds of every one of them; held against the published schema too.
EVERY_PARAMETER = {"minimum arity": 1, "homogeneous": True}
EVERY_OPERATOR = {
    "function body": False,
    "context-dependent function body": False,
    "data propagation": False,
}
VARIADIC_MAXIMUM = 2**31 - 1
DIFFERENTIABLE = {True: "Differentiable", False: "NonDifferentiable", None: "Unknown"}


def published(found: Any) -> dict[str, Any]:
    """Describe a schema of onnx."""
    return {
        "domain": found.domain,
        "name": found.name,
        "since version": found.since_version,
        "support level": found.support_level.name,
        "deprecated": found.deprecated,
        "shape inference": found.has_type_and_shape_inference_function,
        "function body": found.has_function,
        "context-dependent function body": found.has_context_dependent_function,
        "data propagation": getattr(found, "has_data_propagation_function", False),
        "inputs": [_published_parameter(one) for one in found.inputs],
        "outputs": [_published_parameter(one) for one in found.outputs],
        "number of inputs": (found.min_input, found.max_input),
        "number of outputs": (found.min_output, found.max_output),
        "attributes": {
            one.name: (
                one.type.name,
                one.required,
                None if one.default_value.name == "" else onnx.helper.get_attribute_value(one.default_value),
            )
            for one in found.attributes.values()
        },
        "types": [
            (one.type_param_str, one.description, sorted(one.allowed_type_strs))
            for one in found.type_constraints
        ],
    }


def _published_parameter(one: Any) -> dict[str, Any]:
    return {
        "name": one.name,
        "option": one.option.name,
        "type": one.type_str,
        "element types": sorted(one.types),
        "minimum arity": one.min_arity,
        "homogeneous": one.is_homogeneous,
        "differentiation": one.differentiation_category.name,
    }


def described(row: OperatorSchema) -> dict[str, Any]:
    """Describe a row of ours in the same words."""
    return EVERY_OPERATOR | {
        "domain": row.domain,
        "name": row.name,
        "since version": row.since_version,
        "support level": row.support_level,
        "deprecated": row.deprecated,
        "shape inference": row.shape_inference,
        "inputs": [_described_parameter(row, one) for one in row.inputs],
        "outputs": [_described_parameter(row, one) for one in row.outputs],
        "number of inputs": _bounds(row.inputs),
        "number of outputs": _bounds(row.outputs),
        "attributes": {one.name: (one.type.value, one.required, one.default) for one in row.attributes},
        "types": [
            (one.name, one.description, _type_strings(row, one.name))
            for one in row.type_constraints
            if not one.name.startswith("tensor(")  # a type written out is not a constraint of the schema
        ],
    }


def _described_parameter(row: OperatorSchema, one: Parameter) -> dict[str, Any]:
    return EVERY_PARAMETER | {
        "name": one.name,
        "option": one.option.value,
        "type": one.type,
        "element types": _type_strings(row, one.type),
        "differentiation": DIFFERENTIABLE[one.differentiable],
    }


def _type_strings(row: OperatorSchema, name: str) -> list[str]:
    constraint = next(one for one in row.type_constraints if one.name == name)
    tensors = [str(element_type.onnx_tensor) for element_type in constraint.types]
    return sorted(f"seq({tensor})" if constraint.sequence else tensor for tensor in tensors)


def _bounds(parameters: tuple[Parameter, ...]) -> tuple[int, int]:
    least = sum(one.option is not Option.OPTIONAL for one in parameters)
    variadic = any(one.option is Option.VARIADIC for one in parameters)
    return least, VARIADIC_MAXIMUM if variadic else len(parameters)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_row_is_the_published_schema(row: OperatorSchema) -> None:
    assert described(row) == published(PUBLISHED[row.domain, row.name, row.since_version])


def test_no_version_is_missing_and_none_is_ours_alone() -> None:
    names = {row.name for row in ROWS}
    assert {(row.domain, row.name, row.since_version) for row in ROWS} == {
        key for key in PUBLISHED if key[1] in names
    }


def test_no_other_operator_of_onnx_splits_tensors() -> None:
    """StringSplit cuts the strings within a tensor; a new name must be looked at."""
    assert {name for _, name, _ in PUBLISHED if "split" in name.lower()} == {
        *(row.name for row in ROWS),
        "StringSplit",
    }


def _with_input(row: OperatorSchema, **changes: Any) -> OperatorSchema:
    return replace(row, inputs=(row.inputs[0], replace(row.inputs[1], **changes)))


def _with_type(row: OperatorSchema, **changes: Any) -> OperatorSchema:
    return replace(
        row, type_constraints=(replace(row.type_constraints[0], **changes), *row.type_constraints[1:])
    )


WRONG: dict[str, Callable[[OperatorSchema], OperatorSchema]] = {
    "version": lambda row: replace(row, since_version=19),
    "support level": lambda row: replace(row, support_level="EXPERIMENTAL"),
    "deprecated": lambda row: replace(row, deprecated=True),
    "shape inference": lambda row: replace(row, shape_inference=False),
    "attribute gone": lambda row: replace(row, attributes=row.attributes[1:]),
    "attribute default": lambda row: replace(
        row, attributes=(Attribute(name="axis", default=1), row.attributes[1])
    ),
    "attribute required": lambda row: replace(
        row, attributes=(row.attributes[0], replace(row.attributes[1], required=True))
    ),
    "input name": lambda row: _with_input(row, name="lengths"),
    "input option": lambda row: _with_input(row, option=Option.SINGLE),
    "input type": lambda row: _with_input(row, type="T"),
    "input differentiable": lambda row: _with_input(row, differentiable=None),
    "output option": lambda row: replace(row, outputs=(replace(row.outputs[0], option=Option.SINGLE),)),
    "element type gone": lambda row: _with_type(
        row, types=row.type_constraints[0].types - {ELEMENT_TYPES["bool"]}
    ),
    "element type too many": lambda row: _with_type(
        row, types=row.type_constraints[0].types | {ELEMENT_TYPES["int4"]}
    ),
    "sequence": lambda row: _with_type(row, sequence=True),
    "description": lambda row: _with_type(row, description="Constrain."),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_wrong_row_is_found(change: Callable[[OperatorSchema], OperatorSchema]) -> None:
    row = schema("Split", 18)
    assert described(change(row)) != published(PUBLISHED["", "Split", 18])


def test_every_element_type_of_onnx_is_known_by_number_and_name() -> None:
    numbers = dict(onnx.TensorProto.DataType.items())
    del numbers["UNDEFINED"]
    known = {row.onnx: row.onnx_number for row in ELEMENT_TYPES.values() if row.onnx_number is not None}
    last = max(numbers.values())
    assert {name: number for name, number in known.items() if number <= last} == numbers
    for name, number in numbers.items():
        row = from_onnx(number)
        assert row is not None
        assert row.onnx == name
    assert from_onnx(0) is None
    assert from_onnx(max(known.values()) + 1) is None


@pytest.mark.skipif(NEWEST < 24, reason="before opset 24, onnx gave the types of ml_dtypes dtypes of its own")
def test_every_element_type_has_the_dtype_that_onnx_gives_it() -> None:
    for row in ELEMENT_TYPES.values():
        if row.onnx in dict(onnx.TensorProto.DataType.items()):
            assert row.numpy == onnx.helper.tensor_dtype_to_np_dtype(row.onnx_number), row.name


def test_the_types_of_schemas_are_known_by_the_strings_that_schemas_write() -> None:
    constraints = [one for found in PUBLISHED.values() for one in found.type_constraints]
    strings = {text for one in constraints for text in one.allowed_type_strs}
    tensors = {one for one in strings if one.startswith("tensor(")}
    assert len(tensors) > 16
    assert [one for one in sorted(tensors) if from_onnx_name(one) is None] == []
    assert from_onnx_name("tensor(nonsense)") is None


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_newest_version_at_or_below_an_opset_is_the_one_that_onnx_selects(row: OperatorSchema) -> None:
    for opset in range(row.since_version, NEWEST + 1):
        expected = onnx.defs.get_schema(row.name, opset, "").since_version
        assert schema(row.name, opset).since_version == expected


def test_a_name_of_another_kind_of_text_is_a_name() -> None:
    assert schema(np.str_("Split")) is schema("Split")


def test_what_an_older_version_lacks_is_gone() -> None:
    found = {(change.kind, change.name): change.text for change in difference("Split", 13, 2).changes}
    assert found["type", "tensor(int64)"] == "is removed"
    assert found["input", "split"] == "is removed"
    assert found["attribute", "split"] == "is new (INTS, optional, >= 0)"


def test_an_attribute_that_is_new_is_described_with_its_default() -> None:
    found = compare(schema("Split"), schema("SplitToSequence"))
    texts = {change.name: change.text for change in found.changes if change.kind == "attribute"}
    assert texts["keepdims"] == "is new (INT, optional, default 1, >= 0)"
