"""One rank's tensors, as mapped files."""

from __future__ import annotations

import errno
import mmap
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from sharding_helpers import LLAMA, LLAMA_PLAN, llama, save

import splitops
from splitops.errors import ArrayError, FileError, PlanError
from splitops.sharding import plan, rank

ROWS = {"version": 1, "rule": [{"match": "*", "axis": 0}]}


@pytest.mark.parametrize("shards", [1, 3])
def test_a_rank_is_read_without_the_others(tmp_path: Path, shards: int) -> None:
    source = save(tmp_path / "model", llama(), LLAMA, shards=shards)
    plan(source, LLAMA_PLAN, ranks=4).run(tmp_path / "ranks")
    for other in (0, 1, 3):
        shutil.rmtree(tmp_path / "ranks" / f"rank-{other:05}-of-00004")
    (tmp_path / "ranks" / "manifest.json").unlink()
    own = rank(tmp_path / "ranks", 2)
    assert own.keys() == llama().keys()
    assert own.config == LLAMA
    name = "model.layers.1.mlp.down_proj.weight"
    assert (own[name].shape, own[name].dtype) == ((32, 12), np.float32)
    np.testing.assert_array_equal(own[name], llama()[name][:, 24:36], strict=True)
    view = own[name].numpy()
    assert not view.flags.writeable
    assert not view.flags.owndata
    assert np.array(own[name]).flags.writeable
    assert repr(own) == f"Rank('rank-00002-of-00004', {len(llama())} tensors)"


def test_types_and_sizes_that_are_rare(tmp_path: Path) -> None:
    tensors = {
        "bfloat16": np.arange(8).astype(ml_dtypes.bfloat16),
        "empty": np.zeros((0, 3), np.float32),
        "bool": np.array([True, False, True, True]),
        "float64": np.arange(3.0),
    }
    plan(save(tmp_path / "model", tensors), ROWS, ranks=2).run(tmp_path / "ranks")
    own = rank(tmp_path / "ranks", 1)
    assert own["bfloat16"].numpy().tolist() == [4, 5, 6, 7]
    assert own["empty"].numpy().shape == (0, 3)
    assert own["bool"].numpy().tolist() == [True, True]
    assert own["float64"].numpy().tolist() == [2]


def test_a_tensor_of_a_rank_is_sliced_and_split_like_one_of_any_file(tmp_path: Path) -> None:
    data = np.arange(24.0).reshape(4, 6)
    plan(save(tmp_path / "model", {"w": data}), ROWS, ranks=2).run(tmp_path / "ranks")
    tensor = rank(tmp_path / "ranks", 1)["w"]
    assert np.asarray(tensor[:, 1:3]).tolist() == data[2:, 1:3].tolist()
    parts = splitops.onnx.split(tensor, [2, 4], axis=1)
    assert [np.asarray(part).tolist() for part in parts] == [data[2:, :2].tolist(), data[2:, 2:].tolist()]
    assert np.shares_memory(np.asarray(tensor), tensor.numpy())
    assert np.asarray(tensor, np.complex128).dtype == np.complex128
    with pytest.raises(ValueError, match="copy"):
        np.asarray(tensor, np.complex128, copy=False)
    assert not np.shares_memory(np.array(tensor), tensor.numpy())


def test_elements_that_no_array_holds(tmp_path: Path) -> None:
    header = b'{"w":{"dtype":"F4","shape":[2,2],"data_offsets":[0,2]}}'
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"ab")
    plan(tmp_path / "model", ROWS, ranks=2).run(tmp_path / "ranks")
    own = rank(tmp_path / "ranks", 0)["w"]
    assert repr(own) == "RankTensor(float4_e2m1fn (1, 2) in 'model.safetensors')"
    with pytest.raises(FileError, match="NumPy has no dtype for tensor 'w' of type F4"):
        own.numpy()


def test_a_file_that_cannot_be_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan(save(tmp_path / "model", {"w": np.zeros((4, 2))}), ROWS, ranks=2).run(tmp_path / "ranks")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", full)
    with pytest.raises(FileError, match=r"cannot map .*: cannot allocate memory"):
        rank(tmp_path / "ranks", 0)["w"].numpy()


def test_what_is_no_rank_is_rejected(tmp_path: Path) -> None:
    plan(save(tmp_path / "model", {"w": np.zeros((4, 2))}), ROWS, ranks=2).run(tmp_path / "ranks")
    for number in (2, -1):
        with pytest.raises(PlanError, match=rf"contains no folder of rank {number}, such as rank-"):
            rank(tmp_path / "ranks", number)
    shutil.copytree(tmp_path / "ranks" / "rank-00000-of-00002", tmp_path / "ranks" / "rank-00000-of-00003")
    with pytest.raises(PlanError, match="contains more than one folder of rank 0"):
        rank(tmp_path / "ranks", 0)
    (tmp_path / "ranks" / "rank-00000-of-00003").rename(tmp_path / "ranks" / "rank-00002-of-00003")
    with pytest.raises(
        PlanError, match=r"rank-00002-of-00003' does not belong to rank 2, according to its rank\.json"
    ):
        rank(tmp_path / "ranks", 2)
    weights = tmp_path / "ranks" / "rank-00001-of-00002" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(FileError, match="is truncated"):
        rank(tmp_path / "ranks", 1)


def test_torch_must_be_loaded_already(tmp_path: Path) -> None:
    plan(save(tmp_path / "model", {"w": np.zeros((4, 2))}), ROWS, ranks=2).run(tmp_path / "ranks")
    code = (
        "import sys\n"
        "from splitops.errors import ArrayError\n"
        "from splitops.sharding import rank\n"
        f"tensor = rank({str(tmp_path / 'ranks')!r}, 0)['w']\n"
        "try:\n    tensor.torch()\nexcept ArrayError as error:\n    print(error)\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{ArrayError('torch has not been imported: import it first')}\n"
