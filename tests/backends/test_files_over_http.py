"""Files of a server of HTTP on the loopback, which answers as it should, or in one wrong way."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import splitops
from splitops.errors import FileError
from splitops.files import web
from splitops.files.urls import RemoteFile

pytest.importorskip("aiohttp")
ARRAY = np.arange(40_000, dtype=np.int32).reshape(200, 200)


class Server(ThreadingHTTPServer):
    """A server of one file.

    Attributes:
        content: of the file.
        wrong: what is done wrong with ranges.
        busy: how many requests are answered with 503 first.
        asked: how many requests there were.
    """

    daemon_threads = True

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.wrong, self.busy, self.asked = content, "", 0, 0
        self.changed = "Mon, 01 Jan 2024 00:00:00 GMT"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/x.npy"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(200, self.server.content, body=False)

    def do_GET(self) -> None:
        served = self.server
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if found is None or served.wrong == "no ranges":
            self._answer(200, served.content)
            return
        begin, end = int(found[1]), int(found[2]) + 1
        if served.wrong == "other range":
            begin, end = begin + 4, end + 4
        data = served.content[begin:end]
        self._answer(206, data, f"bytes {begin}-{end - 1}/{len(served.content)}")

    def _answer(self, status: int, data: bytes, stated: str = "", *, body: bool = True) -> None:
        self.server.asked += 1
        if self.server.busy:
            self.server.busy -= 1
            status, data, stated = 503, b"", ""
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Last-Modified", self.server.changed)
        if stated:
            self.send_header("Content-Range", stated)
        self.end_headers()
        if not body:
            return
        if self.server.wrong == "silence":
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            time.sleep(600)
        self.wfile.write(data)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    np.save(tmp_path / "x.npy", ARRAY)
    monkeypatch.setattr(web, "_WAITS", (0.01, 0.02, 0.03))
    with Server((tmp_path / "x.npy").read_bytes()) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_file_is_split(served: Server, tmp_path: Path) -> None:
    made = splitops.files.split(served.url, tmp_path / "out", axis=1, num_outputs=2, verify=True)
    for (path, _), want in zip(made.files, np.split(ARRAY, 2, 1), strict=True):
        np.testing.assert_array_equal(np.load(path), want)


def test_another_range_than_was_asked_for_is_rejected(served: Server, tmp_path: Path) -> None:
    plan = splitops.files.plan_split(served.url, tmp_path / "out", num_outputs=2)
    served.wrong = "other range"
    with pytest.raises(FileError, match=r"returned .*132-160131.* instead of bytes 128-160127"):
        plan.run()
    assert not (tmp_path / "out").exists()


def test_a_server_without_ranges_is_said(served: Server, tmp_path: Path) -> None:
    served.wrong = "no ranges"
    with pytest.raises(FileError, match=r"does not support range requests\. Download the file first"):
        splitops.files.split(served.url, tmp_path / "out", num_outputs=2)
    file = RemoteFile(served.url)
    assert file.read(0, file.size) == served.content  # all of it is what was asked for


@pytest.mark.parametrize("busy", [1, 3])
def test_a_busy_server_is_asked_again(served: Server, tmp_path: Path, busy: int) -> None:
    file = RemoteFile(served.url)
    served.busy, before = busy, served.asked
    assert file.read(128, 4) == served.content[128:132]
    assert served.asked - before == busy + 1
    served.busy = busy
    assert RemoteFile(served.url).size == len(served.content)


def test_a_server_that_stays_busy_is_one_error(served: Server) -> None:
    file = RemoteFile(served.url)
    served.busy, before = 1000, served.asked
    with pytest.raises(FileError, match=rf"cannot read {re.escape(served.url)}: .*503"):
        file.read(128, 4)
    assert served.asked - before == 4


def test_a_silent_server_ends_after_the_stated_time(served: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "SILENCE", 0.5)
    file = RemoteFile(served.url)
    served.wrong, before = "silence", time.monotonic()
    said = rf"cannot read {re.escape(served.url)}: the server has sent nothing for 0\.5 seconds"
    with pytest.raises(FileError, match=said):
        file.read(128, 4000)
    assert time.monotonic() - before < 50


def test_a_file_that_changes_meanwhile_is_rejected(served: Server, tmp_path: Path) -> None:
    def change(done: int, total: int) -> None:
        served.changed = "Tue, 02 Jan 2024 00:00:00 GMT"

    with pytest.raises(FileError, match="has changed while it was being read"):
        splitops.files.split(served.url, tmp_path / "out", num_outputs=2, progress=change)


def test_messages_have_the_url_as_it_is(served: Server) -> None:
    served.content = b"no array"
    with pytest.raises(FileError, match=re.escape(served.url)):
        splitops.files.open(served.url)
