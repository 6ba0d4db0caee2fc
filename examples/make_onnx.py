"""Makes ``models/attention_block.onnx`` and its input ``data/attention_block_x.npy``: the same on every run.

A transformer block as language models have it: the projections of query, key and value are fused in one
matrix and split into unequal parts (four query heads share two key and value heads), the two halves of the
gated feed-forward layer are fused and split evenly inside a function, and the result is cut into windows of
four positions, a sequence of tensors.

    python examples/make_onnx.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx.parser
from onnx import ModelProto, numpy_helper

from splitops.models.formats.onnx import write

POSITIONS, WIDTH, HIDDEN, HEAD = 10, 32, 48, 8
QUERY_HEADS, KEY_HEADS = 4, 2

BLOCK = """
<ir_version: 10, opset_import: ["": 23, "example": 1]>
attention_block (float[batch, positions, 32] x) => (
    float[batch, positions, 32] y,
    seq(float[batch, window, 32]) windows
) {
    [norm_1] n1 = LayerNormalization (x, scale_1, shift_1)
    [qkv] fused = MatMul (n1, w_qkv)
    [split_qkv] q, k, v = Split <axis = -1> (fused, qkv_sizes)
    [attend] a = Attention <q_num_heads = 4, kv_num_heads = 2, is_causal = 1> (q, k, v)
    [project] p = MatMul (a, w_out)
    [add_1] r = Add (x, p)
    [norm_2] n2 = LayerNormalization (r, scale_2, shift_2)
    [gate_up] g = MatMul (n2, w_gate_up)
    [gate] h = example.SwiGLU <axis = -1> (g)
    [down] d = MatMul (h, w_down)
    [add_2] y = Add (r, d)
    [cut_windows] windows = SplitToSequence <axis = 1> (y, window_size)
}
<opset_import: ["": 23], domain: "example">
SwiGLU <axis> (fused) => (gated) {
    [split_halves] gate, up = Split <axis: int = @axis, num_outputs = 2> (fused)
    open = Sigmoid (gate)
    swish = Mul (gate, open)
    gated = Mul (swish, up)
}
"""


def make_model() -> ModelProto:
    """Make the block with weights from a generator whose numbers NumPy has frozen."""
    random = np.random.RandomState(7)

    def weight(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)

    sizes = np.array([QUERY_HEADS * HEAD, KEY_HEADS * HEAD, KEY_HEADS * HEAD], np.int64)
    tensors = {
        "scale_1": np.ones(WIDTH, np.float32),
        "shift_1": np.zeros(WIDTH, np.float32),
        "w_qkv": weight(WIDTH, int(sizes.sum())),
        "qkv_sizes": sizes,
        "w_out": weight(QUERY_HEADS * HEAD, WIDTH),
        "scale_2": np.ones(WIDTH, np.float32),
        "shift_2": np.zeros(WIDTH, np.float32),
        "w_gate_up": weight(WIDTH, 2 * HIDDEN),
        "w_down": weight(HIDDEN, WIDTH),
        "window_size": np.array(4, np.int64),
    }
    model = onnx.parser.parse_model(BLOCK)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in tensors.items())
    return model


def make_input() -> np.ndarray:
    """Make one batch of embeddings."""
    return np.random.RandomState(11).standard_normal((1, POSITIONS, WIDTH)).astype(np.float32)


def main(folder: Path) -> None:
    """Write both files below a folder."""
    for name in ("models", "data"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    write(make_model(), folder / "models" / "attention_block.onnx")
    np.save(folder / "data" / "attention_block_x.npy", make_input())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
