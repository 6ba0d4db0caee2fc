"""The processors and the memory that this process may use.

They are limited by the affinity mask and the control groups (version 2) of the process, so that a container
with two of 64 processors gets two threads.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_UNKNOWN_MEMORY = 1 << 44  # no bound
_POOL_LIMIT_MAX = 512 << 20
_POOL_MEMORY_SHARE = 8


def _find_control_groups(root: Path, own: Path) -> list[Path]:
    """Return the cgroup (version 2) of the process and all enclosing ones. Empty if it has none."""
    try:
        lines = own.read_text("ascii", "replace").splitlines()
    except OSError:
        return []
    for line in lines:
        if line.startswith("0::"):
            path = root / line[3:].lstrip("/")
            return [path, *(parent for parent in path.parents if parent.is_relative_to(root))]
    return []


def _read(path: Path) -> list[str]:
    try:
        return path.read_text("ascii").split()
    except OSError:
        return []


def count_processors(root: Path = _CGROUP_ROOT, own: Path = Path("/proc/self/cgroup")) -> int:
    """Return the number of processors that CPU affinity and the quotas of control groups permit."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in _find_control_groups(root, own):
        words = _read(group / "cpu.max")  # "<quota> <period>" in microseconds, or "max <period>"
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
            count = min(count, -(-int(words[0]) // int(words[1])))
    return max(1, count)


def count_threads() -> int:
    """Return the number of threads for copies: ``SPLITOPS_NUM_THREADS``, or one per processor.

    An invalid variable is ignored with a warning, because it must not make the import of a library fail.
    """
    text = os.environ.get("SPLITOPS_NUM_THREADS", "")
    if not text:
        return count_processors()
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        warnings.warn(f"SPLITOPS_NUM_THREADS must be a positive integer, not {text!r}", stacklevel=2)
        return count_processors()
    return int(text)


def read_memory_limit(root: Path = _CGROUP_ROOT, own: Path = Path("/proc/self/cgroup")) -> int:
    """Return the bytes of memory that this process may use: all RAM, or the limit of its control groups.

    If the size of the RAM is unknown, as on Windows, return 16 TiB.
    """
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        total = _UNKNOWN_MEMORY
    for group in _find_control_groups(root, own):
        words = _read(group / "memory.max")
        if len(words) == 1 and words[0].isdigit():
            total = min(total, int(words[0]))
    return total


def compute_pool_limit() -> int:
    """Return the default for the idle bytes of the memory pool: an eighth of the memory, at most 512 MiB."""
    return min(_POOL_LIMIT_MAX, read_memory_limit() // _POOL_MEMORY_SHARE)
