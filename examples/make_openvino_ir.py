"""Makes ``models/feature_split.xml`` (and ``.bin``) and ``data/feature_split_x.npy``: the same on every run.

A table of measurements, one row for each moment, is split into its three sensors (VariadicSplit, of which the
last one takes the rest); the first one's channels are split evenly (Split) and put together again in
reverse order; the weights lie in the file as OpenVINO's default saving leaves them, in half precision with
a Convert behind it.

    python examples/make_openvino_ir.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from splitops.models.formats import openvino as openvino_ir
from splitops.spec.sizes.dims import Range

CHANNELS = (6, 2, 4)
"""Channels of each sensor."""


def make_model() -> openvino_ir.OpenVINOModel:
    """Make the model: any number of moments, twelve channels."""
    builder = openvino_ir.Builder("feature_split")
    moments = Range(1)
    x = builder.parameter("x", "f32", (moments, sum(CHANNELS)))
    axis = builder.const(np.array(1), name="axis")
    lengths = builder.const(np.array([*CHANNELS[:-1], -1]), name="lengths")
    camera, radar, rest = builder.layer(
        "VariadicSplit",
        [x, axis, lengths],
        outputs=[["camera"], ["radar"], ["rest"]],
        name="sensors",
        shapes=[(moments, size) for size in CHANNELS],
    )
    red, green, blue = builder.layer(
        "Split", [camera, axis], {"num_splits": 3}, outputs=3, name="colours", shapes=[(moments, 2)] * 3
    )
    (reversed_,) = builder.layer(
        "Concat", [blue, green, red], {"axis": 1}, name="reversed_colours", shapes=[(moments, 6)]
    )
    half = builder.const(np.linspace(0, 1, 4, dtype=np.float16).reshape(2, 2), name="reference_compressed")
    (reference,) = builder.layer(
        "Convert", [half], {"destination_type": "f32"}, name="reference", element_type="f32", shapes=[(2, 2)]
    )
    (referenced,) = builder.layer(
        "Concat", [reference, radar], {"axis": 0}, name="referenced_radar", shapes=[(Range(3), 2)]
    )
    builder.result(reversed_, "bgr")
    builder.result(referenced, "radar_with_reference")
    builder.result(rest, "lidar")
    return builder.model()


def make_input() -> np.ndarray:
    """Make five moments."""
    return np.arange(5 * sum(CHANNELS), dtype=np.float32).reshape(5, sum(CHANNELS))


def main(folder: Path) -> None:
    """Write the model and its input."""
    (folder / "models").mkdir(parents=True, exist_ok=True)
    (folder / "data").mkdir(exist_ok=True)
    openvino_ir.write(make_model(), folder / "models" / "feature_split.xml")
    np.save(folder / "data" / "feature_split_x.npy", make_input())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
