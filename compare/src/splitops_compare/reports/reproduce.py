"""Runs the case of this folder in the implementation. ``case.json`` has the case and the expected result."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    """Print the expected result, and that of the implementation, or of the model that it wrote."""
    os.chdir(Path(__file__).resolve().parent)
    sys.path.insert(0, os.getcwd())
    import worker

    case = json.loads(Path("case.json").read_text("utf-8"))
    inputs = {path.stem: np.load(path) for path in Path().glob("*.npy")}
    for path in sorted(Path().glob("input_*.pb")):
        import onnx

        inputs |= {(tensor := onnx.load_tensor(path)).name: onnx.numpy_helper.to_array(tensor)}
    print("expected:", case.pop("expected"), flush=True)
    if Path("adapter.mjs").exists():
        tensors = {n: worker.pack(x, ".", n) | {"dtype": case["types"][n]} for n, x in inputs.items()}
        start = {"message": "start", "protocol": 1, "setting": case["setting"]}
        request = case | {"message": "request", "id": 0, "inputs": tensors}
        text = f"{json.dumps(start)}\n{json.dumps(request)}"
        output = subprocess.check_output(["node", "adapter.mjs"], input=text, text=True)
        response = json.loads(output.splitlines()[1])
        result: Any = [worker.unpack(one) for one in response.get("outputs") or sys.exit(response["text"])]
    else:
        import adapter

        defaults = {name: values[0] for name, values in getattr(adapter, "SETTINGS", {}).items()}
        result = adapter.run(
            worker.CaseInput(inputs=inputs, **case | {"setting": defaults | case["setting"]})
        )
    if hasattr(result, "SerializeToString"):  # the model of a converter or a simplifier
        from onnx.reference import ReferenceEvaluator

        result = ReferenceEvaluator(result).run(case["outputs"], inputs)
    for part in [result[name] for name in case["outputs"]] if isinstance(result, dict) else result:
        print("got:", getattr(part, "dtype", ""), getattr(part, "shape", ""), part)


if __name__ == "__main__":
    main()
