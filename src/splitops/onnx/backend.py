"""Implementation of the ONNX backend interface: prepare, run_model, run_node, supports_device, is_compatible.

It needs onnx. ``onnx.backend.test.BackendTest(splitops.onnx.backend.SplitopsBackend)`` tests it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import ModelProto, NodeProto, defs
from onnx.backend.base import Backend, BackendRep

from splitops.calls.node import read_only
from splitops.errors import ModelError, SplitError, count_of

__all__ = [
    "SplitopsBackend",
    "SplitopsModel",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]


class SplitopsModel(BackendRep):
    """A prepared model.

    Attributes:
        session: the :class:`splitops.Session` that runs it.
    """

    def __init__(self, model: ModelProto, engine: str = "reference", **options: Any) -> None:
        # Sessions are in a higher layer than this module.
        from splitops.models.sessions import session

        self.session = session(model, engine, **options)

    def run(self, inputs: Sequence[Any] | Mapping[str, Any], **_: Any) -> tuple[Any, ...]:
        """Run the model.

        Args:
            inputs: values by name, or a sequence of values for all inputs or for all required ones, in order.

        Returns:
            The outputs in the order of the model. A sequence is a list.

        Raises:
            RuleError: a rule of a split operator is broken.
            ModelError: the inputs do not match the model, or another operator fails.
        """
        if not isinstance(inputs, Mapping):
            declared = self.session.inputs
            every = [item.name for item in declared]
            names = every if len(inputs) == len(every) else [item.name for item in declared if item.required]
            if len(inputs) != len(names):
                raise ModelError(f"the model has {count_of(len(names), 'input')}, not {len(inputs)}")
            inputs = dict(zip(names, inputs, strict=True))
        return tuple(self.session.run(inputs).values())


class SplitopsBackend(Backend):
    """Backend with the Split and SplitToSequence of splitops, and all other operators of onnx's evaluator.

    ``prepare`` and ``run_model`` pass options such as ``engine="onnxruntime"`` to :func:`splitops.session`.

    Examples:
        >>> import numpy as np
        >>> from onnx import helper
        >>> node = helper.make_node("Split", ["x"], ["a", "b"], num_outputs=2)
        >>> [part.tolist() for part in run_node(node, [np.arange(3)])]
        [[0, 1], [2]]
    """

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Return whether :meth:`prepare` accepts the model and the device."""
        try:
            cls.prepare(model, device, **kwargs)
        except SplitError:
            return False
        return True

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> SplitopsModel:
        """Prepare a model for any number of runs.

        Args:
            model: the model to run.
            device: ``"CPU"``.
            **kwargs: ``engine``, by default ``"reference"``, and its options; see :func:`splitops.session`.

        Raises:
            ModelError: the device is unknown, the model is not well formed, or an operator has no
                implementation.
            RuleError: a split of the main graph is invalid in every run.
        """
        _check_device(device)
        return SplitopsModel(model, **kwargs)

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Prepare a model and run it once; see :meth:`SplitopsModel.run`."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Run a node.

        Args:
            node: the node to run.
            inputs: values by name, or a sequence in the order of the node, with None for an absent input.
            device: ``"CPU"``.
            outputs_info: ignored.
            **kwargs: ``opset_version``, the opset that selects the operator version, by default the newest of
                the installed onnx.

        Returns:
            The named outputs, in the order of the node.

        Raises:
            RuleError: a rule of a split operator is broken.
            ModelError: the inputs do not match the node, or another operator fails.
        """
        from splitops.models.running.onnx.evaluator import make_node_evaluator

        _check_device(device)
        if not isinstance(inputs, Mapping):
            if len(inputs) > len(node.input):
                raise ModelError(f"the node has {count_of(len(node.input), 'input')}, not {len(inputs)}")
            inputs = dict(zip(node.input, inputs, strict=False))
        missing = next((name for name in node.input if name and name not in inputs), None)
        if missing is not None:
            raise ModelError(f"input {missing!r} is missing")
        opset = int(kwargs.get("opset_version") or defs.onnx_opset_version())
        feeds = {name: read_only(value) for name, value in inputs.items()}
        return tuple(make_node_evaluator(node, opset).run(None, feeds))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether the device is a CPU: ``"CPU"`` or ``"CPU:0"``."""
        kind, _, number = device.partition(":")
        return kind == "CPU" and number in ("", "0")


def _check_device(device: str) -> None:
    if not SplitopsBackend.supports_device(device):
        raise ModelError(f"device {device!r} is not supported: use 'CPU'")


is_compatible = SplitopsBackend.is_compatible
prepare = SplitopsBackend.prepare
run_model = SplitopsBackend.run_model
run_node = SplitopsBackend.run_node
supports_device = SplitopsBackend.supports_device
