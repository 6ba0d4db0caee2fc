"""pnnx: the model made a module of PyTorch, and run there."""

import runpy
import shutil
from pathlib import Path
from typing import Any

from splitops.comparison.worker import NotApplicable, Question, rejecting, tool

PACKAGES = ("pnnx", "torch")
SETTINGS = {"optimisation": ("2", "0")}
_TYPES = {f"{name}{bits}": f"{name[0]}{bits}" for name in ("float", "int") for bits in (16, 32, 64)}
_TYPES |= {"int8": "i8", "uint8": "u8", "complex64": "c64", "complex128": "c128"}


def answer(case: Question) -> list[Any]:
    """Convert the model for the shapes of the inputs, and run it."""
    import pnnx
    import torch

    for name, dtype in case.types.items():
        if dtype not in _TYPES:
            raise NotApplicable(f"pnnx has no inputs of {dtype} (input {name})")
    model = shutil.copy(case.model, Path(case.folder, "model.onnx"))  # what it makes lies beside it
    shapes = [f"{list(a.shape)}{_TYPES[a.dtype.name]}".replace(" ", "") for a in case.inputs.values()]
    optimisation = f"optlevel={case.setting['optimisation']}"
    tool("load", pnnx.EXEC_PATH, model, f"inputshape={','.join(shapes)}", optimisation, folder=case.folder)
    with rejecting("run"):
        module = runpy.run_path(str(Path(case.folder, "model_pnnx.py")))["Model"]()
        found = module(*(torch.from_numpy(array.copy()) for array in case.inputs.values()))
        return [part.numpy() for part in (found if isinstance(found, list | tuple) else [found])]
