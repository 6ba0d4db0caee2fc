"""``python -m dev.tools.empties [OPERATOR ...]``: ask onnxruntime every operator about empty tensors.

The models are onnx's own node tests, and equations of Einsum. Each input is made empty along each of its
axes, alone and with other axes of the same size, by the caller and by a Split inside the model. The exit
code is 1 if the process ends on an operator that sessions do not keep from such tensors.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import permutations, product
from typing import Any

import numpy as np
import onnxruntime
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from dev.forks import end_after, in_a_fork
from splitops.models.sessions.crashing_ops import CRASHING

Case = tuple[str, str, ModelProto, dict[str, Any]]


def _emptied(arrays: Sequence[Any]) -> Iterator[list[tuple[int, int]]]:
    """Yield the axes to make empty: of which input, and which axis of it."""
    tensors = [array if isinstance(array, np.ndarray) else np.zeros(()) for array in arrays]
    ends = [(at, axis) for at, one in enumerate(tensors) for axis in range(one.ndim)]
    for at, axis in ends:
        size = tensors[at].shape[axis]
        same = [end for end in ends if tensors[end[0]].shape[end[1]] == size]
        yield from ([(at, axis)], same, *([(at, axis), one] for one in same if one[0] != at)) if size else ()


def _model(
    node: NodeProto, opset: int, arrays: Sequence[Any], chosen: Sequence[tuple[int, int]]
) -> ModelProto:
    """Return a model in which Splits make inputs of a node empty."""
    names = [name for name in node.input if name]
    graph = GraphProto(name="g", output=[ValueInfoProto(name=name) for name in node.output if name])
    last = dict(zip(names, names, strict=True))
    for number, (at, axis) in enumerate(chosen):
        name, lengths = names[at], np.array([0, arrays[at].shape[axis]])
        graph.initializer.append(numpy_helper.from_array(lengths, f"lengths{number}"))
        parts = [f"none{number}", f"all{number}"]
        graph.node.append(helper.make_node("Split", [last[name], f"lengths{number}"], parts, axis=axis))
        last[name] = parts[0]
    inner = NodeProto.FromString(node.SerializeToString())
    inner.input[:] = [last.get(name, name) for name in node.input]
    graph.node.append(inner)
    made = ModelProto(ir_version=10, graph=graph)
    made.opset_import.add(version=max(opset, 13))
    return made


def _tests() -> Iterator[tuple[NodeProto, int, list[ValueInfoProto], list[Any]]]:
    """Yield nodes with their opset, inputs and arrays."""
    from onnx.backend.test.case.node import collect_testcases

    for test in collect_testcases(None):
        graph = test.model.graph
        if not graph.node[0].domain and len(graph.node) == 1:
            given = test.data_sets[0][0]
            arrays = [numpy_helper.to_array(one) if isinstance(one, TensorProto) else one for one in given]
            yield graph.node[0], test.model.opset_import[0].version, list(graph.input), arrays
    for first, second, last in product(permutations("abc"), permutations("abd"), ("acd", "dca")):
        equation = f"{''.join(first)},{''.join(second)}->{''.join(last)}"
        node = helper.make_node("Einsum", ["x", "y"], ["z"], equation=equation)
        sizes = {"a": 2, "b": 3, "c": 4, "d": 5}
        arrays = [np.ones([sizes[letter] for letter in letters], np.float32) for letters in (first, second)]
        yield node, 12, [helper.make_tensor_value_info(name, 1, None) for name in "xy"], arrays


def _shape(value: Any) -> str:
    return str(value.shape) if isinstance(value, np.ndarray) else type(value).__name__


def _cases(operators: Sequence[str]) -> Iterator[Case]:
    seen: set[bytes] = set()
    for node, opset, inputs, arrays in _tests():
        if operators and node.op_type not in operators:
            continue
        for value in inputs:
            value.type.tensor_type.ClearField("shape")
        names = [value.name for value in inputs]
        attributes = [attribute.SerializeToString() for attribute in node.attribute]
        for chosen in _emptied(arrays):
            empty = list(arrays)
            for at, axis in chosen:
                empty[at] = np.take(empty[at], [], axis)
            key = pickle.dumps(
                (node.op_type, [(_shape(one), str(getattr(one, "dtype", ""))) for one in empty], attributes)
            )
            if key in seen:
                continue
            seen.add(key)
            for axes, given in ((), empty), (chosen, arrays):
                model = _model(node, opset, arrays, axes)
                model.graph.input.extend(inputs)
                text = ", ".join(map(_shape, empty)) + (", made inside" if axes else "")
                yield node.op_type, text, model, dict(zip(names, given, strict=True))


def _ask(cases: Sequence[Case], writing: int) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    for index, (*_, model, feeds) in enumerate(cases):
        os.write(writing, index.to_bytes(4, "little"))
        end_after(60)
        try:
            onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)
            os.write(writing, b"\xff\xff\xff\xff")
        except Exception:  # noqa: S112  # it rejects it in order
            continue


def _answers(cases: Sequence[Case]) -> Iterator[tuple[Case, str]]:
    """Yield what becomes of each case; a process that ends is followed by another one."""
    while cases:
        content, status = in_a_fork(partial(_ask, cases))
        said = np.frombuffer(content, "<i4")
        begun, ran = said[said >= 0], {int(said[at - 1]) for at in np.flatnonzero(said < 0)}
        done = len(begun) - 1 if os.WIFSIGNALED(status) else len(begun)
        for index in range(done):
            yield cases[index], "runs" if index in ran else "rejected"
        if done < len(begun):
            yield cases[done], signal.Signals(os.WTERMSIG(status)).name
        cases = cases[len(begun) :]


def main(operators: Sequence[str]) -> int:
    """Ask, and show the operators on which the process ends."""
    warnings.simplefilter("ignore")
    begin, cases = time.monotonic(), list(_cases(operators))
    found: dict[str, Counter[str]] = {}
    for (operator, shapes, *_), answer in _answers(cases):
        ended = answer not in ("runs", "rejected")
        if ended and not found.setdefault(operator, Counter())[answer]:
            print(f"{operator} ends the process with {answer} on {shapes}", flush=True)
        found.setdefault(operator, Counter())[answer] += 1
    crashing = {operator for operator, said in found.items() if said.keys() - {"runs", "rejected"}}
    print(f"{len(cases)} cases of {len(found)} operators in {time.monotonic() - begin:.0f} s, ", end="")
    print(f"onnxruntime {onnxruntime.__version__}: {', '.join(sorted(crashing)) or 'none'}")
    unknown = sorted(crashing - CRASHING)
    print(f"not kept from tensors without elements: {', '.join(unknown) or 'none'}")
    return int(bool(unknown))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
