"""IREE: its ONNX importer, compiler and runtime, on one thread of the CPU, with double precision kept."""

from pathlib import Path
from typing import Any

import numpy.typing as npt

from splitops.comparison.worker import Question, rejecting, tool

KIND = "compiler"
PACKAGES = ("iree-base-compiler", "iree-base-runtime", "onnx")
SETTINGS = {"backend": ("llvm-cpu", "vmvx"), "opset": ("own", "17")}
ADDRESS_SPACE = 32 << 30


def answer(case: Question) -> list[Any]:
    """Import, compile and run the model."""
    import iree.runtime
    from iree.compiler.tools.binaries import find_tool

    source, binary = Path(case.folder, "model.mlir"), Path(case.folder, "model.vmfb")
    with rejecting("load"):
        _import(case, source)
    backend = f"--iree-hal-target-backends={case.setting['backend']}"
    options = (backend, "--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false")
    tool("compile", find_tool("iree-compile"), source, *options, "-o", binary)
    with rejecting("run"):
        module = iree.runtime.load_vm_flatbuffer(binary.read_bytes(), driver="local-sync")
        names = [name for name in module.vm_module.function_names if not name.endswith(("$async", "__init"))]
        found = module[names[0]](*case.inputs.values())
        arrays = [part.to_host() for part in (found if isinstance(found, list | tuple) else [found])]
    return [_signed(array, case) for array in arrays]


def _signed(array: npt.NDArray[Any], case: Question) -> npt.NDArray[Any]:
    """Return an array with the sign of the data: the integers of the runtime say none."""
    data = next(iter(case.inputs.values())).dtype
    return array.view(data) if data.kind == "u" and array.dtype.name == data.name[1:] else array


def _import(case: Question, target: Path) -> None:
    """Do as ``iree-import-onnx`` does; 17 is the operation set that its documentation asks for."""
    from iree.compiler.tools.import_onnx.__main__ import main, parse_arguments

    opset = case.setting["opset"]
    wanted = [] if opset == "own" else ["--opset-version", opset]
    main(parse_arguments([case.model, "-o", str(target), *wanted]))
