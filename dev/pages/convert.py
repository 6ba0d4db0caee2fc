"""Writes the tables of layers into convert.md; a test holds the page against them.

The matrix of splits on the same page is made by tasks.py bench conversion_matrix, the table of networks by
tasks.py bench networks.
"""

from __future__ import annotations

import re
from typing import Final

from dev.pages import DOCS
from splitops.models.convert.layers import CONVERTERS
from splitops.models.convert.layers.products import WIDE
from splitops.models.formats.openvino.port_maps import BODIES_SINCE
from splitops.models.ops import OPERATORS
from splitops.models.ops.operator import Operator
from splitops.models.ops.writing import FLOATS, INTEGERS, LOGICAL, NUMBERS, SIZES
from splitops.spec.elements.types import ElementType
from splitops.spec.operators import FAMILY

PAGE: Final = DOCS / "convert.md"
_MARKED: Final = re.compile(r"(<!-- layers: begin -->\n).*?(<!-- layers: end -->)", re.DOTALL)
_TYPES: Final = {
    FLOATS: "floats",
    WIDE: "float32, float64",
    NUMBERS: "floats, int32, int64",
    NUMBERS | LOGICAL: "floats, int32, int64, bool",
    SIZES: "int32, int64",
    LOGICAL: "bool",
    INTEGERS: "integers",
    INTEGERS | FLOATS: "integers, floats",
    INTEGERS | FLOATS | LOGICAL: "integers, floats, bool",
    None: "every",
}


_WITHOUT: Final = {
    "Assign ReadValue": "ONNX graphs hold no state between runs",
    "Multinomial RandomUniform": "ONNX leaves open how random numbers are drawn, so the values would differ",
    "I420toBGR I420toRGB NV12toBGR NV12toRGB": "ONNX has no colour formats",
    "IRDFT ISTFT Inverse": "ONNX has no operator that inverts half a transform, or a matrix",
    "ConvertPromoteTypes FakeConvert": "the types depend on other inputs, or only the file says them",
    """
    BinaryConvolution CTCGreedyDecoder CTCGreedyDecoderSeqLen CTCLoss DeformablePSROIPooling DetectionOutput
    GatherTree GenerateProposals MatrixNms MulticlassNms NMSRotated PSROIPooling PriorBox PriorBoxClustered
    Proposal ROIAlignRotated ROIPooling RegionYolo ReorgYolo
    """: "ONNX has no operator of this kind",
    """
    EmbeddingBagOffsets EmbeddingBagOffsetsSum EmbeddingBagPacked EmbeddingBagPackedSum EmbeddingSegmentsSum
    SegmentMax SparseFillEmptyRows StringTensorPack StringTensorUnpack
    """: "ONNX has no operators of ragged rows and bags",
    """
    AdaptiveMaxPool BatchToSpace BitwiseLeftShift BitwiseRightShift Bucketize Col2Im DeformableConvolution
    ExtractImagePatches Eye GRN STFT SearchSorted SliceScatter SpaceToBatch Unique
    """: "several nodes could say it, and splitops writes none yet",
}
"""The layers of opset1 to opset16 that do not become ONNX, with the reason."""


def without() -> dict[str, str]:
    """Return the reason of each layer that does not become ONNX."""
    return {name: reason for names, reason in _WITHOUT.items() for name in names.split()}


def written() -> frozenset[str]:
    """Return the layers that become ONNX, in one version at least."""
    graph = {"Parameter", "Const", "Result"}
    return (
        frozenset({row.layer for row in CONVERTERS} | set(FAMILY["openvino"]))
        | {spelling.name for operator in OPERATORS if operator.converts for spelling in operator.openvino}
        | graph
        | set(BODIES_SINCE)
    )


def layers() -> str:
    """Return the tables of layers."""
    lines = [
        "| layer | since | element types | ONNX | to OpenVINO without `openvino` |",
        "|---|---|---|---|---|",
    ]
    shared = [operator for operator in OPERATORS if operator.converts and operator.types is not None]
    rows = [(row.layer, list(row.versions), row.types, "nodes", "") for row in CONVERTERS]
    rows += [_shared_row(operator) for operator in shared]
    for layer, numbers, types, said, both in sorted(rows, key=lambda row: row[:2]):
        versions = ", ".join(map(str, numbers))
        lines.append(f"| `{layer}` | {versions} | {_TYPES[types]} | {said} | {both} |")
    others = sorted(written() - {row[0] for row in rows})
    lines += ["", f"These are written elsewhere: {', '.join(f'`{name}`' for name in others)}.", ""]
    lines += ["| no ONNX form | reason |", "|---|---|"]
    lines += [
        f"| {', '.join(f'`{name}`' for name in names.split())} | {reason} |"
        for names, reason in _WITHOUT.items()
    ]
    return "\n".join(lines) + "\n"


def _shared_row(operator: Operator) -> tuple[str, list[int], frozenset[ElementType] | None, str, str]:
    layer = operator.openvino[0]
    return layer.name, sorted(layer.versions or ()), operator.types, f"`{operator.onnx[0].name}`", "yes"


def page(text: str) -> str:
    """Return the page with its tables made anew."""
    return _MARKED.sub(lambda found: f"{found[1]}{layers()}{found[2]}", text)


def write() -> None:
    """Write the pages and pictures of this module."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
