"""What inference knows of the values of an ONNX model, noted at them for the passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import onnx_ir as ir
from onnx import ModelProto

from splitops.errors import NOWHERE, Where
from splitops.models.convert.onnx_graph import graphs_of, note
from splitops.models.infer.knowledge import Known, Tensor
from splitops.models.infer.onnx_walk import Walk

__all__ = ["NoteKnownPass", "note_known"]


class _Upstream(Walk):
    """A walk that tells of each value only what follows from the values before it.

    What a split proves of its own input must not be known here: it would prove that the split is not needed.
    """

    def _tighten(self, *_: object) -> None:
        pass

    def _set(self, scope: Any, name: str, known: Known) -> None:
        # Partly known numbers are followed as sizes, which are int64; others would change their type.
        if isinstance(known, Tensor) and known.value is not None and not known.is_whole:
            sizes = known.type is not None and known.type.name == "int64"
            known = known if sizes else replace(known, value=None)
        super()._set(scope, name, known)


def note_known(model: ir.Model, proto: ModelProto, where: Where = NOWHERE) -> None:
    """Note at every value of a model what is known of it.

    Args:
        model: the model.
        proto: the same model, well formed.
        where: its place.
    """
    found = _Upstream(proto, where, lambda visit: None).run().values
    functions = model.functions.values()
    owners = [(model.graph, None), *((owner, f"function {owner.domain}.{owner.name}") for owner in functions)]
    for owner, start in owners:
        for path, graph in graphs_of(owner, start):
            for value in _values(graph):
                known: Known = found.get((path, value.name or ""))
                if known is not None:
                    note(value, known)


def _values(graph: ir.Graph | ir.Function) -> Iterator[ir.Value]:
    yield from graph.inputs
    if isinstance(graph, ir.Graph):
        yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


class NoteKnownPass(ir.passes.InPlacePass):
    """Infers the model and notes what is known of its values, so that the passes behind it can do more.

    Without it, a pass knows what the model states: types, shapes and constants. Nothing of what is noted is
    written with the model.

    Precondition: the model can be serialized. Postcondition: the model is as it was.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Note what is known."""
        note_known(model, ir.serde.to_proto(model))
        return ir.passes.PassResult(model, modified=False)
