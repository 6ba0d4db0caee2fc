"""What inference knows of the values of a model, noted at them for the rewrites."""

from __future__ import annotations

import onnx_ir as ir

from splitops.errors import NOWHERE, Where
from splitops.models.infer.onnx_walk import Upstream


def note_known(model: ir.Model, where: Where = NOWHERE) -> None:
    """Note at every value of a well-formed model what is known of it."""
    Upstream(model, where, lambda site: None).run().note()


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
