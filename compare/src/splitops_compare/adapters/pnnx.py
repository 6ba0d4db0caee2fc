"""pnnx: converts the model to a PyTorch module, and runs it."""

import runpy
import shutil
from pathlib import Path
from typing import Any

from splitops_compare.worker import CaseInput, NotApplicable, catch_rejection, run_tool

PACKAGES = ("pnnx", "torch")
SETTINGS = {"optimisation": ("2", "0")}
_TYPES = {f"{name}{bits}": f"{name[0]}{bits}" for name in ("float", "int") for bits in (16, 32, 64)}
_TYPES |= {"int8": "i8", "uint8": "u8", "complex64": "c64", "complex128": "c128"}


def run(case: CaseInput) -> list[Any]:
    """Convert the model for the shapes of the inputs, and run it."""
    import pnnx
    import torch

    for name, dtype in case.types.items():
        if dtype not in _TYPES:
            raise NotApplicable(f"pnnx has no inputs of {dtype} (input {name})")
    model = shutil.copy(case.model, Path(case.folder, "model.onnx"))  # pnnx writes next to it
    shapes = [f"{list(a.shape)}{_TYPES[a.dtype.name]}".replace(" ", "") for a in case.inputs.values()]
    options = f"inputshape={','.join(shapes)}", f"optlevel={case.setting['optimisation']}"
    run_tool("load", pnnx.EXEC_PATH, model, *options, folder=case.folder)
    with catch_rejection("run"):
        module = runpy.run_path(str(Path(case.folder, "model_pnnx.py")))["Model"]()
        outputs = module(*(torch.from_numpy(array.copy()) for array in case.inputs.values()))
        return [part.numpy() for part in (outputs if isinstance(outputs, list | tuple) else [outputs])]
