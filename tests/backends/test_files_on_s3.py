"""Sources on S3, by s3fs, from moto's server on the loopback."""

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


def test_the_command_line_takes_addresses(tmp_path, files):
    array = np.arange(24).reshape(4, 6)
    np.save(tmp_path / "x.npy", array)
    files.put_file(str(tmp_path / "x.npy"), "bucket/folder/x.npy")
    source = "s3://bucket/folder/x.npy"
    result = CliRunner().invoke(cli, ["split", source, "--axis", "1", "--parts", "2", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load(tmp_path / "x.1.npy"), array[:, 3:])
    result = CliRunner().invoke(cli, ["inspect", "s3://bucket/none.npy"])
    assert result.exit_code == 1
    assert "cannot read s3://bucket/none.npy" in result.output
