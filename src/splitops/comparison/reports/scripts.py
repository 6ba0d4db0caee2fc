"""How each peer is called in a script that stands alone: what a report upstream shows its readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from splitops.comparison.records import CompareError, Peer
from splitops.errors import shown


@dataclass(frozen=True, slots=True)
class Script:
    """The lines that run one peer.

    They find ``model``, the path of the model, ``inputs``, arrays by name, and ``names``, those of the
    outputs; they leave ``outputs``.

    Attributes:
        needs: the packages of PyPI, or of npm for the peers on Node.js.
        lines: the lines.
        settings: what stands in the place of ``# setting`` for a value of a setting that is not the default.
    """

    needs: str
    lines: str
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def install(self) -> str:
        """The command that installs what is needed."""
        npm = self.needs in ("onnxruntime-node", "onnxruntime-web")
        return f"npm install {self.needs}" if npm else f"pip install {self.needs}"


_REFERENCE: Final = """\
from onnx.reference import ReferenceEvaluator
outputs = ReferenceEvaluator(made).run(names, inputs)"""
_ALL_PASSES: Final = (
    'passes = [one for one in onnxoptimizer.get_available_passes() if not one.startswith("split_")]'
)
_FACTS: Final = """\
codes = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64", "bool": "bool"}
for index, name in enumerate(order):
    fact = [*map(str, inputs[name].shape), codes[inputs[name].dtype.name]]
    net.set_input_fact(index, ",".join(fact))"""
_NODE: Final = """\
import json, subprocess
script = '''const ort = require("onnxruntime-KIND"); (async () => {
const session = await ort.InferenceSession.create(process.argv[1]);
const tensors = Object.entries(JSON.parse(process.argv[2])).map(([name, [type, data, dims]]) =>
  [name, new ort.Tensor(type, type.endsWith("int64") ? data.map(BigInt) : data, dims)]);
const found = await session.run(Object.fromEntries(tensors));
for (const part of Object.values(found)) console.log("got:", part.type, part.dims, part.data);
})().catch((error) => { console.error(error); process.exit(1); });'''
feeds = {name: [a.dtype.name, a.ravel().tolist(), list(a.shape)] for name, a in inputs.items()}
subprocess.run(["node", "-e", script, model, json.dumps(feeds)], check=True)
outputs = []"""
_SHAPES: Final = {"shapes=given": "shapes = {name: list(array.shape) for name, array in inputs.items()}"}

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
core, config = ov.Core(), {"EXECUTION_MODE_HINT": "PERFORMANCE"}
net = core.read_model(model)
# setting
results = core.compile_model(net, "CPU", config)(inputs)
outputs = [results[index] for index in range(len(names))]""",
        {
            "threads=1": 'config["INFERENCE_NUM_THREADS"] = 1',
            "shapes=given": "net.reshape({name: list(array.shape) for name, array in inputs.items()})",
            "mode=accuracy": 'config["EXECUTION_MODE_HINT"] = "ACCURACY"',
        },
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
        f"""\
import onnxoptimizer
passes = None
# setting
made = onnxoptimizer.optimize(onnx.load(model), passes)
{_REFERENCE}""",
        {"passes=all": _ALL_PASSES},
    ),
    "onnxscript-optimizer": Script(
        "onnxscript",
        f"from onnxscript import optimizer\nmade = optimizer.optimize(onnx.load(model))\n{_REFERENCE}",
    ),
    "onnxscript-converter": Script(
        "onnxscript",
        f"""\
import onnx_ir as ir
from onnxscript import version_converter
made, fallback = ir.load(model), False
# setting
target = min(step for step in (18, 24) if step > made.opset_imports[""])
version_converter.convert_version(made, target_version=target, fallback=fallback)
made = ir.to_proto(made)
{_REFERENCE}""",
        {"fallback=yes": "fallback = True"},
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
order = [net.input_name(index) for index in range(net.input_count())]
# setting
outputs = [part.to_numpy() for part in net.into_model().into_runnable().run([inputs[n] for n in order])]""",
        {"shapes=given": _FACTS},
    ),
    "iree": Script(
        "iree-base-compiler[onnx] iree-base-runtime",
        """\
import subprocess, sys, iree.runtime
from iree.compiler.tools.binaries import find_tool
backend, importer = "llvm-cpu", [sys.executable, "-m", "iree.compiler.tools.import_onnx"]
# setting
subprocess.run([*importer, model, "-o", "model.mlir"], check=True)
options = [f"--iree-hal-target-backends={backend}", "--iree-input-demote-f64-to-f32=false"]
subprocess.run([find_tool("iree-compile"), "model.mlir", *options, "-o", "model.vmfb"], check=True)
module = iree.runtime.load_vm_flatbuffer(open("model.vmfb", "rb").read(), driver="local-sync")
main = [name for name in module.vm_module.function_names if not name.endswith(("$async", "__init"))][0]
found = module[main](*inputs.values())
outputs = [part.to_host() for part in (found if isinstance(found, (list, tuple)) else [found])]""",
        {"backend=vmvx": 'backend = "vmvx"', "opset=17": 'importer += ["--opset-version", "17"]'},
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
        _SHAPES,
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
kinds, threads = {"float32": MNN.expr.float, "int32": MNN.expr.int, "int64": MNN.expr.int}, 1
# setting
net = MNN.nn.load_module_from_file("model.mnn", list(inputs), names, thread_num=threads)
outputs = [part.read() for part in net.onForward([
    MNN.expr.const(array.astype("int32") if array.dtype.name == "int64" else array, list(array.shape),
                   MNN.expr.NCHW, kinds[array.dtype.name]) for array in inputs.values()])]""",
        {"threads=4": "threads = 4"},
    ),
    "pnnx": Script(
        "pnnx torch",
        """\
import runpy, subprocess, pnnx, torch
kinds, level = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64"}, 2
# setting
shapes = ",".join(f"{list(a.shape)}{kinds[a.dtype.name]}".replace(" ", "") for a in inputs.values())
subprocess.run([pnnx.EXEC_PATH, model, f"inputshape={shapes}", f"optlevel={level}"], check=True)
found = runpy.run_path("model_pnnx.py")["Model"]()(*map(torch.from_numpy, inputs.values()))
outputs = [part.numpy() for part in (found if isinstance(found, (list, tuple)) else [found])]""",
        {"optimisation=0": "level = 0"},
    ),
    "ncnn": Script(
        "ncnn pnnx",
        """\
import subprocess, ncnn, pnnx
shapes = ",".join(f"{list(array.shape)}f32".replace(" ", "") for array in inputs.values())
subprocess.run([pnnx.EXEC_PATH, model, f"inputshape={shapes}", "fp16=0"], check=True)
net = ncnn.Net()
net.load_param("model.ncnn.param"), net.load_model("model.ncnn.bin")
run = net.create_extractor()
for index, array in enumerate(inputs.values()):
    run.input(f"in{index}", ncnn.Mat(array).clone())
outputs = [run.extract(f"out{index}")[1].numpy().copy() for index in range(len(names))]""",
    ),
    **{
        f"onnxruntime-{kind}": Script(f"onnxruntime-{kind}", _NODE.replace("KIND", kind))
        for kind in ("node", "web")
    },
}


def script_of(peer: Peer) -> Script:
    """Return the lines that run a peer with its setting.

    Raises:
        CompareError: no lines are known for the peer, or for a value of a setting.
    """
    script = SCRIPTS.get(peer.adapter.replace("_", "-"))
    if script is None:
        raise CompareError(f"there is no reproduction for peers of {shown(peer.adapter)}")
    stated = [f"{name}={value}" for name, value in peer.setting.items()]
    if unknown := [setting for setting in stated if setting not in script.settings]:
        raise CompareError(f"there is no reproduction of {peer.adapter} with {shown(unknown[0])}")
    lines = []
    for line in script.lines.splitlines():
        lines += [script.settings[setting] for setting in stated] if line == "# setting" else [line]
    return Script(script.needs, "\n".join(lines))
