"""One turn of :mod:`dev.benchmarks.files`: ``python file_actions.py JSON``.

The name of an action is in ``do``, its arguments beside it. What it imports and opens first is not timed.
Prints the seconds, the processor's seconds and the peak of the resident memory in MiB.

It needs nothing but the library of its action, so that implementations that do not agree on their
dependencies can run with Pythons of their own. Linux alone says what it asks.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Action = Callable[[], object]
PARTS = 4
"""The parts that implementations make, along the last axis."""


def cp(sources: list[str], out: str, sync: bool = False, times: int = 1) -> Action:
    """The measure: a copy of the same bytes."""

    def run() -> None:
        for number in range(times):
            copy = f"{out}/copy{number}"
            subprocess.run(["cp", "-r", *sources, copy], check=True)
            if sync:
                files = [path for path in Path(copy).rglob("*") if path.is_file()]
                subprocess.run(["sync", *(files or [copy])], check=True)

    return run


def split(source: str, out: str, **arguments: Any) -> Action:
    """Ours."""
    from splitops import files

    files.plan_split(source, out, tensor=arguments.get("tensor"), num_outputs=1)  # imports what it needs
    return lambda: files.split(source, out, **arguments)


def merge(folder: str, out: str, **arguments: Any) -> Action:
    """Ours, the inverse."""
    from splitops import files

    parts = sorted(Path(folder).iterdir())
    files.plan_merge(parts[:1], f"{out}/y.npy")
    return lambda: files.merge(parts, f"{out}/y.npy", **arguments)


def by_size(source: str, out: str, size: int, **arguments: Any) -> Action:
    """Ours: whole tensors in files of at most a size, and their index."""
    from splitops import files

    files.plan_by_size(source, out, size)
    return lambda: files.plan_by_size(source, out, size).run(**arguments)


def one_file(folder: str, out: str, name: str, **arguments: Any) -> Action:
    """Ours, the inverse."""
    from splitops import files

    files.plan_one_file(folder, f"{out}/{name}")
    return lambda: files.plan_one_file(folder, f"{out}/{name}").run(**arguments)


def transformers_save_pretrained(source: str, out: str, size: int) -> Action:
    import torch
    from safetensors.torch import load_file
    from torch.nn import Parameter
    from transformers import PretrainedConfig, PreTrainedModel

    model = PreTrainedModel(PretrainedConfig())
    model.register_parameter("one", Parameter(torch.zeros(1)))  # it asks a model for its type
    files = sorted(Path(source).glob("*.safetensors")) or [source]

    def run() -> None:
        state = {name: tensor for file in files for name, tensor in load_file(file).items()}
        model.save_pretrained(out, state_dict=state, max_shard_size=size)

    return run


def safetensors_of_many(source: str, out: str, tensor: str) -> Action:
    """One tensor cut in two by the slices of the format's own library, the others in both files."""
    from safetensors import safe_open
    from safetensors.numpy import save_file

    def run() -> None:
        for index in range(2):
            with safe_open(source, "numpy") as file:
                found = {name: file.get_tensor(name) for name in file.keys() if name != tensor}  # noqa: SIM118
                view = file.get_slice(tensor)
                half = view.get_shape()[0] // 2
                found[tensor] = view[index * half : (index + 1) * half]
            save_file(found, f"{out}/{index}.safetensors")

    return run


def gguf_py(source: str, out: str, size: int) -> Action:
    """The files of llama.cpp's split tool, read and written by its package for Python."""
    import gguf

    def run() -> None:
        writer = gguf.GGUFWriter(f"{out}/m.gguf", "llama", split_max_size=size)
        for tensor in gguf.GGUFReader(source).tensors:
            writer.add_tensor(tensor.name, tensor.data)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    return run


def numpy_memmap(folder: str, out: str) -> Action:
    import numpy as np

    def run() -> None:
        for index, part in enumerate(np.split(np.load(f"{folder}/x.npy", mmap_mode="r"), PARTS, 1)):
            np.save(f"{out}/{index}.npy", part)

    return run


def safetensors_slices(folder: str, out: str) -> Action:
    from safetensors import safe_open
    from safetensors.numpy import save_file

    def run() -> None:
        with safe_open(f"{folder}/x.safetensors", "numpy") as file:
            view = file.get_slice("data")
            width = view.get_shape()[1] // PARTS
            for index in range(PARTS):
                part = view[:, index * width : (index + 1) * width]
                save_file({"data": part}, f"{out}/{index}.safetensors")

    return run


def dask(folder: str, out: str) -> Action:
    import dask.array as da
    import numpy as np

    def run() -> None:
        whole = np.load(f"{folder}/x.npy", mmap_mode="r")
        width = whole.shape[1] // PARTS
        array = da.from_array(whole, chunks=(1024, width))
        parts = [array[:, at : at + width] for at in range(0, whole.shape[1], width)]
        files = [
            np.lib.format.open_memmap(f"{out}/{index}.npy", "w+", part.dtype, part.shape)
            for index, part in enumerate(parts)
        ]
        da.store(parts, files, lock=False)

    return run


def zarr(folder: str, out: str) -> Action:
    import zarr as library

    def run() -> None:
        source = library.open_array(f"{folder}/x.zarr", mode="r")
        rows, width = source.chunks[0], source.shape[1] // PARTS
        for index in range(PARTS):
            part = library.create_array(
                f"{out}/{index}.zarr",
                shape=(source.shape[0], width),
                chunks=(rows, width),
                dtype=source.dtype,
                compressors=None,
            )
            for row in range(0, source.shape[0], rows):
                part[row : row + rows] = source[row : row + rows, index * width : (index + 1) * width]

    return run


def tensorstore(folder: str, out: str) -> Action:
    import tensorstore as ts

    def store(path: str) -> dict[str, Any]:
        return {"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}

    def run() -> None:
        source = ts.open(store(f"{folder}/x.zarr")).result()
        width = source.shape[1] // PARTS
        written = []
        for index in range(PARTS):
            layout = ts.ChunkLayout(chunk_shape=[256, width])
            part = ts.open(
                store(f"{out}/{index}.zarr"),
                create=True,
                dtype=source.dtype,
                shape=[source.shape[0], width],
                chunk_layout=layout,
            ).result()
            written.append(part.write(source[:, index * width : (index + 1) * width]))
        for each in written:
            each.result()

    return run


def cubed(folder: str, out: str) -> Action:
    import cubed as library

    spec = library.Spec(work_dir=f"{out}/work", allowed_mem="2GB")

    def run() -> None:
        source = library.from_zarr(f"{folder}/x.zarr", spec=spec)
        width = source.shape[1] // PARTS
        parts = [source[:, at : at + width] for at in range(0, source.shape[1], width)]
        library.store(parts, [f"{out}/{index}.zarr" for index in range(PARTS)])

    return run


def rechunker(folder: str, out: str) -> Action:
    """Its own way of the same work: an array in chunks of rows becomes one in chunks of columns."""
    import zarr as library
    from rechunker import rechunk

    def run() -> None:
        source = library.open(f"{folder}/x2.zarr", mode="r")
        rows, columns = source.shape
        chunks = (rows, columns // PARTS)
        rechunk(source, chunks, "1GB", f"{out}/y.zarr", temp_store=f"{out}/between.zarr").execute()

    return run


PEERS = {
    each.__name__: each
    for each in (numpy_memmap, safetensors_slices, dask, zarr, tensorstore, cubed, rechunker)
}
BY_SIZE = {each.__name__: each for each in (transformers_save_pretrained, gguf_py, safetensors_of_many)}
_OURS = (cp, split, merge, by_size, one_file)
ACTIONS: dict[str, Callable[..., Action]] = {each.__name__: each for each in _OURS} | PEERS | BY_SIZE


def processor() -> float:
    """The seconds of this process and of the programs that it ran."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def peak() -> float:
    """The largest resident memory in MiB; not ru_maxrss, which begins with what made this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def touch_memory() -> None:
    """Use so much memory that a virtual machine's host has given it before the time runs."""
    subprocess.run([sys.executable, "-c", "b'x' * (1 << 30)"], check=True)


def main(actions: dict[str, Callable[..., Action]] = ACTIONS) -> None:
    """Do what the argument says."""
    arguments = json.loads(sys.argv[1])
    run = actions[arguments.pop("do")](**arguments)
    os.sync()
    touch_memory()
    before, start = processor(), time.perf_counter()
    run()
    seconds, used = time.perf_counter() - start, processor() - before
    print(json.dumps({"seconds": seconds, "processor": used, "peak": peak()}))


if __name__ == "__main__":
    main()
