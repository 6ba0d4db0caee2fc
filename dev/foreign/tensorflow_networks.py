"""Networks of TensorFlow and Keras: as ONNX by tf2onnx at three opsets, and as OpenVINO's frontend reads them.

Run with tensorflow, tf2onnx and openvino: ``python dev/foreign/tensorflow_networks.py tensorflow.zip``
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="3", KERAS_BACKEND="tensorflow")

import keras
import numpy as np
import openvino
import tensorflow as tf
import tf2onnx
from keeping import Keeper

keras.utils.set_random_seed(0)


def parts(x):
    a, b, c = tf.split(x, [1, 3, 2], axis=1)
    return a * b, tf.concat([c, a], 1), tf.stack(tf.unstack(x, axis=1)[::-1])


def halves(x):
    a, b = tf.split(x, 2, axis=-1)
    return tf.nn.sigmoid(a) * b


def ellipsis(x):
    return x[..., 2:], x[::2, ..., tf.newaxis], x[..., 0]


def run_time_bounds(x):
    n = tf.shape(x)[0]
    return x[n // 2 :], x[: n - 1, 1:]


def stft(x):
    return tf.abs(tf.signal.stft(tf.reshape(x, [-1]), frame_length=8, frame_step=4))


def rolled(x):
    return tf.roll(x, shift=[1, -2], axis=[0, 1]), tf.cumsum(x, axis=1), tf.reverse(x, [1])


def floored(x):
    n = tf.cast(tf.math.ceil(tf.cast(tf.shape(x)[0], tf.float32) * 0.7), tf.int32)
    return tf.range(n) // 2, tf.floor(x), tf.math.floormod(x, 2.0)


def branch(x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.split(x, 2, axis=1)[1] * 2, lambda: x[:, :3] - 1)


def until(x):
    return tf.while_loop(
        lambda n, y: tf.logical_and(n < 7, tf.reduce_sum(y) < 40.0),
        lambda n, y: (n + 1, tf.concat(tf.split(y, 2, axis=1)[::-1], 1) * 2.0),
        [tf.constant(0), tf.abs(x)],
    )


def mapped(x):
    return tf.map_fn(lambda row: tf.split(row, 2)[0] * tf.reduce_sum(row), x)


def scanned(x):
    return tf.scan(lambda carry, row: carry * 0.5 + row, x)


def gathered(x):
    values, order = tf.math.top_k(x, 2)
    return values, order, tf.gather(x, [1, 0], axis=1), tf.where(x > 0, x, tf.zeros_like(x)), tf.argmax(x, 1)


def _keras(*layers: Any, shape: tuple[int, ...]) -> Any:
    return keras.Sequential([keras.Input(shape), *layers])


def _attention(shape: tuple[int, ...]) -> Any:
    given = keras.Input(shape)
    return keras.Model(given, keras.layers.MultiHeadAttention(2, 3)(given, given))


L = keras.layers
WIDE, ROWS, IMAGE, FILM = ((4, 6), (2, 5, 4), (2, 6, 6, 3), (1, 3, 4, 4, 2))
NETWORKS = {
    **{
        function.__name__.replace("_", " "): (function, WIDE)
        for function in (
            parts, halves, ellipsis, run_time_bounds, stft, rolled, floored, branch, until, mapped, scanned, gathered,
        )
    },
    "dense": (_keras(L.Dense(6, "elu"), L.LayerNormalization(), L.Dense(2, "softmax"), shape=(6,)), WIDE),
    "convolved": (
        _keras(L.Conv2D(4, 3, padding="same"), L.BatchNormalization(), L.ReLU(), L.MaxPooling2D(), L.UpSampling2D(),
               L.Conv2DTranspose(2, 2, strides=2), L.GlobalAveragePooling2D(), shape=(6, 6, 3)), IMAGE),
    "depthwise": (_keras(L.DepthwiseConv2D(3), L.SeparableConv2D(2, 2), L.Flatten(), shape=(6, 6, 3)), IMAGE),
    "lstm": (_keras(L.LSTM(3, return_sequences=True), shape=(5, 4)), ROWS),
    "gru": (_keras(L.GRU(3), shape=(5, 4)), ROWS),
    "gru before": (_keras(L.GRU(3, reset_after=False), shape=(5, 4)), ROWS),
    "rnn": (_keras(L.SimpleRNN(3, return_sequences=True), shape=(5, 4)), ROWS),
    "both ways": (_keras(L.Bidirectional(L.LSTM(3, return_sequences=True)), shape=(5, 4)), ROWS),
    "film": (_keras(L.ConvLSTM2D(2, 2), shape=(3, 4, 4, 2)), FILM),
    "attention": (_attention((5, 4)), ROWS),
}  # fmt: skip
"""Each network with the shape of its input."""


def _saved(graph: Any, network: Any) -> Any:
    """Return OpenVINO's model of a saved one, whose loops it reads; of a function it does not read all."""
    module = tf.Module()
    module.serve, module.network = graph, network if isinstance(network, keras.Model) else None
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures=graph.get_concrete_function())
        return openvino.convert_model(folder)


def main(path: str) -> None:
    """Make all networks in every way."""
    versions = ", ".join(f"{m.__name__} {m.__version__}" for m in (tf, keras, tf2onnx, openvino))
    keeper = Keeper(Path(path), versions)
    for name, (function, shape) in NETWORKS.items():
        x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
        found = function(tf.constant(x))
        outputs = [y.numpy() for y in (found if isinstance(found, list | tuple) else (found,))]
        for size in (None, shape[0]):
            signature = [tf.TensorSpec((size, *shape[1:]), tf.float32, name="x")]
            graph = tf.function(function, input_signature=signature)
            opened = "open" if size is None else "fixed"
            for opset in (11, 13, 18):
                if size is None:
                    keeper.keep(
                        f"{name}, {opened}, tf2onnx {opset}",
                        lambda graph=graph, opset=opset, signature=signature: tf2onnx.convert.from_function(
                            graph, input_signature=signature, opset=opset
                        )[0].SerializeToString(),
                        [x],
                        outputs,
                    )
            keeper.keep(
                f"{name}, {opened}, openvino",
                lambda graph=graph, function=function: _saved(graph, function),
                [x],
                outputs,
            )
    keeper.close()


if __name__ == "__main__":
    main(sys.argv[1])
