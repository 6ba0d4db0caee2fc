"""Sources and targets on S3, by s3fs, at moto's server on the loopback."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

import splitops
from splitops.cli import cli
from splitops.errors import FileError

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("s3fs")
server = pytest.importorskip("moto.server")


@pytest.fixture(scope="module")
def files():
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    host, port = running.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        }.items():
            patch.setenv(name, value)
        found = fsspec.filesystem("s3")
        found.mkdir("bucket")
        yield found
    running.stop()


@pytest.mark.parametrize("axis", [0, 1])
def test_a_file_on_s3_is_split(tmp_path, files, axis):
    array = np.random.default_rng(0).standard_normal((300, 200))
    np.save(tmp_path / "x.npy", array)
    files.put_file(str(tmp_path / "x.npy"), "bucket/x.npy")
    made = splitops.files.split("s3://bucket/x.npy", tmp_path / "out", axis=axis, num_outputs=2, verify=True)
    for (path, _), want in zip(made.files, np.split(array, 2, axis), strict=True):
        np.testing.assert_array_equal(np.load(path), want)
    with pytest.raises(FileError, match=r"cannot read s3://bucket/y\.npy"):
        splitops.files.open("s3://bucket/y.npy")


def test_the_command_line_takes_urls(tmp_path, files):
    array = np.arange(24).reshape(4, 6)
    np.save(tmp_path / "x.npy", array)
    files.put_file(str(tmp_path / "x.npy"), "bucket/folder/x.npy")
    source = "s3://bucket/folder/x.npy"
    result = CliRunner().invoke(cli, ["split", source, "--axis", "1", "--parts", "2", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load(tmp_path / "x.1.npy"), array[:, 3:])
    result = CliRunner().invoke(cli, ["inspect", "s3://bucket/none.npy"])
    assert result.exit_code == 2
    assert "s3://bucket/none.npy does not exist." in result.output


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """An array of 14 MiB: three parts of an upload."""
    path = tmp_path_factory.mktemp("big") / "big.npy"
    np.save(path, np.random.default_rng(0).integers(0, 256, (3_500, 4_096), np.uint8))
    return path


def unfinished(files) -> list[str]:
    """Return the keys of uploads that were neither completed nor aborted."""
    found = files.call_s3("list_multipart_uploads", Bucket="bucket")
    return [upload["Key"] for upload in found.get("Uploads", ())]


@pytest.mark.parametrize("axis", [0, 1])
def test_targets_on_s3_are_uploaded_in_parts(tmp_path, files, big, axis):
    out = f"s3://bucket/parts{axis}"
    plan = splitops.files.plan_split(big, out, axis=axis, split=[3_000, 0, np.load(big).shape[axis] - 3_000])
    assert plan.dry_run().tasks == 3 + 1 + 1

    def progress(done: int, total: int) -> None:
        seen.append((files.exists(out), len(unfinished(files))))

    seen = []
    report = plan.run(verify=True, sha256=True, progress=progress)
    assert (False, 3) in seen
    assert unfinished(files) == []
    here = splitops.files.split(big, tmp_path, axis=axis, split=[3_000, 0, np.load(big).shape[axis] - 3_000])
    for (path, size), (there, its_size) in zip(here.files, report.files, strict=True):
        assert size == its_size
        assert files.cat_file(f"{out}/{there.name}") == path.read_bytes()
    splitops.files.merge([path for path, _ in report.files], f"s3://bucket/y{axis}.npy", axis=axis)
    assert files.cat_file(f"bucket/y{axis}.npy") == big.read_bytes()


def test_an_upload_that_is_stopped_leaves_nothing(files, big):
    def progress(done: int, total: int) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        splitops.files.split(big, "s3://bucket/stopped", num_outputs=2, progress=progress)
    assert not files.exists("bucket/stopped")
    assert unfinished(files) == []


def test_targets_on_s3_that_exist_are_rejected(files, big):
    splitops.files.split(big, "s3://bucket/again", num_outputs=2)
    with pytest.raises(FileError, match=r"s3://bucket/again/big\.0\.npy already exists"):
        splitops.files.split(big, "s3://bucket/again", num_outputs=2)
    splitops.files.split(big, "s3://bucket/again", axis=1, num_outputs=2, overwrite=True)
    found = splitops.files.open("s3://bucket/again/big.1.npy")[""]
    np.testing.assert_array_equal(np.asarray(found[:7]), np.load(big)[:7, 2_048:])
    with pytest.raises(FileError, match="cannot write s3://nobucket"):
        splitops.files.split(big, "s3://nobucket/x", num_outputs=2)
