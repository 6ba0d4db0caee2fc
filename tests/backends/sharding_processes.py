"""One process of PyTorch's: ``python sharding_processes.py FOLDER``, with the rank in the environment.

The tests of sharding run several at a time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn


def run(folder: Path, ranks: int, *arguments: str, script: str = __file__, timeout: float = 240) -> None:
    """Run a script (this one: :func:`checkpoints`) in so many processes; an error in one fails the test."""
    common = {
        "WORLD_SIZE": str(ranks),
        "OMP_NUM_THREADS": "1",
        "SPLITOPS_STORE": str(folder / "store"),
    }
    started = [
        subprocess.Popen(
            [sys.executable, script, str(folder), *arguments],
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        said = [process.communicate(timeout=timeout)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    for process, text in zip(started, said, strict=True):
        assert process.returncode == 0, text[-4000:]


def join() -> int:
    """Take part in the group of processes; return the rank."""
    import torch.distributed as dist

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(os.environ["SPLITOPS_STORE"], ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    return rank


def leave() -> NoReturn:
    """Leave the group and end this process without PyTorch's destructors, which abort it now and then."""
    import torch.distributed as dist

    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _distributed(folder: Path) -> dict[str, object]:
    """Return tensors over the processes: each way of a mesh that the layout has to do with."""
    from safetensors.torch import load_file
    from torch.distributed import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    ranks = int(os.environ["WORLD_SIZE"])
    line = init_device_mesh("cpu", (ranks,))
    grid = init_device_mesh("cpu", (2, ranks // 2))
    wholes = load_file(folder / "model" / "model.safetensors")
    ways = [
        (line, [Shard(0)]),
        (line, [Replicate()]),
        (line, [Shard(-1)]),
        (grid, [Shard(0), Shard(-1)]),
        (grid, [Replicate(), Shard(0)]),
        (grid, [Shard(0), Shard(0)]),
    ]
    found = {}
    for number, (name, whole) in enumerate(sorted(wholes.items())):
        mesh, placements = ways[number % len(ways)] if whole.ndim > 1 else ways[1]
        found[name] = distribute_tensor(whole, mesh, placements, src_data_rank=None)
    return found


def layers() -> Any:
    """A model whose rows four ranks do not share evenly; one of them has none of a bias."""
    import torch

    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 3))


def checkpoints(folder: Path) -> None:
    """Write ``model`` as PyTorch does, on meshes and in rows; load our pieces and compare them with it."""
    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import load_file
    from torch.distributed import init_device_mesh
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    join()
    wanted = _distributed(folder)
    line = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    rows = {
        name: distribute_tensor(whole, line, [Shard(0) if whole.ndim else Replicate()], src_data_rank=None)
        for name, whole in load_file(folder / "model" / "model.safetensors").items()
    }
    model = layers()
    fully_shard(model, mesh=line)  # as accelerate prepares a model for FSDP
    for name, state in (("meshes", wanted), ("rows", rows), ("fsdp", model.state_dict())):
        dcp.save(
            state, storage_writer=HuggingFaceStorageWriter(path=str(folder / name), save_distributed=True)
        )
    for path in sorted(folder.glob("ranks-*")):
        state = {name: torch.zeros_like(tensor) for name, tensor in wanted.items()}
        dcp.load(state, storage_reader=HuggingFaceStorageReader(str(path)))
        for name, tensor in wanted.items():
            one, other = state[name].to_local().contiguous(), tensor.to_local().contiguous()
            assert one.shape == other.shape, (path, name)
            same = [each.reshape(-1).view(torch.uint8) for each in (one, other)]
            assert torch.equal(*same), (path, name)


if __name__ == "__main__":
    checkpoints(Path(sys.argv[1]))
    leave()
