"""Distributed checkpoints: what the layout writes, and what is read back without a manifest."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from sharding_helpers import LLAMA, LLAMA_PLAN, contents, llama, save

from splitops.errors import PlanError
from splitops.sharding import merge, plan
from splitops.sharding.boxes import Box, check_boxes

PACKED = {"version": 1, "rule": [{"match": "*", "hf": "packed_colwise"}]}
Pieces = list[tuple[str, tuple[int, ...], np.ndarray]]


def pieces_of(folder: Path) -> Pieces:
    """Each piece with its name and where it begins, of all files."""
    found: Pieces = []
    for path in sorted(folder.glob("shard-*.safetensors")):
        with safe_open(path, "np") as file:
            metadata = file.metadata()
            assert (metadata["format"], metadata["DCP_VERSION"]) == ("pt", "1.0")
            info = json.loads(metadata["DCP_SHARDING_INFO"])
            assert info.keys() == set(file.keys())
            found += [(name, tuple(info[name]["saved_offsets"]), file.get_tensor(name)) for name in info]
    return found


def put_together(pieces: Pieces, wholes: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    found = {name: np.zeros_like(array) for name, array in wholes.items()}
    times = {name: np.zeros(array.shape, int) for name, array in wholes.items()}
    for name, begin, piece in pieces:
        place = tuple(slice(b, b + n) for b, n in zip(begin, piece.shape, strict=True))
        found[name][place] = piece
        times[name][place] += 1
    assert all((count == 1).all() for count in times.values())
    return found


def write(
    folder: Path, pieces: dict[str, list[tuple[Any, np.ndarray]]], part: str = "00001-of-00001"
) -> Path:
    """Write pieces as PyTorch does; a list for each name, of which piece r is in the file of rank r + 1."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(max(map(len, pieces.values()))):
        own = {name: found[rank] for name, found in pieces.items() if rank < len(found)}
        info = {name: {"saved_offsets": begin} for name, (begin, _) in own.items()}
        metadata = {"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(info)}
        save_file(
            {name: np.array(piece, order="C") for name, (_, piece) in own.items()},
            folder / f"shard-{rank + 1:05}-model-{part}.safetensors",
            metadata=metadata,
        )
    return folder


@pytest.mark.parametrize("rules", [LLAMA_PLAN, PACKED], ids=["llama", "packed"])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_pieces_make_up_the_whole_once_without_padding(
    tmp_path: Path, ranks: int, rules: dict[str, Any]
) -> None:
    wholes = llama() if rules is LLAMA_PLAN else {k: v for k, v in llama().items() if len(v) % 2 == 0}
    wholes["none.norm.weight"] = np.zeros((0, 4), np.float32)
    source = save(tmp_path / "model", wholes, LLAMA, shards=3)
    plan(source, rules, ranks=ranks, layout="dcp").run(tmp_path / "ranks")
    for name, array in put_together(pieces_of(tmp_path / "ranks"), wholes).items():
        np.testing.assert_array_equal(array, wholes[name], strict=True)
    merge(tmp_path / "ranks").run(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(source)


def test_what_no_single_offset_says_goes_to_a_file_of_its_own(tmp_path: Path) -> None:
    source = save(tmp_path / "model", {"gate_up": np.arange(8.0)[:, None]})
    plan(source, PACKED, ranks=2, layout="dcp").run(tmp_path / "ranks")
    names = sorted(path.name for path in (tmp_path / "ranks").glob("*.safetensors"))
    assert names == [
        f"shard-0000{rank}-model-0000{part}-of-00002.safetensors" for rank in (1, 2) for part in (1, 2)
    ]
    begins = [begin for _, begin, _ in pieces_of(tmp_path / "ranks")]
    assert begins == [(0, 0), (4, 0), (2, 0), (6, 0)]


def test_the_whole_is_restored_like_another_checkpoint(tmp_path: Path) -> None:
    source = save(tmp_path / "model", llama(), LLAMA, shards=3)
    plan(source, LLAMA_PLAN, ranks=4, layout="dcp").run(tmp_path / "ranks")
    (tmp_path / "ranks" / "manifest.json").unlink()
    merge(tmp_path / "ranks", like=source).run(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(source)
    plan(tmp_path / "ranks", LLAMA_PLAN, ranks=2, like=source).run(tmp_path / "hf")
    plan(source, LLAMA_PLAN, ranks=2).run(tmp_path / "straight")
    ours, straight = contents(tmp_path / "hf"), contents(tmp_path / "straight")
    marks = {name for name in ours if name.endswith(("manifest.json", "rank.json"))}  # they name their run
    assert {k: v for k, v in ours.items() if k not in marks} == {
        k: v for k, v in straight.items() if k not in marks
    }


def test_without_another_one_parts_become_files_with_an_index(tmp_path: Path) -> None:
    rows = np.arange(12.0).reshape(6, 2)
    write(tmp_path / "dcp", {"a": [([0, 0], rows[:4]), ([4, 0], rows[4:])]}, "00001-of-00002")
    write(tmp_path / "dcp", {"b": [([0], np.arange(3))]}, "00002-of-00002")
    merge(tmp_path / "dcp").run(tmp_path / "whole")
    index = json.loads((tmp_path / "whole" / "model.safetensors.index.json").read_text())
    files = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    assert index == {"metadata": {"total_size": 120}, "weight_map": files}
    np.testing.assert_array_equal(load_file(tmp_path / "whole" / files["a"])["a"], rows)
    again = plan(tmp_path / "dcp", {"version": 1, "rule": [{"match": "*", "axis": 0}]}, ranks=3)
    again.run(tmp_path / "ranks")
    merge(tmp_path / "ranks").run(tmp_path / "third")
    assert contents(tmp_path / "third") == contents(tmp_path / "whole")


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_pieces_of_any_grid_are_joined(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 7), max_size=4))
    whole = np.arange(int(np.prod(shape)), dtype=np.int16).reshape(shape)
    edges = [sorted({0, size, *data.draw(st.lists(st.integers(0, size), max_size=2))}) for size in shape]
    found = []
    for cell in itertools.product(*(list(itertools.pairwise(each)) for each in edges)):
        piece = whole[tuple(slice(*ends) for ends in cell)]
        found.append(([begin for begin, _ in cell], piece))
    folder = tmp_path_factory.mktemp("grid")
    order = data.draw(st.permutations(found))
    write(folder / "dcp", {"w": [*order, order[0]]})  # and one of them by another rank too
    merge(folder / "dcp").run(folder / "whole", sync=False)
    np.testing.assert_array_equal(load_file(folder / "whole" / "model.safetensors")["w"], whole, strict=True)


ROWS = np.zeros((4, 2))


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (
            [([0, 0], ROWS), ([5, 0], ROWS)],
            r"tensor 'w': the pieces contain 16 elements of shape \[9, 2\]: element \[4, 0\] is missing",
        ),
        (
            [([0, 0], ROWS), ([3, 0], ROWS)],
            r"the pieces at \[0, 0\] and \[3, 0\], of shapes \[4, 2\] and \[4, 2\], overlap",
        ),
        ([([0, 0], ROWS), ([4, 1], ROWS)], r"element \[0, 2\] is missing"),
        (
            [([0, 0], ROWS), ([4], ROWS)],
            r"shard-00002.*tensor 'w' of shape \[4, 2\] has the invalid offsets \[4\]",
        ),
        ([([0, -1], ROWS)], r"has the invalid offsets \[0, -1\]"),
        ([([0, 1 << 62], ROWS)], r"has the invalid offsets \[0, "),
        ([([0, (1 << 62) - 2], ROWS)], r"has a size in bits of 2\*\*64 or more"),
        ([(None, ROWS)], "has the invalid offsets None"),
        (
            [([0, 0], ROWS), ([4, 0], ROWS.astype(np.float32))],
            "is F64 of rank 2 in one file, but not in another",
        ),
        ([([0, 0], ROWS), ([0], np.zeros(4))], "is F64 of rank 2 in one file, but not in another"),
    ],
)
def test_pieces_that_do_not_fit_are_rejected(
    tmp_path: Path, pieces: list[tuple[Any, np.ndarray]], message: str
) -> None:
    write(tmp_path / "dcp", {"w": pieces})
    with pytest.raises(PlanError, match=message):
        merge(tmp_path / "dcp")


def test_what_is_lost_is_told_where_it_can_be_known(tmp_path: Path) -> None:
    source = save(tmp_path / "model", llama(), LLAMA)
    plan(source, LLAMA_PLAN, ranks=4, layout="dcp").run(tmp_path / "ranks")
    (tmp_path / "ranks" / "manifest.json").unlink()
    (tmp_path / "ranks" / "shard-00002-model-00001-of-00001.safetensors").unlink()
    with pytest.raises(PlanError, match=r"the pieces contain .* is missing"):
        merge(tmp_path / "ranks")
    (tmp_path / "ranks" / "shard-00003-model-00001-of-00001.safetensors").unlink()
    (tmp_path / "ranks" / "shard-00004-model-00001-of-00001.safetensors").unlink()
    merge(tmp_path / "ranks")  # the tensors end where their first pieces do: nobody can see it
    with pytest.raises(PlanError, match=r"the pieces contain .* elements of shape"):
        merge(tmp_path / "ranks", like=source)
    index = {"metadata": {"total_size": 10**6}, "weight_map": {"lm_head.weight": "x"}}
    (tmp_path / "ranks" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(PlanError, match="declares 1000000 bytes of tensors, but the files have"):
        merge(tmp_path / "ranks")
    index["weight_map"] = {"gone": "x"}
    (tmp_path / "ranks" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(PlanError, match=r"tensor 'gone' of .* is missing in all files"):
        merge(tmp_path / "ranks")


def test_another_checkpoint_must_have_the_same_tensors(tmp_path: Path) -> None:
    dcp = write(tmp_path / "dcp", {"w": [([0, 0], ROWS)]})
    for name, tensors, message in (
        ("more", {"w": ROWS, "x": ROWS}, "tensor 'x' of .* is missing in all files"),
        ("less", {"x": ROWS}, "tensor 'w' is not in .*less"),
        ("type", {"w": ROWS.astype(np.float32)}, r"tensor 'w' is F64 \[4, 2\], but F32 \[4, 2\] in"),
        ("shape", {"w": np.zeros((3, 2))}, r"ends outside of shape \[3, 2\]"),
    ):
        with pytest.raises(PlanError, match=message):
            merge(dcp, like=save(tmp_path / name, tensors))
    with pytest.raises(PlanError, match="like works only for distributed checkpoints"):
        plan(tmp_path / "more", PACKED, ranks=2, like=tmp_path / "less")


@pytest.mark.parametrize("info", [None, "", "[]", "{", '{"w": {"saved_offsets": [0, 0]}, "w": {}}'])
def test_metadata_that_say_nothing_are_rejected(tmp_path: Path, info: str | None) -> None:
    folder = tmp_path / "dcp"
    folder.mkdir()
    metadata = {} if info is None else {"DCP_SHARDING_INFO": info}
    save_file({"w": ROWS}, folder / "shard-00001-model-00001-of-00001.safetensors", metadata=metadata)
    with pytest.raises(PlanError, match="DCP_SHARDING_INFO"):
        merge(folder)


def test_boxes_without_elements_or_axes() -> None:
    check_boxes((Box((0, 0), (0, 3)),), (0, 3))
    check_boxes((Box((), ()),), ())
    with pytest.raises(PlanError, match="two pieces contain the same scalar"):
        check_boxes((Box((), ()), Box((), ())), ())


def test_boxes_of_many_axes_and_in_no_grid() -> None:
    ones = (1,) * 100
    check_boxes((Box((0,) * 100, ones),), ones)
    check_boxes((Box((0,) * 100, (0, *ones[1:])),), (0, *ones[1:]))
    two = (Box((0,) * 101, (*ones, 2)), Box((*(0,) * 100, 3), (*ones, 2)))
    with pytest.raises(PlanError, match=r"element \[0, .*2\] .*is missing"):
        check_boxes(two, (*ones, 5))
    apart = tuple(Box((at,) * 40, (1,) * 40) for at in range(5))
    with pytest.raises(PlanError, match=r"cannot check 5 pieces of shape .*: they form over"):
        check_boxes(apart, (6,) * 40)


def test_many_boxes_are_proved_in_time_that_grows_with_them() -> None:
    side = 150
    boxes = tuple(Box((0, at), (8, 1)) for at in range(side * side))
    check_boxes(boxes, (8, side * side))
    with pytest.raises(PlanError, match=r"is missing|something is left out"):
        check_boxes(boxes[1:], (8, side * side))


def test_pieces_of_two_types_are_rejected_beside_another_checkpoint_too(tmp_path: Path) -> None:
    rows = np.arange(8.0, dtype=np.float32).reshape(4, 2)
    like = save(tmp_path / "like", {"a": rows})
    pieces = [([0, 0], rows[:2]), ([2, 0], rows[2:].astype(np.int32))]
    write(tmp_path / "dcp", {"a": pieces})
    for more in ({}, {"like": like}):
        with pytest.raises(PlanError, match="is F32 of rank 2 in one file, but not in another"):
            merge(tmp_path / "dcp", **more)
