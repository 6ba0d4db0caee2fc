"""Runs commands one after the other, each bounded in time and memory, and says what each has done.

Jobs come on standard input, a line of JSON each; a line of JSON answers each, before and after it has run.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

SECONDS = 10
MEMORY = 1 << 30
_DOOR = os.path.join("splitops", "common", "untrusted_files.py")


class Watch:
    """Every file that Python opens and every folder that it lists, of those that a job must leave alone."""

    def __init__(self) -> None:
        self.outside, self.inside, self.named = "/nowhere", "/nowhere", frozenset()
        self.found: list[str] = []
        self.busy = False
        sys.addaudithook(self.see)

    def see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.busy or event not in ("open", "os.listdir", "os.scandir") or not arguments:
            return
        path = arguments[0]
        if not isinstance(path, str | bytes | os.PathLike):
            return
        self.busy = True
        try:
            real = os.path.realpath(os.fsdecode(path))
            if real.startswith(self.outside) and real not in self.named:
                self.found.append(f"{event} of {real}, which is outside")
            if (
                event == "open"
                and real.startswith(self.inside)
                and os.path.lexists(real)
                and not self.through_the_door()
            ):
                self.found.append(f"{event} of {real} by {self.caller()}")
        finally:
            self.busy = False

    def through_the_door(self) -> bool:
        frame: Any = sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_filename.endswith(_DOOR):
                return True
            frame = frame.f_back
        return False

    def caller(self) -> str:
        lines = [line for line in traceback.extract_stack()[:-2] if "splitops" in line.filename]
        return f"{lines[-1].filename}:{lines[-1].lineno}" if lines else "a library"


def obey_permissions() -> None:
    """Give up the capabilities by which root reads and writes what nobody may."""
    library = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    if os.geteuid() == 0 and not library.capget(header, data):
        for set_ in (0, 1):
            data[set_] &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        library.capset(header, data)


def address_space() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()


def run(arguments: list[str]) -> dict[str, Any]:
    from command_line import runner
    from splitops.cli import cli

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + MEMORY, hard))
    signal.alarm(SECONDS)  # ends the process: what waits in C hears no handler
    try:
        found = runner().invoke(cli, arguments, prog_name="splitops")
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    error = found.exception
    wrong = (
        "" if error is None or isinstance(error, SystemExit) else "".join(traceback.format_exception(error))
    )
    return {"code": found.exit_code, "said": found.output + found.stderr, "traceback": wrong}


def main() -> None:
    import h5py  # noqa: F401 - what commands import is no memory of a job
    import onnxruntime  # noqa: F401
    import openvino  # noqa: F401
    import zarr  # noqa: F401

    obey_permissions()
    watch = Watch()
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps({"start": job["number"]}), flush=True)
        os.chdir(job["folder"])
        watch.outside, watch.inside = job["outside"], job["inside"]
        watch.named = frozenset(os.path.realpath(text) for text in job["arguments"])
        watch.found = []
        answer = run(job["arguments"])
        gc.collect()  # what is left open would be closed in the next job
        print(json.dumps({"end": job["number"], "seen": watch.found, **answer}), flush=True)


if __name__ == "__main__":
    main()
