"""Which files are opened: those that a caller names, and those of a model's folder through its one door."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from safetensors.numpy import save_file

import splitops
import splitops_compare
from splitops import sharding
from splitops.errors import SplitError
from splitops.files.checksums import check
from splitops.files.max_size import plan_by_size, plan_one_file

SOURCE = Path(splitops.__file__).parent
COMPARE = Path(splitops_compare.__file__).parents[1]

# The source ---------------------------------------------------------------------------------------------

OPENING = {
    "open",
    "read_bytes",
    "read_text",
    "fdopen",
    "mmap",
    "memmap",
    "fromfile",
    "loadtxt",
    "File",
}
OPENING |= {
    "open_array",
    "open_group",
    "open_regular",
    "read_all_tensors",
    "read_buffer",
    "read_bounded",
    "LocalFile",
    "ZipFile",
}
ALLOWED = {
    "common/untrusted_files.py": "the door itself",
    "common/descriptors.py": "opens what it is told to, for the door and for the files that are written",
    # Of this package, this process or this machine
    "splitops_compare/protocol.py": "schemas of the package",
    "splitops_compare/reports/verdicts.py": "a table of the package",
    "splitops_compare/reports/html.py": "a page of the package",
    "explain/pages.py": "a page of the package",
    "models/check/explanations.py": "tables of the package",
    "models/check/targets.py": "targets of the package, or the file that a caller names",
    "sharding/documents.py": "schemas of the package, or the plan that a caller names",
    "sharding/tables/__init__.py": "tables of the package",
    "splitops_compare/reports/reproduction.py": "adapters of the package",
    "cli/report_environment.py": "what pip says of installed packages",
    "native/resources.py": "limits of this process",
    "splitops_compare/driver/process.py": "pipes and processes of a comparison",
    "splitops_compare/worker.py": "pipes and files of a comparison",
    "splitops_compare/driver/user_models.py": "models that a comparison has made",
    "splitops_compare/reports/reproduce.py": "a script that a reproduction holds",
    "models/engines/worker.py": "the pipe of a worker",
    "models/engines/onnxruntime.py": "a profile that onnxruntime has written",
    "models/engines/openvino.py": "a model that OpenVINO has written",
    # Files that a caller names
    "cli/_inputs.py": "inputs that a caller names",
    "cli/split.py": "the model that a caller names",
    "splitops_compare/reports/report_diff.py": "the report that a caller names",
    "files/checksums.py": "the file of checksums that a caller names, and with allow_links all that it names",
    "files/plan_builder.py": "the file that a caller names",
    "files/max_size.py": "the file that a caller names",
    "files/formats/npy.py": "the file that a caller names",
    "models/formats/onnx/storage.py": "the model that a caller names, and files that are written",
    "models/formats/openvino/reader.py": "the model that a caller names",
    "models/check/messages.py": "data of the package",
    # A file of the folder, through the door
    "files/formats/onnx.py": "external data, in its folder",
    "files/formats/openvino.py": "the .bin file, in its folder",
    "files/folders.py": "files of a folder",
    "files/indexing.py": "files of a folder",
    "files/strays.py": "files of a folder",
    "files/sources.py": "the file that a caller names, or a file of a folder",
    "files/chunk_tasks.py": "arrays, as their format opens them",
    "files/formats/zarr_chunks.py": "chunks and descriptions, in their folder",
    "models/formats/onnx/tensors.py": "external data, in its folder",
    "files/formats/zarr_store.py": "arrays, through the store of a folder",
    "sharding/checkpoint.py": "files of a folder, or the model that a caller names",
    "sharding/distributed.py": "files of a folder",
    "sharding/foreign.py": "files of a folder",
    "sharding/manifest.py": "files of a folder",
    "sharding/ranks.py": "maps files of a folder that are open",
    # Files that are written, and read back
    "common/staging.py": "a staging folder of its own, by descriptor",
    "common/atomic_write.py": "files that are written",
    "cli/_outputs.py": "files that are written",
    "splitops_compare/cli.py": "files that are written",
    "splitops_compare/reports/onnx_tests.py": "files that are written",
    "models/formats/openvino/writer.py": "files that are written",
    "files/cluster.py": "a marker in the staging folder",
    "files/descriptors.py": "files that are written",
    "files/extent_tasks.py": "files that are written, and sources that are open",
    "files/folder_run.py": "files that are written, and sources that are open",
    "files/runs.py": "files that are written",
    "files/uploads.py": "files that are written",
    "files/formats/npz.py": "files that are written, and members of an open archive",
    "files/formats/zarr.py": "files that are written",
    "files/formats/hdf5.py": "the file that a caller names, which h5py opens, and files that are written",
}
"""Every module that opens files, and whose they are."""


def openings(path: Path) -> set[str]:
    """Return the names by which a module may open a file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            found |= {name} & OPENING
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            found |= {name} & {"os.open", "np.load", "onnx.load", "onnx.load_model"}
    return found


def test_every_module_that_opens_files_is_known() -> None:
    modules = {path.relative_to(SOURCE).as_posix(): path for path in SOURCE.rglob("*.py")}
    modules |= {path.relative_to(COMPARE).as_posix(): path for path in COMPARE.rglob("*.py")}
    found = {
        name
        for name, path in modules.items()
        # Adapters run in processes of their own.
        if not name.startswith("splitops_compare/adapters/") and openings(path)
    }
    assert sorted(found - set(ALLOWED)) == []
    assert sorted(set(ALLOWED) - found) == []


def test_an_opening_call_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("def f(path):\n    return path.read_bytes()\n")
    assert openings(path) == {"read_bytes"}


# Folders ------------------------------------------------------------------------------------------------


def moved_out(path: Path, levels: int = 1) -> None:
    """Put a link in the place of a file, and the file outside of the folder so many levels above it."""
    outside = path.parents[levels] / f"outside-{path.name}"
    path.rename(outside)
    path.symlink_to(outside)


def model(folder: Path) -> Path:
    folder.mkdir()
    save_file({"a": np.arange(8.0), "b": np.arange(8.0)}, folder / "model.safetensors")
    return folder


def pieces(folder: Path, to: str) -> list[Path]:
    made = plan_by_size(model(folder.parent / "whole"), folder, 200, to=to).run(sync=False)
    return [path for path, _ in made.files]


def second_piece_of_gguf(folder: Path) -> Path:
    found = pieces(folder, "gguf")
    moved_out(found[1])
    return found[0]


def second_piece_of_safetensors(folder: Path) -> Path:
    first, second, index = pieces(folder, "safetensors")
    index.unlink()
    moved_out(second)
    return first


def index_beside_a_piece(folder: Path) -> Path:
    first, _, index = pieces(folder, "safetensors")
    moved_out(index)
    return first


def only_file(folder: Path) -> Path:
    moved_out(model(folder) / "model.safetensors")
    return folder


def only_gguf_file(folder: Path) -> Path:
    plan_by_size(model(folder.parent / "whole"), folder, 10**6, to="gguf").run(sync=False)
    moved_out(folder / "model.gguf")
    return folder


def index_of_a_folder(folder: Path) -> Path:
    moved_out(pieces(folder, "safetensors")[2])
    return folder


def small_file(folder: Path) -> Path:
    (model(folder) / "tokenizer.txt").write_text("text")
    moved_out(folder / "tokenizer.txt")
    return folder


FOLDERS = [
    *(second_piece_of_gguf, second_piece_of_safetensors, index_beside_a_piece, only_file, only_gguf_file),
    *(index_of_a_folder, small_file),
]


@pytest.mark.parametrize("make", FOLDERS)
def test_a_whole_model_is_read_out_of_its_folder_on_request_alone(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    path = make(tmp_path / "m")
    runs: list[Callable[..., Any]] = [
        lambda **options: plan_by_size(path, tmp_path / "out", 10**6, **options),
        lambda **options: plan_one_file(path, tmp_path / "out.safetensors", to="safetensors", **options),
    ]
    for run in runs if make is not small_file else runs[:1]:
        with pytest.raises(SplitError, match=r"through a symbolic link\. .*--allow-links"):
            run()
        assert len(run(allow_links=True).parts) == 2


def test_pieces_of_one_model_are_opened_through_the_same_door(tmp_path: Path) -> None:
    path = second_piece_of_gguf(tmp_path / "m")
    with pytest.raises(SplitError, match="through a symbolic link"):
        splitops.files.open(path)
    with pytest.raises(SplitError, match="through a symbolic link"):
        splitops.files.split(path, tmp_path / "out", tensor="a", num_outputs=2)


@pytest.mark.parametrize("name", ["manifest.json", "rank-00001-of-00002/rank.json", "source/config.json"])
def test_documents_of_ranks_are_read_out_of_their_folder_on_request_alone(tmp_path: Path, name: str) -> None:
    (model(tmp_path / "m") / "config.json").write_text("{}")
    everything = {"version": 1, "rule": [{"match": "*", "axis": 0}]}
    sharding.plan(tmp_path / "m", everything, ranks=2).run(tmp_path / "ranks", sync=False)
    moved_out(tmp_path / "ranks" / name, 1 + name.count("/"))
    for run in (sharding.merge, lambda path, **options: sharding.plan(path, everything, ranks=1, **options)):
        with pytest.raises(SplitError, match="through a symbolic link"):
            run(tmp_path / "ranks")
        run(tmp_path / "ranks", allow_links=True)


@pytest.mark.parametrize("name", ["consolidated.01.safetensors", "config.json", "params.json"])
def test_ranks_of_other_programs_are_read_out_of_their_folder_on_request_alone(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "m").mkdir()
    for rank in range(2):
        save_file({"a": np.arange(8.0)}, tmp_path / "m" / f"consolidated.{rank:02}.safetensors")
    for other in {name, "params.json"} - {"consolidated.01.safetensors"}:
        (tmp_path / "m" / other).write_text("{}")
    moved_out(tmp_path / "m" / name, 1)
    everything = {"version": 1, "rule": [{"match": "*", "axis": 0}]}
    for run in (sharding.merge, lambda path, plan, **more: sharding.plan(path, plan, ranks=1, **more)):
        with pytest.raises(SplitError, match="through a symbolic link"):
            run(tmp_path / "m", everything)
        run(tmp_path / "m", everything, allow_links=True)


def test_external_data_is_read_out_of_its_folder_on_request_alone(tmp_path: Path) -> None:
    path, form = tmp_path / "m" / "m.onnx", splitops.files.get_format("onnx")
    np.save(tmp_path / "w.npy", np.arange(8, dtype=np.float32))
    splitops.files.merge([tmp_path / "w.npy"], path, to=form)
    moved_out(path.with_name("m.onnx.data"))
    everything = {"version": 1, "rule": [{"match": "*", "axis": 0}]}
    for run in (
        lambda **options: sharding.plan(path, everything, ranks=2, **options).run(tmp_path / "out"),
        lambda **options: plan_one_file(path, tmp_path / "x.safetensors", **options).run(),
    ):
        with pytest.raises(SplitError, match="through a symbolic link"):
            run()
        run(allow_links=True)


def test_a_large_file_beside_ranks_is_not_copied(tmp_path: Path) -> None:
    (model(tmp_path / "m") / "note.txt").write_text("text")
    everything = {"version": 1, "rule": [{"match": "*", "axis": 0}]}
    sharding.plan(tmp_path / "m", everything, ranks=2).run(tmp_path / "ranks", sync=False)
    os.truncate(tmp_path / "ranks" / "source" / "note.txt", 1 << 36)
    with pytest.raises(SplitError, match=r"note\.txt' has 68719476736 bytes, but at most 67108864 are"):
        sharding.merge(tmp_path / "ranks")


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/hostname", "link", "file:///etc/hostname", "zip://x::file:///y"]
)
def test_checksums_are_of_files_of_their_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "m" / "sums").write_text(f"{'0' * 64}  {name}\n")
    [found] = check(tmp_path / "m" / "sums")
    assert found.problem is not None
    assert "SHA-256" not in found.problem
    if "::" not in name:
        [found] = check(tmp_path / "m" / "sums", allow_links=True)
        assert "its SHA-256 is" in str(found.problem)


# zarr ---------------------------------------------------------------------------------------------------


def array(tmp_path: Path, version: int = 3) -> Path:
    path = tmp_path / "m" / "x.zarr"
    zarr.create_array(path, data=np.arange(64).reshape(8, 8), chunks=(4, 8), zarr_format=version)
    return path


def chunk_of(path: Path) -> Path:
    return path / "0.0" if (path / "0.0").exists() else path / "c" / "0" / "0"


def link_out(path: Path) -> None:
    moved_out(chunk_of(path), len(chunk_of(path).relative_to(path).parts))


def folder_link_out(path: Path) -> None:
    folder = chunk_of(path).parent
    outside = path.parents[1] / "outside"
    folder.rename(outside)
    folder.symlink_to(outside, target_is_directory=True)


def device_link(path: Path) -> None:
    chunk = chunk_of(path)
    chunk.unlink()
    chunk.symlink_to("/dev/zero")


def pipe(path: Path) -> None:
    chunk = chunk_of(path)
    chunk.unlink()
    os.mkfifo(chunk)


def giant(path: Path) -> None:
    os.truncate(chunk_of(path), 1 << 36)


def document(path: Path) -> None:
    found = next(each for name in ("zarr.json", ".zarray") if (each := path / name).exists())
    found.unlink()
    os.mkfifo(found)


def document_out(path: Path) -> None:
    moved_out(next(each for name in ("zarr.json", ".zarray") if (each := path / name).exists()))


ZARR = {
    link_out: "through a symbolic link",
    device_link: "through a symbolic link",
    pipe: "not a regular file",
    giant: "68719476736 bytes, more than the",
    document: "not a regular file",
    document_out: "through a symbolic link",
}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("to", [None, "npy"])
@pytest.mark.parametrize("change", ZARR)
def test_a_zarr_folder_is_opened_as_other_files_are(
    tmp_path: Path, change: Callable[[Path], None], to: str | None, version: int
) -> None:
    path = array(tmp_path, version)
    change(path)
    with pytest.raises(SplitError, match=ZARR[change]):
        splitops.files.split(path, tmp_path / "out", num_outputs=2, to=to)
    assert not (tmp_path / "out").exists()


def test_a_folder_of_chunks_that_links_out_is_rejected(tmp_path: Path) -> None:
    path = array(tmp_path)
    folder_link_out(path)
    with pytest.raises(SplitError, match="through a symbolic link"):
        splitops.files.split(path, tmp_path / "out", num_outputs=2)


@pytest.mark.parametrize("target", [".", "..", "/"])
def test_a_group_with_a_link_to_a_folder_is_rejected(tmp_path: Path, target: str) -> None:
    group = zarr.create_group(tmp_path / "x.zarr")
    group.create_array("a", data=np.arange(4))
    (tmp_path / "x.zarr" / "b").symlink_to(target, target_is_directory=True)
    with pytest.raises(SplitError, match="is a link to a folder"):
        splitops.files.open(tmp_path / "x.zarr")


@pytest.mark.parametrize("name", ["../x", "a/../../x", "a/./b"])
def test_an_array_that_a_group_names_outside_is_rejected(tmp_path: Path, name: str) -> None:
    """A document that describes the members of a group names them by paths."""
    group = zarr.create_group(tmp_path / "m" / "x.zarr")
    group.create_array("a", data=np.arange(4))
    zarr.create_array(tmp_path / "m" / "x", data=np.arange(4))
    zarr.consolidate_metadata(group.store)
    path = tmp_path / "m" / "x.zarr" / "zarr.json"
    document = json.loads(path.read_text())
    members = document["consolidated_metadata"]["metadata"]
    members[name] = members.pop("a")
    path.write_text(json.dumps(document))
    with pytest.raises(SplitError, match=r"x\.zarr|outside|inside"):
        splitops.files.split(tmp_path / "m" / "x.zarr", tmp_path / "out", num_outputs=2)
    assert not (tmp_path / "out").exists()


def test_a_zarr_array_of_many_axes_is_rejected(tmp_path: Path) -> None:
    path = array(tmp_path)
    document = json.loads((path / "zarr.json").read_text())
    document["shape"] = [1] * 65
    document["chunk_grid"]["configuration"]["chunk_shape"] = [1] * 65
    (path / "zarr.json").write_text(json.dumps(document))
    with pytest.raises(SplitError, match=r"x\.zarr|rank 65"):
        splitops.files.open(path)


def test_links_inside_of_a_zarr_folder_are_followed(tmp_path: Path) -> None:
    path = array(tmp_path)
    chunk_of(path).rename(path / "moved")
    chunk_of(path).symlink_to(path / "moved")
    made = splitops.files.split(path, tmp_path / "out", num_outputs=2)
    assert zarr.open_array(made.files[0][0])[...].tolist() == np.arange(32).reshape(4, 8).tolist()
