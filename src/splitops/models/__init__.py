"""Models in files: ONNX and OpenVINO IR behind the same three functions."""

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
    """Run a model once: what every split gives is as specified, whichever engine executes it.

    A model that runs more than once is made ready by :func:`splitops.session`, which this is a session of one
    run of. Bits of floats are those of the engine that computes them.

    Args:
        model: path of a ``.onnx`` or ``.xml`` file, ``onnx.ModelProto``, ``onnx_ir.Model`` or
            :class:`OpenVINOModel`.
        inputs: arrays by input name; lists of arrays for ONNX sequences.
        engine: the engine that runs the model, see :func:`splitops.session`.
        isolate: whether the engine runs in a process of its own.
        max_iterations: how often loops and functions may run, all together, on the reference; None is
            4194304.
        allow_links: of a path, whether links to the model's other files may lead out of its folder, as in
            :func:`load`.
        **options: the engine's own.

    Returns:
        The outputs by name, in the model's order: arrays, lists of arrays for sequences. What shares memory
        with an input or a constant of the model is a new read-only view; ``np.array(output)`` is a copy.

    Raises:
        RuleError: a rule of the split family is broken; ``error.where`` names the node.
        ModelError: the model is not well formed, an input does not fit, another operator fails, loops have
            too many iterations, or the engine is not installed or fails.

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
