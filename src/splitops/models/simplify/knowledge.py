"""What inference knows of the values of a model, noted at them for the rewrites."""

from __future__ import annotations

import onnx_ir as ir

from splitops.errors import NOWHERE, Where
from splitops.models.formats.openvino import OpenVINOModel
from splitops.models.graph.openvino import note_found
from splitops.models.infer.onnx_walk import Upstream
from splitops.models.infer.openvino_walk import walk_openvino


def note_known(model: ir.Model, where: Where = NOWHERE) -> None:
    """Note at every value of a well-formed model what is known of it.

    Args:
        model: the model.
        where: its place.
    """
    Upstream(model, where, lambda site: None).run().note()


def note_known_openvino(nodes: ir.Model, model: OpenVINOModel, where: Where) -> None:
    """Note at every value of the nodes of an OpenVINO model what is known of it.

    Args:
        nodes: the nodes.
        model: the same model.
        where: its place.
    """
    note_found(nodes.graph, walk_openvino(model, where, lambda site: None, tighten=False))


class NoteKnownPass(ir.passes.InPlacePass):
    """Infers the model and notes what is known of its values, so that the passes behind it can do more.

    Without it, a pass knows what the model declares: types, shapes and constants. Nothing of what is noted is
    written with the model.

    Precondition: the model is well formed. Postcondition: the model is as it was.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Note what is known."""
        note_known(model)
        return ir.passes.PassResult(model, modified=False)
