"""ncnn: converts the model with pnnx and runs it on one CPU thread in single precision."""

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from splitops_compare.worker import CaseInput, NotApplicable, catch_rejection, run_tool

PACKAGES = ("ncnn", "pnnx")


def run(case: CaseInput) -> list[Any]:
    """Convert the model for the shapes of the inputs, and run it."""
    import ncnn

    for name, array in case.inputs.items():
        if array.dtype.name != "float32" or not 1 <= array.ndim <= 4:
            raise NotApplicable(f"blobs are float32 of 1 to 4 dimensions (input {name})")
    model = shutil.copy(case.model, Path(case.folder, "model.onnx"))  # pnnx writes next to it
    shapes = [f"{list(array.shape)}f32".replace(" ", "") for array in case.inputs.values()]
    run_tool("load", _find_converter(), model, f"inputshape={','.join(shapes)}", "fp16=0", folder=case.folder)
    with catch_rejection("compile"):
        net = ncnn.Net()
        net.opt.num_threads = 1
        net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
        for load, name in ((net.load_param, "model.ncnn.param"), (net.load_model, "model.ncnn.bin")):
            if load(str(Path(case.folder, name))):
                raise RuntimeError(f"it cannot load {name}")
    with catch_rejection("run"):
        extractor = net.create_extractor()
        for index, array in enumerate(case.inputs.values()):
            extractor.input(f"in{index}", ncnn.Mat(array).clone())
        return [_extract(extractor, f"out{index}") for index, _ in enumerate(case.outputs)]


def _find_converter() -> Path:
    """Find the program of pnnx without importing the package, which imports PyTorch."""
    package = find_spec("pnnx")
    assert package is not None
    assert package.submodule_search_locations is not None
    return Path(package.submodule_search_locations[0], "pnnx")


def _extract(extractor: Any, name: str) -> Any:
    status, output = extractor.extract(name)
    if status:
        raise RuntimeError(f"extract({name!r}) returned {status}")
    return output.numpy().copy()
