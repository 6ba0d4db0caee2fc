"""The compiled core; its functions are documented in ``splitops.native``."""

from collections.abc import Callable, Sequence
from typing import Any

from splitops.native._types import Array, Parts

def views(
    array: Array, axis: int, offsets: Sequence[int], sizes: Sequence[int], squeeze: bool
) -> tuple[Array, ...]: ...
def copies(
    array: Array,
    axis: int,
    offsets: Sequence[int],
    sizes: Sequence[int],
    squeeze: bool,
    *,
    separate: bool = False,
) -> tuple[Array, ...]: ...
def copies_into(
    array: Array,
    axis: int,
    offsets: Sequence[int],
    sizes: Sequence[int],
    squeeze: bool,
    out: Sequence[Array],
) -> None: ...
def fill(
    array: Array,
    axis: int,
    offsets: Sequence[int],
    sizes: Sequence[int],
    squeeze: bool,
    out: Sequence[Array],
) -> tuple[Array, ...] | None: ...
def set_threads(threads: int) -> None: ...
def threads() -> int: ...
def set_pool_limit(bytes: int) -> None: ...
def pool_counters() -> tuple[int, int, int, int, int, int, int]: ...
def release_pool() -> None: ...

# For tests and measurements: the vector code in use, and the sizes in bytes from which a copy is shared
# between threads and bypasses the caches.
def instruction_sets() -> tuple[str, ...]: ...
def use_instruction_set(name: str) -> None: ...
def thresholds() -> tuple[int, int]: ...
def set_thresholds(parallel: int, stream: int) -> None: ...

class Splitter:
    def __new__(
        cls,
        shape: Sequence[int],
        axis: int,
        offsets: Sequence[int],
        sizes: Sequence[int],
        squeeze: bool,
        *,
        listed: bool = False,
    ) -> Splitter: ...
    def __call__(self, array: Array, /) -> Parts: ...
    def copies(self, array: Array, *, separate: bool = False) -> Parts: ...
    def copies_into(self, array: Array, out: Sequence[Array]) -> None: ...
    def fill(self, array: Array, out: Sequence[Array]) -> Parts | None: ...

class CallCache:
    def __new__(cls) -> CallCache: ...
    def __call__(self, array: object, /, *arguments: object) -> Any: ...
    def copies(self, array: object, /, *arguments: object) -> Any: ...
    def fill(self, out: Any, array: object, /, *arguments: object) -> Any: ...
    def store(self, splitter: Splitter, array: object, /, *arguments: object) -> bool: ...
    def clear(self) -> None: ...
    def __len__(self) -> int: ...

class Recall:
    def __new__(
        cls,
        function: Callable[..., Any],
        cache: CallCache,
        names: tuple[str, ...],
        defaults: tuple[object, ...],
        positional: int,
        /,
    ) -> Recall: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

class Called:
    _call: Any

# Files: see ``splitops.native.files``. ``table``: without the processor's help, for tests.
def copy_extents(
    passes: Array,
    sources: Array,
    targets: Array,
    moves: Array,
    source_files: Sequence[int],
    target_files: Sequence[int] | None,
    threads: int,
    tick: Callable[[int], object],
) -> tuple[list[int], tuple[bool, int, int, int] | None]: ...
def crc32(data: Array, before: int = 0, *, table: bool = False) -> int: ...
def sync_files(files: Sequence[int]) -> int: ...
