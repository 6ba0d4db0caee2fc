"""Asks the implementation about the case of this folder; ``case.json`` says which, and what is specified."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    """Print what is expected, and what the implementation gives."""
    os.chdir(Path(__file__).resolve().parent)
    sys.path.insert(0, os.getcwd())
    import worker

    ask = json.loads(Path("case.json").read_text("utf-8"))
    inputs = {path.stem: np.load(path) for path in Path().glob("*.npy")}
    for path in sorted(Path().glob("input_*.pb")):
        import onnx

        inputs |= {(tensor := onnx.load_tensor(path)).name: onnx.numpy_helper.to_array(tensor)}
    print("expected:", ask.pop("expected"), flush=True)
    if Path("adapter.mjs").exists():
        tensors = {
            name: worker.pack(one, ".", name) | {"dtype": ask["types"][name]} for name, one in inputs.items()
        }
        start = {"message": "start", "protocol": 1, "setting": ask["setting"]}
        lines = f"{json.dumps(start)}\n{json.dumps(ask | {'message': 'ask', 'id': 0, 'inputs': tensors})}"
        told = subprocess.check_output(["node", "adapter.mjs"], input=lines, text=True)
        answer = json.loads(told.splitlines()[1])
        found: Any = [worker.unpack(one) for one in answer.get("outputs") or sys.exit(answer["text"])]
    else:
        import adapter

        defaults = {name: values[0] for name, values in getattr(adapter, "SETTINGS", {}).items()}
        found = adapter.answer(worker.Question(inputs=inputs, **ask | {"setting": defaults | ask["setting"]}))
    if hasattr(found, "SerializeToString"):  # the model that a converter or a simplifier makes
        from onnx.reference import ReferenceEvaluator

        found = ReferenceEvaluator(found).run(ask["outputs"], inputs)
    for part in [found[name] for name in ask["outputs"]] if isinstance(found, dict) else found:
        print("got:", getattr(part, "dtype", ""), getattr(part, "shape", ""), part)


if __name__ == "__main__":
    main()
