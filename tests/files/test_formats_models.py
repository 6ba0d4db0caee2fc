"""GGUF, ONNX with external data, OpenVINO IR: against their own libraries."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import fsspec
import gguf
import ml_dtypes
import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import splitops
from splitops.errors import FileError
from splitops.files.formats import gguf as our_gguf
from splitops.files.formats.raw import RawFormat
from splitops.spec import ELEMENT_TYPES

RNG = np.random.default_rng(0)


# GGUF


def gguf_file(path: Path, **options: int) -> dict[str, np.ndarray]:
    """Write a file with the reference library; return its tensors as it reads them."""
    writer = gguf.GGUFWriter(path, "llama", **options)
    writer.add_block_count(3)
    writer.add_array("tokenizer.tokens", ["a", "bb", "ä"])
    writer.add_array("sizes", [1, 2, 3])
    writer.add_bool("flag", True)
    writer.add_tensor("f32", RNG.standard_normal((6, 8)).astype(np.float32))
    writer.add_tensor("f16", RNG.standard_normal((5, 4, 3)).astype(np.float16))
    writer.add_tensor("i8", RNG.integers(-9, 9, (7,), np.int8))
    for kind in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0):
        data = gguf.quants.quantize(RNG.standard_normal((6, 128)).astype(np.float32), kind)
        writer.add_tensor(kind.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {} if options else read_gguf(path)


def read_gguf(path: Path) -> dict[str, np.ndarray]:
    return {tensor.name: np.array(tensor.data) for tensor in gguf.GGUFReader(path).tensors}


@pytest.mark.parametrize(
    ("name", "axis", "split", "scale"),
    [
        ("f32", 0, [1, 5], 1),
        ("f32", 1, [3, 5], 1),
        ("f16", 2, [1, 2], 1),
        ("Q8_0", 1, [32, 96], 34 / 32),
        ("Q4_0", 1, [64, 64], 18 / 32),
        ("Q4_0", 0, [2, 4], 1),
    ],
)
@pytest.mark.parametrize("keep", [False, True])
def test_gguf(tmp_path, name, axis, split, scale, keep):
    tensors = gguf_file(tmp_path / "x.gguf")
    made = splitops.files.split(
        tmp_path / "x.gguf",
        tmp_path,
        tensor=name,
        axis=axis,
        split=split,
        keep_other_tensors=keep,
        verify=True,
    )
    paths = [path for path, _ in made.files]
    cut = round(split[0] * scale) if axis == tensors[name].ndim - 1 else split[0]
    for path, want in zip(paths, np.split(tensors[name], [cut], axis), strict=True):
        found = read_gguf(path)
        assert sorted(found) == (sorted(tensors) if keep else [name])
        for other, data in found.items():
            np.testing.assert_array_equal(data, want if other == name else tensors[other])
        fields = gguf.GGUFReader(path).fields
        assert fields["tokenizer.tokens"].contents() == ["a", "bb", "ä"]
    splitops.files.merge(paths, tmp_path / "y.gguf", axis=axis, tensor=name, verify=True)
    if keep:
        assert (tmp_path / "y.gguf").read_bytes() == (tmp_path / "x.gguf").read_bytes()


def test_a_cut_inside_of_a_block_is_rejected(tmp_path):
    gguf_file(tmp_path / "x.gguf")
    with pytest.raises(FileError, match=r"'Q4_0': a split at 30 .* split at multiples of 32"):
        splitops.files.split(tmp_path / "x.gguf", tmp_path, tensor="Q4_0", axis=1, split=[30, 98])
    tensor = splitops.files.open(tmp_path / "x.gguf")["Q4_0"]
    with pytest.raises(FileError, match="NumPy has no dtype"):
        np.asarray(tensor)
    with pytest.raises(splitops.RuleError, match=r"type\.unsupported.* Q4_0"):
        splitops.onnx.split(tensor, num_outputs=2)


def test_gguf_in_pieces(tmp_path):
    gguf_file(tmp_path / "m.gguf", split_max_tensors=2)
    first, *others = sorted(tmp_path.glob("m-*.gguf"))
    assert len(others) == 2
    pieces = {name: data for path in (first, *others) for name, data in read_gguf(path).items()}
    assert list(splitops.files.open(first)) == ["f32", "f16", "i8", "Q8_0", "Q4_0"]
    made = splitops.files.split(
        first, tmp_path, tensor="Q4_0", prefix="y", num_outputs=2, keep_other_tensors=True
    )
    for (path, _), want in zip(made.files, np.split(pieces["Q4_0"], 2), strict=True):
        found = read_gguf(path)
        assert found.keys() == pieces.keys()
        np.testing.assert_array_equal(found["Q4_0"], want)
        assert not [key for key in gguf.GGUFReader(path).fields if key.startswith("split.")]
    with pytest.raises(FileError, match=r"is one of 3 files\. Open the first"):
        splitops.files.open(others[0])
    others[1].unlink()
    with pytest.raises(FileError, match="cannot open"):
        splitops.files.open(first)


def test_gguf_in_pieces_at_an_address(tmp_path):
    gguf_file(tmp_path / "m.gguf", split_max_tensors=2)
    first, *others = sorted(tmp_path.glob("m-*.gguf"))
    files = fsspec.filesystem("memory")
    for path in (first, *others):
        files.pipe_file(f"/gguf/{path.name}", path.read_bytes())
    made = splitops.files.split(
        f"memory://gguf/{first.name}",
        tmp_path,
        tensor="Q4_0",
        prefix="y",
        num_outputs=2,
        keep_other_tensors=True,
    )
    again = splitops.files.split(
        first, tmp_path / "here", tensor="Q4_0", prefix="y", num_outputs=2, keep_other_tensors=True
    )
    for (path, _), (same, _) in zip(made.files, again.files, strict=True):
        assert path.read_bytes() == same.read_bytes()
    files.rm("/gguf", recursive=True)


def test_the_tables_are_those_of_the_library():
    for kind, (elements, size) in gguf.GGML_QUANT_SIZES.items():
        if kind.value in our_gguf._BLOCKS:
            name, unit = our_gguf._BLOCKS[kind.value]
            assert (name, unit.elements, unit.bytes) == (kind.name, elements, size)
    assert len(our_gguf._BLOCKS) >= 32


def gguf_bytes(
    tensors: int = 1, keys: int = 0, body: bytes = b"", magic: bytes = b"GGUF", version: int = 3
) -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, keys) + body


def info(name: bytes = b"t", shape: tuple[int, ...] = (4,), kind: int = 0, offset: int = 0) -> bytes:
    dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return struct.pack("<Q", len(name)) + name + dims + struct.pack("<IQ", kind, offset)


def key(name: bytes, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name + struct.pack("<I", kind) + value


def padded(head: bytes, size: int) -> bytes:
    return head + bytes(-len(head) % 32) + bytes(size)


GOOD = padded(gguf_bytes(body=info()), 16)
MALFORMED = {
    "empty": b"",
    "another format": b"PK" * 20,
    "version 1": padded(gguf_bytes(body=info(), version=1), 16),
    "big-endian": padded(gguf_bytes(body=info(), version=3 << 24), 16),
    "more tensors than bytes": gguf_bytes(tensors=1 << 60, body=info()),
    "more keys than bytes": gguf_bytes(keys=1 << 60, body=info()),
    "a name beyond the file": gguf_bytes(body=struct.pack("<Q", 1 << 62)),
    "an array beyond the file": gguf_bytes(0, 1, key(b"a", 9, struct.pack("<IQ", 4, 1 << 60))),
    "arrays in arrays without end": gguf_bytes(0, 1, key(b"a", 9, struct.pack("<IQ", 9, 1) * 100)),
    "an unknown type of value": padded(gguf_bytes(0, 1, key(b"a", 77, bytes(8))), 0),
    "a key twice": gguf_bytes(0, 2, key(b"a", 4, bytes(4)) * 2),
    "an alignment of 0": padded(gguf_bytes(1, 1, key(b"general.alignment", 4, bytes(4)) + info()), 16),
    "an alignment of 2.0": padded(gguf_bytes(1, 1, key(b"general.alignment", 6, b"\0\0\0@") + info()), 16),
    "an alignment of 3": padded(gguf_bytes(1, 1, key(b"general.alignment", 4, b"\3\0\0\0") + info()), 16),
    "a rank of 5": padded(gguf_bytes(body=info(shape=(1,) * 5)), 16),
    "a shape that overflows": padded(gguf_bytes(body=info(shape=(1 << 40, 1 << 40))), 16),
    "an unknown type": padded(gguf_bytes(body=info(kind=999)), 16),
    "no whole blocks": padded(gguf_bytes(body=info(shape=(4,), kind=2)), 18),
    "a hole": padded(gguf_bytes(body=info(offset=32)), 64),
    "an overlap": padded(gguf_bytes(2, 0, info(b"a", (16,)) + info(b"b", (16,), 0, 32)), 128),
    "truncated data": GOOD[:-1],
    "a header cut off": gguf_bytes(body=info()[:-4]),
    "a sparse lie": padded(gguf_bytes(body=info(shape=(1 << 28,))), 16),
    "a name twice": padded(gguf_bytes(2, 0, info() + info(offset=32)), 64),
    "no text": padded(gguf_bytes(body=info(b"\xff")), 16),
}


def test_what_the_malformed_are_made_of_is_read(tmp_path):
    (tmp_path / "x.gguf").write_bytes(GOOD)
    assert splitops.files.open(tmp_path / "x.gguf")["t"].shape == (4,)


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_gguf_is_one_error(tmp_path, name):
    (tmp_path / "x.gguf").write_bytes(MALFORMED[name])
    with pytest.raises(FileError, match=r"x\.gguf"):
        splitops.files.open(tmp_path / "x.gguf")


def pieces(path: Path, *names: bytes, total: int) -> None:
    """Write a piece for each tensor; ``total`` is how many the first one declares."""
    for number, name in enumerate(names):
        keys = key(b"split.count", 2, struct.pack("<H", len(names)))
        keys += key(b"split.no", 2, struct.pack("<H", number))
        keys += key(b"split.tensors.count", 5, struct.pack("<i", total))
        content = padded(gguf_bytes(1, 3, keys + info(name)), 16)
        (path / f"m-{number + 1:05}-of-{len(names):05}.gguf").write_bytes(content)


def test_gguf_pieces_that_lie_are_rejected(tmp_path):
    first = tmp_path / "m-00001-of-00002.gguf"
    pieces(tmp_path, b"a", b"b", total=2)
    assert list(splitops.files.open(first)) == ["a", "b"]
    pieces(tmp_path, b"a", b"b", total=3)
    with pytest.raises(FileError, match="and its other files have 2 tensors, but declare 3"):
        splitops.files.open(first)
    other = tmp_path / "other"
    other.mkdir()
    pieces(other, b"a", b"b", b"c", total=2)
    pieces(tmp_path, b"a", b"b", total=2)
    (other / "m-00002-of-00003.gguf").replace(tmp_path / "m-00002-of-00002.gguf")
    with pytest.raises(FileError, match=r"declares that it is file 1 \(from 0\) of 3, not file 1 of 2"):
        splitops.files.open(first)
    pieces(tmp_path, b"a", b"a", total=2)
    with pytest.raises(FileError, match=r"m-00001-of-00002\.gguf': tensor 'a' appears twice"):
        splitops.files.open(first)


def test_a_long_vocabulary_is_kept(tmp_path):
    """It is longer than what is read of a header at a time."""
    value = key(b"tokens", 9, struct.pack("<IQ", 0, 3 << 20) + bytes(range(256)) * (3 << 12))
    more = key(b"after", 4, struct.pack("<I", 7))
    (tmp_path / "x.gguf").write_bytes(padded(gguf_bytes(1, 2, value + more + info()), 16))
    made = splitops.files.split(tmp_path / "x.gguf", tmp_path, num_outputs=2)
    for path, _ in made.files:
        assert value + more in path.read_bytes()
        assert splitops.files.open(path)["t"].shape == (2,)


# ONNX


def onnx_file(path: Path) -> dict[str, np.ndarray]:
    arrays = {
        "w": RNG.standard_normal((64, 32)).astype(np.float32),
        "b": np.arange(32).astype(ml_dtypes.bfloat16),
        "large": RNG.integers(0, 9, (300, 1024), np.int64),
        "small": np.arange(3, dtype=np.int64),
    }
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(model, path, save_as_external_data=True, location=f"{path.name}.data", size_threshold=40)
    return arrays


def read_onnx(path: Path) -> dict[str, np.ndarray]:
    model = onnx.load(path)
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


@pytest.mark.parametrize(("name", "axis"), [("w", 0), ("w", 1), ("large", 1), ("b", 0)])
@pytest.mark.parametrize("keep", [False, True])
def test_onnx_models_with_external_data(tmp_path, name, axis, keep):
    arrays = onnx_file(tmp_path / "x.onnx")
    made = splitops.files.split(
        tmp_path / "x.onnx",
        tmp_path,
        tensor=name,
        axis=axis,
        num_outputs=2,
        keep_other_tensors=keep,
        verify=True,
    )
    paths = [path for path, _ in made.files if path.suffix == ".onnx"]
    assert len(made.files) == 4
    for path, want in zip(paths, np.split(arrays[name], 2, axis), strict=True):
        found = read_onnx(path)
        assert sorted(found) == (sorted(arrays) if keep else [name])
        for other, array in found.items():
            np.testing.assert_array_equal(array, want if other == name else arrays[other])
        for tensor in onnx_ir.load(path).graph.initializers.values():
            external = tensor.const_value
            if isinstance(external, onnx_ir.ExternalTensor) and external.nbytes > 1 << 20:
                assert external.offset % 65536 == 0
    splitops.files.merge(paths, tmp_path / "y.onnx", axis=axis, tensor=name, verify=True)
    found = read_onnx(tmp_path / "y.onnx")
    for other, array in found.items():
        np.testing.assert_array_equal(array, arrays[other])
    if keep:
        onnx.checker.check_model(tmp_path / "y.onnx")


def stated(path: Path, name: str, **entries: str) -> None:
    """Let a tensor of a model state other external data."""
    model = onnx.load(path, load_external_data=False)
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    for entry in tensor.external_data:
        entry.value = entries.get(entry.key, entry.value)
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ({"location": "../x.onnx.data"}, "leads out"),
        ({"location": "/etc/passwd"}, "leads out"),
        ({"length": "100"}, "requires 8192"),
        ({"length": "-1"}, "length"),
        ({"offset": "99999999999"}, "of a file of"),
        ({"offset": "1"}, "overlap"),
        ({"location": "gone"}, "cannot open"),
    ],
)
def test_onnx_models_that_lie_are_rejected(tmp_path, entries, problem):
    onnx_file(tmp_path / "x.onnx")
    name = "b" if "offset" in entries and entries["offset"] == "1" else "w"
    stated(tmp_path / "x.onnx", name, **entries)
    with pytest.raises(FileError, match=problem):
        splitops.files.open(tmp_path / "x.onnx")


def test_a_link_out_of_the_folder_is_rejected(tmp_path):
    (tmp_path / "model").mkdir()
    onnx_file(tmp_path / "model" / "x.onnx")
    data = tmp_path / "model" / "x.onnx.data"
    data.rename(tmp_path / "elsewhere")
    data.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileError, match="symbolic link"):
        splitops.files.open(tmp_path / "model" / "x.onnx")


# OpenVINO IR


def test_constants_of_an_ir(tmp_path):
    ov = pytest.importorskip("openvino")
    weights = RNG.standard_normal((6, 10)).astype(np.float32)
    codes = RNG.integers(0, 200, (4, 5), np.uint8)
    x = ov.opset13.parameter([1, 6], np.float32, name="x")
    w = ov.opset13.constant(weights, name="weights")
    c = ov.opset13.constant(codes, name="codes")
    model = ov.Model(
        [
            ov.opset13.result(node, name=f"r{i}")
            for i, node in enumerate((ov.opset13.matmul(x, w, False, False), c))
        ],
        [x],
    )
    ov.save_model(model, tmp_path / "m.xml", compress_to_fp16=False)
    found = splitops.files.open(tmp_path / "m.xml")
    np.testing.assert_array_equal(np.asarray(found["weights"]), weights)
    np.testing.assert_array_equal(np.asarray(found["codes"]), codes)
    with pytest.raises(FileError, match="OpenVINO IR cannot be written"):
        splitops.files.split(tmp_path / "m.xml", tmp_path, tensor="weights", axis=1, split=[4, 6])
    for name in ("npy", "safetensors", "raw"):
        to = splitops.files.get_format(name)
        made = splitops.files.split(
            tmp_path / "m.xml", tmp_path, tensor="weights", axis=1, split=[4, 6], to=to
        )
        for (path, _), want in zip(made.files, np.split(weights, [4], 1), strict=True):
            if name == "raw":
                assert path.read_bytes() == want.tobytes()
            else:
                [array] = [np.asarray(tensor) for tensor in splitops.files.open(path).values()]
                np.testing.assert_array_equal(array, want)


IR = """<net name="m" version="11"><layers>
<layer id="0" name="c" type="Const" version="opset1"><data element_type="u8" shape="2" offset="0" size="2"/>
<output><port id="0" precision="U8"><dim>2</dim></port></output></layer>
<layer id="1" name="c" type="Const" version="opset1"><data element_type="u8" shape="3" offset="2" size="3"/>
<output><port id="0" precision="U8"><dim>3</dim></port></output></layer>
</layers><edges/></net>"""


def test_constants_of_one_name_are_numbered(tmp_path):
    (tmp_path / "m.xml").write_text(IR)
    (tmp_path / "m.bin").write_bytes(bytes(range(5)))
    found = splitops.files.open(tmp_path / "m.xml")
    assert {name: np.asarray(tensor).tolist() for name, tensor in found.items()} == {
        "c": [0, 1],
        "c#2": [2, 3, 4],
    }
    (tmp_path / "m.bin").write_bytes(bytes(4))
    with pytest.raises(FileError, match="the weights have 4 bytes"):
        splitops.files.open(tmp_path / "m.xml")


# From one format to another


@pytest.mark.parametrize(
    ("name", "to", "problem"),
    [
        ("a", "npy", r"'x\.0\.npy' would have 2 tensors; a \.npy file has one"),
        ("a", "raw", r"'x\.0\.bin' would have 2 tensors; a file of raw bytes has one"),
        ("a", "zarr", r"'x\.0\.zarr' would have 2 tensors; a zarr array has one"),
        ("a", "hdf5", r"cannot write 'x\.0\.h5'"),
        ("a", "openvino", "OpenVINO IR cannot be written"),
        ("data", "safetensors", "has a tensor without a name, which cannot be named 'data', because another"),
        ("data", "gguf", "has a tensor without a name, which cannot be named 'data', because another"),
        ("data", "onnx", "has a tensor without a name, which cannot be named 'data', because another"),
        ("data", "hdf5", "has a tensor without a name, which cannot be named 'data', because another"),
    ],
)
def test_tensors_that_a_format_cannot_hold_together_are_rejected(tmp_path, name, to, problem):
    np.savez(tmp_path / "x.npz", **{name: np.arange(4), "a/b" if name == "a" else "": np.arange(3)})
    with pytest.raises(FileError, match=problem):
        splitops.files.split(
            tmp_path / "x.npz",
            tmp_path / "out",
            tensor=name,
            num_outputs=2,
            keep_other_tensors=True,
            to=splitops.files.get_format(to),
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("source", "to", "problem"),
    [
        (RawFormat((2, 4), ELEMENT_TYPES["uint4"]), "npy", "has type uint4, which .npy does not support"),
        (
            RawFormat((2, 2), ELEMENT_TYPES["bfloat16"]),
            "npz",
            "has type bfloat16, which .npy does not support",
        ),
        (
            RawFormat((2, 4), ELEMENT_TYPES["uint4"]),
            "hdf5",
            "has type uint4, which HDF5 does not support",
        ),
        (RawFormat((2, 1, 1, 1, 2), ELEMENT_TYPES["int8"]), "gguf", "has rank 5; GGUF has at most 4"),
    ],
)
def test_a_tensor_that_a_format_cannot_hold_is_rejected(tmp_path, source, to, problem):
    (tmp_path / "x.bin").write_bytes(bytes(4 if to != "npz" else 8))
    with pytest.raises(FileError, match=problem):
        splitops.files.split(
            tmp_path / "x.bin",
            tmp_path,
            "VariadicSplit",
            axis=0,
            split_lengths=[1, 1],
            like=source,
            to=splitops.files.get_format(to),
        )


def test_formats_take_what_they_can_say(tmp_path):
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.save(tmp_path / "x.npy", array)
    for name in ("npz", "safetensors", "gguf", "onnx", "raw"):
        to = splitops.files.get_format(name)
        made = splitops.files.split(tmp_path / "x.npy", tmp_path / name, num_outputs=2, to=to)
        path = next(path for path, _ in made.files if path.suffix in to.suffixes)
        if name != "raw":
            [(named, tensor)] = splitops.files.open(path).items()
            assert named == "data"
            np.testing.assert_array_equal(np.asarray(tensor), array[:2])
    for rejected, problem in (
        (array.astype(">f4"), "is big-endian (>f4), which"),
        (np.asfortranarray(array), "is in Fortran order, which"),
    ):
        np.save(tmp_path / "y.npy", rejected)
        for name in ("safetensors", "gguf", "onnx"):
            with pytest.raises(FileError, match=re.escape(problem)):
                splitops.files.split(
                    tmp_path / "y.npy", tmp_path, num_outputs=2, to=splitops.files.get_format(name)
                )
