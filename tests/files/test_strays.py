"""Tensor files in a model's folder that the model does not name: named, never copied, rejected if strict."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import splitops
from command_line import runner
from splitops import sharding
from splitops.cli import cli
from splitops.errors import FileError, SplitError
from splitops.files import plan_by_size, plan_one_file

PLAN = {"version": 1, "rule": [{"match": "*", "axis": 0}]}
RULES = {"version": 1, "rule": [{"fused": "layer.0.bias", "parts": ["layer.0.weight"]}]}
TENSORS = {f"layer.{i}.weight": np.full((8, 16), i, np.float32) for i in range(4)}


def _shards(folder: Path, count: int = 2, *, index: bool = True) -> Path:
    folder.mkdir(parents=True)
    where = {}
    for number in range(count):
        name = f"model-{number + 1:05}-of-{count:05}.safetensors"
        own = dict(list(TENSORS.items())[number::count])
        save_file(own, folder / name)
        where |= dict.fromkeys(own, name)
    if index:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    (folder / "config.json").write_text('{"model_type": "own"}')
    return folder


def _single(folder: Path) -> Path:
    folder.mkdir(parents=True)
    save_file(TENSORS, folder / "model.safetensors")
    return folder


def _gguf(folder: Path) -> Path:
    folder.mkdir(parents=True)
    plan_by_size(_single(folder / "from"), folder, 1200, to="gguf").run()
    shutil.rmtree(folder / "from")
    return folder


def _numbered(folder: Path) -> Path:
    return _shards(folder, index=False)


LOST = {"stray.x": np.ones(3, np.float32), "stray.y": np.ones(5, np.float32)}
OWN = {"layer.0.weight": np.full((8, 16), 9, np.float32)}
CASES = [
    (
        _shards,
        "extra.safetensors",
        LOST,
        "no file of the model has its tensor 'stray.x' (and 1 more tensor)",
    ),
    (_shards, "model.safetensors", LOST, "no file of the model has its tensor 'stray.x' (and 1 more tensor)"),
    (_shards, "model.safetensors", OWN, "the model has tensors with all of its names"),
    (_shards, "model-00001-of-00003.safetensors", LOST, "its tensor 'stray.x'"),
    (_shards, "model-00003-of-00002.safetensors", LOST, "its tensor 'stray.x'"),
    (_shards, "EXTRA.SafeTensors", LOST, "its tensor 'stray.x'"),
    (_shards, "broken.safetensors", b"{", "it cannot be read"),
    (_shards, "other.safetensors.index.json", b'{"weight_map": {}}', "it is not part of the model of"),
    (_shards, "model.gguf", b"GGUF", "it cannot be read"),
    (_single, "extra.safetensors", LOST, "is not part of the model of 'model.safetensors'"),
    (_single, "model-00001-of-00003.safetensors", LOST, "its tensor 'stray.x'"),
    (_numbered, "model-00003-of-00002.safetensors", LOST, "its tensor 'stray.x'"),
]


def _add(folder: Path, name: str, stray: dict[str, np.ndarray] | bytes) -> None:
    if isinstance(stray, bytes):
        (folder / name).write_bytes(stray)
    else:
        save_file(stray, folder / name)


def _read(folder: Path) -> dict[str, np.ndarray]:
    return {name: np.asarray(tensor) for name, tensor in splitops.files.open(_main(folder)).items()}


def _main(folder: Path) -> Path:
    index = folder / "model.safetensors.index.json"
    return index if index.exists() else folder / "model.safetensors"


@pytest.mark.parametrize(("make", "name", "stray", "said"), CASES)
def test_a_stray_is_named_and_left_out_by_every_command(tmp_path, make, name, stray, said):
    folder = make(tmp_path / "model")
    _add(folder, name, stray)
    plans = {
        "by-size": plan_by_size(folder, tmp_path / "by-size", 1500),
        "one": plan_one_file(folder, tmp_path / "one" / "model.safetensors"),
        "ranks": sharding.plan(folder, PLAN, ranks=2).plan_files(tmp_path / "ranks"),
        "fused": sharding.fuse(
            folder, {"version": 1, "rule": [{"fused": "layer.0.bias", "parts": ["layer.0.weight"]}]}
        ).plan_files(tmp_path / "fused"),
    }
    for where, plan in plans.items():
        [warning] = plan.warnings
        assert warning.startswith(f"{name!r} is left out: ")
        assert said in warning
        plan.run()
        copies = [path.read_bytes() for path in (tmp_path / where).rglob(name)]
        assert (folder / name).read_bytes() not in copies
    for where in ("by-size", "one"):
        found = _read(tmp_path / where)
        assert found.keys() == TENSORS.keys()
        assert all((found[key] == value).all() for key, value in TENSORS.items())


@pytest.mark.parametrize(("make", "name", "stray", "said"), CASES)
def test_a_stray_is_an_error_if_strict(tmp_path, make, name, stray, said):
    folder = make(tmp_path / "model")
    for strict in (
        lambda: plan_by_size(folder, tmp_path / "out", 1500, strict=True),
        lambda: plan_one_file(folder, tmp_path / "out.safetensors", strict=True),
        lambda: sharding.plan(folder, PLAN, ranks=2, strict=True),
    ):
        strict()  # without a stray
    _add(folder, name, stray)
    for strict in (
        lambda: plan_by_size(folder, tmp_path / "out", 1500, strict=True),
        lambda: plan_one_file(folder, tmp_path / "out.safetensors", strict=True),
        lambda: sharding.plan(folder, PLAN, ranks=2, strict=True),
        lambda: sharding.fuse(folder, RULES, strict=True),
    ):
        with pytest.raises(FileError) as found:
            strict()
        assert str(found.value).startswith(f"{name!r} is left out: ")
        assert said in str(found.value)
        assert "strict" in str(found.value)


def test_pieces_of_gguf_that_no_piece_counts(tmp_path):
    folder = _gguf(tmp_path / "model")
    [last] = sorted(folder.glob("*.gguf"))[-1:]
    count = len(list(folder.glob("*.gguf")))
    shutil.copy(last, folder / f"model-{count + 1:05}-of-{count:05}.gguf")
    plan = plan_one_file(folder, tmp_path / "one.gguf")
    assert [warning.partition(" is")[0] for warning in plan.warnings] == [
        f"'model-{count + 1:05}-of-{count:05}.gguf'"
    ]
    with pytest.raises(FileError, match="is left out"):
        plan_one_file(folder, tmp_path / "one.gguf", strict=True)


@pytest.mark.parametrize("layout", ["hf", "dcp"])
def test_a_stray_among_ranks(tmp_path, layout):
    ranks = tmp_path / "ranks"
    sharding.plan(_shards(tmp_path / "model"), PLAN, ranks=2, layout=layout).run(ranks)
    home = ranks / "rank-00001-of-00002" if layout == "hf" else ranks
    save_file(LOST, home / "extra.safetensors")
    save_file(LOST, ranks / "model-00007-of-00008.safetensors")
    for plan in (
        sharding.merge(ranks).plan_files(tmp_path / "a"),
        sharding.plan(ranks, ranks=1).plan_files(tmp_path / "b"),
    ):
        assert len(plan.warnings) == 2
        assert any("extra.safetensors' is left out" in warning for warning in plan.warnings)
        plan.run()
        out = tmp_path / plan.targets[0].name
        assert not [*out.rglob("extra.safetensors"), *out.rglob("*-00007*")]
    for strict in (
        lambda: sharding.merge(ranks, strict=True),
        lambda: sharding.plan(ranks, ranks=1, strict=True),
    ):
        with pytest.raises(FileError, match="is left out"):
            strict()


def test_a_stray_beside_a_distributed_checkpoint_without_a_manifest(tmp_path):
    ranks = tmp_path / "ranks"
    sharding.plan(_shards(tmp_path / "model"), PLAN, ranks=2, layout="dcp").run(ranks)
    (ranks / "manifest.json").unlink()
    save_file(LOST, ranks / "model.safetensors")
    [stray, *others] = sharding.merge(ranks).checkpoint.warnings
    assert stray.startswith("'model.safetensors' is left out")
    assert others == ["the folder 'source' is not copied"]
    with pytest.raises(SplitError, match="is left out"):
        sharding.merge(ranks, strict=True)


def test_other_files_that_cannot_be_copied_are_named(tmp_path):
    folder = _shards(tmp_path / "model")
    (folder / "vocab.json").symlink_to("nowhere")
    os.mkfifo(folder / "pipe.json")
    assert plan_by_size(folder, tmp_path / "out", 1500).warnings == (
        "'pipe.json' is not copied: it is not a regular file",
        "'vocab.json' is not copied: No such file or directory",
    )


def test_strays_that_are_no_files_are_named_and_not_waited_for(tmp_path):
    folder = _shards(tmp_path / "model")
    (folder / "gone.safetensors").symlink_to("nowhere")
    os.mkfifo(folder / "pipe.safetensors")
    (tmp_path / "outside.safetensors").write_bytes((folder / "model-00001-of-00002.safetensors").read_bytes())
    (folder / "out.safetensors").symlink_to(tmp_path / "outside.safetensors")
    found = plan_by_size(folder, tmp_path / "out", 1500).warnings
    assert [each.partition(" is")[0] for each in found] == [
        "'gone.safetensors'",
        "'out.safetensors'",
        "'pipe.safetensors'",
    ]
    assert all("it cannot be read" in each for each in found)


def test_the_commands_say_it(tmp_path):
    folder = _shards(tmp_path / "model")
    save_file(LOST, folder / "extra.safetensors")
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(PLAN))
    for number, words in enumerate(
        (
            ["split", folder, "--max-size", "1500"],
            ["shard", folder, "--ranks", "2", "--plan", plan],
            ["merge", folder],
        )
    ):
        out = tmp_path / (f"{number}.safetensors" if words[0] == "merge" else f"{number}")
        command = [*map(str, words), "--out", str(out)]
        strict = runner().invoke(cli, [*command, "--strict"])
        assert strict.exit_code == 1
        assert "'extra.safetensors' is left out" in strict.stderr
        assert not out.exists()
        done = runner().invoke(cli, command)
        assert done.exit_code == 0
        assert "warning: 'extra.safetensors' is left out" in done.stdout
        dry = runner().invoke(cli, [*command, "--overwrite", "--dry-run", "--json"])
        assert json.loads(dry.stdout)["warnings"][0].startswith("'extra.safetensors' is left out")
    assert load_file(tmp_path / "2.safetensors").keys() == TENSORS.keys()


USUAL = [
    (_shards, "consolidated.safetensors", LOST),
    (_shards, "consolidated.00.safetensors", LOST),
    (_shards, "consolidated-00001-of-00002.safetensors", LOST),
    (_shards, "consolidated.safetensors.index.json", b'{"weight_map": {}}'),
    (_single, "adapter_model.safetensors", LOST),
    (_single, "model.fp16.safetensors", OWN),
    (_single, "model.fp16-00001-of-00002.safetensors", OWN),
    (_single, "model.safetensors.index.fp16.json", b'{"weight_map": {}}'),
    (_shards, "model.fp16.safetensors.index.json", b'{"weight_map": {}}'),
    (_single, "model.fp16.safetensors.index.json", b'{"weight_map": {}}'),
    (_single, "consolidated.safetensors.index.json", b'{"weight_map": {}}'),
    (_numbered, "consolidated.safetensors.index.json", b'{"weight_map": {}}'),
    (_shards, "model.non_ema.safetensors", OWN),
    (_shards, "model.BF16.safetensors", OWN),
    (_numbered, "consolidated.safetensors", LOST),
    (_numbered, "model.fp32-00001-of-00002.safetensors", OWN),
]


@pytest.mark.parametrize(("make", "name", "stray"), USUAL)
def test_a_model_that_is_usual_beside_another_one_is_no_stray(tmp_path, make, name, stray):
    folder = make(tmp_path / "model")
    _add(folder, name, stray)
    for where, plan in {
        "by-size": plan_by_size(folder, tmp_path / "by-size", 1500, strict=True),
        "one": plan_one_file(folder, tmp_path / "one" / "model.safetensors", strict=True),
        "ranks": sharding.plan(folder, PLAN, ranks=2, strict=True).plan_files(tmp_path / "ranks"),
        "fused": sharding.fuse(folder, RULES, strict=True).plan_files(tmp_path / "fused"),
    }.items():
        assert plan.warnings == (f"{name!r} is not copied: by its name, it belongs to another model",)
        plan.run()
        assert not [*(tmp_path / where).rglob(name)]
    assert _read(tmp_path / "one").keys() == TENSORS.keys()


@pytest.mark.parametrize(
    ("name", "strange"),
    [
        ("other.fp16.safetensors", LOST),  # not of this model
        ("model.part.safetensors", LOST),  # no precision
        ("model.fp17.safetensors", OWN),
        ("unconsolidated.safetensors", LOST),
        ("consolidated_more.safetensors", LOST),
    ],
)
def test_a_name_that_is_only_like_a_usual_one_is_a_stray(tmp_path, name, strange):
    folder = _shards(tmp_path / "model")
    _add(folder, name, strange)
    with pytest.raises(FileError, match="is left out"):
        plan_by_size(folder, tmp_path / "out", 1500, strict=True)


@pytest.mark.parametrize("variant", ["fp16", "bf16", "non_ema"])
def test_of_several_precisions_the_plain_one_is_the_model(tmp_path, variant):
    folder = tmp_path / "model"
    folder.mkdir()
    save_file(TENSORS, folder / "diffusion_pytorch_model.safetensors")
    save_file(OWN, folder / f"diffusion_pytorch_model.{variant}.safetensors")
    plan_one_file(folder, tmp_path / "one.safetensors", strict=True).run()
    assert load_file(tmp_path / "one.safetensors").keys() == TENSORS.keys()
    (folder / "diffusion_pytorch_model.safetensors").unlink()
    plan_one_file(folder, tmp_path / "one.safetensors").run(overwrite=True)
    assert load_file(tmp_path / "one.safetensors").keys() == OWN.keys()


def test_files_of_a_model_in_folders_of_its_folder(tmp_path):
    folder = tmp_path / "model"
    (folder / "unet").mkdir(parents=True)
    save_file(TENSORS, folder / "unet" / "a.safetensors")
    index = {"weight_map": dict.fromkeys(TENSORS, "unet/a.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    plans = (
        lambda: plan_by_size(folder, tmp_path / "out", 1500).warnings,
        lambda: sharding.plan(folder, PLAN, ranks=2).warnings,
    )
    for plan in plans:
        assert plan() == ()
    (folder / "unet" / "config.json").write_text("{}")
    for plan in plans:
        assert plan() == ("only the model's files are copied from the folder 'unet'",)
    save_file(LOST, folder / "a.safetensors")  # of the same name, elsewhere
    for plan in plans:
        [stray, _] = plan()
        assert stray.startswith("'a.safetensors' is left out: ")
