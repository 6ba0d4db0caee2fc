"""Documents from outside: what is rejected before and after they are parsed, and by every reader of one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

import splitops
from splitops import sharding
from splitops.common.documents import DocumentError, parse_json, parse_toml
from splitops.errors import SplitError
from splitops.models.check.targets import Target
from splitops_compare import protocol
from splitops_compare.reports.report_diff import read_expectations, read_report

HALF = '"\\ud83d"'
"""The first unpaired surrogate, in JSON."""


def entry(name: str, dtype: str = "U8") -> str:
    return f'{name}: {{"dtype": "{dtype}", "shape": [1], "data_offsets": [0, 1]}}'


def write_safetensors(path: Path, header: str) -> Path:
    text = header.encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\0")
    return path


def checkpoint(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    save_file({"w": np.arange(8.0)}, folder / "model.safetensors")
    return folder


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def of_metadata(folder: Path) -> Any:
    header = f'{{"__metadata__": {{"a": {HALF}}}, {entry(json.dumps("w"))}}}'
    return splitops.files.open(write_safetensors(folder / "x.safetensors", header))


def of_a_name(folder: Path) -> Any:
    return splitops.files.open(write_safetensors(folder / "x.safetensors", f"{{{entry(HALF)}}}"))


def of_a_field_that_is_not_read(folder: Path) -> Any:
    header = entry('"w"').replace("}", f', "more": {HALF}}}')
    return splitops.files.open(write_safetensors(folder / "x.safetensors", f"{{{header}}}"))


def of_an_index(folder: Path) -> Any:
    path = checkpoint(folder) / "model.safetensors.index.json"
    path.write_text(f'{{"metadata": {{"a": {HALF}}}, "weight_map": {{"w": "model.safetensors"}}}}')
    return splitops.files.open(path)


def of_a_plan(folder: Path) -> Any:
    path = folder / "plan.json"
    path.write_text(f'{{"version": 1, "rule": [{{"match": {HALF}, "axis": 0}}]}}')
    return sharding.plan(checkpoint(folder / "model"), path, ranks=2)


def of_a_configuration(folder: Path) -> Any:
    checkpoint(folder)
    (folder / "config.json").write_text(f'{{"model_type": {HALF}}}')
    return sharding.plan(folder, {"version": 1, "rule": [{"match": "*", "axis": 0}]}, ranks=2)


def ranks(folder: Path, layout: str = "hf") -> Path:
    everything = {"version": 1, "layout": layout, "rule": [{"match": "*", "axis": 0}]}
    sharding.plan(checkpoint(folder / "m"), everything, ranks=2).run(folder / "ranks", sync=False)
    return folder / "ranks"


def of_a_manifest(folder: Path) -> Any:
    path = ranks(folder)
    replaced(path / "manifest.json", '"layout"', f'"more": {HALF}, "layout"')
    return sharding.merge(path)


def of_the_mark_of_a_rank(folder: Path) -> Any:
    path = ranks(folder)
    mark = next(path.glob("rank-00000*/rank.json"))
    replaced(mark, '"rank"', f'"more": {HALF}, "rank"')
    return sharding.rank(path, 0)


def of_the_metadata_of_a_distributed_checkpoint(folder: Path) -> Any:
    header = {"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}
    info = '{"a": {"saved_offsets": [0], "more": "\\ud83d"}}'
    text = json.dumps({"__metadata__": {"DCP_SHARDING_INFO": info}} | header)
    write_safetensors(folder / "shard-00001-model-00001-of-00001.safetensors", text)
    return sharding.merge(folder)


def of_a_report(folder: Path) -> Any:
    (folder / "report.json").write_text(f'{{"version": 1, "said": {HALF}}}')
    return read_report(folder / "report.json")


def of_the_reply_of_a_runtime(folder: Path) -> Any:
    return protocol.parse_response(f'{{"message": "hello", "said": {HALF}}}'.encode())


def of_a_zarr_array(folder: Path) -> Any:
    zarr.create_array(folder / "x.zarr", data=np.arange(4)).attrs["said"] = "HERE"
    replaced(folder / "x.zarr" / "zarr.json", '"HERE"', HALF)
    return splitops.files.open(folder / "x.zarr")


def of_the_attributes_of_zarr_2(folder: Path) -> Any:
    zarr.create_array(folder / "x.zarr", data=np.arange(4), zarr_format=2).attrs["said"] = "HERE"
    replaced(folder / "x.zarr" / ".zattrs", '"HERE"', HALF)
    return splitops.files.open(folder / "x.zarr")


@pytest.mark.parametrize(
    "read",
    [
        *(of_metadata, of_a_name, of_a_field_that_is_not_read, of_an_index, of_a_plan, of_a_configuration),
        *(of_a_manifest, of_the_mark_of_a_rank, of_the_metadata_of_a_distributed_checkpoint, of_a_report),
        *(of_the_reply_of_a_runtime, of_a_zarr_array, of_the_attributes_of_zarr_2),
    ],
)
def test_half_of_a_character_is_rejected_by_every_reader(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    with pytest.raises(
        (SplitError, protocol.ProtocolError, protocol.CompareError), match="unpaired surrogate"
    ) as found:
        read(tmp_path)
    assert len(str(found.value).splitlines()) == 1
    str(found.value).encode()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r'"\ud83d\ude00"', "\U0001f600"),
        (r'"\\ud83d"', "\\ud83d"),
        (r'{"\uD83D\uDE00": ["\\\\udead"]}', {"\U0001f600": ["\\\\udead"]}),
        ("[" * 127 + "]" * 127, json.loads("[" * 127 + "]" * 127)),
        (json.dumps(["[" * 300]), ["[" * 300]),
        (json.dumps(['"[' * 300]), ['"[' * 300]),
    ],
)
def test_what_is_text_is_read(text: str, found: Any) -> None:
    assert parse_json(text.encode()) == found


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (rb'["\ude00\ud83d"]', "unpaired surrogate"),
        (rb'{"a": {"\uDFFF": 1}}', "unpaired surrogate"),
        (b'{"a": 1, "a": 1}', "appears twice"),
        (b"[NaN]", "NaN is not JSON"),
        (b"[-Infinity]", "Infinity is not JSON"),
        (b"[" * 128 + b"]" * 128, "128 levels deep"),
        (b'{"a":' * 4000 + b"1" + b"}" * 4000, "4000 levels deep"),
        (b"[" + b"[]," * 5_000_000 + b"1]", "it has 10000001 values"),
        (b"[" + b"1," * 9_000_000 + b"1]", "it has 9000001 values"),
        (b'"\xed\xa0\xbd"', "utf-8"),
        (b"9" * 5000, "digits"),
    ],
)  # fmt: skip
def test_what_no_document_can_be_is_rejected(content: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_json(content)


# TOML ---------------------------------------------------------------------------------------------------

DOTS = 40_000
LONG_KEYS = {
    "a key": b"a." * DOTS + b"a = 1",
    "spaces": b"a \t . " * DOTS + b"a = 1",
    "a table": b"[" + b"a." * DOTS + b"a]",
    "an array of tables": b"[[" + b"a." * DOTS + b"a]]",
    "quoted parts": b'"a.b".' * DOTS + b"a = 1",
    "literal parts": b"''.'\"'." * DOTS + b"a = 1",
    "an inline table": b"x = {" + b"a." * DOTS + b"a = 1}",
    "behind a text": b"x = '''\n'''\n" + b"a." * DOTS + b"a = 1",
    "behind a comment": b"# '\n" + b"a." * DOTS + b"a = 1",
}


def read_target(path: Path) -> Any:
    return Target.load(path)


def read_plan(path: Path) -> Any:
    return sharding.plan(checkpoint(path.parent / "model"), path, ranks=2)


@pytest.mark.parametrize("read", [read_target, read_plan, read_expectations])
@pytest.mark.parametrize("name", LONG_KEYS)
def test_a_key_of_many_dots_is_rejected_at_once(
    tmp_path: Path, name: str, read: Callable[[Path], Any]
) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(LONG_KEYS[name])
    begin = time.process_time()
    with pytest.raises((SplitError, protocol.CompareError), match=r"a key has \d+ parts, more than"):
        read(path)
    assert time.process_time() - begin < 2


@pytest.mark.parametrize(
    "text",
    [
        f'a = "{"b." * 99}"',
        f"a = '{'b.' * 99}'",
        f'a = """{"b." * 99}\n\\""" {"b." * 99}"""',
        f"a = '''{'b.' * 99}\n''{'b.' * 99}'''",
        f"# {'b.' * 99}\na = 1.5",
        f'"{"b." * 99}".a = 1',
        ".".join("abcdefghijklmnop") + " = 1",
    ],
)
def test_dots_that_are_not_of_keys_do_not_count(text: str) -> None:
    assert parse_toml(text.encode()) == tomllib.loads(text)


@given(
    st.lists(
        st.sampled_from(["'", '"', "\\", ".", "a", " ", "=", "\n", "#", "[", "]", "{", "}", ","]), max_size=30
    )
)
def test_toml_is_read_as_tomllib_reads_it(words: list[str]) -> None:
    text = "".join(words)
    try:
        wanted = tomllib.loads(text)
    except ValueError:
        with pytest.raises(ValueError, match=r"\S"):
            parse_toml(text.encode())
    else:
        assert parse_toml(text.encode()) == wanted


def test_a_toml_document_of_more_than_a_megabyte_is_rejected() -> None:
    with pytest.raises(DocumentError, match="1048577 bytes, more than the limit"):
        parse_toml(b"#" * (1 << 20) + b"\n")


# Ranks --------------------------------------------------------------------------------------------------

SCRIPT = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1_000_000_000, 1_000_000_000))
import splitops
for path in sys.argv[1:]:
    try:
        print(splitops.files.open(path))
    except splitops.errors.FileError as error:
        print(error)
"""
AXES = 45_000_000
REST = b'"dtype":"U8","data_offsets":[0,1]}}'
HEADERS = {
    "many axes": b'{"a":{"shape":[' + b"1," * AXES + b"1]," + REST,
    "many axes after a space": b'{ "a\\u0041" :{"shape":[' + b"1," * AXES + b"1]," + REST,
    "a field of lists": b'{"a":{"x":[' + b"[]," * (AXES * 2 // 3) + b'1],"shape":[1],' + REST,
    "65 axes": b'{"a":{"shape":[' + b"1," * 64 + b"1]," + REST,
}


def test_shapes_of_endless_axes_take_no_memory(tmp_path: Path) -> None:
    paths = []
    for name, header in HEADERS.items():
        paths.append(tmp_path / f"{name}.safetensors")
        paths[-1].write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, paths)],
        env={"PYTHONPATH": str(Path(splitops.__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(paths)
    assert all("more than the limit of" in line for line in lines), lines


def test_a_rank_of_64_is_read_and_one_of_65_is_rejected(tmp_path: Path) -> None:
    for rank in (64, 65):
        header = json.dumps({"a": {"dtype": "U8", "shape": [1] * rank, "data_offsets": [0, 1]}})
        path = write_safetensors(tmp_path / f"{rank}.safetensors", header)
        if rank == 64:
            assert splitops.files.open(path)["a"].ndim == 64
        else:
            with pytest.raises(SplitError, match="rank 65, more than the limit of 64"):
                splitops.files.open(path)
