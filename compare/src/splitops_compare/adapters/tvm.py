"""TVM: the ONNX frontend of Relax, compiled by LLVM for the CPU."""

from typing import Any

from splitops_compare.worker import CaseInput, catch_rejection

KIND = "compiler"
PACKAGES = ("apache-tvm", "onnx")
SETTINGS = {"shapes": ("declared", "given")}
ADDRESS_SPACE = 16 << 30


def run(case: CaseInput) -> list[Any]:
    """Import, compile and run the model, with the shapes that it declares or those of the inputs."""
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    shapes = {name: list(array.shape) for name, array in case.inputs.items()}
    with catch_rejection("load"):
        model = onnx.load(case.model)
        module = from_onnx(model, shapes if case.setting["shapes"] == "given" else None)
    with catch_rejection("compile"):
        machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    with catch_rejection("run"):
        outputs = _make_arrays(
            machine["main"](*(tvm.runtime.tensor(array) for array in case.inputs.values()))
        )
    is_single = len(model.graph.output) == 1
    # A single output is returned without a tuple; a tuple then is a sequence.
    return [outputs] if is_single else list(outputs)


def _make_arrays(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else [_make_arrays(part) for part in value]
