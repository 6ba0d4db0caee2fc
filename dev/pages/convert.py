"""Writes the tables of layers into convert.md; a test holds the page against them.

The matrix of splits on the same page is made by tasks.py bench conversion_matrix, the table of networks by
tasks.py bench networks.
"""

from __future__ import annotations

import re
from typing import Final

from dev.pages import DOCS
from splitops.models.convert.layers import FORMS, Shared
from splitops.models.convert.layers.products import WIDE
from splitops.models.formats.openvino.port_maps import BODIES_SINCE
from splitops.models.movers import MOVERS
from splitops.models.movers.form import FLOATS, INTEGERS, LOGICAL, NUMBERS, SIZES
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
        frozenset({row.layer for row in FORMS} | {row.openvino for row in MOVERS} | set(FAMILY["openvino"]))
        | graph
        | set(BODIES_SINCE)
    )


def layers() -> str:
    """Return the tables of layers."""
    lines = [
        "| layer | since | element types | ONNX | to OpenVINO without `openvino` |",
        "|---|---|---|---|---|",
    ]
    for row in sorted(FORMS, key=lambda row: (row.layer, _numbers(row.versions))):
        said, both = (f"`{row.onnx}`", "yes") if isinstance(row, Shared) else ("nodes", "")
        versions = ", ".join(map(str, _numbers(row.versions)))
        lines.append(
            f"| `{row.layer}` | {versions} | {_TYPES[row.types]} | {said} | {'yes' if both else ''} |"
        )
    others = sorted(written() - {row.layer for row in FORMS})
    lines += ["", f"These are written elsewhere: {', '.join(f'`{name}`' for name in others)}.", ""]
    lines += ["| no ONNX form | reason |", "|---|---|"]
    lines += [
        f"| {', '.join(f'`{name}`' for name in names.split())} | {reason} |"
        for names, reason in _WITHOUT.items()
    ]
    return "\n".join(lines) + "\n"


def _numbers(versions: frozenset[str]) -> list[int]:
    return sorted(int(version.removeprefix("opset")) for version in versions)


def page(text: str) -> str:
    """Return the page with its tables made anew."""
    return _MARKED.sub(lambda found: f"{found[1]}{layers()}{found[2]}", text)


def write() -> None:
    """Write the pages and pictures of this module."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
