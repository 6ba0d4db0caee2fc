"""Models in files: ONNX and OpenVINO IR behind the same three functions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from splitops.models.formats.files import is_openvino, load, save
from splitops.models.running.bodies import MAX_BODY_RUNS

if TYPE_CHECKING:
    import onnx

    from splitops.models.formats.files import AnyModel
    from splitops.models.formats.openvino import OpenVINOModel

__all__ = ["is_openvino", "load", "run", "save"]


def run(
    model: AnyModel,
    inputs: Mapping[str, Any],
    *,
    max_body_runs: int | None = None,
    allow_links: bool = False,
) -> dict[str, Any]:
    """Run a model: the split family is ours, other operators are evaluated beside it.

    Operators of ONNX other than the family go through onnx's reference implementation. Layers of OpenVINO IR
    other than the family and the data movers around it need the ``openvino`` package.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model`` or
            :class:`OpenVINOModel`.
        inputs: arrays by input name; lists of arrays for ONNX sequences.
        max_body_runs: how often the bodies of the model's loops run at most, all together; None is 4194304.
        allow_links: of a path, whether links to the model's other files may lead out of its folder, as in
            :func:`load`.

    Returns:
        The outputs by name, in the model's order: arrays, lists of arrays for sequences. What shares memory
        with an input or a constant of the model is a new read-only view; ``np.array(output)`` is a copy.

    Raises:
        RuleError: a rule of the split family is broken; ``error.where`` names the node.
        ModelError: the model is not well formed, an input does not fit, another operator fails, or bodies run
            too often.

    Examples:
        >>> import numpy as np, onnx.parser, splitops
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 9, opset_import: ["": 18]>
        ...     g (float[N] x) => (float[n] a, float[m] b) { a, b = Split<num_outputs = 2>(x) }''')
        >>> splitops.run(model, {"x": np.arange(3, dtype=np.float32)})
        {'a': array([0., 1.], dtype=float32), 'b': array([2.], dtype=float32)}
    """
    most = MAX_BODY_RUNS if max_body_runs is None else max_body_runs
    if is_openvino(model):
        from splitops.models.running.openvino import run as run_ir

        whole = load(model, allow_links=allow_links) if isinstance(model, str | os.PathLike) else model
        return run_ir(cast("OpenVINOModel", whole), inputs, max_body_runs=most)
    from splitops.models.running.onnx import run as run_onnx

    return run_onnx(cast("onnx.ModelProto", model), inputs, max_body_runs=most, allow_links=allow_links)
