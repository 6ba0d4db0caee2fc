"""Cuts and distributed checkpoints beside PyTorch's own."""

from __future__ import annotations

import json
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import sharding_processes
from hypothesis import given
from hypothesis import strategies as st

from splitops.errors import ArrayError, PlanError
from splitops.sharding import merge, plan, rank
from splitops.sharding.tensor_sharding import AxisSharding, shard_axis

torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as dcp  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch.distributed.checkpoint._consolidate_hf_safetensors import (  # noqa: E402
    consolidate_safetensors_files,
)
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader  # noqa: E402
from torch.distributed.tensor import Shard  # noqa: E402

COLUMNS = {
    "version": 1,
    "rule": [{"match": ["*_1d", "*_0d"], "replicate": True}, {"match": "*", "hf": "colwise"}],
}
ROWS = {"version": 1, "rule": [{"match": "*_0d", "replicate": True}, {"match": "*", "hf": "rowwise"}]}
PACKED = {
    "version": 1,
    "rule": [{"match": "*_0d", "replicate": True}, {"match": "*", "hf": "packed_colwise"}],
}
FIRST = {"version": 1, "rule": [{"match": "*_0d", "replicate": True}, {"match": "*", "axis": 0}]}
FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn")
TYPES = (*FLOATS, "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool", "complex64")


def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    found = {}
    for name in TYPES:
        dtype = getattr(torch, name)
        data = torch.randint(
            0, 2 if name == "bool" else 100, (10, 12, dtype.itemsize), generator=generator, dtype=torch.uint8
        )
        found[f"{name}_2d"] = data.view(dtype).reshape(10, 12)
    found["a_3d"] = torch.rand(6, 4, 5, generator=generator)
    found["b_1d"] = torch.rand(7, generator=generator)
    found["c_0d"] = torch.rand((), generator=generator)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    save_file(tensors(), tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    return tmp_path


def same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> list[str]:
    """Return the names of the tensors that are not equal, byte by byte."""
    assert found.keys() == wanted.keys()
    return [
        name
        for name, tensor in wanted.items()
        if (found[name].dtype, found[name].shape) != (tensor.dtype, tensor.shape)
        or found[name].contiguous().reshape(-1).view(torch.uint8).tolist()
        != tensor.contiguous().reshape(-1).view(torch.uint8).tolist()
    ]


def test_the_comparison_sees_a_byte() -> None:
    other = tensors()
    other["bfloat16_2d"].view(torch.uint8)[3, 4] ^= 1
    assert same(other, tensors()) == ["bfloat16_2d"]


@given(size=st.integers(0, 40), ranks=st.integers(1, 12))
def test_sizes_are_those_of_chunks_and_placements(size: int, ranks: int) -> None:
    shards = shard_axis(AxisSharding(0), size, ranks).shards
    ours = [range(p.begin, p.begin + p.size) for s in shards if s is not None for p in s.pieces]
    chunks = torch.arange(size).chunk(ranks) if size else ()
    assert [list(each) for each in ours] == [chunk.tolist() for chunk in chunks]
    for number, shard in enumerate(shards):
        assert shard is not None
        wanted, offset = Shard.local_shard_size_and_offset(size, ranks, number)
        assert shard.size == wanted
        assert not shard.pieces or shard.pieces[0].begin == offset


@pytest.mark.parametrize("ranks", [1, 3, 4])
@pytest.mark.parametrize("rules", [COLUMNS, ROWS, PACKED], ids=["columns", "rows", "packed"])
def test_torch_loads_our_pieces_in_one_process(folder: Path, rules: dict[str, object], ranks: int) -> None:
    plan(folder / "model", rules, ranks=ranks, layout="dcp").run(folder / "ranks")
    state = {name: torch.zeros_like(tensor) for name, tensor in tensors().items()}
    dcp.load(state, storage_reader=HuggingFaceStorageReader(str(folder / "ranks")), no_dist=True)
    assert same(state, tensors()) == []


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What four processes of PyTorch's have written, after they have loaded our pieces on meshes."""
    found = tmp_path_factory.mktemp("processes")
    (found / "model").mkdir()
    save_file(tensors(), found / "model" / "model.safetensors", metadata={"format": "pt"})
    for name, rules in (("columns", COLUMNS), ("packed", PACKED)):
        plan(found / "model", rules, ranks=3, layout="dcp").run(found / f"ranks-{name}")
    sharding_processes.run(found, 4)
    return found


def test_we_read_what_torch_wrote_on_meshes(written: Path, tmp_path: Path) -> None:
    merge(written / "meshes").run(tmp_path / "whole")
    assert same(load_file(tmp_path / "whole" / "model.safetensors"), tensors()) == []
    merge(written / "rows").run(tmp_path / "rows")
    assert same(load_file(tmp_path / "rows" / "model.safetensors"), tensors()) == []
    merge(written / "meshes", like=written / "model").run(tmp_path / "alike")
    ours, source = tmp_path / "alike" / "model.safetensors", written / "model" / "model.safetensors"
    assert ours.read_bytes() == source.read_bytes()
    plan(written / "meshes", COLUMNS, ranks=2).run(tmp_path / "ranks")
    for number in range(2):
        for name, tensor in tensors().items():
            wanted = tensor if tensor.ndim < 2 else tensor.chunk(2, tensor.ndim - 2)[number]
            found = rank(tmp_path / "ranks", number)[name].torch()
            assert same({name: found}, {name: wanted.contiguous()}) == []


def test_the_sharded_state_of_fsdp_is_merged(written: Path, tmp_path: Path) -> None:
    merge(written / "fsdp").run(tmp_path / "whole")
    found = load_file(tmp_path / "whole" / "model.safetensors")
    assert same(found, sharding_processes.layers().state_dict()) == []


def test_the_state_that_accelerate_pickles_is_rejected_with_commands_that_convert_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SHARDED_STATE_DICT is saved by PyTorch's FileSystemWriter. Both commands of the message run."""
    merging = pytest.importorskip("accelerate.commands.merge")
    state = {name: value.clone() for name, value in tensors().items() if name.startswith("float")}
    pickled = tmp_path / "pytorch_model_fsdp_0"
    dcp.save({"model": state}, storage_writer=dcp.FileSystemWriter(pickled))
    with pytest.raises(PlanError) as found:
        merge(pickled)
    accelerates, torchs = (shlex.split(each) for each in str(found.value).split("`")[1::2])
    assert accelerates[:2] == ["accelerate", "merge-weights"]
    assert torchs[:2] == ["python", "-m"]
    monkeypatch.chdir(tmp_path)
    merging.merge_command(merging.merge_command_parser().parse_args(accelerates[2:]))
    monkeypatch.setattr(sys, "argv", torchs[2:])
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, torchs[2], raising=False)
        runpy.run_module(torchs[2], run_name="__main__")
    loaded = torch.load(tmp_path / "OUT.pt")["model"]
    merged = load_file(tmp_path / "OUT" / "model.safetensors")
    for name, value in state.items():
        assert torch.equal(loaded[name].view(torch.uint8), value.view(torch.uint8))
        assert torch.equal(merged[name].view(torch.uint8), value.view(torch.uint8))


def test_our_files_say_what_those_of_torch_say(written: Path, tmp_path: Path) -> None:
    """The same cut, by both: the same files, headers and bytes but for the order of keys."""
    plan(written / "model", FIRST, ranks=4, layout="dcp").run(tmp_path / "ranks")
    names = sorted(path.name for path in (written / "rows").glob("*.safetensors"))
    assert names == sorted(path.name for path in (tmp_path / "ranks").glob("*.safetensors"))
    ours: dict[str, object] = {}
    theirs: dict[str, object] = {}
    for found, folder in ((ours, tmp_path / "ranks"), (theirs, written / "rows")):
        for name in names:
            with safe_open(folder / name, "pt") as file:
                metadata = file.metadata()
                info = json.loads(metadata.pop("DCP_SHARDING_INFO"))
                assert metadata == {"format": "pt", "DCP_VERSION": "1.0"}
            for key, tensor in load_file(folder / name).items():
                if not tensor.numel():  # PyTorch also writes pieces of no size, where a rank has none
                    continue
                found[f"{key} at {info[key]['saved_offsets']}"] = (
                    tensor.reshape(-1).view(torch.uint8).tolist()
                )
    assert ours == theirs


# What PyTorch's own consolidation does not give back, on the release that the tests are held to.
FAILS = {
    **dict.fromkeys((t for t in TYPES if "int" in t or t == "bool"), "finfo"),  # it asks for a float's width
    "complex64": "invalid shape",  # it takes half of an element for its width: a file that nobody reads
}


@pytest.mark.parametrize("name", TYPES)
def test_torch_consolidates_our_pieces_but_for_what_is_listed(tmp_path: Path, name: str) -> None:
    own = {f"{name}_2d": tensors()[f"{name}_2d"]}
    (tmp_path / "model").mkdir()
    save_file(own, tmp_path / "model" / "model.safetensors")
    plan(tmp_path / "model", COLUMNS, ranks=3, layout="dcp").run(tmp_path / "ranks")
    (tmp_path / "whole").mkdir()

    def consolidated() -> list[str]:
        consolidate_safetensors_files(str(tmp_path / "ranks"), str(tmp_path / "whole"), dict.fromkeys(own, 1))
        [path] = (tmp_path / "whole").glob("*.safetensors")
        return same(load_file(path), own)

    if name in FAILS:
        with pytest.raises(Exception, match=FAILS[name]):
            consolidated()
    else:
        assert consolidated() == []
    shutil.rmtree(tmp_path / "whole")
    merge(tmp_path / "ranks").run(tmp_path / "whole")
    assert same(load_file(tmp_path / "whole" / "model.safetensors"), own) == []


def test_what_a_rank_has_none_of_and_what_torch_has_not(tmp_path: Path) -> None:
    header = b'{"e":{"dtype":"F32","shape":[0,2],"data_offsets":[0,0]},'
    header += b'"f":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}}'
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + b"abc"
    )
    replicated = {"version": 1, "rule": [{"match": "*", "replicate": True}]}
    plan(tmp_path / "model", replicated, ranks=2).run(tmp_path / "ranks")
    own = rank(tmp_path / "ranks", 1)
    assert (own["e"].torch().shape, own["e"].torch().dtype) == ((0, 2), torch.float32)
    with pytest.raises(ArrayError, match=r"torch has no dtype for .* of type F6_E2M3"):
        own["f"].torch()


def test_tensors_of_a_rank_are_mapped(folder: Path) -> None:
    plan(folder / "model", ROWS, ranks=2).run(folder / "ranks")
    own = rank(folder / "ranks", 1)
    wholes = tensors()
    assert own.keys() == wholes.keys()
    for name, tensor in wholes.items():
        wanted = tensor if name == "b_1d" or not tensor.ndim else tensor.chunk(2, -1)[1]
        assert same({name: own[name].torch()}, {name: wanted.contiguous()}) == []
    first = own["float32_2d"].torch()
    first += 1  # stays in memory
    fresh = rank(folder / "ranks", 1)["float32_2d"].numpy()
    np.testing.assert_array_equal(fresh, wholes["float32_2d"][:, 6:].numpy())
