"""How the time of the model tools grows with the number of splits, beside onnx's ``infer_shapes``.

Makes a model of N splits in a row (by lengths that are computed from a shape, and by number, on two axes),
each joined again, and one of N splits each nested in the one before. One row for each N.

    tasks.py bench scaling [--splits 10000] [--repeat 3]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import onnx
from onnx import TensorProto, helper

from splitops.models.check import check
from splitops.models.convert import convert
from splitops.models.infer import infer
from splitops.models.simplify import simplify


def chain(splits: int) -> onnx.ModelProto:
    """A model of so many splits in a row, a third of them by computed lengths."""
    nodes = [helper.make_node("Shape", ["lengths_of"], ["lengths"])]
    data = "x"
    for number in range(splits):
        parts = [f"{name}{number}" for name in "abc"]
        inputs, attributes = [data], {"num_outputs": 3, "axis": 1}
        if number % 3 == 0:
            inputs, attributes = [data, "lengths"], {"axis": 1}
        elif number % 3 == 1:
            attributes = {"num_outputs": 3, "axis": 2}
        nodes.append(helper.make_node("Split", inputs, parts, name=f"split{number}", **attributes))
        axis = attributes["axis"]
        nodes.append(helper.make_node("Concat", parts, [f"x{number}"], axis=axis))
        data = f"x{number}"
    graph = helper.make_graph(
        nodes,
        "chain",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 12, 24]),
            helper.make_tensor_value_info("lengths_of", TensorProto.FLOAT, [2, 4, 6]),
        ],
        [helper.make_tensor_value_info(data, TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def nest(splits: int) -> onnx.ModelProto:
    """A model of so many splits, each of a part of the one before."""
    nodes, data = [], "x"
    for number in range(splits):
        lengths, parts = [1, splits - number], [f"a{number}", f"b{number}"]
        nodes.append(helper.make_node("Split", [data], parts, name=f"split{number}", split=lengths))
        data = parts[1]
    ends = [node.output[0] for node in nodes] + [data]
    graph = helper.make_graph(
        nodes,
        "nest",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [splits + 1])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ends],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)


def best(repeat: int, run: Callable[[], object]) -> float:
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    tools: list[tuple[str, Callable[[int], onnx.ModelProto], Callable[[onnx.ModelProto], object]]] = [
        ("onnx infer_shapes", chain, lambda model: onnx.shape_inference.infer_shapes(model, data_prop=True)),
        ("infer", chain, infer),
        ("check", chain, check),
        ("convert to 13", chain, lambda model: convert(model, "onnx:13")),
        ("simplify", chain, simplify),
        ("simplify nested", nest, simplify),
    ]
    print("Microseconds a split.\n")
    print(f"| splits | {' | '.join(name for name, _, _ in tools)} |")
    print(f"|{'---:|' * (len(tools) + 1)}")
    for splits in (arguments.splits // 100, arguments.splits // 10, arguments.splits // 2, arguments.splits):
        if splits < 1:
            continue
        models = {make: make(splits) for make in (chain, nest)}
        times = [best(arguments.repeat, partial(tool, models[make])) for _, make, tool in tools]
        print(f"| {splits} | {' | '.join(f'{time / splits * 1e6:.0f}' for time in times)} |", flush=True)


if __name__ == "__main__":
    main()
