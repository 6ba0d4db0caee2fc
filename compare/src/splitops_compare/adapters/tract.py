"""tract, a Rust runtime, through its Python bindings."""

import os
from typing import Any

from splitops_compare.worker import CaseInput, NotApplicable, catch_rejection

PACKAGES = ("tract",)
SETTINGS = {"shapes": ("declared", "given")}
ADDRESS_SPACE = 8 << 30


def run(case: CaseInput) -> list[Any]:
    """Run the model, with the shapes that it declares or those of the inputs."""
    os.environ["RUST_LIB_BACKTRACE"] = "0"  # a backtrace would be part of the message
    import tract

    for name, dtype in case.types.items():
        if dtype in ("string", "bfloat16"):
            raise NotApplicable(f"tract.DatumType has no {dtype} (input {name})")
    with catch_rejection("load"):
        model = tract.onnx().load(case.model)
        names = [model.input_name(index) for index in range(model.input_count())]
        if case.setting["shapes"] == "given":
            for index, name in enumerate(names):
                array = case.inputs[name]
                model.set_input_fact(index, ",".join(map(str, (*array.shape, _CODES[array.dtype.name]))))
    with catch_rejection("compile"):
        runnable = model.into_model().into_runnable()
    with catch_rejection("run"):
        return [output.to_numpy() for output in runnable.run([case.inputs[name] for name in names])]


_CODES = {"bool": "bool", "float16": "f16", "float32": "f32", "float64": "f64"} | {
    f"{kind}int{bits}": f"{kind or 'i'}{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)
}
