"""safetensors: against the reference implementation, in both directions and in what is rejected."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys

import h5py
import ml_dtypes
import numpy as np
import pytest
import safetensors
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save, save_file

import splitops
from splitops import native
from splitops.errors import FileError, SplitError
from splitops.files.formats import safetensors as st_format


def file_of(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype: object = "F32", shape: object = (2, 3), offsets: object = (0, 24), **more: object) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


def raw_entry(fields: bytes) -> bytes:
    return b'{"a":{"dtype":"F32",%s,"data_offsets":[0,24]}}' % fields


GOOD = file_of({"a": entry()}, bytes(24))
MALFORMED = {
    "no bytes": b"",
    "seven bytes": bytes(7),
    "no header": bytes(8),
    "a header beyond the file": file_of({"a": entry()}, bytes(24), 1000),
    "a header beyond 100,000,000": file_of({"a": entry()}, bytes(24), 100_000_001),
    "a length of all bits": b"\xff" * 8 + bytes(100),
    "no JSON": file_of(b"{nothing}"),
    "a list": file_of(b"[]"),
    "no UTF-8": file_of(b'{"\xff": 1}'),
    "a lone surrogate": file_of(b'{"\\ud800": {"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
    "NaN": file_of(b'{"a": NaN}'),
    "text behind it": file_of(b"{} {}"),
    "missing bytes": GOOD[:-1],
    "trailing bytes": GOOD + b"x",
    "a hole": file_of({"a": entry(offsets=[0, 24]), "b": entry(offsets=[32, 56])}, bytes(56)),
    "a hole before all": file_of({"a": entry(offsets=[8, 32])}, bytes(32)),
    "an overlap": file_of({"a": entry(offsets=[0, 24]), "b": entry(offsets=[16, 40])}, bytes(40)),
    "the same bytes twice": file_of({"a": entry(), "b": entry()}, bytes(24)),
    "a shape that does not fit": file_of({"a": entry(shape=[2, 4])}, bytes(24)),
    "offsets backwards": file_of({"a": entry(offsets=[24, 0])}, bytes(24)),
    "a shape that overflows": file_of({"a": entry(shape=[1 << 33, 1 << 33])}, bytes(24)),
    "bits that overflow": file_of({"a": entry(shape=[1 << 60], offsets=[0, 1 << 62])}, bytes(24)),
    "a negative size": file_of({"a": entry(shape=[-2, -3])}, bytes(24)),
    "a size of no integer": file_of({"a": entry(shape=[2.0, 3])}, bytes(24)),
    "a size of true": file_of({"a": entry(shape=[True, 6])}, bytes(24)),
    "an unknown type": file_of({"a": entry(dtype="F12")}, bytes(24)),
    "a type in lower case": file_of({"a": entry(dtype="f32")}, bytes(24)),
    "a type of a number": file_of({"a": entry(dtype=4)}, bytes(24)),
    "three offsets": file_of({"a": entry(offsets=[0, 24, 24])}, bytes(24)),
    "no shape": file_of({"a": {"dtype": "F32", "data_offsets": [0, 24]}}, bytes(24)),
    "an entry of a number": file_of({"a": 4}, bytes(24)),
    "metadata of numbers": file_of({"__metadata__": {"a": 4}}),
    "metadata of a list": file_of({"__metadata__": []}),
    "half a byte": file_of({"a": entry("F4", [3], [0, 2])}, bytes(2)),
    "unpaired surrogate in the metadata": file_of(b'{"__metadata__":{"a":"\\ud83d"}}'),
    "unpaired surrogate in a key of the metadata": file_of(b'{"__metadata__":{"\\ude00":"a"}}'),
    "unpaired surrogate in a field": file_of(raw_entry(b'"shape":[2,3],"more":"\\ud83d"'), bytes(24)),
    "a size of -0": file_of(raw_entry(b'"shape":[-0,3]'), bytes(24)),
    "an offset of -0": file_of({"a": entry(offsets=[0, 24])} | {}, bytes(24)).replace(b"[0, 24]", b"[-0,24]"),
    "a product beyond 64 bits before a 0": file_of({"a": entry(shape=[1 << 32, 1 << 32, 0], offsets=[0, 0])}),
    "bits beyond 64 bits before no 0": file_of({"a": entry(shape=[1 << 61], offsets=[0, 0])}),
    "a field of 1e400": file_of(raw_entry(b'"shape":[2,3],"more":1e400'), bytes(24)),
    "a field of -1e400": file_of(raw_entry(b'"shape":[2,3],"more":[{"a":-1e400}]'), bytes(24)),
    "a field of 400 digits": file_of(raw_entry(b'"shape":[2,3],"more":' + b"9" * 400), bytes(24)),
    "a field of 5,000 digits": file_of(raw_entry(b'"shape":[2,3],"more":' + b"9" * 5000), bytes(24)),
    "a field of 128 levels": file_of(
        raw_entry(b'"shape":[2,3],"more":' + b"[" * 126 + b"]" * 126), bytes(24)
    ),
}
OURS_ALONE = {
    "a tensor twice": file_of(
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
        b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
        b"x",
    ),
    "a key of the metadata twice": file_of(b'{"__metadata__":{"a":"1","a":"2"}}'),
}
OTHER_FORMS = {
    "a space before it": (
        file_of(b' {"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
        "does not begin with {",
    ),
    "a line before it": (
        file_of(b'\n{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
        "does not begin with {",
    ),
    "an entry that is an array": (file_of({"a": ["U8", [1], [0, 1]]}, b"x"), "the entry of tensor 'a' lacks"),
    "65 axes": (file_of({"a": entry("U8", [1] * 65, [0, 1])}, b"x"), "rank 65, more than the limit of 64"),
}
ACCEPTED = {
    "a 0 before a product beyond 64 bits": file_of({"a": entry(shape=[0, 1 << 32, 1 << 33], offsets=[0, 0])}),
    "a whole character in two escapes": file_of(b'{"__metadata__":{"a":"\\ud83d\\ude00"}}'),
    "a field of 1e308": file_of(raw_entry(b'"shape":[2,3],"more":[1e308,-0,-0.0,-1]'), bytes(24)),
    "a field of 300 digits": file_of(raw_entry(b'"shape":[2,3],"more":' + b"9" * 300), bytes(24)),
    "a field of 125 levels": file_of(
        raw_entry(b'"shape":[2,3],"more":' + b"[" * 125 + b"]" * 125), bytes(24)
    ),
    "64 axes": file_of({"a": entry("U8", [1] * 64, [0, 1])}, b"x"),
    "fields before and behind": file_of(raw_entry(b'"x":{},"shape":[2,3],"y":null'), bytes(24)),
}


def test_a_key_twice_among_many_is_found_at_once(tmp_path):
    """In a process with 20 s of processor time: a search of each key among all others took minutes."""
    entry = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    names = [f"tensor.{number}" for number in range(100_000)]
    text = "{" + ",".join(f'"{name}":{entry}' for name in [*names, names[-1]]) + "}"
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text.encode())
    script = (
        "import resource, sys, splitops\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (20, 20))\n"
        "try:\n    splitops.files.open(sys.argv[1])\n"
        "except splitops.errors.FileError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, timeout=120, check=False
    )
    assert "key 'tensor.99999' appears twice in its header" in done.stdout, done.stderr


def test_a_size_that_no_array_has_is_one_error(tmp_path):
    text = json.dumps({"a": {"dtype": "F32", "shape": [0, 1 << 63], "data_offsets": [0, 0]}}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    for axis in (0, 1):
        with pytest.raises(
            SplitError, match=r"Split-18: data of shape .*9223372036854775808.* cannot be split"
        ):
            splitops.files.split(path, tmp_path / "out", axis=axis, num_outputs=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["hdf5", "npz"])
def test_a_name_that_would_be_cut_short_is_rejected(tmp_path, name):
    save_file({"a\0b": np.zeros(4), "a": np.ones(4)}, tmp_path / "x.safetensors")
    with pytest.raises(FileError, match="has a NUL in its name"):
        splitops.files.split(
            tmp_path / "x.safetensors",
            tmp_path / "out",
            tensor="a",
            keep_other_tensors=True,
            num_outputs=2,
            to=splitops.files.get_format(name),
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("code", "element_type", "bits"), [("F8_E4M3", "float8_e4m3fn", 8), ("F4", "float4_e2m1fn", 4)]
)
def test_an_operator_that_takes_the_type_is_named(tmp_path, code, element_type, bits):
    text = json.dumps({"a": {"dtype": code, "shape": [4, 8], "data_offsets": [0, 4 * bits]}}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(range(4 * bits)))
    with pytest.raises(
        SplitError,
        match=rf"type\.unsupported.*OpenVINO.s operators take {element_type}: --op openvino",
    ):
        splitops.files.split(path, tmp_path / "out", num_outputs=2)
    made = splitops.files.split(path, tmp_path / "out", domain="openvino", num_splits=2, axis=0)
    parts = [file.read_bytes()[-2 * bits :] for file, _ in made.files]
    assert b"".join(parts) == bytes(range(4 * bits))


@pytest.mark.parametrize("name", MALFORMED)
def test_what_the_reference_rejects_is_rejected(tmp_path, name):
    (tmp_path / "x.safetensors").write_bytes(MALFORMED[name])
    with pytest.raises(safetensors.SafetensorError):
        safetensors.deserialize(MALFORMED[name])
    with pytest.raises(FileError, match=r"x\.safetensors"):
        splitops.files.open(tmp_path / "x.safetensors")


@pytest.mark.parametrize("name", OTHER_FORMS)
def test_forms_that_the_reference_alone_accepts_are_rejected(tmp_path, name):
    content, says = OTHER_FORMS[name]
    (tmp_path / "x.safetensors").write_bytes(content)
    assert len(safetensors.deserialize(content)) == 1
    with pytest.raises(FileError, match=says):
        splitops.files.open(tmp_path / "x.safetensors")


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_the_reference_accepts_is_accepted(tmp_path, name):
    (tmp_path / "x.safetensors").write_bytes(ACCEPTED[name])
    wanted = {key: tuple(value["shape"]) for key, value in safetensors.deserialize(ACCEPTED[name])}
    assert {key: one.shape for key, one in splitops.files.open(tmp_path / "x.safetensors").items()} == wanted


NUMBERS = [
    "0",
    "-0",
    "1",
    "-1",
    "1e400",
    "0.5",
    "1e308",
    "9" * 19,
    "9" * 20,
    "9" * 400,
    "18446744073709551616",
    "01",
]
LISTS = [
    "[]",
    "[0]",
    "[0,0]",
    "[-0,0]",
    "[1]",
    "[4294967296,4294967296,0]",
    "[0,4294967296,4294967296]",
    "[1.0]",
]
WORDS = [
    '"a"',
    r'"\ud83d"',
    r'"\ud83d\ude00"',
    '"\t"',
    r'"\x"',
    '"U8"',
    "true",
    "null",
    "NaN",
    "{}",
    "[" * 126 + "]" * 126,
]


@st.composite
def drawn(draw: st.DrawFn) -> bytes:
    """Headers with unusual numbers, texts and fields anywhere, behind which the data follow."""
    values = st.sampled_from([*NUMBERS, *LISTS, *WORDS])
    spaces = st.sampled_from(["", "", "", " ", "\n", "\t", "\v"])
    entries, end = [], 0
    for number in range(draw(st.integers(0, 3))):
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        size = math.prod(shape)
        fields = {"dtype": '"U8"', "shape": json.dumps(shape), "data_offsets": f"[{end},{end + size}]"}
        end += size
        if draw(st.booleans()):
            fields[draw(st.sampled_from(["more", "shape", "dtype", "data_offsets", "x"]))] = draw(values)
        inner = ",".join(f'{draw(spaces)}"{key}":{value}{draw(spaces)}' for key, value in fields.items())
        entries.append(f'"t{number}":{{{inner}}}')
    if draw(st.booleans()):
        key, value = draw(st.sampled_from(WORDS[:5])), draw(st.one_of(st.sampled_from(WORDS[:3]), values))
        entries.insert(draw(st.integers(0, len(entries))), f'"__metadata__":{{{key}:{value}}}')
    return file_of(f"{{{draw(spaces)}{','.join(entries)}}}{draw(spaces)}".encode(), bytes(end))


@settings(max_examples=1000)
@given(content=drawn())
def test_headers_are_accepted_where_the_reference_accepts_them(content, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "drawn.safetensors"
    path.write_bytes(content)
    try:
        wanted = {key: tuple(value["shape"]) for key, value in safetensors.deserialize(content)}
    except safetensors.SafetensorError:
        with pytest.raises(FileError):
            splitops.files.open(path)
    else:
        assert {key: tensor.shape for key, tensor in splitops.files.open(path).items()} == wanted


def tensor_of(name, shape):
    kind = st_format._TYPES["U8"]
    return st_format.StoredTensor(
        name, shape, "U8", st_format.get_unit(kind), 0, math.prod(shape), kind, kind.numpy
    )


@pytest.mark.parametrize("shape", [(1 << 32, 1 << 32, 0), (1,) * 65])
def test_no_file_is_written_that_the_reference_cannot_open(shape):
    with pytest.raises(FileError, match="which safetensors cannot have"):
        st_format.FORMAT.adapt(tensor_of("a", shape))
    assert st_format.FORMAT.adapt(tensor_of("a", (0, 1 << 32, 1 << 32))).shape == (0, 1 << 32, 1 << 32)


@pytest.mark.parametrize("name", ["x.h5", "x.zarr"])
def test_names_that_are_not_text_are_rejected_where_they_are_read(tmp_path, name):
    if name == "x.h5":
        with h5py.File(tmp_path / name, "w") as file:
            file[b"\xff\xfe"] = np.arange(8)
    else:
        zarr.create_group(tmp_path / name).create_array("a", data=np.arange(8))
        os.rename(tmp_path / name / "a", os.fsencode(tmp_path / name) + b"/\xff\xfe")
    for to in (None, "safetensors", "gguf", "npz"):
        with pytest.raises(FileError, match=re.escape(name)) as found:
            splitops.files.split(tmp_path / name, tmp_path / "out", num_outputs=2, to=to)
        assert name == "x.h5" or "is not valid UTF-8" in str(found.value)
    assert not (tmp_path / "out").exists()


def text_of(header: object, compact: bool, **metadata: object) -> bytes:
    separators = (",", ":") if compact else (" ,\n", " : ")
    return json.dumps(metadata | header, ensure_ascii=False, separators=separators).encode() + b"  "


PIECES = [
    *(b"", b"0", b"-", b"}", b"]", b'"', b",", b"\xff", b"\\", b"9" * 18, b"9" * 19, b"{"),
    *(b'"dtype":"?",', b'"dtype":"U8",', b'"shape":,', b'"shape":[1],', b'"data_offsets":[0],'),
]
"""What is put somewhere into a header."""


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    """Headers as they are usual, in any order, and what small changes make of them."""
    kinds = st.tuples(
        st.text('ab.é"\\\n', max_size=3),
        st.sampled_from([*st_format._TYPES]),
        st.lists(st.integers(0, 4), max_size=3),
    )
    header, end = {}, 0
    for name, code, shape in draw(st.lists(kinds, max_size=5)):
        size = math.prod(shape) * st_format._TYPES[code].bits // 8
        header[name] = entry(code, shape, [end, end + size])
        end += size if header[name]["data_offsets"] == [end, end + size] else 0
    items = draw(st.permutations([*header.items()]))
    metadata = {"__metadata__": {"a}": '"{'}} if draw(st.booleans()) else {}
    text = text_of(dict(items), draw(st.booleans()), **metadata)
    for _ in range(draw(st.integers(0, 2))):
        at, size = draw(st.integers(0, len(text))), draw(st.integers(0, 3))
        piece = draw(st.sampled_from(PIECES))
        text = text[:at] + piece + text[at + size :]
    return text


@pytest.mark.parametrize(
    "text",
    [
        '{"x":{"dtype":"XX","dtype":"U8","shape":[4],"data_offsets":[0,4]}}',
        '{"x":{"dtype":,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}',
        '{"x":{"shape":,"dtype":"U8","shape":[4],"data_offsets":[0,4]}}',
        '{"x":{"dtype":"U8","shape":[4,,"shape":[4],"data_offsets":[0,4]}}',
        '{"x":{"dtype":"U8","shape":[4],"data_offsets":[0],"data_offsets":[0,4]}}',
        '{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,,"data_offsets":[0,4]}}',
    ],
)
def test_a_wrong_value_of_an_entry_is_not_read_over(text):
    assert st_format._parse_usual(text.encode(), 8 + len(text)) is None
    with pytest.raises(st_format._MalformedError, match=r"appears twice|is not JSON"):
        st_format._parse_any(text.encode(), 8 + len(text))


@given(headers())
@settings(max_examples=200)
def test_a_header_that_is_read_at_once_is_what_the_careful_reader_finds(text):
    found = st_format._parse_usual(text, 8 + len(text))
    if found is not None:
        careful = st_format._parse_any(text, 8 + len(text))
        assert found == careful
        assert [list(map(type, tensor)) for tensor in found[0]] == [
            list(map(type, tensor)) for tensor in careful[0]
        ]


@pytest.mark.skipif(not native.available, reason="without the compiled core there is one reader")
@pytest.mark.parametrize("compact", [True, False])
def test_usual_headers_are_read_at_once(compact):
    header = {"é": entry("BF16", [], [6, 8]), "a.b": entry("U8", [2, 3], [0, 6])}
    metadata = {"__metadata__": {"config": '{"a": [1, "\\n"]}'}}
    names = [tensor.name for tensor in st_format._parse_usual(text_of(header, compact, **metadata), 8)[0]]
    assert names == ["a.b", "é"]
    assert st_format._parse_usual(b"{}", 10) == ([], {})


@pytest.mark.parametrize("name", OURS_ALONE)
def test_keys_that_stand_twice_are_rejected(tmp_path, name):
    (tmp_path / "x.safetensors").write_bytes(OURS_ALONE[name])
    safetensors.deserialize(OURS_ALONE[name])
    with pytest.raises(FileError, match="appears twice"):
        splitops.files.open(tmp_path / "x.safetensors")


@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        file_of({}),
        file_of(b'{"__metadata__":{"k":"v"}}   '),
        file_of({"b": entry(offsets=[24, 48]), "a": entry(offsets=[0, 24])}, bytes(48)),
        file_of({"a": entry("U8", [0], [0, 0]), "b": entry("U8", [], [0, 1])}, b"x"),
        file_of({"a": entry(more=1)}, bytes(24)),
        file_of({"a": entry("F4", [4], [0, 2])}, bytes(2)),
    ],
)
def test_what_the_reference_reads_is_read(tmp_path, content):
    (tmp_path / "x.safetensors").write_bytes(content)
    found = splitops.files.open(tmp_path / "x.safetensors")
    wanted = dict(safetensors.deserialize(content))
    assert {name: list(tensor.shape) for name, tensor in found.items()} == {
        name: tensor["shape"] for name, tensor in wanted.items()
    }


TYPES = {
    "BOOL": bool,
    "U8": np.uint8,
    "I8": np.int8,
    "I16": np.int16,
    "U16": np.uint16,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I32": np.int32,
    "U32": np.uint32,
    "F32": np.float32,
    "C64": np.complex64,
    "F64": np.float64,
    "I64": np.int64,
    "U64": np.uint64,
}


def tensors() -> dict[str, np.ndarray]:
    made = {f"t.{code}": (np.arange(48) % 2).astype(dtype).reshape(4, 12) for code, dtype in TYPES.items()}
    return made | {'quo"te\\\n\x7fé': np.ones(1, np.uint8), "scalar": np.array(3.0), "none": np.zeros((0, 4))}


def test_files_are_written_as_the_reference_writes_them(tmp_path):
    content = save(tensors(), metadata={"format": "pt"})
    (tmp_path / "x.safetensors").write_bytes(content)
    for name in ("t.F32", "t.BF16", "t.U64", "none"):
        axis = 1
        parts = splitops.files.split(
            tmp_path / "x.safetensors",
            tmp_path / name,
            tensor=name,
            axis=axis,
            num_outputs=3,
            keep_other_tensors=True,
        )
        paths = [path for path, _ in parts.files]
        for path, want in zip(
            paths, splitops.onnx.split(tensors()[name], num_outputs=3, axis=axis), strict=True
        ):
            expected = save(tensors() | {name: want}, metadata={"format": "pt"})
            assert path.read_bytes() == expected
        splitops.files.merge(paths, tmp_path / "y.safetensors", axis=axis, tensor=name, overwrite=True)
        assert (tmp_path / "y.safetensors").read_bytes() == content


@pytest.mark.parametrize("axis", [0, 1])
def test_a_tensor_alone(tmp_path, axis):
    arrays = {"w": np.arange(60, dtype=np.float32).reshape(6, 10), "b": np.zeros(3)}
    save_file(arrays, tmp_path / "x.safetensors")
    made = splitops.files.split(
        tmp_path / "x.safetensors", tmp_path, tensor="w", axis=axis, num_outputs=2, verify=True
    )
    for (path, _), want in zip(made.files, np.split(arrays["w"], 2, axis), strict=True):
        [(name, found)] = load_file(path).items()
        assert name == "w"
        np.testing.assert_array_equal(found, want)


def test_tensors_are_named(tmp_path):
    save_file({"w": np.zeros((2, 2)), "b": np.zeros(3)}, tmp_path / "x.safetensors")
    with pytest.raises(FileError, match=r"has 2 tensors\. Choose one with --tensor: 'b', 'w'"):
        splitops.files.split(tmp_path / "x.safetensors", tmp_path, num_outputs=2)
    with pytest.raises(FileError, match="no tensor 'v'"):
        splitops.files.split(tmp_path / "x.safetensors", tmp_path, tensor="v", num_outputs=2)
    with pytest.raises(splitops.RuleError, match=r"axis\.range"):
        splitops.files.split(tmp_path / "x.safetensors", tmp_path, tensor="b", axis=1, num_outputs=2)


def test_other_tensors_that_differ_are_rejected(tmp_path):
    for index, other in enumerate((np.zeros(3), np.zeros(4))):
        save_file({"w": np.zeros((2, 2)), "b": other}, tmp_path / f"{index}.safetensors")
    paths = [tmp_path / "0.safetensors", tmp_path / "1.safetensors"]
    with pytest.raises(FileError, match=r"'b' in .*1\.safetensors' is F64 of shape"):
        splitops.files.merge(paths, tmp_path / "y.safetensors", tensor="w")
    save_file({"w": np.ones((2, 2))}, paths[1])
    splitops.files.merge(paths, tmp_path / "y.safetensors", tensor="w")
    assert sorted(load_file(tmp_path / "y.safetensors")) == ["b", "w"]


@pytest.mark.parametrize("code", ["F4", "F6_E2M3", "F6_E3M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"])
def test_narrow_types_are_read_and_merged(tmp_path, code):
    bits = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}.get(code, 8)
    paths = []
    for index in range(2):
        content = file_of({"a": entry(code, [2, 8], [0, 2 * bits])}, bytes(range(index, index + 2 * bits)))
        safetensors.deserialize(content)
        paths.append(tmp_path / f"{index}.safetensors")
        paths[-1].write_bytes(content)
    splitops.files.merge(paths, tmp_path / "y.safetensors", axis=1)
    [(name, found)] = safetensors.deserialize((tmp_path / "y.safetensors").read_bytes())
    assert (name, found["shape"], found["dtype"]) == ("a", [2, 16], code)
    rows = [bytes(range(i + r * bits, i + (r + 1) * bits)) for r in range(2) for i in range(2)]
    assert bytes(found["data"]) == b"".join(rows)


def test_what_no_header_can_say_is_rejected(tmp_path, monkeypatch):
    (tmp_path / "x.safetensors").write_bytes(file_of({}))
    with pytest.raises(FileError, match=r"x\.safetensors' has no tensors"):
        splitops.files.split(tmp_path / "x.safetensors", tmp_path / "out", num_outputs=2)
    to = splitops.files.get_format("safetensors")
    np.savez(tmp_path / "x.npz", __metadata__=np.arange(4), name=np.arange(4))
    with pytest.raises(FileError, match=r"'x\.0\.safetensors' cannot have tensor '__metadata__'"):
        splitops.files.split(
            tmp_path / "x.npz", tmp_path / "out", tensor="__metadata__", num_outputs=2, to=to
        )
    monkeypatch.setattr("splitops.files.formats.safetensors._MAX_HEADER", 40)
    with pytest.raises(FileError, match=r"would have a header of 64 bytes, over the limit of 40"):
        splitops.files.split(tmp_path / "x.npz", tmp_path / "out", tensor="name", num_outputs=2, to=to)
    assert not (tmp_path / "out").exists()
