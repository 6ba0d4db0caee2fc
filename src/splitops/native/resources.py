"""What this process may use of the machine: processors and memory.

The affinity mask and the control groups of the process count, not the machine's own size, so that a
container with two processors of sixty-four gets two threads.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_UNKNOWN_MEMORY = 1 << 44  # no bound
_POOL_LIMIT_MAX = 512 << 20
_POOL_MEMORY_SHARE = 8


def _control_groups(root: Path, own: Path) -> list[Path]:
    """The version 2 control group of the process and all that enclose it; empty where there are none."""
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


def processor_count(root: Path = _CGROUP_ROOT, own: Path = Path("/proc/self/cgroup")) -> int:
    """Processors that this process may use: by affinity, and by the quotas of its control groups."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in _control_groups(root, own):
        words = _read(group / "cpu.max")  # "<quota> <period>" in microseconds, or "max <period>"
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
            count = min(count, -(-int(words[0]) // int(words[1])))
    return max(1, count)


def thread_count() -> int:
    """The threads to copy with: ``SPLITOPS_NUM_THREADS``, or one a processor.

    A variable that is set to something other than a positive integer is warned of and ignored: importing
    a library must not fail for it.
    """
    text = os.environ.get("SPLITOPS_NUM_THREADS", "")
    if not text:
        return processor_count()
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        warnings.warn(f"SPLITOPS_NUM_THREADS must be a positive integer, not {text!r}", stacklevel=2)
        return processor_count()
    return int(text)


def memory_bytes(root: Path = _CGROUP_ROOT, own: Path = Path("/proc/self/cgroup")) -> int:
    """Bytes of memory that this process may use: the machine's, or less by its control groups."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        total = _UNKNOWN_MEMORY
    for group in _control_groups(root, own):
        words = _read(group / "memory.max")
        if len(words) == 1 and words[0].isdigit():
            total = min(total, int(words[0]))
    return total


def default_pool_limit() -> int:
    """Bytes that the pool of output memory may keep idle: an eighth of the memory, 512 MiB at most."""
    return min(_POOL_LIMIT_MAX, memory_bytes() // _POOL_MEMORY_SHARE)
