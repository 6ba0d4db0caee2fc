"""For each limit in the profiles: the case that proves it; and short ways to write models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import onnx
import onnx.parser

from splitops.models.check import LIMITS, Limit
from splitops.models.formats.openvino import Builder, OpenVINOModel
from splitops_compare.cases import list_cases
from splitops_compare.cases.models import make_inputs, make_model
from splitops_compare.data import CaseSpec

Model = onnx.ModelProto | OpenVINOModel


def holds_here(limit: Limit) -> bool:
    """Whether the installed release of the runtime has a limit."""
    return limit.holds_in(version(PACKAGES.get(limit.runtime, limit.runtime)))


@dataclass(frozen=True)
class Proof:
    spec: CaseSpec
    drivers: tuple[str, ...] = ()
    """Other than the one of the runtime."""
    sure: bool = True
    """Whether the limit is met whatever the values are."""
    unbind: str | None = None
    """What a repair is told that the model means."""

    def model(self) -> Model:
        return make_model(self.spec)

    @property
    def inputs(self) -> Mapping[str, Any]:
        return make_inputs(self.spec)


def text(body: str, opset: int = 18, ir: int = 8) -> Callable[[], onnx.ModelProto]:
    return lambda: onnx.parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}]> g {body}')


def ir_split(
    shape: str, lengths: list[int], order: tuple[int, ...] = (), axis: int = 0
) -> Callable[[], OpenVINOModel]:
    def build() -> OpenVINOModel:
        builder = Builder("m")
        data = builder.parameter("x", "f32", shape)
        ports = [data, builder.const(np.array(axis)), builder.const(np.array(lengths))]
        for index, part in enumerate(builder.layer("VariadicSplit", ports, outputs=len(lengths))):
            made = builder.layer("Transpose", [part, builder.const(np.array(order))])[0] if order else part
            builder.result(made, f"p{index}")
        return builder.model()

    return build


DRIVERS = {"onnx.more-outputs": ("converter",)}
UNBIND = {"onnxruntime.unbind": "as-written"}
UNSURE = {
    "onnxruntime.open-axis",
    "onnxruntime.open-halves",
    "openvino.narrowed-values",
    "openvino.uneven-open-axis",
    "openvino.unranked",
    "opencv.narrowed-values",
}
MODULES = {"opencv": "cv2"}
PACKAGES = {"opencv": "opencv-python-headless"}
FOUR_WAYS = "(float[A] a, float[B] b, float[C] c, float[D] d) { a, b, c, d = Split<num_outputs = 4>(x) }"
RECORDED = ("tvm", "mnn", "ncnn", "tract", "tinygrad", "iree", "onnxruntime-web", "onnxruntime-node")
"""Runtimes that no test asks: test_disagreements compares their limits with the published results."""
PROOFS = {
    limit.code: Proof(
        list_cases()[limit.evidence].spec,
        DRIVERS.get(limit.code, ()),
        limit.code not in UNSURE,
        UNBIND.get(limit.code),
    )
    for limit in LIMITS
    if limit.evidence is not None and limit.runtime not in RECORDED
}
