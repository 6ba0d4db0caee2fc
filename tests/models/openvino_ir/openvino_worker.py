"""Runs models by OpenVINO in a process of its own, which may crash: ``python openvino_worker.py FOLDER``.

The folder holds ``jobs.json``, a list of jobs; the answers go to ``answers.jsonl``, one line for each job as
it is done, so that a crash loses no answer. Tensors are bytes as hexadecimal text in OpenVINO's own storage.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from openvino import Core, Tensor, Type

CORE = Core()


def to_tensor(stated: dict[str, Any]) -> Any:
    shape = stated["shape"]
    if stated["type"] == "string":
        tensor = Tensor(Type.string, shape)
        if stated["value"]:
            tensor.str_data = np.array(stated["value"]).reshape(shape)
        return tensor
    tensor = Tensor(getattr(Type, stated["type"]), shape)
    content = np.frombuffer(bytes.fromhex(stated["value"]), np.uint8)
    flat = tensor.data.reshape(-1).view(np.uint8)
    assert flat.size == content.size, (stated["type"], shape, flat.size, content.size)
    flat[...] = content
    return tensor


def from_tensor(tensor: Any) -> dict[str, Any]:
    kind = tensor.element_type.get_type_name()
    stated: dict[str, Any] = {"type": kind, "shape": list(tensor.shape)}
    if kind == "string":
        stated["value"] = [str(text) for text in np.asarray(tensor.str_data).reshape(-1)]
    else:
        stated["value"] = tensor.data.reshape(-1).view(np.uint8).tobytes().hex()
    return stated


def names_of(outputs: Any) -> list[list[str]]:
    return [sorted(output.names) for output in outputs]


def run(job: dict[str, Any]) -> dict[str, Any]:
    model = CORE.read_model(job["xml"])
    inputs = [to_tensor(stated) for stated in job["inputs"]]
    answer = {"inputs": names_of(model.inputs), "outputs": names_of(model.outputs)}
    if job["by"] == "reference":
        tensors = [
            Tensor(output.element_type, list(output.partial_shape.get_min_shape()))
            for output in model.outputs
        ]
        if not model.evaluate(tensors, inputs):
            raise RuntimeError("the reference does not evaluate it")
    else:
        compiled = CORE.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        request = compiled.create_infer_request()
        for index, tensor in enumerate(inputs):
            request.set_input_tensor(index, tensor)
        request.infer()
        tensors = [request.get_output_tensor(index) for index in range(len(model.outputs))]
    return answer | {"tensors": [from_tensor(tensor) for tensor in tensors]}


def convert(job: dict[str, Any]) -> dict[str, Any]:
    """Make an IR out of an ONNX model or of another IR, as OpenVINO's own tools do."""
    model = CORE.read_model(job["source"])
    if job["by"] == "save_model":
        openvino.save_model(model, job["xml"])
    else:
        openvino.serialize(model, job["xml"], str(Path(job["xml"]).with_suffix(".bin")), job["by"])
    return {}


def main(folder: Path) -> None:
    jobs = json.loads((folder / "jobs.json").read_text())
    with (folder / "answers.jsonl").open("w") as answers:
        for job in jobs:
            try:
                answer = convert(job) if "source" in job else run(job)
            except Exception as error:
                answer = {"error": " ".join(str(error).split())[-400:]}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
