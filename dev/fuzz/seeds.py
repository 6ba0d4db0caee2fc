"""Writes the first inputs of the readers: ``python -m dev.fuzz.seeds``."""

from __future__ import annotations

import gzip
import io
import struct
import tempfile
from pathlib import Path

import gguf
import h5py
import numpy as np
import onnx.parser
import safetensors.numpy
import zarr

import splitops

CORPUS = Path(__file__).parent / "corpus"
EXAMPLES = Path(__file__).parents[2] / "examples" / "models"
MODELS = (
    "(float[N] x) => (float[A] a, float[B] b) { a, b = Split<num_outputs = 2>(x) }",
    "(float[4, 6] x) => (float[4, A] a, float[4, B] b) <int64[2] s = {2, 4}> { a, b = Split<axis=1>(x, s) }",
    """(float[N, 4] x, int64 i) => (float[A, 4] a)
    { s = SplitToSequence(x) a = SequenceAt(s, i) }""",
    """(float[6] x, bool c) => (float[A] a)
    { a = If(c) <then_branch = t () => (float[3] b) { b, d = Split<num_outputs = 2>(x) },
                 else_branch = e () => (float[3] f) { f, g = Split<num_outputs = 2>(x) }> }""",
    """(float[2, 6] x) => (float[N, M] y)
    { a, b, c = Split<num_outputs = 3, axis = 1>(x) d = Concat<axis = 1>(a, b, c) y = Transpose(d) }""",
    """(float[N, 8] x) => (float[A, B, 4] y)
    { s = Shape(x) t, u = Split<num_outputs = 2>(s) k = Constant<value = int64[2] {2, 4}>()
      r = Concat<axis = 0>(t, k) y = Reshape(x, r) }""",
)


def onnx_models() -> list[bytes]:
    """Small models with every kind of split, and one whose weights are in another file."""
    made = []
    for body in MODELS:
        model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> g {body}')
        made.append(model.SerializeToString())
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]> g (float[1] z) => (float[A] a, float[B] b)'
        " <float[8] x = {1, 2, 3, 4, 5, 6, 7, 8}> { a, b = Split<num_outputs = 2>(x) }"
    )
    (weights,) = model.graph.initializer
    weights.ClearField("float_data")
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": "w", "offset": "8", "length": "32"}.items():
        weights.external_data.add(key=key, value=value)
    return [*made, model.SerializeToString()]


def ir_models(onnx_seeds: list[bytes]) -> list[bytes]:
    """The shipped IR, and what conversion makes of an ONNX model."""
    with tempfile.TemporaryDirectory() as folder:
        converted = Path(folder) / "m.xml"
        splitops.save(splitops.convert(onnx.load_from_string(onnx_seeds[0]), "openvino"), converted)
        paths = (EXAMPLES / "feature_split.xml", converted)
        return [path.read_bytes() + b"\0" + path.with_suffix(".bin").read_bytes() for path in paths]


def tensor_files() -> dict[str, list[bytes]]:
    """One or two small files of each format, by the format's own library."""
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    found: dict[str, list[bytes]] = {"npy": [], "npz": []}
    for array in (x, np.asfortranarray(x), np.zeros(3, [("a", "<i2"), ("b", "S3")])):
        stream = io.BytesIO()
        np.save(stream, array)
        found["npy"].append(stream.getvalue())
    for save in (np.savez, np.savez_compressed):
        stream = io.BytesIO()
        save(stream, x=x, y=x[:2].astype(np.int8))
        found["npz"].append(stream.getvalue())
    found["safetensors"] = [
        safetensors.numpy.save({"x": x, "y": x.astype(np.float16)}, {"format": "np"}),
        safetensors.numpy.save({"x": np.zeros((2, 0), np.int8)}),
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_uint32("n", 3)
        writer.add_array("names", ["a", "b"])
        writer.add_tensor("x", x)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        found["gguf"] = [path.read_bytes()]
        hdf5 = Path(folder) / "t.h5"
        with h5py.File(hdf5, "w", libver="latest") as file:
            file["x"] = x[:2]
            file.create_dataset("g/y", data=x, chunks=(2, 3), compression="gzip")
        found["hdf5"] = [hdf5.read_bytes()]
        array = zarr.create_array(
            Path(folder) / "t.zarr", shape=(2, 4), chunks=(2, 2), dtype="int16", compressors=None
        )
        array[...] = np.arange(8).reshape(2, 4)
        metadata = (Path(folder) / "t.zarr" / "zarr.json").read_bytes()
        found["zarr"] = [metadata + b"\0" + (Path(folder) / "t.zarr" / "c" / "0" / "1").read_bytes()]
    found["stream"] = [b"\0" + found["npy"][0], b"\1" + gzip.compress(found["npy"][0], mtime=0)]
    tensor = onnx.numpy_helper.from_array(x, "x")
    model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [tensor]))
    found["weights"] = [model.SerializeToString(), onnx_models()[-1]]
    return found


def core_inputs() -> list[bytes]:
    """One input of each part of the harness, with numbers behind."""
    return [bytes([part]) + struct.pack("<40H", *range(part, 40 + part)) for part in range(8)]


def main() -> None:
    """Write the seeds."""
    models = onnx_models()
    made = {"onnx": models, "ir": ir_models(models), "core": core_inputs()} | tensor_files()
    for target, inputs in made.items():
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        for number, content in enumerate(inputs):
            (folder / f"seed-{number}").write_bytes(content)


if __name__ == "__main__":
    main()
