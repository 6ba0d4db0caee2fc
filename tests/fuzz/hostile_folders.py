"""Folders from an attacker: each file of each kind of folder, replaced by each thing that a file can be."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import zarr
from onnx import TensorProto, helper, save
from safetensors.numpy import save_file

import splitops
from splitops import sharding
from splitops.models.formats import openvino as openvino_ir

CANARY = "canary-5d1f"
"""In all contents and names outside; no command may print or write it."""
GIANT = 1 << 36
PLAN = {"version": 1, "rule": [{"match": "*", "axis": 0}]}
EXPECTED = '[[expected]]\ncase = "{}"\nimplementation = "numpy"\nverdict = "differs"\n'
NOT_UTF8 = os.fsdecode(b"\xff\xfe")

# The folders --------------------------------------------------------------------------------------------


def _tensors(word: str) -> dict[str, np.ndarray]:
    return {f"{word}.{name}": np.arange(8, dtype=np.float32) for name in ("a", "b")}


def _text(word: str) -> np.ndarray:
    """Return a word again and again, as 40 bytes."""
    return np.frombuffer(word.encode() * 40, np.uint8)[:40].copy()


def _checkpoint(folder: Path, word: str) -> None:
    save_file(_tensors(word), folder / "model.safetensors", {"format": word})
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": [word]}))
    (folder / "tokenizer.txt").write_text(word)


def _indexed(folder: Path, word: str) -> None:
    _checkpoint(folder / "..", word)
    whole = folder.parent / "model.safetensors"
    splitops.files.plan_by_size(whole, folder, 200).run(sync=False)
    (folder / "config.json").write_text(json.dumps({"architectures": [word]}))


def _numbered(folder: Path, word: str) -> None:
    _indexed(folder, word)
    (folder / "model.safetensors.index.json").unlink()


def _gguf(folder: Path, word: str) -> None:
    _checkpoint(folder / "..", word)
    splitops.files.plan_by_size(folder.parent / "model.safetensors", folder, 200, to="gguf").run(sync=False)


def _lone_gguf(folder: Path, word: str) -> None:
    _checkpoint(folder / "..", word)
    path = folder / "m.gguf"
    splitops.files.plan_by_size(folder.parent / "model.safetensors", folder, 10**6, to="gguf").run(sync=False)
    (folder / "model.gguf").rename(path)


def _onnx(folder: Path, word: str) -> None:
    (folder / "m.bin").write_bytes(_text(word).tobytes())
    weights = TensorProto(name=word, data_type=TensorProto.UINT8, dims=[40])
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="m.bin")
    values = [helper.make_tensor_value_info(name, TensorProto.UINT8, [20]) for name in ("x", "y")]
    node = helper.make_node("Split", [word], ["x", "y"], num_outputs=2)
    graph = helper.make_graph([node], "g", [], values, [weights])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), folder / "m.onnx")


def _ir(folder: Path, word: str) -> None:
    builder = openvino_ir.Builder()
    values = builder.const(_text(word))
    for index, part in enumerate(
        builder.layer("Split", [values, builder.const(0)], {"num_splits": 2}, outputs=2)
    ):
        builder.result(part, f"{word}{index}")
    splitops.save(builder.model(), folder / "m.xml")


def _zarr(folder: Path, word: str, version: int = 3) -> None:
    text = _text(word).reshape(4, 10)
    made = zarr.create_array(
        folder / "x.zarr", data=text, chunks=(2, 10), zarr_format=version, compressors=None
    )
    made.attrs["said"] = word


def _zarr2(folder: Path, word: str) -> None:
    _zarr(folder, word, 2)


def _zarr_group(folder: Path, word: str) -> None:
    group = zarr.create_group(folder / "x.zarr")
    group.create_array("g/w", data=np.arange(8), chunks=(4,)).attrs["said"] = word


def _hdf5(folder: Path, word: str) -> None:
    with h5py.File(folder / "x.h5", "w") as file:
        file[word] = np.arange(8)


def _arrays(folder: Path, word: str) -> None:
    np.save(folder / "x.npy", _text(word))
    np.savez(folder / "x.npz", **{word: np.arange(8)})


def _ranks(folder: Path, word: str, layout: str = "hf") -> None:
    model = folder.parent / "whole"
    model.mkdir(exist_ok=True)
    _checkpoint(model, word)
    folder.rmdir()
    sharding.plan(model, PLAN, ranks=2, layout=layout).run(folder, sync=False)


def _distributed(folder: Path, word: str) -> None:
    _ranks(folder, word, "dcp")
    (folder / "manifest.json").unlink()


def _foreign(folder: Path, word: str) -> None:
    for rank in range(2):
        (folder / f"mp_rank_{rank:02}").mkdir()
        save_file(_tensors(word), folder / f"mp_rank_{rank:02}" / "model.safetensors", {"format": word})
    (folder / "config.json").write_text(json.dumps({"architectures": [word]}))


def _consolidated(folder: Path, word: str) -> None:
    for rank in range(2):
        save_file(_tensors(word), folder / f"consolidated.{rank:02}.safetensors", {"format": word})
    (folder / "params.json").write_text(json.dumps({"dim": 8, "said": word}))


def _documents(folder: Path, word: str) -> None:
    _checkpoint(folder, word)
    (folder / "plan.json").write_text(json.dumps(PLAN))
    (folder / "plan.toml").write_text('version = 1\n[[rule]]\nmatch = "*"\naxis = 0\n')
    (folder / "expected.toml").write_text(EXPECTED.format(word))
    (folder / "report.json").write_text(json.dumps({"said": word}))
    (folder / "target.toml").write_text(f'name = "npu"\nsaid = "{word}"\n')
    (folder / "sums").write_text(f"{'0' * 64}  tokenizer.txt\n{'0' * 64}  ../{word}\n")


def _adapter(folder: Path, word: str) -> None:
    modules, ones = (f"{word}.{part}_proj" for part in "qk"), np.ones((2, 2), np.float32)
    tensors = {f"{module}.lora_{matrix}.weight": ones for module in modules for matrix in "AB"}
    save_file(tensors, folder / "adapter_model.safetensors", {"format": word})
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "revision": word}))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": [word]}))
    rule = {"fused": "*.qk.{leaf}", "parts": ["*.q_proj.{leaf}", "*.k_proj.{leaf}"]}
    (folder / "rules.json").write_text(json.dumps({"version": 1, "rule": [rule]}))


FOLDERS: dict[str, Callable[[Path, str], None]] = {
    found.__name__[1:]: found
    for found in (
        *(_checkpoint, _indexed, _numbered, _gguf, _lone_gguf, _onnx, _ir, _zarr, _zarr2, _zarr_group, _hdf5),
        *(_arrays, _ranks, _distributed, _foreign, _consolidated, _documents, _adapter),
    )
}
"""What is made in a folder, with a word in its contents and names."""

# What takes the place of a file -------------------------------------------------------------------------


def _linked(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def _folder_linked(path: Path, outside: Path) -> None:
    """Put a link to a folder outside in the place of the file's folder."""
    shutil.rmtree(path.parent)
    path.parent.symlink_to(outside.parent, target_is_directory=True)


def _device_linked(path: Path, outside: Path) -> None:
    path.symlink_to("/dev/zero")


def _pipe_linked(path: Path, outside: Path) -> None:
    path.symlink_to(outside.parent / "pipe")


def _dangling(path: Path, outside: Path) -> None:
    path.symlink_to(outside.parent / "nothing")


def _cycle(path: Path, outside: Path) -> None:
    other = path.with_name("cycle")
    path.symlink_to(other)
    other.symlink_to(path)


def _loop(path: Path, outside: Path) -> None:
    """Put a link to the folder around it in the place of the file."""
    path.symlink_to(path.parent, target_is_directory=True)


def _folder(path: Path, outside: Path) -> None:
    path.mkdir()


def _pipe(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def _device(path: Path, outside: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:  # of root alone
        path.symlink_to("/dev/zero")


def _socket(path: Path, outside: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY)
    try:  # a socket's path has at most 107 bytes
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{here}/{path.name}")
    finally:
        os.close(here)


def _giant(path: Path, outside: Path) -> None:
    os.truncate(path, GIANT)


def _unreadable(path: Path, outside: Path) -> None:
    path.chmod(0)


KINDS: dict[str, Callable[[Path, Path], None]] = {
    found.__name__[1:]: found
    for found in (
        *(_linked, _pipe, _device_linked, _giant, _folder_linked, _pipe_linked, _dangling, _cycle, _loop),
        *(_folder, _device, _socket, _unreadable),
    )
}
"""What is put at the path of a file, given that of its twin outside."""
_AS_IT_WAS = ("giant", "unreadable")
"""The kinds that are made of the file itself."""
ALWAYS = 2
"""So many kinds take the place of every file. The others take turns."""
OUTSIDE = ("linked", "folder_linked", "device_linked", "pipe_linked", "dangling")
"""The links that lead out: a command that names one follows it, because its caller says so."""


@dataclass(frozen=True)
class Attack:
    """A folder in which a file is not what it was."""

    name: str
    kind: str
    folder: Path
    changed: Path
    """What has been replaced: the file, or its folder."""


def attacks(name: str, base: Path, outside: Path, *, every: bool = False) -> Iterator[Attack]:
    """Make the attacks on a folder below ``base``, and what their links lead to in ``outside``."""
    true, twin = base / "true" / "m", outside / name / "m"
    for folder, word in ((true, "w"), (twin, CANARY)):
        folder.mkdir(parents=True)
        FOLDERS[name](folder, word)
    for folder in {path.parent for path in twin.rglob("*")}:
        os.mkfifo(folder / "pipe")
    files = sorted(path.relative_to(true) for path in true.rglob("*") if path.is_file())
    always, others = [*KINDS][:ALWAYS], [*KINDS][ALWAYS:]
    first = [*FOLDERS].index(name)
    for turn, file in enumerate(files, first * 3):
        for kind in [*always, *others] if every else [*always, others[turn % len(others)]]:
            if kind == "folder_linked" and file.parent == Path():
                continue  # the folder that the caller names
            folder = base / f"{kind}-{turn}" / "m"
            shutil.copytree(true, folder)
            if kind not in _AS_IT_WAS:
                (folder / file).unlink()
            KINDS[kind](folder / file, twin / file)
            changed = (folder / file).parent if kind == "folder_linked" else folder / file
            yield Attack(name, kind, folder, changed)
