"""TVM: the ONNX frontend of Relax, compiled by LLVM for the CPU."""

from typing import Any

from splitops.comparison.worker import Question, rejecting

KIND = "compiler"
PACKAGES = ("apache-tvm", "onnx")
SETTINGS = {"shapes": ("declared", "given")}
ADDRESS_SPACE = 16 << 30


def answer(case: Question) -> list[Any]:
    """Import, compile and run the model, with the shapes that it declares or those of the inputs."""
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    shapes = {name: list(array.shape) for name, array in case.inputs.items()}
    with rejecting("load"):
        model = onnx.load(case.model)
        module = from_onnx(model, shapes if case.setting["shapes"] == "given" else None)
    with rejecting("compile"):
        machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    with rejecting("run"):
        found = _arrays(machine["main"](*(tvm.runtime.tensor(array) for array in case.inputs.values())))
    single = len(model.graph.output) == 1
    # One output is alone, and a sequence is a tuple of its parts.
    return [found] if single else list(found)


def _arrays(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else [_arrays(part) for part in value]
