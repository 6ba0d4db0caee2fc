"""Infer the types of the values of an ONNX model in protobuf."""

from __future__ import annotations

from onnx import ModelProto, TypeProto

from splitops.errors import NOWHERE, Where
from splitops.models.formats.onnx.graphs import deserialize_model
from splitops.models.formats.onnx.types import to_type
from splitops.models.infer.interpreter import ShapeInterpreter


def infer_types(model: ModelProto, where: Where = NOWHERE) -> dict[tuple[str | None, str], TypeProto]:
    """Return the inferred types of a model's values, keyed by graph path (None for the main one) and name."""
    found = ShapeInterpreter(deserialize_model(model, where), where, lambda _: None).run().substitute_sizes()
    types = ((key, to_type(known)) for key, known in found.index_by_name().items())
    return {key: kind for key, kind in types if kind is not None}
