"""Cuts by the workers of a cluster, of which one dies: the ranks that this process alone writes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from splitops import sharding
from splitops.files import engine

distributed = pytest.importorskip("distributed")

PLAN = {
    "version": 1,
    "rule": [{"match": "*.rows", "axis": 1}, {"match": "*", "axis": 0, "unit": 2, "replicate": True}],
}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_worker_that_dies_costs_no_byte(tmp_path, monkeypatch):
    monkeypatch.setattr(engine.split_into_tasks, "__defaults__", (30_000,))
    monkeypatch.setattr(engine, "_BLOCK", 10_000)
    model = tmp_path / "model"
    model.mkdir()
    rng = np.random.default_rng(0)
    tensors = {f"{i}.{kind}": rng.normal(size=(64, 96)) for i in range(8) for kind in ("rows", "columns")}
    save_file(tensors, model / "model.safetensors")
    (model / "config.json").write_text(json.dumps({"model_type": "none"}))
    plan = sharding.plan(model, PLAN, ranks=4)
    plan.run(tmp_path / "alone")
    killed = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", local_directory=str(tmp_path / "dask")
        ) as workers,
        distributed.Client(workers) as client,
    ):

        def progress(done: int, total: int) -> None:
            if done and not killed:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        plan.run(tmp_path / "ranks", cluster=client, progress=progress)
        sharding.merge(tmp_path / "ranks").run(tmp_path / "merged", cluster=client)
    assert killed
    assert contents(tmp_path / "ranks") == contents(tmp_path / "alone")
    assert contents(tmp_path / "merged") == contents(model)
