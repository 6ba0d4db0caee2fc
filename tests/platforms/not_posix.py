"""Makes this process forget what only POSIX systems have: a pytest plugin, to be loaded before splitops.

Windows also differs where names are the same. Descriptors are of text unless ``O_BINARY`` says otherwise, and
text has an encoding of its own; folders cannot be opened, what is only read cannot be synced, and an open
file is neither replaced nor removed. What a pretence cannot show are its own paths, consoles and processes.
"""

from __future__ import annotations

import concurrent.futures.process  # what would fail to load without them
import errno
import fcntl
import logging.handlers
import multiprocessing.synchronize
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

LOADED = (
    concurrent.futures.process,
    logging.handlers,
    multiprocessing.synchronize,
    random,
    subprocess,
    tempfile,
    np,
)
MODULES = ("fcntl", "grp", "pwd", "pty", "resource", "syslog", "termios", "tty")
NAMES = (
    *("chown", "chroot", "copy_file_range", "fchmod", "fchown", "fdatasync", "fork", "forkpty"),
    *("getgid", "getloadavg", "getpgid", "getpgrp", "getpriority", "initgroups", "killpg", "lchown"),
    *("lockf", "memfd_create", "mkfifo", "mknod", "nice", "openpty", "pidfd_open", "posix_fadvise"),
    *("posix_fallocate", "posix_spawn", "pread", "preadv", "pwrite", "pwritev", "register_at_fork"),
    *(
        "sched_getaffinity",
        "sched_setaffinity",
        "sched_yield",
        "sendfile",
        "setpgid",
        "setsid",
        "statvfs",
        "sync",
    ),
    *("sysconf", "uname", "wait", "wait3", "wait4", "O_CLOEXEC", "O_DIRECT", "O_DIRECTORY", "O_NOFOLLOW"),
    *("O_NONBLOCK", "O_SYNC"),
)
SIGNALS = (
    "SIGALRM",
    "SIGHUP",
    "SIGPIPE",
    "SIGUSR1",
    "SIGUSR2",
    "alarm",
    "pthread_kill",
    "setitimer",
    "sigwait",
)
BINARY = 1 << 30
FROM_OPEN = os.O_CLOEXEC  # the built-in open() sets it, which knows how to open files of bytes
UNNAMED = os.O_TMPFILE

_open, _fsync, _link = os.open, os.fsync, os.link


def _opened(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
    if flags & UNNAMED == UNNAMED:
        return _open(path, flags, mode)
    caller = sys._getframe(1).f_globals["__name__"]
    if caller.startswith("splitops") and not flags & (BINARY | FROM_OPEN):
        raise ValueError(f"{path!r} is opened as text")
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "a folder cannot be opened")
    return _open(path, flags & ~BINARY, mode, **options)


def _synced(file: int) -> None:
    if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "opened for reading alone")
    _fsync(file)


def _linked(source: Any, target: Any, *, follow_symlinks: bool = True) -> None:
    if not follow_symlinks:
        raise NotImplementedError("follow_symlinks unavailable on this platform")
    _link(source, target)


def _in_use(path: Any) -> bool:
    """Whether this process has a file open or mapped, or one in a folder."""
    if not os.path.lexists(path) or stat.S_ISLNK(os.lstat(path).st_mode):
        return False
    own = os.path.realpath(path)
    links = [f"/proc/self/fd/{descriptor}" for descriptor in os.listdir("/proc/self/fd")]
    found = [os.readlink(link) for link in links if os.path.lexists(link)]
    found += [line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text("utf-8").splitlines()]
    return any(name == own or name.startswith(f"{own}/") for name in found)


def _rejecting(function: Any) -> Any:
    def moved(path: Any, *rest: Any, **options: Any) -> Any:
        for each in (path, *rest[:1]):
            if isinstance(each, str | bytes | os.PathLike) and _in_use(each):
                raise PermissionError(errno.EACCES, "used by this process", os.fsdecode(each))
        return function(path, *rest, **options)

    return moved


def pretend() -> None:
    """Forget, for good."""
    assert "splitops" not in sys.modules
    os.environ["SPLITOPS_NATIVE"] = "0"
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for name in NAMES:
        if hasattr(os, name):
            delattr(os, name)
    for name in SIGNALS:
        if hasattr(signal, name):
            delattr(signal, name)
    os.O_BINARY = BINARY  # type: ignore[attr-defined]
    os.open, os.fsync, os.link = _opened, _synced, _linked
    for name in ("replace", "rename", "unlink", "remove", "rmdir"):
        setattr(os, name, _rejecting(getattr(os, name)))
    warnings.filterwarnings("error", category=EncodingWarning, module="splitops")
    shutil._use_fd_functions = False  # type: ignore[attr-defined]


pretend()
