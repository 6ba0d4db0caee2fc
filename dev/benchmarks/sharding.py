"""Cutting a checkpoint into ranks beside `cp -r`: ``tasks.py bench sharding [OPTION ...]``.

The checkpoint has 16 layers and 1.6 GiB in four files. Every turn is a process of its own, in turns, as in
:mod:`dev.benchmarks.files`: the ratios are to ``cp -r`` of the same bytes, neither side syncs but where a row
says so, and the resident memory has Python and the library in it. Planning is timed alone, of many tensors.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dev.benchmarks.files import Case, Measured, show, take_turn
from splitops import sharding

ACTIONS = Path(__file__).with_name("shard_actions.py")
PLAN = Path(__file__).with_name("shard_plan.toml")
RANKS = (2, 4, 8)
FILES = 4
TENSORS = 100_000
SMALL = 64
"""Sizes of the many tensors are those of the model by this."""
SIZE = 256 << 20
CONFIG = {"num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "hidden_size": 2048}


def shapes(layers: int) -> dict[str, list[int]]:
    """The tensors of a model as large checkpoints have them."""
    found = {"model.embed_tokens.weight": [32000, 2048]}
    for layer in range(layers):
        name = f"model.layers.{layer}"
        found |= {
            f"{name}.self_attn.q_proj.weight": [2048, 2048],
            f"{name}.self_attn.k_proj.weight": [512, 2048],
            f"{name}.self_attn.v_proj.weight": [512, 2048],
            f"{name}.self_attn.o_proj.weight": [2048, 2048],
            f"{name}.mlp.gate_proj.weight": [6144, 2048],
            f"{name}.mlp.up_proj.weight": [6144, 2048],
            f"{name}.mlp.down_proj.weight": [2048, 6144],
            f"{name}.input_layernorm.weight": [2048],
        }
    return found


def write_file(path: Path, tensors: dict[str, list[int]]) -> None:
    """Write a file of random bfloat16 tensors."""
    header, end = {}, 0
    for name, shape in tensors.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for at in range(0, end, 1 << 24):
            file.write(os.urandom(min(1 << 24, end - at)))


def make_model(folder: Path, layers: int) -> None:
    """Write the checkpoint."""
    folder.mkdir()
    tensors = list(shapes(layers).items())
    where = {}
    for number in range(FILES):
        name = f"model-{number + 1:05}-of-{FILES:05}.safetensors"
        own = dict(tensors[number * len(tensors) // FILES : (number + 1) * len(tensors) // FILES])
        write_file(folder / name, own)
        where |= dict.fromkeys(own, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    (folder / "config.json").write_text(json.dumps(CONFIG))


def cases(
    model: Path, many: Path, ranks: dict[int, Path], out: Path, peers: str, dask: bool
) -> Iterator[Case]:
    """What is compared, in the order of the turns."""

    def case(name: str, do: str, folder: Path, beside: str = "cp -r", **arguments: Any) -> Case:
        return Case(name, {"do": do, "folder": str(folder), "out": str(out), **arguments}, beside)

    def cp(sync: bool) -> dict[str, Any]:
        return {"do": "cp", "sources": [str(model)], "out": str(out), "sync": sync}

    yield Case("cp -r", cp(False), "cp -r")
    yield Case("cp -r, synced", cp(True), "cp -r, synced")
    for count in RANKS:
        yield case(f"shard, {count} ranks", "shard", model, ranks=count, sync=False)
    yield case("shard, 4 ranks, verified", "shard", model, ranks=4, sync=False, verify=True)
    yield case("shard, 4 ranks, synced", "shard", model, "cp -r, synced", ranks=4, sync=True)
    for first, second in ((8, 4), (2, 8)):
        yield case(f"reshard, {first} to {second} ranks", "shard", ranks[first], ranks=second, sync=False)
    yield case("merge, then shard, 8 to 4 ranks", "merge_then_shard", ranks[8], ranks=4)
    yield case("merge, 8 ranks", "merge", ranks[8], sync=False)
    yield case("fuse, q, k, v and gate, up fused", "fuse", model, rows=[2048, 512], sync=False)
    sized = {"source": str(model), "out": str(out), "size": SIZE}
    yield Case("split by size", {"do": "by_size", **sized, "sync": False}, "cp -r")
    merged = {"folder": str(model), "out": str(out), "name": "model.safetensors", "sync": False}
    yield Case("one file", {"do": "one_file", **merged}, "cp -r")
    of_many = f"cp -r, {TENSORS:,} tensors"
    yield Case(of_many, {"do": "cp", "sources": [str(many)], "out": str(out)}, of_many)
    yield case(f"shard, 4 ranks, {TENSORS:,} tensors", "shard", many, of_many, ranks=4, sync=False)
    name = f"fuse, q, k, v and gate, up fused, {TENSORS:,} tensors"
    yield case(name, "fuse", many, of_many, rows=[2048 // SMALL, 512 // SMALL], sync=False)
    if dask:
        yield case("shard, 4 ranks, 2 workers of Dask", "cluster", model, ranks=4, kill=False)
        yield case("shard, 4 ranks, 2 workers, one killed", "cluster", model, ranks=4, kill=True)
    for name in ("safetensors_slices", "torch_chunk"):
        arguments = {"do": name, "folder": str(model), "out": str(out), "ranks": 4}
        yield Case(f"*{name.replace('_', ' ')}, 4 ranks*", arguments, "cp -r", peers)
    name = "transformers_save_pretrained"
    yield Case(f"*{name.replace('_', ' ')}, by size*", {"do": name, **sized}, "cp -r", peers)


def make_many(folder: Path) -> None:
    """Write a checkpoint of many small tensors."""
    folder.mkdir()
    small = {name: [max(1, size // SMALL) for size in of] for name, of in shapes(TENSORS // 8).items()}
    write_file(folder / "model.safetensors", small)
    (folder / "config.json").write_text(json.dumps(CONFIG | {"head_dim": 1}))


def plan_many(folder: Path) -> float:
    """Return the seconds in which so many tensors are read and planned."""
    turns = []
    for _ in range(5):
        start = time.perf_counter()
        made = sharding.plan(folder, PLAN, ranks=4)
        turns.append(time.perf_counter() - start)
    print(
        f"\nplanning {len(made.placements.tensors):,} tensors for 4 ranks: {statistics.median(turns):.2f} s"
    )
    start = time.perf_counter()
    extents = len(made.plan_files(folder / "out").extents)
    print(f"their {extents:,} extents and the headers of the ranks: {time.perf_counter() - start:.2f} s")
    return statistics.median(turns)


def digest(folder: Path) -> str:
    """A digest of all files but those that name their run."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in ("manifest.json", "rank.json"):
            found.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return found.hexdigest()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="tasks.py bench sharding", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where the files are written; /tmp without")
    parser.add_argument("--layers", type=int, default=16, help="of the model, 93 MiB each (16)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each case (5)")
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="cases whose names match, and what they need"
    )
    parser.add_argument("--peers", default=sys.executable, help="a Python with torch and safetensors")
    parser.add_argument("--minima", action="store_true", help="minima, for a busy machine")
    parser.add_argument("--dask", action="store_true", help="on a cluster, too")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    base = Path(tempfile.mkdtemp(dir=chosen.folder))
    try:
        model, out = base / "model", base / "out"
        make_model(model, chosen.layers)
        make_many(base / "many")
        ranks = {count: base / f"ranks-{count}" for count in (2, 8)}
        for count, folder in ranks.items():
            sharding.plan(model, PLAN, ranks=count).run(folder)
        compared = list(cases(model, base / "many", ranks, out, chosen.peers, chosen.dask))
        wanted = {case.name for case in compared if re.search(chosen.only, case.name)}
        for _ in range(2):  # what a case is beside may be beside another one
            wanted |= {case.beside for case in compared if case.name in wanted}
        compared = [case for case in compared if case.name in wanted]
        measured = {case.name: Measured() for case in compared}
        seen: dict[str, str] = {}
        with contextlib.suppress(KeyboardInterrupt):
            for case in compared * chosen.rounds:
                turn = take_turn(case, out, ACTIONS)
                if isinstance(turn, str):
                    measured[case.name].problem = turn
                else:
                    measured[case.name].turns.append(turn)
                if case.arguments["do"] == "cluster" and "killed" in case.name and case.name not in seen:
                    seen[case.name] = digest(out / "ranks")
        mebibytes = sum(path.stat().st_size for path in model.iterdir()) >> 20
        show(compared, measured, mebibytes, chosen.rounds, minima=chosen.minima)
        if seen:
            sharding.plan(model, PLAN, ranks=4).run(base / "alone", sync=False)
            same = set(seen.values()) == {digest(base / "alone")}
            print(f"\nwith a killed worker: {'the same bytes' if same else 'OTHER BYTES'}")
        if not chosen.only:
            plan_many(base / "many")
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
