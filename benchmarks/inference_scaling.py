"""How the time of inference and checking grows with the number of splits, beside onnx's ``infer_shapes``.

Makes a model of N splits in a row (by lengths that are computed from a shape, and by number, on two axes),
each joined again, checks and infers it, and prints one row for each N.

    python benchmarks/inference_scaling.py [--splits 10000] [--repeat 3]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import onnx
from onnx import TensorProto, helper

from splitops.models.check import check
from splitops.models.infer import infer


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
    print("| splits | splitops infer (s) | us per split | splitops check (s) | onnx infer_shapes (s) |")
    print("|---:|---:|---:|---:|---:|")
    for splits in (arguments.splits // 100, arguments.splits // 10, arguments.splits // 2, arguments.splits):
        if splits < 1:
            continue
        model = chain(splits)
        inferred = best(arguments.repeat, lambda model=model: infer(model))
        checked = best(arguments.repeat, lambda model=model: check(model))
        theirs = best(
            arguments.repeat, lambda model=model: onnx.shape_inference.infer_shapes(model, data_prop=True)
        )
        each = inferred / splits * 1e6
        print(f"| {splits} | {inferred:.3f} | {each:.0f} | {checked:.3f} | {theirs:.3f} |")
        assert not [finding for finding in check(model) if str(finding.severity) == "error"]


if __name__ == "__main__":
    main()
