"""Splits of public threads: small models of our own, what ``check`` says of them, and what ``fix`` does.

Left out: pytorch/TensorRT 3347 is about the converter of ``torch.split``, and no ONNX model is made.
Tencent/ncnn 6166 (an even split after a Reshape) and alibaba/MNN 2337 (a YOLOv8) do not say, as far as they
could be read, what is wrong with the split.
microsoft/onnxruntime 27043 and sonos/tract 2665 could not be read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.parser
import pytest

import splitops
from splitops.models.check import check
from splitops.models.fix import fix_with_report

FOUR = "(float[A, B] a, float[C, D] b, float[E, F] c, float[G, H] d)"
TWO = "(float[A, B] a, float[C, D] b)"


class Thread(NamedTuple):
    """What a thread is about.

    ``target`` is what ``--for`` names, or the limits of an untested runtime, as the thread has them.
    """

    body: str
    shape: tuple[int, ...]
    target: str
    codes: tuple[str, ...]
    forms: bool = True
    opset: int = 18


def limit(name: str, *words: str) -> str:
    return f'name = "{name}"\n' + "".join(
        f'[[limits]]\ncode = "limit-{index}"\nwhen = "{word}"\n' for index, word in enumerate(words)
    )


SEQUENCE = (
    "(float[4, 6] x) => " + TWO + " { l = Constant<value_int = 2>() s = SplitToSequence<axis = 0>(x, l) "
    "i = Constant<value_int = 0>() j = Constant<value_int = 1>() a = SequenceAt(s, i) b = SequenceAt(s, j) }"
)
FIVE_INTO_FOUR = "(float[5, 6] x) => " + FOUR + " { a, b, c, d = Split<axis = 0, num_outputs = 4>(x) }"
UNEVEN = "(float[7, 2] x) => " + TWO + " { a, b = Split<axis = 0, num_outputs = 2>(x) }"
THREADS = {
    "microsoft/onnxruntime#15882": Thread(
        FIVE_INTO_FOUR, (5, 6), "onnxruntime", ("onnxruntime.ceil-negative-part",)
    ),
    "microsoft/onnxruntime#18702": Thread(UNEVEN, (7, 2), "nnapi", ("nnapi.uneven",)),
    "microsoft/onnxruntime#20350": Thread(
        "(float[10, 2] x) => (float[A, B] a, float[C, D] b, float[E, F] c, float[G, H] d, float[I, J] e) "
        "{ a, b, c, d, e = Split<axis = 0, num_outputs = 5>(x) }",
        (10, 2),
        limit("webnn-then", "more outputs than 4"),
        ("webnn-then.limit-0",),
    ),
    "microsoft/onnxruntime#25496, QNN": Thread(
        "(float[6, 2] x) => " + TWO + " { l = Constant<value_ints = [6, 0]>() a, b = Split<axis = 0>(x, l) }",
        (6, 2),
        "qnn",
        ("qnn.empty-part",),
        forms=False,
    ),
    "microsoft/onnxruntime#25496, DirectML": Thread(
        "(float[6, 2] x) => " + TWO + " { l = Constant<value_ints = [6, 0]>() a, b = Split<axis = 0>(x, l) }",
        (6, 2),
        "dml",
        ("dml.empty-part",),
        forms=False,
    ),
    "microsoft/onnxruntime#28270": Thread(
        "(float[9, 2] x) => (float[A, B] a, float[C, D] b, float[E, F] c) "
        "{ a, b, c = Split<axis = 0, split = [4, 4, 1]>(x) }",
        (9, 2),
        limit("coreml-then", "opset below 13").replace(
            'when = "opset', 'rewrites = ["slices"]\nwhen = "opset'
        ),
        ("coreml-then.limit-0",),
        opset=11,
    ),
    "microsoft/onnxruntime#18601": Thread(
        "(float[1, 20] x) => (float[A, B] b) { , b, , = Split<axis = -1, num_outputs = 4>(x) }",
        (1, 20),
        "onnxruntime",
        ("onnxruntime.omitted-output",),
    ),
    "openvinotoolkit/openvino#21175": Thread(
        "(float[N, 2] x) => " + FOUR + " { a, b, c, d = Split<axis = 0, num_outputs = 4>(x) }",
        (7, 2),
        "openvino",
        ("openvino.uneven-open-axis",),
    ),
    "openvinotoolkit/openvino#26107": Thread(
        "(float[N, 2] x) => (float[A, B] a) { l = Constant<value_int = 2>() "
        "s = SplitToSequence<axis = 0>(x, l) a = ConcatFromSequence<axis = 0>(s) }",
        (5, 2),
        "openvino",
        ("openvino.sequence-open-axis",),
        forms=False,
    ),
    "onnx/onnx#5766": Thread(FIVE_INTO_FOUR, (5, 6), "onnx", ("onnx.ceil-negative-part",)),
    "apache/tvm#18751": Thread(
        "(float[10, 2] x) => (float[A, B] a, float[C, D] b, float[E, F] c) "
        "{ a, b, c = Split<axis = 0, num_outputs = 3>(x) }",
        (10, 2),
        limit("tvm-then", "last part smaller").replace(
            'when = "last', 'rewrites = ["lengths"]\nwhen = "last'
        ),
        ("tvm-then.limit-0",),
    ),
    "tracel-ai/burn-onnx#469": Thread(SEQUENCE, (4, 6), limit("burn", "sequence"), ("burn.limit-0",)),
    "NVIDIA/TensorRT#3892": Thread(
        "(float[1, 11, 2] x) => (float[A, B, C] a, float[D, E, F] b, float[G, H, I] c) "
        "{ l = Constant<value_ints = [8, 2, 1]>() a, b, c = Split<axis = 1>(x, l) }",
        (1, 11, 2),
        limit("tensorrt-then", "uneven"),
        ("tensorrt-then.limit-0",),
    ),
    "PINTO0309/onnx2tf#751": Thread(
        "(float[N, 4, 6] x) => (float[A, B, C] a, float[D, E, F] b) "
        "{ l = Constant<value_ints = [2, 2]>() a, b = Split<axis = 1>(x, l) }",
        (3, 4, 6),
        limit("onnx2tf-then", "operator missing"),
        ("onnx2tf-then.limit-0",),
    ),
    "microsoft/onnxscript#2857": Thread(
        SEQUENCE.replace("value_int = 2", "value_ints = [1, 3]"),
        (4, 6),
        limit("onnxscript-then", "sequence").replace('when = "sequence"', 'when = ["sequence", "uneven"]'),
        ("onnxscript-then.limit-0",),
    ),
    "ROCm/AMDMIGraphX#1359": Thread(SEQUENCE, (4, 6), limit("migraphx", "sequence"), ("migraphx.limit-0",)),
}


def model_of(thread: Thread) -> onnx.ModelProto:
    body = thread.body.replace("{ , b, , =", "{ skip0, b, skip1, skip2 =")
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {thread.opset}]> g {body}')
    for node in model.graph.node:
        for index, name in enumerate(node.output):
            if name.startswith("skip"):
                node.output[index] = ""
    return model


def target_of(thread: Thread, folder: Path) -> str:
    if "[[limits]]" not in thread.target:
        return thread.target
    path = folder / "then.toml"
    path.write_text(thread.target)
    return str(path)


def bits(model: Any, thread: Thread) -> list[tuple[Any, ...]]:
    feeds = {"x": np.arange(np.prod(thread.shape), dtype=np.float32).reshape(thread.shape)}
    return [(part.dtype, part.shape, part.tobytes()) for part in splitops.run(model, feeds).values()]


@pytest.mark.parametrize("name", THREADS)
def test_a_thread_is_found_and_fixed(name: str, tmp_path: Path) -> None:
    thread = THREADS[name]
    model, target = model_of(thread), target_of(thread, tmp_path)
    found = [finding.code for finding in check(model, target) if finding.runtime]
    assert set(thread.codes) <= set(found)
    report = fix_with_report(model, target, partial=True)
    assert bits(report.model, thread) == bits(model, thread)
    left = {finding.code for finding in check(report.model, target) if finding.runtime}
    assert left == (set() if thread.forms else set(thread.codes))
    assert bool(report.unfixable) is not thread.forms


GONE = ["microsoft/onnxruntime#20350", "microsoft/onnxruntime#28270"]


@pytest.mark.parametrize(("name", "target"), list(zip(GONE, ["webnn", "coreml"], strict=True)))
def test_what_has_gone_since_is_not_found(name: str, target: str) -> None:
    assert [one.code for one in check(model_of(THREADS[name]), target) if one.runtime] == []


def test_a_finding_of_what_was_not_tested_says_so() -> None:
    (found,) = check(model_of(THREADS["microsoft/onnxruntime#18702"]), "nnapi")[-1:]
    assert found.message.endswith("(documented, not tested)")
    assert found.source.endswith("nnapi/nnapi_builtin/builders/impl/split_op_builder.cc")
