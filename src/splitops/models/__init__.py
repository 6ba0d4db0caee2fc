"""Load, save and run models: the same functions for ONNX and OpenVINO IR."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from splitops.models.formats.files import is_openvino, load, save

if TYPE_CHECKING:
    from splitops.models.formats.files import AnyModel

__all__ = ["is_openvino", "load", "run", "save"]


def run(
    model: AnyModel,
    inputs: Mapping[str, Any],
    *,
    engine: str = "auto",
    isolate: bool = False,
    max_iterations: int | None = None,
    allow_links: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Run a model once. Every split returns the specified result, whichever engine executes it.

    To run a model more than once, use :func:`splitops.session`. Other operators may round floats differently
    from one engine to another.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model`` or
            :class:`OpenVINOModel`.
        inputs: arrays by input name; lists of arrays for ONNX sequences.
        engine: the engine that runs the model, see :func:`splitops.session`.
        isolate: whether the engine runs in a separate process.
        max_iterations: maximum number of iterations of loops and calls of functions, by default 4194304. If
            it is set, only the reference evaluator runs models with loops or functions.
        allow_links: whether links to the files of a model at a path may leave its folder, as in :func:`load`.
        **options: options of the engine, see :func:`splitops.session`.

    Returns:
        The outputs by name, in the model's order: arrays, or lists of arrays for sequences. An output that
        shares memory with an input or a constant is a read-only view; ``np.array(output)`` copies it.

    Raises:
        RuleError: a rule of the split family is broken; ``error.where`` names the node.
        ModelError: the model is not well formed, an input does not match the model, another operator
            fails, loops have too many iterations, or the engine is not installed or fails.

    Examples:
        >>> import numpy as np, onnx.parser, splitops
        >>> model = onnx.parser.parse_model('''
        ...     <ir_version: 9, opset_import: ["": 18]>
        ...     g (float[N] x) => (float[n] a, float[m] b) { a, b = Split<num_outputs = 2>(x) }''')
        >>> splitops.run(model, {"x": np.arange(3, dtype=np.float32)})
        {'a': array([0., 1.], dtype=float32), 'b': array([2.], dtype=float32)}
    """
    from splitops.models.sessions import session

    with session(
        model,
        engine,
        isolate=isolate,
        max_iterations=max_iterations,
        allow_links=allow_links,
        **options,
    ) as once:
        return once.run(inputs)
