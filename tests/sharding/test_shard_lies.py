"""Folders that lie, lack something or belong to something else: one line, and nothing is written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from sharding_helpers import LLAMA, LLAMA_PLAN, contents, llama, save

import splitops
from splitops import SplitError, sharding
from splitops.errors import FileError
from splitops.files.formats import get_format
from splitops.files.sources import LocalFile

EVERYTHING = {"version": 1, "rule": [{"match": "*", "replicate": True}]}
INDEX = "model.safetensors.index.json"


def rejected(function, *arguments, **keywords) -> str:
    with pytest.raises(SplitError) as found:
        function(*arguments, **keywords)
    assert "\n" not in str(found.value)
    return str(found.value)


@pytest.fixture
def model(tmp_path):
    return save(tmp_path / "model", llama(1), LLAMA, 2)


@pytest.fixture
def ranks(model, tmp_path):
    sharding.plan(model, LLAMA_PLAN, ranks=2).run(tmp_path / "ranks", sync=False)
    return tmp_path / "ranks"


def edit(path, change) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


# Checkpoints ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("../outside.safetensors", "is not the name of a file inside the folder"),
        ("/etc/passwd", "is not the name of a file inside the folder"),
        ("sub/../../x", "is not the name of a file inside the folder"),
        ("missing.safetensors", "no such file"),
        ("", "is not the name of a file inside the folder"),
        ("a\0b", "is not the name of a file inside the folder"),
        (7, "has no weight_map of names to files"),
    ],
)
def test_an_index_that_points_elsewhere(model, file, says):
    edit(model / INDEX, lambda index: index["weight_map"].update({"model.norm.weight": file}))
    assert says in rejected(sharding.plan, model, EVERYTHING, ranks=2)


def test_an_index_and_files_that_do_not_agree(model):
    index = model / INDEX
    text = index.read_text()
    edit(index, lambda found: found["weight_map"].update(nobody=found["weight_map"]["model.norm.weight"]))
    assert "lists tensor 'nobody' in 'model-0000" in rejected(sharding.plan, model, EVERYTHING, ranks=2)
    index.write_text(text)
    edit(index, lambda found: found["weight_map"].pop("model.norm.weight"))
    assert "does not list it" in rejected(sharding.plan, model, EVERYTHING, ranks=2)
    index.write_text(text)
    # The same tensor in both files: the index can speak of one of them only.
    shutil.copy(model / "model-00001-of-00002.safetensors", model / "model-00002-of-00002.safetensors")
    assert "index.json' lists 'model-00001-of-00002" in rejected(sharding.plan, model, EVERYTHING, ranks=2)
    index.write_text("[]")
    assert "has no weight_map" in rejected(sharding.plan, model, EVERYTHING, ranks=2)


def test_a_link_out_of_the_folder_is_followed_on_request_alone(model, tmp_path):
    file = model / "model-00001-of-00002.safetensors"
    file.rename(tmp_path / "blob")
    file.symlink_to(tmp_path / "blob")
    assert "--allow-links" in rejected(sharding.plan, model, LLAMA_PLAN, ranks=2)
    sharding.plan(model, LLAMA_PLAN, ranks=2, allow_links=True).run(tmp_path / "ranks", sync=False)


def test_folders_that_hold_no_checkpoint_or_several(tmp_path):
    assert "neither a checkpoint's folder nor" in rejected(
        sharding.plan, tmp_path / "no", EVERYTHING, ranks=2
    )
    assert "contains no model.safetensors" in rejected(sharding.plan, tmp_path, EVERYTHING, ranks=2)
    for name in ("a.safetensors", "b.safetensors"):
        save(tmp_path, {"w": np.zeros(1)})
        (tmp_path / "model.safetensors").rename(tmp_path / name)
    assert "move files of other models to another folder" in rejected(
        sharding.plan, tmp_path, EVERYTHING, ranks=2
    )


def test_headers_that_lie_are_rejected(model):
    file = model / "model-00001-of-00002.safetensors"
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - 1)
    assert "is truncated" in rejected(sharding.plan, model, EVERYTHING, ranks=2)


def test_numbers_of_ranks_that_cannot_be(model):
    for ranks in (0, -1, 1 << 20):
        assert "it must be an integer from 1 to 65536" in rejected(
            sharding.plan, model, EVERYTHING, ranks=ranks
        )
    assert "unknown layout 'zip': use hf, dcp, vllm" in rejected(
        sharding.plan, model, EVERYTHING, ranks=2, layout="zip"
    )


def test_an_index_that_is_too_large(model):
    os.truncate(model / INDEX, (256 << 20) + 1)
    assert "bytes; the limit for an index is" in rejected(sharding.plan, model, EVERYTHING, ranks=2)


def test_an_index_of_pieces_that_says_nothing(model, tmp_path):
    sharding.plan(model, EVERYTHING, ranks=2, layout="dcp").run(tmp_path / "pieces", sync=False)
    (tmp_path / "pieces" / "manifest.json").unlink()
    (tmp_path / "pieces" / INDEX).write_text('{"weight_map": 3}')
    assert "has no weight_map" in rejected(sharding.merge, tmp_path / "pieces")


def test_configurations_that_are_none(model):
    (model / "config.json").write_text("[]")
    assert "is not a JSON object" in rejected(sharding.plan, model, EVERYTHING, ranks=2)
    (model / "config.json").write_text("{")
    assert "is not JSON" in rejected(sharding.plan, model, EVERYTHING, ranks=2)


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 100_000, f'{{"version": {"9" * 5_000}}}', f"x = {'[' * 100_000}", "\udc80"],
    ids=["lists", "objects", "digits", "toml", "no text"],
)
@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors.index.json", "plan.toml", "plan.json", "manifest.json"]
)
def test_documents_without_an_end_are_one_line(model, tmp_path, name, text):
    folder = tmp_path if name.startswith("plan") else model
    (folder / name).write_text(text, errors="surrogateescape")
    if name == "manifest.json":
        rejected(sharding.merge, model)
    else:
        rejected(sharding.plan, model, folder / name if folder is tmp_path else "auto", ranks=2)


# Ranks ---------------------------------------------------------------------------------------------------


def test_a_rank_that_is_missing(ranks):
    shutil.rmtree(ranks / "rank-00001-of-00002")
    assert "rank 1 of 2 is missing" in rejected(sharding.merge, ranks)


def test_a_file_of_a_rank_that_is_missing(ranks):
    (ranks / "rank-00001-of-00002" / "model-00001-of-00002.safetensors").unlink()
    assert "no such file" in rejected(sharding.merge, ranks)


def test_ranks_of_different_runs(ranks, tmp_path):
    other = save(tmp_path / "other", {n: a + 1 for n, a in llama(1).items()}, LLAMA, 2)
    sharding.plan(other, LLAMA_PLAN, ranks=2).run(tmp_path / "ranks-2", sync=False)
    shutil.rmtree(ranks / "rank-00001-of-00002")
    shutil.copytree(tmp_path / "ranks-2" / "rank-00001-of-00002", ranks / "rank-00001-of-00002")
    assert "and manifest.json are from different runs" in rejected(sharding.merge, ranks)


def test_files_of_other_sizes_or_headers(ranks):
    file = ranks / "rank-00000-of-00002" / "model-00001-of-00002.safetensors"
    content = file.read_bytes()
    file.write_bytes(content + b"x")
    assert "it is from another run" in rejected(sharding.merge, ranks)
    file.write_bytes(content.replace(b"F32", b"I32", 1))
    assert "has an unexpected header" in rejected(sharding.merge, ranks)


def stated(field, value):
    return lambda document: document.update({field: value})


def of_tensor(**fields):
    def change(document):
        for field, value in fields.items():
            document["tensors"][field][0] = value

    return change


def of_kind(**fields):
    return lambda document: document["kinds"][0].update(fields)


def of_whole_kind(**fields):
    def change(document):
        next(k for k in document["kinds"] if "axis" not in document["cuts"][k["cut"]]).update(fields)

    return change


def of_cut(**fields):
    def change(document):
        next(cut for cut in document["cuts"] if "axis" in cut).update(fields)

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (stated("version", 2), "version is 2, not 1"),
        (stated("ranks", 1 << 40), "the maximum is 65536"),
        (stated("ranks", 3), "a cut has 2 shards for 3 ranks"),
        (stated("layout", "zip"), "layout is 'zip'"),
        (stated("cuts", []), "but there are 0"),
        (stated("more", 1), "the document has the unknown key 'more'"),
        (of_kind(cut=99), "has cut 99"),
        (of_tensor(kind=99), "has kind 99, but there are only"),
        (lambda d: d["tensors"]["kind"].pop(), "columns of tensors have different lengths: [10, 9, 10, 10]"),
        (
            lambda d: d["tensors"]["file"].append(0),
            "columns of tensors have different lengths: [10, 10, 11, 10]",
        ),
        (of_tensor(file=9), "is in file 9, but there are only 2"),
        (of_kind(dtype="F33"), "which safetensors does not support"),
        (of_kind(shape=[1 << 62, 1 << 62]), "has a size in bits of"),
        (of_whole_kind(shape=[1 << 40]), "extends past the end"),
        (of_tensor(offset=0), "overlap at byte"),
        (of_tensor(offset=1 << 70), "extends past the end"),
        (of_tensor(offset=-1), "tensors.offset[0] is -1"),
        (of_tensor(name="\ud800"), "unpaired surrogate"),
        (of_tensor(name="model.norm.weight"), "a tensor appears twice"),
        (of_cut(axis=5), "axis 5 of a cut is out of range"),
        (of_cut(shards=[None, None]), "or no shard at all"),
        (of_cut(shards=[{"size": 9, "pieces": [[0, 9, 0]]}, None]), "pieces of a cut"),
        (of_cut(shards=[{"size": 1, "pieces": [[0, 9, 0]]}, None]), "pieces of a cut"),
        (of_cut(shards=[{"size": 3, "pieces": [[0, 2, 0], [2, 1, 1]]}, None]), "at [0] and [1]"),
        (lambda d: d["cuts"][0]["shards"][0].update(size=1 << 62), "than a file can have"),
        (
            lambda d: [s.update(size=1 << 56) for c in d["cuts"] for s in c["shards"]],
            "than a file can have",
        ),
        (of_cut(shards=[{"size": 0, "pieces": [[0, 0, 0]]}, None]), "a piece of a cut is empty"),
        (lambda d: d["files"][0].update(name="../x"), "is not the name of a file inside"),
        (lambda d: d["files"][0]["literals"][0].update(base64="?"), "are not base64"),
        (lambda d: d["files"][0]["literals"][0].update(base64="é"), "are not base64"),
        (lambda d: d["files"][0]["literals"][0].update(offset=1 << 50), "a literal extends past the end"),
        (lambda d: d["files"][0].update(size=1), "past the end"),
        (lambda d: d["files"][0].update(size=1 << 63), "9223372036854775808 bytes: the maximum is"),
        (
            lambda d: d["others"].append({"name": "/etc/passwd", "shared": True}),
            "is not the name of a file inside",
        ),
        (lambda d: d["others"].append({"name": "nobody.json", "shared": True}), "no such file"),
        (lambda d: d["files"][0].update(literals=[]), "has been changed: restore it"),
        (lambda d: d["files"][0].update(size=d["files"][0]["size"] + 8), "has been changed: restore it"),
        (stated("tied", {"a": "model.norm.weight"}), "has been changed: restore it"),
    ],
)
def test_a_manifest_that_lies(ranks, tmp_path, change, says):
    edit(ranks / "manifest.json", change)
    before = contents(tmp_path)
    found = rejected(sharding.merge, ranks)
    assert says in found, found
    assert contents(tmp_path) == before


def test_what_is_no_folder_of_ranks(model):
    assert "is not a folder of ranks" in rejected(sharding.merge, model)


# Runs ----------------------------------------------------------------------------------------------------


def test_a_folder_that_exists_is_rejected_and_replaced_on_request(model, ranks, tmp_path):
    plan = sharding.plan(model, LLAMA_PLAN, ranks=4)
    with pytest.raises(FileError, match="already exists"):
        plan.run(ranks)
    plan.run(ranks, overwrite=True, sync=False)
    assert len(list(ranks.glob("rank-*"))) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "ranks"]


def test_a_target_by_another_name_is_what_it_is(model, tmp_path):
    found = rejected(sharding.plan(model, LLAMA_PLAN, ranks=2).run, tmp_path / "new" / "..", overwrite=True)
    assert "would replace a source" in found


def test_an_index_whose_total_size_is_wrong_is_said(model):
    path = model / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    rules = {**LLAMA_PLAN, "rule": [rule for rule in LLAMA_PLAN["rule"] if "pad_to" not in rule]}
    rules["rule"].append({"match": "*", "axis": 0})
    assert sharding.plan(model, rules, ranks=2).warnings == ()
    for total in (1, -1, "many"):
        path.write_text(json.dumps(index | {"metadata": {"total_size": total}}))
        [said] = sharding.plan(model, rules, ranks=2).warnings
        assert f"has total_size = {total!r}, but its tensors have 279040 bytes" in said


def test_a_file_of_an_earlier_run_is_not_taken_for_one_of_this_run(model, tmp_path):
    (model / "model-rank-0-part-0.safetensors").write_bytes(b"of an earlier run")
    (model / "config.json").write_text(json.dumps(LLAMA | {"architectures": ["LlamaForCausalLM"]}))
    plan = sharding.plan(model, "auto", ranks=2, layout="vllm")
    assert "'model-rank-0-part-0.safetensors' is left out" in plan.warnings[0]
    plan.run(tmp_path / "out")
    sharding.merge(tmp_path / "out").run(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(model, but=("model-rank-0-part-0.safetensors",))


@pytest.mark.parametrize(
    ("layout", "other", "said"),
    [
        ("vllm", "source", "'source' and 'source/"),
        ("dcp", "Source", "'Source' and 'source/"),
        ("hf", "rank.json", "two files would have the name 'rank-00000-of-00002/rank.json'"),
        (
            "hf",
            "Rank.JSON",
            "'rank-00000-of-00002/rank.json' and 'rank-00000-of-00002/Rank.JSON' cannot",
        ),
        ("dcp", "Manifest.json", "'manifest.json' and 'Manifest.json' cannot both"),
        ("hf", "Config.json", "'source/Config.json' and 'source/config.json' cannot both"),
        ("hf", "cafe\u0301.txt", "cannot both exist"),
    ],
)
def test_two_files_of_one_name_are_rejected_by_their_sources(model, tmp_path, layout, other, said):
    (model / other).write_bytes(b"" if other == "rank.json" else b"of somebody else")
    (model / "caf\u00e9.txt").write_bytes(b"with another accent")
    (model / "config.json").write_text(json.dumps(LLAMA | {"architectures": ["LlamaForCausalLM"]}))
    plan = sharding.plan(model, "auto", ranks=2, layout=layout)
    for run in (plan.run, plan.dry_run):
        found = rejected(run, tmp_path / "out")
        assert said in found
        assert f"a copy of '{model / other}'" in found
    assert not (tmp_path / "out").exists()


def test_what_is_read_is_never_replaced(model, ranks):
    before = contents(ranks)
    for plan in (sharding.plan(ranks, ranks=4), sharding.merge(ranks)):
        with pytest.raises(FileError, match="would replace a source"):
            plan.run(ranks, overwrite=True)
    assert contents(ranks) == before


def test_a_source_that_changes_meanwhile_leaves_nothing(model, tmp_path):
    plan = sharding.plan(model, LLAMA_PLAN, ranks=2)

    def change(done, total):
        os.utime(model / "model-00001-of-00002.safetensors", ns=(1, 1))

    with pytest.raises(FileError, match="has changed while it was being read"):
        plan.run(tmp_path / "out", progress=change)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_run_that_was_killed_goes_on(model, tmp_path, monkeypatch, at):
    from splitops.files import engine

    monkeypatch.setattr(engine.split_into_tasks, "__defaults__", (20_000,))
    monkeypatch.setattr(engine, "_BLOCK", 10_000)
    plan = sharding.plan(model, LLAMA_PLAN, ranks=2)
    plan.run(tmp_path / "whole", sync=False)
    child = os.fork()
    if not child:
        copied, copy = [], engine.copy

        def counted(*arguments, **keywords):
            copied.append(0)
            if len(copied) > at:
                os._exit(9)
            return copy(*arguments, **keywords)

        engine.copy = counted
        plan.run(tmp_path / "out")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert not (tmp_path / "out").exists()
    report = plan.run(tmp_path / "out", resume=True, verify=True)
    # The task before the one that the kill fell into may not have been noted yet.
    assert report.resumed > 0 or at == 1
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out", "whole"]


# Copies ---------------------------------------------------------------------------------------------------


def test_copies_of_ranks_are_equal_before_one_is_taken(model, tmp_path):
    """Heads of keys and values repeat on 4 ranks, norms on all; one byte differs in one rank."""
    sharding.plan(model, LLAMA_PLAN, ranks=4).run(tmp_path / "four", sync=False)
    sharding.merge(tmp_path / "four").run(tmp_path / "again", sync=False)
    assert contents(tmp_path / "again") == contents(model)
    rank = sorted((tmp_path / "four").glob("rank-00001*/*.safetensors"))
    for name in ("model.norm.weight", "model.layers.0.self_attn.k_proj.weight"):
        path = next(path for path in rank if name.encode() in path.read_bytes()[:4000])
        tensor = next(
            each for each in get_format("safetensors").read(LocalFile(path)).tensors if each.name == name
        )
        before = path.read_bytes()
        path.write_bytes(
            before[: tensor.offset + 5] + bytes([before[tensor.offset + 5] ^ 1]) + before[tensor.offset + 6 :]
        )
        for function, more in ((sharding.merge, {}), (sharding.plan, {"ranks": 2})):
            said = rejected(function, tmp_path / "four", **more)
            assert f"tensor '{name}': the copies in " in said
            assert " differ" in said
        path.write_bytes(before)
    sharding.merge(tmp_path / "four")


def test_copies_in_rows_are_compared_too(tmp_path):
    """Repeated along the last axis, beside a section that is cut: runs with gaps, other ones in each rank."""
    save(tmp_path / "model", {"w": np.arange(60, dtype=np.float32).reshape(5, 12)}, {})
    rule = {"match": "w", "axis": 1, "sections": [8, 4], "unit": 2, "replicate": [1]}
    sharding.plan(tmp_path / "model", {"version": 1, "rule": [rule]}, ranks=4).run(
        tmp_path / "ranks", sync=False
    )
    sharding.merge(tmp_path / "ranks").run(tmp_path / "again", sync=False)
    assert contents(tmp_path / "again") == contents(tmp_path / "model")
    path = next((tmp_path / "ranks").glob("rank-00003*/*.safetensors"))
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert " differ" in rejected(sharding.merge, tmp_path / "ranks")


def test_copies_of_a_distributed_checkpoint_are_compared(tmp_path):
    for rank, value in enumerate((1, 2)):
        info = json.dumps({"w": {"saved_offsets": [0]}})
        metadata = {"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": info}
        name = f"shard-{rank + 1:05}-model-00001-of-00001.safetensors"
        save_file({"w": np.full(3, value)}, tmp_path / name, metadata)
    assert " differ" in rejected(sharding.merge, tmp_path)


def test_pickled_checkpoints_are_rejected_with_what_converts_them(tmp_path):
    (tmp_path / "__0_0.distcp").write_bytes(b"")
    for function, more in ((sharding.merge, {}), (sharding.plan, {"ranks": 2})):
        said = rejected(function, tmp_path, **more)
        assert f"accelerate merge-weights {tmp_path} OUT" in said.replace("'", "")
        assert "format_utils dcp_to_torch" in said


def test_pickled_files_of_ranks_are_rejected(tmp_path):
    """As accelerate saves FSDP's shards with use_dcp=False."""
    (tmp_path / "pytorch_model_fsdp_0_rank1.bin").write_bytes(b"")
    said = rejected(sharding.merge, tmp_path)
    assert "contains pickled .bin files of ranks" in said
    assert "use_dcp=True" in said


def test_ranks_at_an_address_are_rejected(model, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FileError, match=r"not written from start to end.* Write to a local folder"):
        sharding.plan(model, LLAMA_PLAN, ranks=2).run("memory://ranks")
    assert sorted(tmp_path.rglob("*")) == before


_MEASURED = """
import resource, sys
from splitops import sharding
from splitops.errors import SplitError
resource.setrlimit(resource.RLIMIT_AS, (500_000_000, 500_000_000))
try:
    sharding.merge(sys.argv[1])
except SplitError as error:
    print(error)
"""


@pytest.mark.parametrize("kinds", [1, 500])
@pytest.mark.parametrize("layout", ["hf", "dcp", "vllm"])
def test_a_manifest_of_many_ranks_takes_no_memory_for_ranks_that_do_not_exist(tmp_path, layout, kinds):
    ranks, count = 16_384, 1000
    document = {
        "version": 1,
        "run": "x",
        "source": "x",
        "layout": layout,
        "ranks": ranks,
        "files": [{"name": "model.safetensors", "size": 1 << 40, "metadata": {}, "literals": []}],
        "others": [],
        "cuts": [{"axis": 0, "shards": [{"size": 1, "pieces": [[rank, 1, 0]]} for rank in range(ranks)]}],
        "kinds": [{"dtype": "U8", "shape": [ranks, kind + 1], "cut": 0} for kind in range(kinds)],
        "tensors": {
            "name": [f"t{i}" for i in range(count)],
            "kind": [i % kinds for i in range(count)],
            "file": [0] * count,
            "offset": [i * ranks * kinds for i in range(count)],
        },
        "tied": {},
        "plan": {},
    }
    (tmp_path / "manifest.json").write_text(json.dumps(document))
    if layout == "hf":  # the folders exist, the files do not
        for rank in range(3):
            home = tmp_path / f"rank-{rank:05}-of-{ranks:05}"
            home.mkdir()
            (home / "rank.json").write_text(json.dumps({"run": "x", "rank": rank, "ranks": ranks}))
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(Path(splitops.__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "is missing" in done.stdout or "no such file" in done.stdout


def _numbers_of(value, place=()):
    """Yield where a document has an integer, of long lists the first three entries."""
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value[:3])
        for key, one in inner:
            yield from _numbers_of(one, (*place, key))
    elif type(value) is int:
        yield place


@pytest.mark.parametrize("layout", ["hf", "dcp"])
def test_no_number_of_a_manifest_is_too_large_for_one_line(model, tmp_path, layout):
    """Python writes no number of more than 4,300 digits, and a sum of two that it has read may have more."""
    ranks = tmp_path / "ranks"
    sharding.plan(model, LLAMA_PLAN, ranks=2, layout=layout).run(ranks, sync=False)
    text = (ranks / "manifest.json").read_text()
    places = list(_numbers_of(json.loads(text)))
    assert len({place[0] for place in places}) >= 6
    for place in places:
        for number in ("9" * 4300, "1" + "0" * 4299, "9" * 5000, "-" + "9" * 4300, str(2**63), str(2**64)):
            document = json.loads(text)
            inner = document
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = "HERE"
            (ranks / "manifest.json").write_text(json.dumps(document).replace('"HERE"', number))
            for read in (sharding.merge, lambda path: sharding.plan(path, ranks=1)):
                found = rejected(read, ranks)
                assert "\n" not in found
                assert len(found) <= 1000


@pytest.mark.parametrize("number", ["9" * 4300, "9" * 5000, "1e999"])
def test_no_number_of_another_document_is_too_large_for_one_line(model, ranks, tmp_path, number):
    """A plan in both languages, a configuration, an index, a mark, a description of a target."""
    config, index = model / "config.json", model / INDEX
    mark = ranks / "rank-00000-of-00002" / "rank.json"
    (tmp_path / "plan.toml").write_text(f'version = 1\n[[rule]]\nmatch = "*"\naxis = {number}\n')
    (tmp_path / "plan.json").write_text('{"version": 1, "rule": [{"match": "*", "axis": ' + number + "}]}")
    (tmp_path / "rules.json").write_text('{"version": ' + number + ', "rule": []}')
    for plan in ("plan.toml", "plan.json"):
        assert "\n" not in rejected(sharding.plan, model, tmp_path / plan, ranks=2)
    assert "\n" not in rejected(sharding.unfuse, model, tmp_path / "rules.json")
    before = config.read_text()
    config.write_text(before.replace('"head_dim": 4', f'"head_dim": {number}'))
    assert "\n" not in rejected(sharding.plan, model, LLAMA_PLAN, ranks=2)
    config.write_text(before)
    total = json.loads(index.read_text())["metadata"]["total_size"]
    index.write_text(index.read_text().replace(str(total), number))
    if len(number) > 4300:
        assert "\n" not in rejected(sharding.plan, model, LLAMA_PLAN, ranks=2)
    else:
        said, *_ = sharding.plan(model, LLAMA_PLAN, ranks=2).warnings
        assert "has total_size = " in said
    mark.write_text(mark.read_text().replace('"rank": 0', f'"rank": {number}'))
    assert "\n" not in rejected(sharding.merge, ranks)
    assert "\n" not in rejected(sharding.rank, ranks, 0)
