"""One turn of :mod:`dev.benchmarks.sharding`: ``python shard_actions.py JSON``."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from pathlib import Path
from typing import Any

from file_actions import Action, by_size, cp, main, one_file, transformers_save_pretrained

PLAN = Path(__file__).with_name("shard_plan.toml")
ROWWISE = ("o_proj.weight", "down_proj.weight")


def shard(folder: str, out: str, ranks: int, **arguments: Any) -> Action:
    """Ours, the plan included; of ranks, a cut anew."""
    from splitops import sharding

    plan: Any = None if (Path(folder) / "manifest.json").exists() else PLAN
    sharding.plan(folder, plan, ranks=ranks).plan_files(f"{out}/ranks")  # imports what it needs
    return lambda: sharding.plan(folder, plan, ranks=ranks).run(f"{out}/ranks", **arguments)


def merge(folder: str, out: str, **arguments: Any) -> Action:
    """Ours, the inverse."""
    from splitops import sharding

    sharding.merge(folder).plan_files(f"{out}/merged")
    return lambda: sharding.merge(folder).run(f"{out}/merged", **arguments)


def merge_then_shard(folder: str, out: str, ranks: int) -> Action:
    """The way of two passes that a cut anew replaces."""
    from splitops import sharding

    sharding.merge(folder).plan_files(f"{out}/merged")

    def run() -> None:
        sharding.merge(folder).run(f"{out}/merged", sync=False)
        sharding.plan(f"{out}/merged", PLAN, ranks=ranks).run(f"{out}/ranks", sync=False)

    return run


FUSED = {
    "version": 1,
    "rule": [
        {
            "fused": "*.self_attn.qkv_proj.weight",
            "parts": [f"*.self_attn.{each}_proj.weight" for each in "qkv"],
            "sections": ["q", "k", "k"],
        },
        {
            "fused": "*.mlp.gate_up_proj.weight",
            "parts": [f"*.mlp.{each}_proj.weight" for each in ("gate", "up")],
        },
    ],
}
"""Which tensors of the model are fused."""


def fuse(folder: str, out: str, rows: list[int], **arguments: Any) -> Action:
    """Ours: tensors of the same bytes, fused."""
    from splitops import sharding

    plan = {**FUSED, "vars": dict(zip(("q", "k"), rows, strict=True))}
    sharding.fuse(folder, plan).plan_files(f"{out}/fused")
    return lambda: sharding.fuse(folder, plan).run(f"{out}/fused", **arguments)


def cluster(folder: str, out: str, ranks: int, kill: bool) -> Action:
    """Ours, by two workers of Dask, of which one is killed in the middle."""
    from distributed import Client, LocalCluster

    from splitops import sharding

    workers = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    client = Client(workers)
    pids = list(client.run(os.getpid).values())

    def run() -> None:
        done = threading.Event()

        def progress(size: int, total: int) -> None:
            if kill and size > total // 3 and not done.is_set():
                done.set()
                os.kill(pids[0], signal.SIGKILL)

        plan = sharding.plan(folder, PLAN, ranks=ranks)
        plan.run(f"{out}/ranks", sync=False, cluster=client, progress=progress)
        assert done.is_set() == kill

    return run


def safetensors_slices(folder: str, out: str, ranks: int) -> Action:
    """Slices of the format's own library, a rank at a time."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    def run() -> None:
        for rank, path in itertools.product(range(ranks), sorted(Path(folder).glob("*.safetensors"))):
            with safe_open(path, "pt") as file:
                found = {}
                for name in file.keys():  # noqa: SIM118 - no mapping
                    part = file.get_slice(name)
                    shape = part.get_shape()
                    each = -(-shape[-1 if name.endswith(ROWWISE) else 0] // ranks)
                    span = slice(rank * each, (rank + 1) * each)
                    if len(shape) == 1:
                        found[name] = part[:]
                    elif name.endswith(ROWWISE):
                        found[name] = part[:, span].contiguous()
                    else:
                        found[name] = part[span].contiguous()
            target = Path(out) / str(rank)
            target.mkdir(exist_ok=True)
            save_file(found, target / path.name)

    return run


def torch_chunk(folder: str, out: str, ranks: int) -> Action:
    """The whole model in memory, torch.chunk and torch.save."""
    import torch
    from safetensors.torch import load_file

    def run() -> None:
        whole = {n: t for path in Path(folder).glob("*.safetensors") for n, t in load_file(path).items()}
        for rank in range(ranks):
            found = {}
            for name, tensor in whole.items():
                axis = -1 if name.endswith(ROWWISE) else 0
                found[name] = tensor if tensor.ndim == 1 else tensor.chunk(ranks, axis)[rank].clone()
            torch.save(found, f"{out}/{rank}.pt")

    return run


PEERS = {each.__name__: each for each in (safetensors_slices, torch_chunk, transformers_save_pretrained)}
OURS = {each.__name__: each for each in (shard, merge, merge_then_shard, cluster, fuse, by_size, one_file)}

if __name__ == "__main__":
    main({"cp": cp, **OURS, **PEERS})
