"""Runs by the workers of a cluster in processes of its own: the same files as by this process alone."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import splitops
from splitops.cli import cli
from splitops.errors import FileError
from splitops.files import chunk_tasks, chunks, engine, folder_run
from splitops.files import cluster as by_cluster

distributed = pytest.importorskip("distributed")
h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")
dask_array = pytest.importorskip("dask.array")

MEMORY = 4 << 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            local_directory=str(folder),
        ) as found,
        distributed.Client(found) as client,
    ):
        yield client


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).integers(0, 256, (600, 2000), np.uint8))
    return path


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch):
    monkeypatch.setattr(engine.split_into_tasks, "__defaults__", (30_000,))
    monkeypatch.setattr(engine, "_BLOCK", 10_000)
    monkeypatch.setattr(engine, "_PIECE", 10_000)


def plan(source: Path, folder: Path) -> splitops.files.FilePlan:
    return splitops.files.plan_split(source, folder, axis=1, split=[500, 700, 800])


def found(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def expected(source, tmp_path):
    plan(source, tmp_path / "here").run()
    return found(tmp_path / "here")


@pytest.fixture
def submitted(cluster, monkeypatch):
    """The tasks that are given to the cluster, and those that it gets its results of."""
    tasks = []
    real = type(cluster).submit

    def submit(self, function, *args, **options):
        if function is by_cluster._run_task:
            tasks.append("read_back" if args[3] else "copy")
        return real(self, function, *args, **options)

    monkeypatch.setattr(type(cluster), "submit", submit)
    return tasks


def test_the_files_are_the_same(source, tmp_path, cluster, expected, submitted):
    seen = []
    report = plan(source, tmp_path / "out").run(
        memory=MEMORY, verify=True, cluster=cluster, progress=lambda done, total: seen.append(done)
    )
    assert found(tmp_path / "out") == expected
    count = len(plan(source, tmp_path / "out").make_tasks(MEMORY))
    assert sorted(submitted) == ["copy"] * count + ["read_back"] * count
    assert seen == sorted(seen)
    assert seen[-1] == 2 * 1_200_000
    made = [path for path, _ in report.files]
    splitops.files.merge(made, tmp_path / "y.npy", axis=1, cluster=cluster.scheduler.address)
    assert (tmp_path / "y.npy").read_bytes() == source.read_bytes()


def test_no_byte_of_a_tensor_passes_the_scheduler(source, tmp_path, cluster, monkeypatch):
    sent = []
    real = type(cluster).submit

    def submit(self, function, *args, **options):
        sent.append(len(distributed.protocol.pickle.dumps(args)))
        return real(self, function, *args, **options)

    monkeypatch.setattr(type(cluster), "submit", submit)
    plan(source, tmp_path / "out").run(memory=MEMORY, cluster=cluster)
    assert max(sent) < 10_000


def test_a_worker_that_dies_costs_its_tasks_alone(source, tmp_path, cluster, expected, submitted):
    killed = []

    def progress(done: int, total: int) -> None:
        if done and not killed:
            killed.append(next(iter(cluster.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    scheduler = cluster.cluster.scheduler
    scheduler.transition_log.clear()
    plan(source, tmp_path / "out").run(memory=MEMORY, cluster=cluster, progress=progress)
    assert killed
    done = [
        key for key, _, state, *_ in scheduler.transition_log if state == "memory" and "_run_task-" in key
    ]
    assert len(set(done)) == len(submitted)
    assert len(done) <= len(submitted) + 4  # what it had not yet told is done again, and nothing else
    assert found(tmp_path / "out") == expected
    assert len(submitted) == len(plan(source, tmp_path / "out").make_tasks(MEMORY)) > 10
    deadline = time.monotonic() + 120
    while killed[0] in (pids := cluster.run(os.getpid, on_error="ignore").values()) or len(pids) < 2:
        assert time.monotonic() < deadline, "the cluster has no new worker"
        time.sleep(0.1)


BEGUN = """
import os, signal, sys
import splitops
from splitops.files import engine, journal
engine.split_into_tasks.__defaults__, engine._BLOCK, engine._PIECE = (30_000,), 10_000, 10_000
real = journal.Journal.add
def add(self, task, checksums):
    real(self, task, checksums)
    if len(self.done) == 6:
        os.kill(os.getpid(), signal.SIGKILL)
journal.Journal.add = add
splitops.files.split(
    *sys.argv[1:3], axis=1, split=[500, 700, 800], memory=4 << 20, cluster=(*sys.argv[3:], None)[0]
)
"""


@pytest.mark.parametrize("begun_by_cluster", [True, False])
def test_a_run_that_was_killed_is_gone_on_with(
    source, tmp_path, cluster, expected, submitted, begun_by_cluster
):
    """What a cluster has begun this process ends, and the other way round."""
    address = [cluster.scheduler.address] if begun_by_cluster else []
    options = {} if begun_by_cluster else {"cluster": cluster}
    out = tmp_path / "out"
    code = subprocess.run(
        [sys.executable, "-c", BEGUN, str(source), str(out), *address],
        env=os.environ | {"PYTHONPATH": str(Path(splitops.__file__).parents[1])},
        check=False,
    ).returncode
    assert code == -signal.SIGKILL
    assert not out.exists()
    assert (tmp_path / ".splitops-out-x.part").is_dir()
    report = plan(source, out).run(memory=MEMORY, resume=True, verify=True, **options)
    assert 0 < report.resumed < report.bytes
    assert found(out) == expected
    assert submitted.count("copy") == (
        0 if begun_by_cluster else len(plan(source, out).make_tasks(MEMORY)) - 6
    )


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ZeroDivisionError])
def test_an_interrupt_keeps_what_workers_have_copied_and_an_error_nothing(
    source, tmp_path, cluster, expected, failure
):
    def progress(done: int, total: int) -> None:
        if done > total / 2:
            raise failure

    with pytest.raises(failure):
        plan(source, tmp_path / "out").run(memory=MEMORY, cluster=cluster, progress=progress)
    if failure is ZeroDivisionError:
        assert sorted(os.listdir(tmp_path)) == ["here", "x.npy"]
        return
    assert sorted(os.listdir(tmp_path)) == [".splitops-out-x.part", "here", "x.npy"]
    report = plan(source, tmp_path / "out").run(memory=MEMORY, cluster=cluster, resume=True)
    assert report.resumed > report.bytes / 2
    assert found(tmp_path / "out") == expected
    assert sorted(os.listdir(tmp_path)) == ["here", "out", "x.npy"]


def test_errors_of_workers_are_those_of_this_process(source, tmp_path, cluster):
    def shrink(done: int, total: int) -> None:
        os.truncate(source, 500_000)

    with pytest.raises(FileError, match=r"has another file at|it ended early"):
        plan(source, tmp_path / "out").run(memory=MEMORY, cluster=cluster, progress=shrink)
    assert sorted(os.listdir(tmp_path)) == ["x.npy"]


def test_what_does_not_read_back_is_found_out(source, tmp_path, cluster, monkeypatch):
    real = folder_run.FolderRun._verify

    def damage(self, drafts, journal):
        with drafts[1].open("r+b") as file:
            file.seek(5000)
            file.write(b"\x00\x01\x02\x03")
        real(self, drafts, journal)

    monkeypatch.setattr(folder_run.FolderRun, "_verify", damage)
    with pytest.raises(FileError, match=r"'x\.1\.npy' does not read back"):
        plan(source, tmp_path / "out").run(memory=MEMORY, cluster=cluster, verify=True)
    assert sorted(os.listdir(tmp_path)) == ["x.npy"]


def test_workers_that_see_other_folders_are_rejected(source, tmp_path, cluster, monkeypatch):
    """As if the workers had another file system: what this process says is there is not."""
    real = by_cluster._write_marker
    for changed, value, problem in (
        (
            "marker",
            str(tmp_path / "none" / "marker"),
            r"worker tcp://.* cannot access the folder .*no such file",
        ),
        ("text", "another", r"worker tcp://.* cannot access the folder"),
        ("sources", {"/none/x.npy": (1, 1)}, "cannot access '/none/x.npy'"),
        ("sources", {str(source): (1, 1)}, r"has another file at .*x\.npy"),
        ("version", "0.0.1", "has splitops .*, not 0.0.1"),
    ):
        monkeypatch.setattr(
            by_cluster,
            "_write_marker",
            lambda *args, **_: replace(real(*args), **{changed: value}),  # noqa: B023
        )
        with pytest.raises(FileError, match=problem):
            plan(source, tmp_path / "out").run(memory=MEMORY, cluster=cluster)
        assert sorted(os.listdir(tmp_path)) == ["x.npy"]


def test_chunks_of_zarr(tmp_path, cluster, submitted, monkeypatch):
    monkeypatch.setattr(chunks, "TASK_BYTES", 12_000)
    array = np.arange(12_000, dtype=np.int32).reshape(100, 120)
    zarr.create_array(tmp_path / "x.zarr", data=array, chunks=(20, 30))
    plan = splitops.files.plan_split(tmp_path / "x.zarr", tmp_path / "parts", axis=1, split=[60, 60 - 7, 7])
    report = plan.run(cluster=cluster, verify=True, sync=False)
    assert sorted(submitted) == ["copy"] * 5 + ["read_back"] * 5
    parts = [path for path, _ in report.files]
    for path, want in zip(parts, np.split(array, [60, 113], 1), strict=True):
        np.testing.assert_array_equal(zarr.open_array(path, mode="r")[...], want)
    splitops.files.merge(parts, tmp_path / "y.zarr", axis=1, cluster=cluster)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "y.zarr", mode="r")[...], array)
    (tmp_path / "x.zarr/c/0/1").write_bytes(b"damaged")
    with pytest.raises(FileError, match=r"cannot read .*x\.zarr"):
        splitops.files.split(tmp_path / "x.zarr", tmp_path / "out", axis=1, split=[50, 70], cluster=cluster)
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_is_one_error(source, tmp_path, cluster, monkeypatch):
    with pytest.raises(FileError, match="a cluster cannot write targets at a URL"):
        splitops.files.split(source, "memory://x", num_outputs=2, cluster=cluster)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("w", data=np.zeros((4, 4)), chunks=(2, 2))
    with pytest.raises(FileError, match="a cluster cannot write the chunks of hdf5"):
        splitops.files.split(tmp_path / "x.h5", tmp_path / "out", num_outputs=2, cluster=cluster)
    (tmp_path / "x.h5").unlink()
    monkeypatch.setattr(by_cluster, "_MAX_WAIT", 1)
    monkeypatch.setattr(by_cluster, "_WARNING_DELAY", 0.5)
    for address in ("tcp://127.0.0.1:9", "nonsense"):
        with pytest.raises(FileError, match="cannot reach the cluster at"):
            plan(source, tmp_path / "out").run(cluster=address)
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as empty,
        pytest.raises(FileError, match="no worker of the cluster has responded for 1 seconds"),
    ):
        plan(source, tmp_path / "out").run(cluster=empty)
    assert sorted(os.listdir(tmp_path)) == ["x.npy"]


def test_a_cluster_without_workers_says_so_and_ends(source, tmp_path, monkeypatch, caplog):
    """None from the beginning, and none from the middle on."""
    monkeypatch.setattr(by_cluster, "_MAX_WAIT", 1.5)
    monkeypatch.setattr(by_cluster, "_WARNING_DELAY", 0.5)
    said = "no worker of the cluster has responded for 0.5 seconds; the run fails after 1.5"
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster:

        def leave(done: int, total: int) -> None:
            if done > 0:
                cluster.scale(0)

        with pytest.raises(FileError, match=r"no worker of the cluster has responded for 1\.5 seconds"):
            plan(source, tmp_path / "out").run(memory=MEMORY, cluster=cluster, progress=leave)
        assert said in [record.getMessage() for record in caplog.records]
        caplog.clear()
        with pytest.raises(FileError, match=r"no worker of the cluster has responded for 1\.5 seconds"):
            plan(source, tmp_path / "out").run(memory=MEMORY, cluster=cluster)
        assert said in [record.getMessage() for record in caplog.records]
    assert sorted(os.listdir(tmp_path)) == ["x.npy"]


def test_errors_of_workers_keep_their_place(source, tmp_path):
    """Of workers in this process: those of others are killed with what they have counted."""

    def remove(done: int, total: int) -> None:
        (tmp_path / ".splitops-out-x.part/files/out/x.1.npy").unlink(missing_ok=True)

    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
    ) as threads:
        client = distributed.Client(threads)
        with pytest.raises(FileError, match=r"cannot write .*x\.1\.npy': no such file or directory"):
            plan(source, tmp_path / "out").run(memory=MEMORY, cluster=client, progress=remove)
        client.close()
        with pytest.raises(FileError, match="the cluster failed: "):
            plan(source, tmp_path / "out").run(memory=MEMORY, cluster=client)
    assert sorted(os.listdir(tmp_path)) == ["x.npy"]


def test_the_command_line(source, tmp_path, cluster, expected):
    arguments = [
        "split",
        str(source),
        "--axis",
        "1",
        "--sizes",
        "500,700,800",
        "--out",
        str(tmp_path / "out"),
    ]
    result = CliRunner().invoke(cli, [*arguments, "--cluster", cluster.scheduler.address])
    assert result.exit_code == 0, result.output
    assert found(tmp_path / "out") == expected


@pytest.mark.parametrize("computed", [False, True])
def test_tasks_at_work_end_before_the_files_of_a_failed_run_are_removed(tmp_path, monkeypatch, computed):
    """One task fails while another one is half-way, and would bring the folder back."""
    monkeypatch.setattr(chunks, "TASK_BYTES", 1000)
    array = np.zeros((4, 1000), np.uint8)
    zarr.create_array(tmp_path / "x.zarr", data=array, chunks=(1, 1000))
    begun, failed, came = threading.Event(), threading.Event(), itertools.count()
    name = "write" if computed else "copy"
    real = getattr(chunk_tasks.ChunkTask, name)

    def act(self, files, *args):
        if next(came) == 0:  # whichever it is: others may take both threads before a named one has its turn
            assert begun.wait(60)
            failed.set()
            raise FileError("the first fails")
        begun.set()
        assert failed.wait(60)
        time.sleep(0.5)  # until the run has heard of it
        for target in files.targets.values():
            (target / "c").mkdir(parents=True, exist_ok=True)
        return real(self, files, *args)

    monkeypatch.setattr(chunk_tasks.ChunkTask, name, act)
    source = dask_array.from_zarr(str(tmp_path / "x.zarr")) if computed else tmp_path / "x.zarr"
    plan = splitops.files.plan_split(source, tmp_path / "out", axis=0, split=[2, 2])
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"
        ) as local,
        pytest.raises(FileError, match="the first fails"),
    ):
        plan.run(cluster=local.scheduler_address)
    assert not (tmp_path / "out").exists()
