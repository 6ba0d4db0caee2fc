"""How each peer is called in a script that stands alone: what a report upstream shows its readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from splitops.compare.records import CompareError, Peer
from splitops.errors import shown

__all__ = ["SCRIPTS", "Script", "script_of"]


@dataclass(frozen=True, slots=True)
class Script:
    """The lines that run one peer.

    They find ``model``, the path of the model, ``inputs``, arrays by name, and ``names``, those of the
    outputs; they leave ``outputs``.

    Attributes:
        needs: what pip installs.
        lines: the lines.
        settings: what stands in the place of ``# setting`` for a value of a setting that is not the default.
    """

    needs: str
    lines: str
    settings: Mapping[str, str] = field(default_factory=dict)


_REFERENCE: Final = """\
from onnx.reference import ReferenceEvaluator
outputs = ReferenceEvaluator(made).run(names, inputs)"""
_FIXED: Final = {"shapes=given": "shapes = {name: list(array.shape) for name, array in inputs.items()}"}

SCRIPTS: Final[Mapping[str, Script]] = {
    "onnxruntime": Script(
        "onnxruntime",
        """\
import onnxruntime as ort
options = ort.SessionOptions()
# setting
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
outputs = session.run(names, inputs)""",
        {
            "optimisation=none": "options.graph_optimization_level = ort.GraphOptimizationLevel(0)",
            "threads=1": "options.intra_op_num_threads = options.inter_op_num_threads = 1",
        },
    ),
    "openvino": Script(
        "openvino",
        """\
import openvino as ov
config = {"INFERENCE_PRECISION_HINT": "dynamic"}
# setting
compiled = ov.Core().compile_model(model, "CPU", config)
results = compiled([inputs[port.any_name] for port in compiled.inputs])
outputs = [results[port].copy() for port in compiled.outputs]""",
        {"threads=1": 'config["INFERENCE_NUM_THREADS"] = 1'},
    ),
    "opencv": Script(
        "opencv-python-headless",
        """\
import cv2
engine = cv2.dnn.ENGINE_AUTO
# setting
net = cv2.dnn.readNetFromONNX(model, engine)
for name, array in inputs.items():
    net.setInput(array, name)
outputs = net.forward(names)""",
        {
            "engine=classic": "engine = cv2.dnn.ENGINE_CLASSIC",
            "engine=new": "engine = cv2.dnn.ENGINE_NEW",
        },
    ),
    "onnx-reference": Script("onnx", f"made = onnx.load(model)\n{_REFERENCE}"),
    "onnx-inference": Script(
        "onnx",
        """\
onnx.checker.check_model(model)
strict, data = True, False
# setting
found = onnx.shape_inference.infer_shapes(onnx.load(model), strict_mode=strict, data_prop=data)
outputs = [str(output.type).replace("\\n", " ") for output in found.graph.output]""",
        {"strict=no": "strict = False", "data=yes": "data = True"},
    ),
    "onnx-converter": Script(
        "onnx",
        f"""\
from onnx.version_converter import convert_version
source = onnx.load(model)
opset = source.opset_import[0].version
made = convert_version(source, min(step for step in (11, 13, 18, 24) if step > opset))
{_REFERENCE}""",
    ),
    "onnxslim": Script("onnxslim", f"import onnxslim\nmade = onnxslim.slim(model)\n{_REFERENCE}"),
    "onnxsim": Script(
        "onnxsim", f"import onnxsim\nmade, _ = onnxsim.simplify(onnx.load(model))\n{_REFERENCE}"
    ),
    "onnxoptimizer": Script(
        "onnxoptimizer",
        f"import onnxoptimizer\nmade = onnxoptimizer.optimize(onnx.load(model))\n{_REFERENCE}",
    ),
    "onnxscript-optimizer": Script(
        "onnxscript",
        f"import onnxscript.optimizer\nmade = onnxscript.optimizer.optimize(onnx.load(model))\n{_REFERENCE}",
    ),
    "tinygrad": Script(
        "tinygrad",
        """\
# setting
from tinygrad.nn.onnx import OnnxRunner
found = OnnxRunner(model)(inputs)
outputs = [found[name].numpy() for name in names]""",
        {"device=PYTHON": 'import os; os.environ["DEV"] = "PYTHON"'},
    ),
    "tract": Script(
        "tract",
        """\
import tract
net = tract.onnx().load(model)
# setting
order = [net.input_name(index) for index in range(net.input_count())]
outputs = [part.to_numpy() for part in net.into_model().into_runnable().run([inputs[n] for n in order])]""",
    ),
    "iree": Script(
        "iree-base-compiler[onnx] iree-base-runtime",
        """\
import subprocess, sys, iree.runtime
from iree.compiler.tools.binaries import find_tool
# setting
importer = [sys.executable, "-m", "iree.compiler.tools.import_onnx"]
subprocess.run([*importer, model, "-o", "model.mlir"], check=True)
options = ["--iree-hal-target-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=host",
           "--iree-input-demote-f64-to-f32=false"]
subprocess.run([find_tool("iree-compile"), "model.mlir", *options, "-o", "model.vmfb"], check=True)
module = iree.runtime.load_vm_flatbuffer(open("model.vmfb", "rb").read(), driver="local-sync")
main = [name for name in module.vm_module.function_names if not name.endswith(("$async", "__init"))][0]
found = module[main](*inputs.values())
outputs = [part.to_host() for part in (found if isinstance(found, (list, tuple)) else [found])]""",
    ),
    "tvm": Script(
        "apache-tvm",
        """\
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx
shapes = None
# setting
machine = relax.VirtualMachine(tvm.compile(from_onnx(onnx.load(model), shapes), target="llvm"), tvm.cpu())
found = machine["main"](*(tvm.runtime.tensor(array) for array in inputs.values()))
outputs = [part.numpy() for part in ([found] if len(names) == 1 else found)]""",
        _FIXED,
    ),
    "onnx2torch": Script(
        "onnx2torch",
        """\
import onnx2torch, torch
found = onnx2torch.convert(model)(*map(torch.from_numpy, inputs.values()))
outputs = [part.numpy() for part in ([found] if len(names) == 1 else found)]""",
    ),
    "mnn": Script(
        "MNN",
        """\
import subprocess, MNN
subprocess.run(["mnnconvert", "-f", "ONNX", "--modelFile", model, "--MNNModel", "model.mnn"], check=True)
net = MNN.nn.load_module_from_file("model.mnn", list(inputs), names)
outputs = [MNN.expr.convert(part, MNN.expr.NCHW).read().copy()
           for part in net.forward([MNN.expr.const(array, array.shape) for array in inputs.values()])]""",
    ),
}


def script_of(peer: Peer) -> Script:
    """Return the lines that run a peer with its setting.

    Raises:
        CompareError: no lines are known for the peer, or for a value of a setting.
    """
    script = SCRIPTS.get(peer.adapter)
    if script is None:
        raise CompareError(f"there is no reproduction for peers of {shown(peer.adapter)}")
    stated = [f"{name}={value}" for name, value in peer.setting.items()]
    if unknown := [setting for setting in stated if setting not in script.settings]:
        raise CompareError(f"there is no reproduction of {peer.adapter} with {shown(unknown[0])}")
    lines = []
    for line in script.lines.splitlines():
        lines += [script.settings[setting] for setting in stated] if line == "# setting" else [line]
    return Script(script.needs, "\n".join(lines))
