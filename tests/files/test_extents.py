"""Extents: any composition, inversion and cut of copies copies the same bytes."""

from __future__ import annotations

import pytest
from file_helpers import IMPLEMENTATIONS, noise, obeyed
from hypothesis import given, settings
from hypothesis import strategies as st

from splitops.files import StoredTensor, engine
from splitops.files.extents import Extent, compose, invert, make_contiguous, merge_adjacent, slice_runs
from splitops.files.tensors import BYTE, make_part_extents
from splitops.splitting import Plan


@st.composite
def splits(draw: st.DrawFn, shape: tuple[int, ...] | None = None) -> tuple[StoredTensor, Plan]:
    """A tensor of bytes, perhaps not at the beginning of its file, and a split of it."""
    shape = shape or tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    axis = draw(st.integers(0, len(shape) - 1))
    cuts = sorted(draw(st.lists(st.integers(0, shape[axis]), max_size=4)))
    offsets = (0, *cuts)
    sizes = tuple(end - begin for begin, end in zip(offsets, (*cuts, shape[axis]), strict=True))
    count = 1
    for size in shape:
        count *= size
    fortran = draw(st.booleans())
    tensor = StoredTensor("t", shape, "U8", BYTE, draw(st.integers(0, 5)), count, fortran=fortran)
    return tensor, Plan(shape, axis, offsets, sizes)


def extents_of(tensor: StoredTensor, plan: Plan) -> list[Extent]:
    return make_part_extents(tensor, plan, [(index, 3) for index in range(len(plan.sizes))])


def targets_for(extents: list[Extent]) -> dict[int, bytearray]:
    ends: dict[int, int] = {}
    for e in extents:
        end = e.target_offset + (e.runs - 1) * e.target_stride + e.run
        ends[e.target] = max(end, ends.get(e.target, 0))
    return {target: bytearray(end) for target, end in ends.items()}


@given(splits())
def test_an_inverse_copies_everything_back(drawn):
    tensor, plan = drawn
    data = noise(tensor.offset + tensor.size)
    extents = extents_of(tensor, plan)
    parts = targets_for(extents)
    obeyed(extents, {0: data}, parts)
    back = {0: bytearray(data[: tensor.offset]) + bytearray(tensor.size)}
    obeyed([invert(e) for e in extents], {k: bytes(v) for k, v in parts.items()}, back)
    assert bytes(back[0]) == data
    assert [invert(invert(e)) for e in extents] == extents


@given(st.data())
@settings(max_examples=300)
def test_composed_copies_do_what_two_do(data):
    first, plan = data.draw(splits())
    merge = [invert(e) for e in extents_of(first, plan)]
    second = data.draw(splits(first.shape).filter(lambda drawn: drawn[0].fortran == first.fortran))
    moved = StoredTensor("t", first.shape, "U8", BYTE, first.offset, first.size, fortran=first.fortran)
    split = extents_of(moved, second[1])
    parts = {index: noise(3 + first.size, index) for index in range(len(plan.sizes))}
    between = {0: bytearray(first.offset + first.size)}
    obeyed(merge, parts, between)
    expected = targets_for(split)
    obeyed(split, {0: bytes(between[0])}, expected)
    found = {index: bytearray(len(content)) for index, content in expected.items()}
    once = compose(merge, split)
    obeyed(once, parts, found)
    assert found == expected
    assert sum(e.bytes for e in once) == sum(e.bytes for e in split)


@given(splits(), st.integers(0, 20))
def test_rows_cut_anywhere(drawn, at):
    tensor, plan = drawn
    extents = extents_of(tensor, plan)
    data = {0: noise(tensor.offset + tensor.size)}
    expected, found = targets_for(extents), targets_for(extents)
    obeyed(extents, data, expected)
    halves = [
        half
        for e in extents
        for half in (slice_runs(e, 0, min(at, e.runs)), slice_runs(e, min(at, e.runs), e.runs))
    ]
    obeyed(list(merge_adjacent(half for half in halves if half.runs)), data, found)
    assert found == expected


def test_what_goes_on_is_one_extent():
    pieces = [make_contiguous(0, 5 * i, 1, 100 + 5 * i, 5) for i in range(1000)]
    assert list(merge_adjacent(pieces)) == [make_contiguous(0, 0, 1, 100, 5000)]
    assert list(merge_adjacent([Extent(0, 0, 4, 0, 8, 4, 4, 100)])) == [make_contiguous(0, 0, 0, 8, 400)]


def test_a_reshard_of_many_files_stays_small():
    shape = (64, 4096, 2)
    tensor = StoredTensor("t", shape, "U8", BYTE, 0, 64 * 4096 * 2)
    eight = Plan(shape, 1, tuple(range(0, 4096, 512)), (512,) * 8)
    three = Plan(shape, 1, (0, 1000, 3000), (1000, 2000, 1096))
    merge = [invert(e) for e in make_part_extents(tensor, eight, [(i, 0) for i in range(8)])]
    assert len(compose(merge, make_part_extents(tensor, three, [(i, 0) for i in range(3)]))) == 10


@pytest.mark.small_blocks
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=lambda f: f.__module__ or "core")
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_engine_obeys(implementation, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("engine")
    drawn = [data.draw(splits()) for _ in range(data.draw(st.integers(1, 3)))]
    extents: list[Extent] = []
    sources: dict[int, bytes] = {}
    for number, (tensor, plan) in enumerate(drawn):
        sources[number] = noise(tensor.offset + tensor.size, number)
        made = make_part_extents(tensor, plan, [(number * 10 + i, 2) for i in range(len(plan.sizes))])
        extents += [e._replace(source=number) for e in made]
    twice = data.draw(st.booleans())  # the same bytes in two targets
    if twice:
        extents += [e._replace(target=100 + e.target) for e in extents]
    elif data.draw(st.booleans()):
        parts = targets_for(extents)
        obeyed(extents, sources, parts)
        sources, extents = {k: bytes(v) for k, v in parts.items()}, [invert(e) for e in extents]
    expected = targets_for(extents)
    obeyed(extents, sources, expected)
    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr(engine, "copy_extents", implementation)
        memory = data.draw(st.sampled_from([16, 64, 256, 4096]))
        found = run(
            engine.split_into_tasks(engine.batch_extents(extents, memory), 200), sources, expected, folder
        )
    assert found == {index: bytes(content) for index, content in expected.items()}


def run(tasks, sources, expected, folder):
    files = {}
    try:
        for index, content in sources.items():
            (folder / f"s{index}").write_bytes(content)
            files[index] = open(folder / f"s{index}", "rb")  # noqa: SIM115
        targets = {}
        for index, content in expected.items():
            (folder / f"t{index}").write_bytes(bytes(len(content)))
            targets[index] = open(folder / f"t{index}", "r+b")  # noqa: SIM115
        by_source = {index: file.fileno() for index, file in files.items()}
        by_target = {index: file.fileno() for index, file in targets.items()}
        for task in reversed(tasks):
            extents = list(task.extents)
            checksums = engine.copy(task, by_source, by_target)
            scratch = {index: bytearray(len(content)) for index, content in expected.items()}
            assert checksums == obeyed(extents, sources, scratch)
            assert engine.compute_checksums(task, by_target) == checksums
        return {index: (folder / f"t{index}").read_bytes() for index in expected}
    finally:
        for file in (*files.values(), *targets.values()):
            file.close()
