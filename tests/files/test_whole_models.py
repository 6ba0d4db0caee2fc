"""Models in files of bounded size and back: whole tensors, their index, and the folders that lie."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import splitops
from command_line import runner
from splitops.cli import cli
from splitops.errors import FileError

RNG = np.random.default_rng(30)
INDEX = "model.safetensors.index.json"


def run(*arguments: object, code: int = 0) -> str:
    done = runner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == code, done.output + done.stderr
    return done.stdout + done.stderr


def tensors() -> dict[str, np.ndarray]:
    found = {f"layers.{i}.weight": RNG.standard_normal((8, 40), np.float32) for i in range(9)}
    return found | {"embed.weight": RNG.standard_normal((70, 40)).astype(np.float16), "n.bias": np.arange(3)}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    save_file(tensors(), folder / "model.safetensors", metadata={"format": "pt", "note": "kept"})
    (folder / "config.json").write_text('{"model_type": "llama"}')
    return folder


def gguf_model(path: Path, alignment: int | None = None) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("general.name", "small")
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    for name, array in tensors().items():
        writer.add_tensor(name, array)
    kind = gguf.GGMLQuantizationType.Q4_0
    data = gguf.quants.quantize(RNG.standard_normal((6, 128)).astype(np.float32), kind)
    writer.add_tensor("quantised", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_model_is_written_in_files_of_a_size_and_is_one_file_again(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = run("split", model, "--max-size", "4KB", "--out", out, "--verify")
    assert "note: tensor 'embed.weight' is larger than 4000 bytes and has a file of its own" in said
    files = sorted(out.glob("*.safetensors"))
    assert [path.name for path in files] == [
        f"model-{i + 1:05}-of-{len(files):05}.safetensors" for i in range(len(files))
    ]
    whole = load_file(model / "model.safetensors")
    index = json.loads((out / INDEX).read_text())
    assert index["metadata"] == {"total_size": sum(array.nbytes for array in whole.values())}
    seen: dict[str, str] = {}
    for path in files:
        with safe_open(path, "np") as file:
            names = list(file.keys())
            assert file.metadata() == {"format": "pt", "note": "kept"}
            assert all((file.get_tensor(name) == whole[name]).all() for name in names)
        assert path.stat().st_size <= 4000 or names == ["embed.weight"]
        seen |= dict.fromkeys(names, path.name)
    assert seen == index["weight_map"]
    assert (out / "config.json").read_bytes() == (model / "config.json").read_bytes()
    for source in ([out], [out / INDEX], files[:1], files):
        run("merge", *source, "--out", tmp_path / "one.safetensors", "--overwrite")
        assert (tmp_path / "one.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()


def test_a_dry_run_says_which_tensor_goes_where(model: Path, tmp_path: Path) -> None:
    arguments = ["split", model, "--max-size", "4KB", "--out", tmp_path / "out", "--dry-run"]
    said = run(*arguments)
    assert "nothing is written" in said
    assert not (tmp_path / "out").exists()
    found = json.loads(run(*arguments, "--json"))
    held = {Path(each["file"]).name: each["tensors"] for each in found["files"]}
    assert sorted(name for names in held.values() for name in names) == sorted(tensors())
    assert all(f"{file}  {name}\n" in said for file, names in held.items() for name in names)
    assert [Path(path).name for path in found["larger"]] == [
        file for file, names in held.items() if names == ["embed.weight"]
    ]
    run(*arguments[:-1])
    assert {path.name: path.stat().st_size for path in (tmp_path / "out").iterdir()} == {
        Path(each["file"]).name: each["bytes"] for each in found["files"]
    }


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["written", "dry run"])
def test_a_small_file_of_the_folder_may_be_larger_than_the_limit(model, tmp_path, dry):
    (model / "tokenizer.json").write_text(json.dumps("x" * 9000))
    said = run("split", model, "--max-size", "8KB", "--out", tmp_path / "out", *dry)
    assert "is larger than" not in said
    found = json.loads(run("split", model, "--max-size", "8KB", "--out", tmp_path / "two", "--json", *dry))
    assert found["larger"] == []


def test_what_fits_is_one_file_without_an_index(model: Path, tmp_path: Path) -> None:
    run("split", model / "model.safetensors", "--max-size", "1G", "--out", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model.safetensors"]
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()


@pytest.mark.parametrize("alignment", [None, 128])
def test_gguf_files_have_the_split_keys_of_llama_cpp(tmp_path: Path, alignment: int | None) -> None:
    path = gguf_model(tmp_path / "m.gguf", alignment)
    run("split", path, "--max-size", "4kB", "--out", tmp_path / "out", "--verify")
    files = sorted((tmp_path / "out").iterdir())
    total = len(gguf.GGUFReader(path).tensors)
    held = []
    for number, file in enumerate(files):
        assert file.name == f"m-{number + 1:05}-of-{len(files):05}.gguf"
        found = gguf.GGUFReader(file)
        keys = {name: field for name, field in found.fields.items() if not name.startswith("GGUF.")}
        said = [keys[f"split.{key}"] for key in ("no", "count", "tensors.count")]
        assert [int(field.parts[-1][0]) for field in said] == [number, len(files), total]
        kinds = [field.types[0] for field in said]
        assert kinds == [gguf.GGUFValueType.UINT16] * 2 + [gguf.GGUFValueType.INT32]
        assert ("general.name" in keys) is (number == 0)
        assert len(found.tensors) == 1 or file.stat().st_size <= 4000
        held += [(tensor.name, bytes(tensor.data)) for tensor in found.tensors]
    assert held == [(tensor.name, bytes(tensor.data)) for tensor in gguf.GGUFReader(path).tensors]
    for source in (files[:1], files, [tmp_path / "out"]):
        run("merge", *source, "--out", tmp_path / "one.gguf", "--overwrite")
        assert (tmp_path / "one.gguf").read_bytes() == path.read_bytes()


def test_from_one_format_to_the_other(model: Path, tmp_path: Path) -> None:
    run("split", model / "model.safetensors", "--max-size", "4KB", "--to", "gguf", "--out", tmp_path / "g")
    run("merge", tmp_path / "g", "--out", tmp_path / "one.safetensors")
    whole = load_file(model / "model.safetensors")
    found = load_file(tmp_path / "one.safetensors")
    assert found.keys() == whole.keys()
    assert all((found[name] == whole[name]).all() for name in whole)
    path = gguf_model(tmp_path / "m.gguf")
    said = run("split", path, "--max-size", "4KB", "--to", "safetensors", "--out", tmp_path / "s", code=1)
    assert "tensor 'quantised' has type Q4_0" in said
    assert not (tmp_path / "s").exists()


def test_an_index_is_opened_as_one_file(model: Path, tmp_path: Path) -> None:
    run("split", model, "--max-size", "4KB", "--out", tmp_path / "out")
    with pytest.raises(FileError, match="has 11 tensors"):
        splitops.files.plan_split(tmp_path / "out" / INDEX, tmp_path, num_outputs=2)
    weights = splitops.files.open(tmp_path / "out" / INDEX)
    whole = load_file(model / "model.safetensors")
    assert all((np.asarray(weights[name]) == whole[name]).all() for name in whole)
    parts = splitops.files.split(
        tmp_path / "out" / INDEX, tmp_path / "p", tensor="embed.weight", num_outputs=2
    )
    assert [path.name for path, _ in parts.files] == ["model.0.safetensors", "model.1.safetensors"]
    assert (load_file(parts.files[1][0])["embed.weight"] == whole["embed.weight"][35:]).all()


def test_numbered_files_need_no_index(model: Path, tmp_path: Path) -> None:
    """As trainers of Flux and kohya_ss leave them: three numbered files."""
    out = tmp_path / "out"
    run("split", model, "--max-size", "8KB", "--prefix", "diffusion_pytorch_model", "--out", out)
    (out / "diffusion_pytorch_model.safetensors.index.json").unlink()
    run("merge", out, "--out", tmp_path / "one.safetensors")
    assert (tmp_path / "one.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()


def lying(out: Path, kind: str) -> str:
    """Make a folder of files lie; return what is said of it."""
    files = sorted(out.glob("*.safetensors"))
    if kind == "missing":
        files[1].unlink()
        return f"{files[1].name}'?: no such file"
    if kind == "missing without an index":
        (out / INDEX).unlink()
        files[-1].unlink()
        return f"{files[-1].name}'?: no such file"
    if kind == "doubled":
        (out / INDEX).unlink()
        shutil.copy(files[0], files[1])
        return f"tensor 'n.bias' is in '{files[0].name}' and in '{files[1].name}'"
    if kind == "doubled beside an index":
        shutil.copy(files[0], files[1])
        return "tensor 'n.bias' is in .*, but .* lists"
    if kind == "truncated":
        with files[0].open("r+b") as file:
            file.truncate(files[0].stat().st_size - 1)
        return "is truncated"
    if kind == "other metadata":
        save_file(load_file(files[0]), files[0], metadata={"format": "np", "note": "kept"})
        return "differ in their metadata for 'format'"
    index = json.loads((out / INDEX).read_text())
    if kind == "climbing":
        index["weight_map"]["n.bias"] = "../model/model.safetensors"
    if kind == "not there":
        index["weight_map"]["ghost"] = files[0].name
    (out / INDEX).write_text("[]" if kind == "no index" else json.dumps(index))
    return {
        "climbing": "is not the name of a file inside the folder",
        "not there": "lists tensor 'ghost' in",
        "no index": "has no weight_map",
    }[kind]


@pytest.mark.parametrize(
    "kind",
    [
        "missing",
        "missing without an index",
        "doubled",
        "doubled beside an index",
        "truncated",
        "other metadata",
        "climbing",
        "not there",
        "no index",
    ],
)
def test_files_that_lie_are_one_error_before_anything_is_written(
    model: Path, tmp_path: Path, kind: str
) -> None:
    out = tmp_path / "out"
    run("split", model, "--max-size", "4KB", "--out", out)
    says = lying(out, kind)
    before = sorted(tmp_path.rglob("*"))
    for arguments in (
        ["merge", out, "--out", tmp_path / "one.safetensors"],
        ["split", out, "--max-size", "1G", "--out", tmp_path / "again"],
    ):
        said = run(*arguments, code=1)
        assert said.count("\n") == 1
        with pytest.raises(AssertionError, match=says):
            raise AssertionError(said)
    assert sorted(tmp_path.rglob("*")) == before


def test_gguf_pieces_that_are_missing_or_of_another_model(tmp_path: Path) -> None:
    run("split", gguf_model(tmp_path / "m.gguf"), "--max-size", "4KB", "--out", tmp_path / "out")
    files = sorted((tmp_path / "out").iterdir())
    assert "Open the first" in run("merge", files[1], "--out", tmp_path / "one.gguf", code=1)
    shutil.copy(files[0], files[1])
    assert "it is file 0 (from 0)" in run("merge", files[0], "--out", tmp_path / "one.gguf", code=1)
    files[1].unlink()
    assert "no such file" in run("merge", files[0], "--out", tmp_path / "one.gguf", code=1)
    assert not (tmp_path / "one.gguf").exists()


def test_wrong_usage(model: Path, tmp_path: Path) -> None:
    file = model / "model.safetensors"
    assert "Leave out the options that split a tensor" in run(
        "split", file, "--max-size", "1G", "--parts", 2, code=2
    )
    assert "npz files cannot be limited in size" in run(
        "split", file, "--max-size", "1G", "--to", "npz", code=1
    )
    assert "To write its tensors to files of limited size" in run("split", model, "--parts", 2, code=2)
    assert "use --out with .safetensors" in run("merge", model, "--out", tmp_path / "x", code=1)


def test_links_out_of_the_folder_are_followed_on_request_alone(model: Path, tmp_path: Path) -> None:
    """As the cache of a hub has them."""
    run("split", model, "--max-size", "8KB", "--out", tmp_path / "blobs")
    (tmp_path / "snapshot").mkdir()
    for path in (tmp_path / "blobs").iterdir():
        (tmp_path / "snapshot" / path.name).symlink_to(path)
    arguments = ["merge", tmp_path / "snapshot", "--out", tmp_path / "one.safetensors"]
    assert "--allow-links" in run(*arguments, code=1)
    run(*arguments, "--allow-links")
    assert (tmp_path / "one.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()


def test_at_addresses(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    run("split", model / "model.safetensors", "--max-size", "8KB", "--out", "memory://whole/s")
    run("split", gguf_model(tmp_path / "m.gguf"), "--max-size", "8KB", "--out", "memory://whole/g")
    for source in (f"memory://whole/s/{INDEX}", "memory://whole/s/model-00002-of-00003.safetensors"):
        run("merge", source, "--out", tmp_path / "one.safetensors", "--overwrite")
        assert (tmp_path / "one.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()
    run("merge", "memory://whole/g/m-00001-of-00003.gguf", "--out", tmp_path / "one.gguf")
    assert (tmp_path / "one.gguf").read_bytes() == (tmp_path / "m.gguf").read_bytes()


def test_files_of_an_earlier_run_are_not_counted_among_those_of_this_run(model: Path, tmp_path: Path) -> None:
    """Their names would be those of new files, and one of the two would be lost."""
    splitops.files.plan_by_size(model, tmp_path / "two", 5000).run()
    shutil.copy(model / "model.safetensors", tmp_path / "two" / "model.safetensors")
    for name in ("model-00001-of-00001.safetensors", "model-00001-of-00005.safetensors"):
        shutil.copy(tmp_path / "two" / "model-00001-of-00004.safetensors", tmp_path / "two" / name)
    for limit in (100, 4000, 5000, 10**6):
        plan = splitops.files.plan_by_size(tmp_path / "two", tmp_path / f"{limit}", limit)
        plan.run(verify=True)
        one = tmp_path / f"{limit}.safetensors"
        splitops.files.plan_one_file(tmp_path / f"{limit}", one).run()
        assert one.read_bytes() == (model / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("README.md", "readme.md"), "'README.md' and 'readme.md' cannot both exist on every file"),
        (("x.txt", "X.TXT"), "'X.TXT' and 'x.txt' cannot both exist"),
        (("stra\u00dfe", "STRASSE"), "'STRASSE' and 'stra\u00dfe' cannot both exist"),
        (("caf\u00e9", "cafe\u0301"), "cannot both exist"),
    ],
)
def test_names_that_are_one_on_some_file_systems(model: Path, tmp_path: Path, names, said) -> None:
    for name in names:
        (model / name).write_text("")
    with pytest.raises(FileError) as found:
        splitops.files.plan_by_size(model, tmp_path / "out", 4000)
    assert said in str(found.value)
    assert all(f"a copy of '{model / name}'" in str(found.value) for name in names)
    assert "Rename one of them" in run("split", model, "--max-size", 4000, "--out", tmp_path / "out", code=1)


@pytest.mark.parametrize("name", [".journal", "before", "files", ".source-0"])
@pytest.mark.parametrize("folder", ["new", "there"])
def test_a_file_with_the_name_of_one_that_a_run_needs(
    model: Path, tmp_path: Path, name: str, folder: str
) -> None:
    (model / name).write_text("mine")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / INDEX).write_text("old")
    (tmp_path / "there" / name).write_text("old")
    splitops.files.plan_by_size(model, tmp_path / folder, 4000).run(overwrite=True)
    assert (tmp_path / folder / name).read_text() == "mine"
    assert (tmp_path / folder / INDEX).read_text() != "old"
    assert not list(tmp_path.rglob(".splitops-*"))


def test_every_plan_of_files_names_its_targets_once(model: Path, tmp_path: Path) -> None:
    plan = splitops.files.plan_by_size(model, tmp_path / "out", 4000)
    index = next(target for target in plan.targets if target.name == INDEX)
    for name, other in (
        (plan.targets[0].name, "made from tensors of"),
        (INDEX, "written by splitops"),
        (INDEX.upper(), "written by splitops"),
        (f"{INDEX}/inside", "written by splitops"),
    ):
        targets = (*plan.targets, dataclasses.replace(index, name=name, copied="model/x"))
        with pytest.raises(FileError, match="a copy of model/x") as found:
            dataclasses.replace(plan, targets=targets)
        assert other in str(found.value)
