"""For each limit in the profiles: a model that meets it, and its input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.parser

from splitops.models.formats.openvino import Builder, OpenVINOModel

Model = onnx.ModelProto | OpenVINOModel


@dataclass(frozen=True)
class Proof:
    model: Callable[[], Model]
    inputs: dict[str, Any] = field(default_factory=dict)
    drivers: tuple[str, ...] = ()
    """Other than the one of the runtime."""
    sure: bool = True
    """Whether the limit is met whatever the values are."""
    unbind: str | None = None
    """What a repair is told that the model means."""


def text(body: str, opset: int = 18, ir: int = 8) -> Callable[[], onnx.ModelProto]:
    return lambda: onnx.parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}]> g {body}')


def with_node(body: str, *, inputs: list[str] | None = None, outputs: list[str] | None = None) -> Any:
    """A model whose node names inputs or outputs that the text form cannot leave empty."""

    def build() -> onnx.ModelProto:
        model = text(body)()
        node = model.graph.node[0]
        if inputs is not None:
            node.input[:] = inputs
        if outputs is not None:
            node.output[:] = outputs
        return model

    return build


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


def ir_packed_constant() -> OpenVINOModel:
    import ml_dtypes

    builder = Builder("m")
    data = builder.const(np.arange(1, 9).astype(ml_dtypes.uint4), "u4")
    parts = builder.layer("Split", [data, builder.const(np.array(0))], {"num_splits": 2}, outputs=2)
    for index, part in enumerate(parts):
        converted = builder.layer("Convert", [part], {"destination_type": "i32"})[0]
        builder.result(converted, f"p{index}")
    return builder.model()


SIX = np.arange(6, dtype=np.float32)
TWO = {"x": np.arange(12, dtype=np.float32).reshape(2, 6)}
FIVE = {"x": SIX[:5]}
FOUR_WAYS = "(float[A] a, float[B] b, float[C] c, float[D] d) { a, b, c, d = Split<num_outputs = 4>(x) }"
COMPLEX = text("(complex64[6] x) => (complex64[A] a, complex64[B] b) { a, b = Split<num_outputs = 2>(x) }")

PROOFS: dict[str, Proof] = {
    "onnxruntime.split-1": Proof(
        text("(float[6] x) => (float[3] a, float[3] b) { a, b = Split(x) }", opset=1, ir=3), {"x": SIX}
    ),
    "onnxruntime.ceil-empty-part": Proof(text(f"(float[5] x) => {FOUR_WAYS}"), FIVE),
    "onnxruntime.empty-name": Proof(
        with_node(
            "(float[6] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 2>(x) }", inputs=["x", ""]
        ),
        {"x": SIX},
    ),
    "onnxruntime.omitted-output": Proof(
        with_node("(float[6] x) => (float[B] b) { a, b = Split<num_outputs = 2>(x) }", outputs=["", "b"]),
        {"x": SIX},
    ),
    "onnxruntime.fewer-outputs": Proof(
        text("(float[6] x) => (float[A] a) { a = Split<num_outputs = 2>(x) }"), {"x": SIX}
    ),
    "onnxruntime.sequence-type": Proof(
        text("(int8[3] x) => (seq(int8) s) { s = SplitToSequence(x) }"), {"x": np.zeros(3, np.int8)}
    ),
    "onnxruntime.complex": Proof(COMPLEX, {"x": np.zeros(6, np.complex64)}),
    "onnxruntime.size-32-bit": Proof(
        text(
            "(float[4294967300, 0] x) => (float[A, Z] a, float[B, Y] b) { a, b = Split<num_outputs = 2>(x) }"
        ),
        {"x": np.zeros((2**32 + 4, 0), np.float32)},
    ),
    "onnxruntime.open-axis": Proof(
        text("(float[N] x) => (float[A] a, float[B] b, float[C] c) { a, b, c = Split<num_outputs = 3>(x) }"),
        {"x": SIX[:4]},
        sure=False,
    ),
    "onnxruntime.merged": Proof(
        text(
            "(float[N] x) => (float[P] p, float[Q] q, float[R] r) "
            "{ a, b = Split(x) c, d, e = Split(x) p = Relu(a) q = Relu(b) r = Relu(e) }",
            opset=13,
        ),
        {"x": SIX},
    ),
    "onnxruntime.unbind": Proof(
        text(
            "(float[2, 3] x) => (seq(float) s) <int64 k = {1}> "
            "{ s = SplitToSequence<axis = 1, keepdims = 0>(x, k) }"
        ),
        {"x": SIX.reshape(2, 3)},
        unbind="as-written",
    ),
    "onnxruntime.scalar-keepdims": Proof(
        text(
            "(float[2, 3] x) => (seq(float) s) <int64 k = {2}> "
            "{ s = SplitToSequence<axis = 1, keepdims = 0>(x, k) }"
        ),
        {"x": SIX.reshape(2, 3)},
    ),
    "onnxruntime.empty-lengths": Proof(
        text("(float[0] x) => (seq(float) s) <int64[0] k = {}> { s = SplitToSequence(x, k) }"), {"x": SIX[:0]}
    ),
    "onnx.more-outputs": Proof(
        text("(float[6] x) => (float[A] a, float[B] b, float[C] c) { a, b, c = Split<num_outputs = 1>(x) }"),
        drivers=("converter",),
    ),
    "onnx.size-32-bit": Proof(
        text("(float[4294967300] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 2>(x) }")
    ),
    "onnx.ceil-negative-part": Proof(text(f"(float[5] x) => {FOUR_WAYS}")),
    "openvino.negative-remainder": Proof(ir_split("6", [-1, 8]), {"x": SIX}),
    "openvino.narrowed-values": Proof(
        text("(int64[4] x) => (int64[A] a, int64[B] b) { a, b = Split<num_outputs = 2>(x) }"),
        {"x": np.array([2**40 + 1, 2**33, 3, -(2**50)])},
        sure=False,
    ),
    "openvino.string": Proof(
        text("(string[4] x) => (string[A] a, string[B] b) { a, b = Split<num_outputs = 2>(x) }"),
        {"x": np.array(["a", "b", "c", "d"])},
    ),
    "openvino.packed-constant": Proof(ir_packed_constant),
    "openvino.uneven-open-axis": Proof(
        text("(float[N] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 2>(x) }"),
        FIVE,
        sure=False,
    ),
    "openvino.uneven-negative-axis": Proof(
        text("(float[5] x) => (float[A] a, float[B] b) { a, b = Split<axis = -1, num_outputs = 2>(x) }"), FIVE
    ),
    "openvino.ceil-empty-part": Proof(text(f"(float[5] x) => {FOUR_WAYS}"), FIVE),
    "openvino.split-1-lengths": Proof(
        text(
            "(float[6] x) => (float[A] a, float[B] b) <float[2] s = {2, 4}> { a, b = Split(x, s) }",
            opset=1,
            ir=4,
        ),
        {"x": SIX},
    ),
    "openvino.complex": Proof(COMPLEX, {"x": np.zeros(6, np.complex64)}),
    "openvino.sequence-output": Proof(
        text("(float[6] x) => (seq(float) s) <int64 k = {2}> { s = SplitToSequence(x, k) }"), {"x": SIX}
    ),
    "openvino.sequence-open-axis": Proof(
        text(
            "(float[N] x) => (float[A] y) <int64 k = {2}, int64 i = {1}> "
            "{ s = SplitToSequence(x, k)  y = SequenceAt(s, i) }"
        ),
        {"x": SIX},
    ),
    "openvino.sequence-runtime-lengths": Proof(
        text(
            "(float[6] x, int64 k) => (float[A] y) <int64 i = {1}> "
            "{ s = SplitToSequence(x, k)  y = SequenceAt(s, i) }"
        ),
        {"x": SIX, "k": np.array(2)},
    ),
    "openvino.empty-lengths": Proof(
        text(
            "(float[0] x) => (int64 n, float[0] y) <int64[0] k = {}> "
            "{ s = SplitToSequence(x, k)  n = SequenceLength(s)  y = Relu(x) }"
        ),
        {"x": SIX[:0]},
    ),
    "openvino.size-32-bit": Proof(
        text(
            "(float[4294967300, 0] x) => (float[A, Z] a, float[B, Y] b) "
            "<int64[2] k = {4294967298, 2}> { a, b = Split(x, k) }"
        ),
        {"x": np.zeros((2**32 + 4, 0), np.float32)},
    ),
    "opencv.default-axis": Proof(
        text("(float[2, 6] x) => (float[A, Z] a, float[B, Y] b) { a, b = Split<num_outputs = 2>(x) }"), TWO
    ),
    "opencv.fewer-outputs": Proof(
        text("(float[2, 6] x) => (float[A, Z] a) { a = Split<axis = 1, num_outputs = 2>(x) }"), TWO
    ),
    "opencv.empty-name": Proof(
        with_node(
            "(float[6] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 2>(x) }", inputs=["x", ""]
        ),
        {"x": SIX},
    ),
    "opencv.split-1-lengths": Proof(
        text(
            "(float[6] x) => (float[A] a, float[B] b) <float[2] s = {2, 4}> { a, b = Split(x, s) }",
            opset=1,
            ir=4,
        ),
        {"x": SIX},
    ),
    "opencv.empty-output": Proof(
        text("(float[6] x) => (float[A] a, float[B] b) <int64[2] k = {0, 6}> { a, b = Split(x, k) }"),
        {"x": SIX},
    ),
    "opencv.narrowed-values": Proof(
        text("(int64[4] x) => (int64[A] a, int64[B] b) { a, b = Split<num_outputs = 2>(x) }"),
        {"x": np.array([2**40 + 1, 2**33, 3, -(2**50)])},
        sure=False,
    ),
    "opencv.string": Proof(
        text("(string[4] x) => (string[A] a, string[B] b) { a, b = Split<num_outputs = 2>(x) }"),
        {"x": np.array(["a", "b", "c", "d"])},
    ),
    "opencv.complex": Proof(COMPLEX, {"x": np.zeros(6, np.complex64)}),
    "opencv.sequence": Proof(
        text(
            "(float[6] x) => (float[A] y) <int64 k = {2}, int64 i = {1}> "
            "{ s = SplitToSequence(x, k)  y = SequenceAt(s, i) }"
        ),
        {"x": SIX},
    ),
    "openvino.empty-transposed": Proof(ir_split("6,1,1", [0, 6], (1, 0, 2)), {"x": SIX.reshape(6, 1, 1)}),
}
