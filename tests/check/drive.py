"""Runs one model on one runtime and prints what it does as JSON. A process of its own: runtimes can crash."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from splitops.spec.elements.packing import pack, unpack
from splitops.spec.elements.types import from_openvino


def drive_onnxruntime(model: Path, inputs: dict[str, Any]) -> list[Any]:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def drive_openvino(model: Path, inputs: dict[str, Any]) -> list[Any]:
    import openvino

    compiled = openvino.Core().compile_model(str(model), "CPU")
    request = compiled.create_infer_request()
    request.infer({name: _tensor(value, compiled.input(name)) for name, value in inputs.items()})
    return [_array(request.get_output_tensor(index)) for index in range(len(compiled.outputs))]


def _tensor(value: Any, port: Any) -> Any:
    """Elements smaller than a byte are given in their storage."""
    import openvino

    if value.dtype.kind in "US":
        return openvino.Tensor(value)
    if port.element_type.bitwidth >= 8:
        return value
    tensor = openvino.Tensor(port.element_type, openvino.Shape(value.shape))
    storage = pack(value, from_openvino(port.element_type.get_type_name()))
    tensor.data.view(np.uint8).reshape(-1)[:] = np.frombuffer(storage, np.uint8)
    return tensor


def _array(tensor: Any) -> Any:
    if tensor.element_type.get_type_name() == "string":
        return tensor.str_data
    if tensor.element_type.bitwidth >= 8:
        return tensor.data.copy()
    storage = tensor.data.view(np.uint8).reshape(-1).tobytes()
    return unpack(storage, from_openvino(tensor.element_type.get_type_name()), tuple(tensor.shape))


def drive_opencv(model: Path, inputs: dict[str, Any]) -> list[Any]:
    import cv2
    import onnx

    net = cv2.dnn.readNetFromONNX(str(model))
    for name, value in inputs.items():
        net.setInput(value, name)
    outputs = net.forward([output.name for output in onnx.load(model).graph.output])
    return [np.array(np.nan) if array is None else array for array in outputs]  # None: it is not an array


def drive_onnx(model: Path, inputs: dict[str, Any]) -> list[Any]:
    """Infer shapes: every output stands for its dimensions."""
    import onnx

    inferred = onnx.shape_inference.infer_shapes(onnx.load(model), strict_mode=True)
    return [
        np.array([dim.dim_value for dim in output.type.tensor_type.shape.dim])
        for output in inferred.graph.output
    ]


def drive_converter(model: Path, inputs: dict[str, Any]) -> list[Any]:
    import onnx
    import onnx.version_converter

    onnx.version_converter.convert_version(onnx.load(model), 19)
    return []


def described(value: Any) -> Any:
    if isinstance(value, list):
        return [described(entry) for entry in value]
    array = np.asarray(value)
    return {
        "type": array.dtype.name,
        "shape": array.shape,
        "values": array.tolist() if 0 < array.size <= 64 else None,
    }


if __name__ == "__main__":
    runtime, model, inputs = sys.argv[1:]
    try:
        with np.load(inputs) as stored:
            feeds = dict(stored)
        found = {"outputs": described(globals()[f"drive_{runtime}"](Path(model), feeds))}
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"}
    print("\n" + json.dumps(found))
