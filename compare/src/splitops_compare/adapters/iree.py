"""IREE: its ONNX importer, compiler and runtime, on one CPU thread. Double precision is kept."""

from pathlib import Path
from typing import Any

import numpy.typing as npt

from splitops_compare.worker import CaseInput, catch_rejection, run_tool

KIND = "compiler"
PACKAGES = ("iree-base-compiler", "iree-base-runtime", "onnx")
SETTINGS = {"backend": ("llvm-cpu", "vmvx"), "opset": ("own", "17")}
ADDRESS_SPACE = 32 << 30


def run(case: CaseInput) -> list[Any]:
    """Import, compile and run the model."""
    import iree.runtime
    from iree.compiler.tools.binaries import find_tool

    source, binary = Path(case.folder, "model.mlir"), Path(case.folder, "model.vmfb")
    with catch_rejection("load"):
        _import_model(case, source)
    backend = f"--iree-hal-target-backends={case.setting['backend']}"
    options = (backend, "--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false")
    run_tool("compile", find_tool("iree-compile"), source, *options, "-o", binary)
    with catch_rejection("run"):
        module = iree.runtime.load_vm_flatbuffer(binary.read_bytes(), driver="local-sync")
        names = [name for name in module.vm_module.function_names if not name.endswith(("$async", "__init"))]
        outputs = module[names[0]](*case.inputs.values())
        arrays = [part.to_host() for part in (outputs if isinstance(outputs, list | tuple) else [outputs])]
    return [_restore_sign(array, case) for array in arrays]


def _restore_sign(array: npt.NDArray[Any], case: CaseInput) -> npt.NDArray[Any]:
    """View integers as unsigned if the data is unsigned, since integers of the runtime have no signedness."""
    data = next(iter(case.inputs.values())).dtype
    return array.view(data) if data.kind == "u" and array.dtype.name == data.name[1:] else array


def _import_model(case: CaseInput, target: Path) -> None:
    """Import the model like ``iree-import-onnx``, whose documentation requires opset 17."""
    from iree.compiler.tools.import_onnx.__main__ import main, parse_arguments

    opset = case.setting["opset"]
    options = [] if opset == "own" else ["--opset-version", opset]
    main(parse_arguments([case.model, "-o", str(target), *options]))
