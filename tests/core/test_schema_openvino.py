"""The OpenVINO rows and element types, held against the installed openvino package."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import numpy as np
import pytest

from splitops import schema
from splitops.spec import ELEMENT_TYPES, SCHEMAS, ElementType, OperatorSchema, Option, SourceKind
from splitops.spec.elements.types import from_openvino, from_precision

openvino = pytest.importorskip("openvino")

ROWS = [row for row in SCHEMAS if row.domain == "openvino"]
TYPES = {
    value.to_string(): value
    for value in vars(openvino.Type).values()
    if isinstance(value, openvino.Type) and value != openvino.Type.dynamic
}
INTEGRAL_BY_NAME_ONLY = {"nf4", "string"}
"""OpenVINO calls these integral, but they hold no integers: no axis or length can have them."""


def opset(name: str) -> Any:
    return importlib.import_module(f"openvino.{name}")


OPSETS = [
    name
    for _, name, _ in pkgutil.iter_modules(openvino.__path__)
    if name.startswith("opset") and hasattr(opset(name), "concat")  # one under way has its new operators only
]


def node_of(
    row: OperatorSchema, *, data: Any = openvino.Type.f32, axis: Any = None, lengths: Any = None
) -> Any:
    """Make the row's node with OpenVINO itself: data [6, 4] split on axis 0."""
    parameter = opset("opset1").parameter([6, 4], data)
    axis = np.array(0) if axis is None else axis
    if row.name == "Split":
        return opset("opset1").split(parameter, opset("opset1").constant(axis), 3)
    lengths = np.array([2, 4]) if lengths is None else lengths
    operands = (opset("opset1").constant(axis), opset("opset1").constant(lengths))
    return opset("opset1").variadic_split(parameter, *operands)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_row_is_openvinos_operator(row: OperatorSchema) -> None:
    node = node_of(row)
    assert node.get_type_info().name == row.name
    assert node.get_type_info().version_id == f"opset{row.since_version}"
    assert len(node.inputs()) == len(row.inputs)
    assert set(node.get_attributes()) == {attribute.name for attribute in row.attributes}
    assert all(parameter.option is Option.SINGLE for parameter in row.inputs)
    assert row.outputs[0].option is Option.VARIADIC
    assert row.axis.kind is SourceKind.INPUT


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_row_is_in_opset1_and_every_later_opset(row: OperatorSchema) -> None:
    function = {"Split": "split", "VariadicSplit": "variadic_split"}[row.name]
    assert len(OPSETS) >= 15
    for name in OPSETS:
        node = getattr(opset(name), function)
        assert node is getattr(opset("opset1"), function), name
        assert schema(row.name, int(name.removeprefix("opset")), "openvino") is row


def test_openvino_has_no_other_split() -> None:
    """A new name must be looked at."""
    names = {name for opset_name in OPSETS for name in dir(opset(opset_name)) if "split" in name.lower()}
    assert names == {"split", "variadic_split"}


@pytest.mark.parametrize("row", ROWS, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (2,), (1, 1)], ids=str)
def test_the_ranks_of_axis_are_those_that_openvino_takes(row: OperatorSchema, shape: tuple[int, ...]) -> None:
    ranks = row.inputs[row.input_index("axis")].ranks
    assert ranks is not None
    expected = len(shape) in ranks and shape in ((), (1,))
    try:
        node_of(row, axis=np.zeros(shape, np.int64))
        taken = True
    except RuntimeError:
        taken = False
    assert taken is expected


def test_every_element_type_of_openvino_is_known_and_no_other() -> None:
    known = {row.openvino for row in ELEMENT_TYPES.values() if row.openvino is not None}
    assert known == set(TYPES)
    assert len(TYPES) > 20


@pytest.mark.parametrize("name", TYPES)
def test_the_element_type_is_openvinos(name: str) -> None:
    row, theirs = from_openvino(name), TYPES[name]
    assert row is not None
    assert row.bits == (0 if name == "string" else 8 if name == "boolean" else theirs.bitwidth)
    assert row.integer is (theirs.is_integral_number() and name not in INTEGRAL_BY_NAME_ONLY)
    if row.storage is None and name != "string" and row.numpy.type.__module__ == "numpy":
        assert theirs.to_dtype() == row.numpy


@pytest.mark.parametrize("row", ROWS, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_openvino_splits_every_type_that_the_row_lists(row: OperatorSchema, name: str) -> None:
    node = node_of(row, data=TYPES[name])
    assert {output.get_element_type().to_string() for output in node.outputs()} == {name}
    listed = {element_type.openvino for element_type in row.types_of(row.inputs[0])}
    assert name in listed


def test_precisions_are_those_that_the_serialiser_writes(tmp_path: Any) -> None:
    """A port's ``precision`` in the XML of a model with a parameter of each type."""
    import defusedxml.ElementTree

    for name, theirs in TYPES.items():
        parameter = opset("opset1").parameter([2], theirs)
        model = openvino.Model([opset("opset1").result(parameter)], [parameter])
        path = tmp_path / f"{name}.xml"
        openvino.serialize(model, path)
        port = defusedxml.ElementTree.parse(path).find(".//layer[@type='Parameter']/output/port")
        row = from_precision(port.get("precision"))
        assert isinstance(row, ElementType), port.get("precision")
        assert (row.openvino, row.precision) == (name, port.get("precision"))


def test_unknown_names_are_unknown() -> None:
    assert from_openvino("f12") is None
    assert from_precision("FP12") is None
    assert from_precision("UNSPECIFIED") is None
