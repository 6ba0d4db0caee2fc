"""Infer sizes that depend on constant strings by running onnx's evaluator, as strings are not tracked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Final

import numpy as np
import onnx_ir as ir
from onnx import NodeProto, helper

from splitops.models.abstract_values import MAX_ELEMENTS, AbstractTensor, AbstractValue, Value, meet_shapes
from splitops.models.graph.onnx_functions import Attributes
from splitops.models.infer.onnx_reading import to_node_proto

TEXT_OPERATORS: Final = frozenset({"StringNormalizer", "StringSplit"})
"""Operators whose output sizes depend on the contents of strings."""
_MAX_TEXT: Final = 1 << 16


def add_text_sizes(
    node: ir.Node, attributes: Attributes, opset: int, outputs: Sequence[AbstractValue]
) -> Sequence[AbstractValue]:
    """Return ``outputs`` with the shapes that result from running the node on its constant strings.

    Return ``outputs`` unchanged unless all inputs are constant strings of limited size and the run succeeds.
    """
    proto, arrays = to_node_proto(node, attributes), {}
    for name, value in zip(proto.input, node.inputs, strict=True):
        texts = _read_texts(value)
        if texts is None:
            return outputs
        arrays[name] = texts
    found = _evaluate(proto, opset, arrays)
    return [
        replace(known, shape=meet_shapes(known.shape, result.shape))
        if result is not None and isinstance(known, AbstractTensor)
        else known
        for known, result in zip_longest(outputs, found)
    ]


def _read_texts(value: ir.Value | None) -> Value | None:
    tensor = None if value is None or value.is_graph_input() else ir.convenience.get_const_tensor(value)
    if tensor is None or tensor.dtype != ir.DataType.STRING or tensor.size > MAX_ELEMENTS:
        return None
    texts = tensor.numpy()
    if sum(map(len, texts.flat)) > _MAX_TEXT:
        return None
    made = np.empty(texts.shape, object)
    made[...] = np.frompyfunc(lambda text: text.decode("utf-8", "replace"), 1, 1)(texts)
    return made


def _evaluate(node: NodeProto, opset: int, arrays: Mapping[str, Value]) -> Sequence[Value | None]:
    """Run a node on onnx's evaluator, and return its outputs, or () if it fails.

    Outputs that are absent or not tensors are None.
    """
    from onnx.reference import ReferenceEvaluator

    empty = helper.make_empty_tensor_value_info
    results = [name for name in node.output if name]
    graph = helper.make_graph([node], "g", list(map(empty, arrays)), list(map(empty, results)))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        with np.errstate(all="ignore"):
            found = dict(zip(results, ReferenceEvaluator(model).run(None, dict(arrays)), strict=True))
    except Exception:
        return ()
    values = [found.get(name) for name in node.output]
    return [np.asarray(v) if isinstance(v, np.ndarray | np.generic) else None for v in values]
