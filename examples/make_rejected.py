"""Makes two models that are valid and do not work: ``models/quarters.onnx`` and ``models/labels.xml``.

onnxruntime rejects the first one when it runs. OpenVINO runs the second one, and returns the first labels in
every part, without a word.

    python examples/make_rejected.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser

from splitops.models.formats import openvino as openvino_ir

QUARTERS = """
<ir_version: 10, opset_import: ["": 21]>
quarters (float[5, 2] frames) => (
    float[first, 2] a, float[second, 2] b, float[third, 2] c, float[fourth, 2] d
) {
    [workers] a, b, c, d = Split <axis = 0, num_outputs = 4> (frames)
}
"""


def make_onnx() -> onnx.ModelProto:
    """Make a model that splits five frames into four parts: 2, 2, 1 and 0."""
    return onnx.parser.parse_model(QUARTERS)


def make_ir() -> openvino_ir.OpenVINOModel:
    """Make a model that splits six labels into training, validation and test."""
    builder = openvino_ir.Builder("labels")
    labels = builder.parameter("labels", "string", "6")
    ports = [labels, builder.const(np.array(0)), builder.const(np.array([3, 2, -1]))]
    parts = builder.layer("VariadicSplit", ports, outputs=3, name="sets")
    for name, part in zip(("training", "validation", "test"), parts, strict=True):
        builder.result(part, name)
    return builder.model()


def main(folder: Path) -> None:
    """Write both."""
    (folder / "models").mkdir(parents=True, exist_ok=True)
    onnx.save(make_onnx(), folder / "models" / "quarters.onnx")
    openvino_ir.write(make_ir(), folder / "models" / "labels.xml")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
