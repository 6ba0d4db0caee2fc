"""The format of a new file, which its name or ``to`` decides; and files of PyTorch, which are not read."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import splitops
from command_line import runner
from splitops import files, sharding
from splitops.cli import cli
from splitops.errors import FileError, SplitError
from splitops.sharding.foreign import find_rank_files

WHOLE = np.arange(24, dtype=np.float32).reshape(4, 6)


def run(*arguments: object, code: int = 0) -> str:
    done = runner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == code, done.output + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    for path, part in zip(paths, np.split(WHOLE, 2), strict=True):
        np.save(path, part)
    return paths


@pytest.mark.parametrize(
    "name",
    ["all.h5", "all.hdf5", "all.zarr", "all.npz", "all.safetensors", "all.gguf", "all.onnx", "ALL.NPZ"],
)
def test_the_ending_of_a_merged_file_is_its_format(parts, tmp_path, name):
    run("merge", *parts, "--out", tmp_path / name)
    [tensor] = splitops.files.open(tmp_path / name).values()  # rejects a file of another format
    np.testing.assert_array_equal(np.asarray(tensor), WHOLE)
    assert (tmp_path / name).is_dir() or (tmp_path / name).read_bytes()[:6] != b"\x93NUMPY"
    files.merge(parts, tmp_path / "python" / name)
    assert (tmp_path / "python" / name).exists()


def test_libraries_read_what_the_ending_says(parts, tmp_path):
    for name in ("x.h5", "x.safetensors", "x.npz", "x.bin"):
        files.merge(parts, tmp_path / name)
    with h5py.File(tmp_path / "x.h5") as file:
        np.testing.assert_array_equal(file["data"][...], WHOLE)
    np.testing.assert_array_equal(load_file(tmp_path / "x.safetensors")["data"], WHOLE)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npz")["data"], WHOLE)
    assert (tmp_path / "x.bin").read_bytes() == WHOLE.tobytes()


@pytest.mark.parametrize("name", ["all.dat", "all", "all.txt", "all.npyz", "all.pt", ".npy.part"])
def test_a_name_that_says_no_format_is_an_error(parts, tmp_path, name):
    said = run("merge", *parts, "--out", tmp_path / name, code=1)
    assert "unknown format for" in said
    assert "--to" in said
    assert not (tmp_path / name).exists()
    run("merge", *parts, "--out", tmp_path / name, "--to", "npy")
    np.testing.assert_array_equal(np.load(tmp_path / name), WHOLE)


def test_to_decides_over_the_ending(parts, tmp_path):
    files.merge(parts, tmp_path / "x.h5", to="safetensors")
    np.testing.assert_array_equal(load_file(tmp_path / "x.h5")["data"], WHOLE)


@pytest.mark.parametrize(
    ("name", "said"),
    [("x.xml", "cannot be written"), ("x.safetensors.index.json", "is the name of an index")],
)
def test_endings_of_files_that_are_not_made_so(parts, tmp_path, name, said):
    assert said in run("merge", *parts, "--out", tmp_path / name, code=1)
    save_file({"x": WHOLE}, tmp_path / "model.safetensors")
    with pytest.raises(FileError, match=said):
        files.plan_one_file(tmp_path / "model.safetensors", tmp_path / name)


def test_raw_bytes_have_any_ending_but_that_of_a_format(parts, tmp_path):
    for name in ("x.f32", "x.bin", "x"):
        run("merge", *parts, "--raw", "2,6:float32@128", "--out", tmp_path / name)
        assert (tmp_path / name).read_bytes() == WHOLE.tobytes()
    run("merge", *parts, "--raw", "2,6:float32@128", "--out", tmp_path / "x.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), WHOLE)


def test_parts_of_raw_bytes_do_not_have_the_ending_of_another_format(parts, tmp_path):
    run("split", parts[0], "--raw", "2,6:float32@128", "--parts", "2", "--out", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.0.bin", "a.1.bin"]


# Files of PyTorch ----------------------------------------------------------------------------------------


NAMES = ["pytorch_model.bin", "consolidated.00.pth", "model.pt", "last.ckpt", "x.PTH"]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_pytorch_is_not_read_and_the_error_says_how_to_convert_it(tmp_path, name):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / name).write_bytes(b"PK\x03\x04")
    (folder / "config.json").write_text('{"model_type": "llama"}')
    for words in (
        ("inspect", folder / name),
        ("split", folder / name, "--parts", 2),
        ("merge", folder / name, "--out", tmp_path / "x.npy"),
        ("shard", folder, "--dry-run"),
        ("shard", folder / name, "--dry-run"),
        ("split", folder, "--max-size", "1G", "--out", tmp_path / "x"),
        ("merge", folder, "--out", tmp_path / "x"),
        ("merge", folder, "--out", tmp_path / "x.safetensors"),
        ("fuse", folder, "--out", tmp_path / "x"),
        ("reshard", folder, "--ranks", 2, "--out", tmp_path / "x"),
    ):
        said = run(*words, code=1)
        assert len(said.splitlines()) == 1
        assert f"{name!r} is a pickle of PyTorch" in said
        assert "save_file" in said
        assert ("--raw" in said) == name.endswith(".bin")
    for words in (("inspect", folder), ("split", folder, "--parts", 2)):
        assert f"{name!r} is a pickle of PyTorch" in run(*words, code=2)


def test_the_bin_of_an_ir_is_not_called_a_pickle(tmp_path):
    for name in ("model.xml", "model.bin"):
        (tmp_path / name).write_bytes(b"<net/>")
    with pytest.raises(SplitError) as found:
        sharding.plan(tmp_path, "auto", ranks=2)
    assert "pickle" not in str(found.value)


def _advised(path: Path) -> str:
    said = run("inspect", path, code=1)
    [code] = [word for word in shlex.split(said[said.index("python -c") :]) if "torch.load" in word]
    return code


def test_the_advice_is_a_command_for_every_name(tmp_path):
    for name in ("it's.pth", 'a "b".pt', "$(x) `y`.ckpt"):
        (tmp_path / name).write_bytes(b"")
        code = _advised(tmp_path / name)
        compile(code, "advice", "exec")
        assert json.dumps(name) in code


@pytest.mark.parametrize(
    ("names", "converted"),
    [
        (["consolidated.00.pth", "consolidated.01.pth"], ["consolidated.00", "consolidated.01"]),
        (["non-tp.pt", "tp_00_00.pt", "tp_01_00.pt"], ["non-tp", "tp_00_00", "tp_01_00"]),
        (
            ["mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"],
            ["mp_rank_00_model_states", "mp_rank_01_model_states"],
        ),
        (
            ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"],
            ["model-00001-of-00002", "model-00002-of-00002"],
        ),
        (["pytorch_model.bin"], ["model"]),
        (["pytorch_model.bin", "training_args.bin"], ["model", "training_args"]),
    ],
)
def test_the_command_gives_each_file_a_name_of_its_own(tmp_path, names, converted):
    """The names are those of the ranks or the shards that other commands read."""
    for name in names:
        (tmp_path / name).write_bytes(b"")
    for name, target in zip(names, converted, strict=True):
        code = _advised(tmp_path / name)
        if len(names) == 1 or any(letter.isdigit() for letter in name):
            assert f'"{target}.safetensors")' in code
    said = run("merge", tmp_path, "--out", tmp_path / "x", code=1)
    assert f'"{converted[0]}.safetensors")' in said
    assert ("each to a file of its own name" in said) == (len(names) > 1)
    (tmp_path / "new").mkdir()
    for target in converted:
        (tmp_path / "new" / f"{target}.safetensors").write_bytes(b"")
    found = find_rank_files(tmp_path / "new")
    assert {Path(name).stem for name in found} | {"non-tp"} >= {*converted} or "model" in converted[0]


def test_the_command_of_the_advice_converts(tmp_path):
    torch = pytest.importorskip("torch")
    shared = torch.arange(6.0).reshape(2, 3)
    torch.save({"a": shared, "b": shared, "c": shared.T}, tmp_path / "it's.pth")
    subprocess.run([sys.executable, "-c", _advised(tmp_path / "it's.pth")], check=True, cwd=tmp_path)
    found = load_file(tmp_path / "model.safetensors")
    assert found.keys() == {"a", "b", "c"}
    np.testing.assert_array_equal(found["c"], shared.numpy().T)


@pytest.mark.parametrize(
    ("name", "key"), [("mp_rank_00_model_states.pt", "module"), ("mp_rank_00/model_optim_rng.pt", "model")]
)
def test_the_command_converts_the_model_of_a_rank_beside_its_optimizer(tmp_path, name, key):
    torch = pytest.importorskip("torch")
    (tmp_path / "mp_rank_00").mkdir()
    model = {"a": torch.ones(2), "a._extra_state": None}
    torch.save({"iteration": 3, key: model, "optimizer": {"state": {}}}, tmp_path / name)
    with pytest.raises(SplitError) as found:
        sharding.merge(tmp_path)
    [code] = [word for word in shlex.split(str(found.value).partition(": ")[2]) if "torch.load" in word]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    assert load_file((tmp_path / name).with_suffix(".safetensors")).keys() == {"a"}


@pytest.mark.parametrize("digits", [20, 4300, 5000])
def test_numbers_of_many_digits_on_the_command_line(parts, tmp_path, digits):
    number = "9" * digits
    for words in (
        ("split", parts[0], "--raw", f"1:float32@{number}", "--parts", 2, "--out", tmp_path / "x"),
        ("split", parts[0], "--raw", f"{number}:float32", "--parts", 2, "--out", tmp_path / "x"),
        ("split", parts[0], "--memory", number, "--parts", 2, "--out", tmp_path / "x"),
        ("shard", tmp_path, "--ranks", number, "--dry-run"),
    ):
        done = runner().invoke(cli, [str(word) for word in words], catch_exceptions=False)
        assert done.exit_code in (1, 2)
