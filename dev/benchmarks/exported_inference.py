"""Infer a folder of ONNX models: how many values are known, and what a node costs, beside onnx itself.

Make a folder with ``tasks.py bench exported_models --out FOLDER`` or, of many architectures, with
``tasks.py bench architectures --out FOLDER``, then run ``python
dev/benchmarks/exported_inference.py FOLDER``. What models state of the values inside them is taken away
first. A value is known where its element type is, and each of its sizes as a number or in symbols.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

import splitops
from splitops.models.infer import AbstractTensor, InferredModel


def bare(path: Path) -> onnx.ModelProto:
    """Return a model without what it states of the values inside it; weights in other files stay there."""
    model = onnx.load(path, load_external_data=False)
    del model.graph.value_info[:]
    return model


def made_by(model: onnx.ModelProto) -> dict[str, str]:
    """Return the operator that makes each value of the main graph."""
    return {name: node.op_type for node in model.graph.node for name in node.output if name}


def known_to_us(found: InferredModel, names: dict[str, str]) -> set[str]:
    return {value.name for value in found.values if value.graph is None and _is_known(value.after)} & {*names}


def _is_known(known: Any) -> bool:
    if not isinstance(known, AbstractTensor) or known.type is None or known.shape is None:
        return False
    return all(isinstance(size, int) or size.name for size in known.shape)


def known_to_onnx(model: onnx.ModelProto, names: dict[str, str]) -> set[str]:
    """Return the values that are known to onnx; names that it makes up for unknown sizes count too."""
    values = (*model.graph.value_info, *model.graph.output)
    tensors = {value.name: value.type.tensor_type for value in values if value.type.HasField("tensor_type")}
    return {
        name
        for name, tensor in tensors.items()
        if tensor.elem_type
        and tensor.HasField("shape")
        and all(dim.HasField("dim_value") or dim.dim_param for dim in tensor.shape.dim)
    } & {*names}


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.process_time()
    found = run()
    return found, time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    seconds: Counter[str] = Counter()
    known: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    nodes = models = 0
    for path in sorted(folder.rglob("*.onnx")):
        model = bare(path)
        names = made_by(model)
        nodes, models = nodes + len(model.graph.node), models + 1
        found, took = timed(lambda model=model: splitops.infer(model))
        seconds["splitops infer"] += took
        ours = known_to_us(found, names)
        known["splitops"] += len(ours)
        unknown.update(operator for name, operator in names.items() if name not in ours)
        _, seconds_of_check = timed(lambda model=model: splitops.check(model))
        seconds["splitops check"] += seconds_of_check
        try:
            theirs, took = timed(lambda model=model: onnx.shape_inference.infer_shapes(model, data_prop=True))
        except Exception:  # onnx rejects models whose forms contradict one another
            theirs, took = model, 0.0
        seconds["onnx infer_shapes"] += took
        known["onnx"] += len(known_to_onnx(theirs, names))
        known["all"] += len(names)
    print(f"{models} models, {nodes} nodes, {known['all']} values")
    for tool, took in seconds.items():
        print(f"{tool}: {took / nodes * 1e3:.3f} ms a node")
    print(f"known: splitops {known['splitops']}, onnx {known['onnx']}")
    print("unknown, by operator:", dict(unknown.most_common(12)))


if __name__ == "__main__":
    main()
