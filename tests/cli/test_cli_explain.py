"""``splitops explain`` and the layer under it, held against NumPy's own memory."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splitops
from splitops.explain import draw_diagram, draw_memory, explain, group_cells, to_svg
from splitops.explain.axis import share_width
from splitops.spec import ELEMENT_TYPES
from splitops.spec.elements.packing import compute_packed_size
from splitops.splitting import Plan

FLOAT = ELEMENT_TYPES["float32"]
SVG = "{http://www.w3.org/2000/svg}"


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=4)))
    axis = draw(st.integers(0, len(shape) - 1))
    cuts = sorted(draw(st.lists(st.integers(0, shape[axis]), max_size=5)))
    sizes = [end - begin for begin, end in zip([0, *cuts], [*cuts, shape[axis]], strict=True)]
    return splitops.plan("Split", shape=shape, axis=axis, split=sizes)


@given(plans())
def test_runs_are_what_memory_shows(plan):
    layout = explain(plan, FLOAT)
    owner = np.empty(plan.shape, int)
    for index, (offset, size) in enumerate(zip(plan.offsets, plan.sizes, strict=True)):
        owner[(slice(None),) * plan.axis + (slice(offset, offset + size),)] = index
    found = [(key, len(list(items))) for key, items in groupby(owner.reshape(-1).tolist())]
    data = np.zeros(plan.shape, np.float32)
    for index, (part, view) in enumerate(zip(layout, plan(data), strict=True)):
        runs = [length for key, length in found if key == index]
        assert part.runs == len(runs)
        assert set(runs) <= {part.run_elements}
        assert (part.shape, part.elements, part.bytes) == (view.shape, view.size, view.nbytes)
        if view.size:
            assert part.contiguous == view.flags.c_contiguous
    assert sum(part.bytes or 0 for part in layout) == layout.bytes == data.nbytes


@given(plans())
def test_groups_are_all_parts(plan):
    layout = explain(plan)
    assert [g.first.size for g in layout.groups() for _ in range(g.count)] == list(plan.sizes)
    assert layout[len(layout) - 1].index == len(layout) - 1
    with pytest.raises(IndexError):
        layout[len(layout)]


def test_published_example():
    layout = explain(splitops.plan("Split", shape=(6, 12, 10, 24), axis=1, num_outputs=3), FLOAT)
    part = layout[2]
    assert (part.offset, part.size, part.shape) == (8, 4, (6, 4, 10, 24))
    assert (part.bytes, part.runs, part.run_elements, part.contiguous) == (23040, 6, 960, False)
    assert not layout.contiguous


@pytest.mark.parametrize(("name", "expected"), [("int4", 5), ("uint3", 6), ("uint6", 9), ("string", None)])
def test_bytes_of_packed_types_and_strings(name, expected):
    part = explain(splitops.plan("Split", shape=(18,), num_outputs=2), ELEMENT_TYPES[name])[0]
    assert part.bytes == expected
    if expected is not None:
        assert part.bytes == compute_packed_size(ELEMENT_TYPES[name], 9)


def test_squeezed_parts():
    layout = explain(splitops.plan("SplitToSequence", shape=(2, 3), axis=1, keepdims=0), FLOAT)
    assert [part.shape for part in layout] == [(2,)] * 3
    assert [(part.runs, part.run_elements) for part in layout] == [(2, 1)] * 3


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 9)), min_size=1, max_size=8), st.integers(0, 100)
)
def test_shares_are_exact_and_never_below_the_minimum(items, total):
    weights, minimums = [list(values) for values in zip(*items, strict=True)]
    shares = share_width(weights, minimums, total)
    assert sum(shares) == max(total, sum(minimums))
    assert all(share >= minimum for share, minimum in zip(shares, minimums, strict=True))


@given(plans(), st.integers(1, 7))
def test_cells_cover_the_axis(plan, limit):
    layout = explain(plan)
    found = group_cells(layout, limit)
    assert len(found) <= max(limit, 1)
    assert [i for cell in found for i in range(cell.first, cell.first + cell.count)] == list(
        range(len(layout))
    )
    assert sum(cell.size for cell in found) == layout.size
    at = 0
    for cell in found:
        assert cell.offset == at
        at += cell.size


@given(plans(), st.integers(20, 120), st.booleans())
def test_diagrams_keep_their_form(plan, width, ascii_only):
    layout = explain(plan)
    lines = [
        "".join(span.text for span in line) for line in draw_diagram(layout, width, ascii_only=ascii_only)
    ]
    bars = [line for line in lines if "│" in line or "|" in line]
    assert len({len(line) for line in bars}) <= 1
    if ascii_only:
        assert all(line.isascii() for line in lines)
        assert all(span.text.isascii() for span in draw_memory(layout, width, ascii_only=True))


def test_a_number_in_a_box_of_the_terminal_is_a_size():
    layout = explain(splitops.plan("Split", shape=(2, 9), axis=1, split=[4, 5]), FLOAT)
    lines = ["".join(span.text for span in line).split() for line in draw_diagram(layout, 60)]
    assert ["2", "│", "4", "│", "5", "│"] in lines
    assert lines[-1] == ["part", "0", "1"]
    assert [span.text.strip() for span in draw_memory(layout, 60)] == ["4", "5", "4", "5"]


def test_the_terminal_shows_no_memory_of_one_dimension(invoke):
    assert "memory" in invoke("explain", "--shape", "2,6", "--axis", 1, "--parts", 2).output
    assert "memory" not in invoke("explain", "--shape", "6", "--parts", 2).output.replace(
        "block of memory", ""
    )


@pytest.mark.parametrize("width", [340, 360, 599])
@pytest.mark.parametrize(("shape", "axis"), [((7,), 0), ((2, 700, 4), 1), ((100_000,), 0)])
@pytest.mark.parametrize("parts", [1, 4, 40])
def test_a_picture_for_a_phone_can_be_read_and_is_not_cropped(shape, axis, parts, width):
    plan = splitops.plan("Split", shape=shape, axis=axis, num_outputs=parts)
    texts = ET.fromstring(to_svg(explain(plan, FLOAT), "Split-18", width)).iter(f"{SVG}text")
    for one in texts:
        size, room = int(one.attrib["font-size"]), 0.5 * len(one.text or "")
        assert size >= 12
        if "transform" not in one.attrib:
            left = (
                float(one.attrib["x"])
                - {"middle": 0.5, "end": 1}.get(one.get("text-anchor", ""), 0) * room * size
            )
            assert left >= 0
            assert left + room * size <= width


@pytest.mark.parametrize("parts", [1, 2, 7, 63, 64, 65, 1000, 100_000])
@pytest.mark.parametrize("shape", [(100_000,), (3, 100_000, 5)])
def test_svg_is_well_formed_and_summarised(parts, shape):
    plan = splitops.plan("Split", shape=shape, axis=shape.index(100_000), num_outputs=parts)
    text = to_svg(explain(plan, FLOAT), "Split-18")
    root = ET.fromstring(text)
    assert root.tag == f"{SVG}svg"
    slabs = [rect for rect in root.iter(f"{SVG}rect") if len(rect)]
    assert len(slabs) == min(parts, 64)
    assert len(text) < 200_000
    width, height = (float(value) for value in root.get("viewBox").split()[2:])
    for rect in root.iter(f"{SVG}rect"):
        if rect.get("width") == "100%":
            continue
        assert 0 <= float(rect.get("x")) <= float(rect.get("x")) + float(rect.get("width")) <= width
        assert 0 <= float(rect.get("y")) <= float(rect.get("y")) + float(rect.get("height")) <= height
        assert float(rect.get("width")) > 0
    for label in root.iter(f"{SVG}text"):
        assert float(label.get("font-size")) >= 8
        assert 0 <= float(label.get("x")) <= width


def test_svg_names_what_it_shows():
    plan = splitops.plan("VariadicSplit", shape=(7, 20), axis=1, split_lengths=[3, 0, 10, -1, 1])
    root = ET.fromstring(to_svg(explain(plan, FLOAT), "VariadicSplit-1"))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "VariadicSplit-1: (7, 20) along axis 1 into 5 parts" in texts
    assert "part 3: offset 13, size 6, shape (7, 6), 168 bytes" in [t.text for t in root.iter(f"{SVG}title")]
    for label in ("0", "1", "2", "3", "4", "axis 1 = 20", "7 \N{MULTIPLICATION SIGN} 10", "empty"):
        assert label in texts
    dashed = [rect for rect in root.iter(f"{SVG}rect") if rect.get("stroke-dasharray")]
    assert len(dashed) == 2  # the empty part, in the picture and in the table


def test_svg_has_a_column_of_bytes_where_they_are_known():
    plan = splitops.plan("Split", shape=(7,), num_outputs=4)
    for layout, expected in ((explain(plan, FLOAT), True), (explain(plan), False)):
        texts = [text.text for text in ET.fromstring(to_svg(layout, "Split-18")).iter(f"{SVG}text")]
        assert ("bytes each" in texts) is expected


def test_a_number_in_a_box_is_a_size():
    plan = splitops.plan("Split", shape=(2, 7, 4), axis=1, num_outputs=4)
    texts = [text.text for text in ET.fromstring(to_svg(explain(plan, FLOAT))).iter(f"{SVG}text")]
    boxes = [text for text in texts if text is not None and text.isdecimal()]
    assert boxes[:5] == ["2", "2", "2", "1", "2"]  # of the parts, then of the axis before them
    assert [text for text in texts if text is not None and text.startswith("part ")] == [
        "part 0", "part 1", "part 2", "part 3",
    ]  # fmt: skip


def test_one_dimension_needs_no_picture_of_the_memory():
    for shape, has in (((7,), False), ((7, 2), True), ((1, 7), True)):
        plan = splitops.plan("Split", shape=shape, axis=shape.index(7), num_outputs=4)
        assert ("Memory, from the first element" in to_svg(explain(plan, FLOAT))) is has


def test_svg_escapes_its_title():
    plan = splitops.plan("Split", shape=(2,), num_outputs=2)
    root = ET.fromstring(to_svg(explain(plan), "</svg><script>&\x00\x1b\ud800"))
    assert root.find(f"{SVG}title").text.startswith("</svg><script>&\ufffd\ufffd\ufffd: (2,)")
    assert not list(root.iter(f"{SVG}script"))


def test_svg_without_parts_and_elements():
    for shape in [(0,), (0, 3), (3, 0)]:
        ET.fromstring(to_svg(explain(splitops.plan("SplitToSequence", shape=shape, split=2), FLOAT)))


def test_json(invoke):
    result = invoke("explain", "--shape", "6,12,10,24", "--axis", "-3", "--sizes", "4,-1,0", "--json")
    stated = json.loads(result.output)
    assert stated["operator"] == "VariadicSplit-1"
    assert (stated["domain"], stated["axis"], stated["bytes"]) == ("openvino", 1, 69120)
    assert [part["size"] for part in stated["parts"]] == [4, 8, 0]
    assert [part["offset"] for part in stated["parts"]] == [0, 4, 12]
    assert [part["runs"] for part in stated["parts"]] == [6, 6, 0]


def test_report(invoke):
    text = invoke("explain", "--shape", "6,12,10,24", "--axis", "1", "--parts", "3").output
    assert "Split-18: (6, 12, 10, 24) along axis 1" in text
    assert len(re.findall(r"\(6, 4, 10, 24\) +23,040 +6 +960", text)) == 3
    assert "┌" in text
    text = invoke("explain", "--shape", "1000000", "--chunk", "3", "--dtype", "i16").output
    assert re.search(r"0-333332 +0 +3 +\(3,\) +6 +1 +3 *\n", text)
    assert len(text.splitlines()) < 25


def test_millions_of_parts_are_summarised(invoke):
    shape = str(math.prod((1 << 20, 2)))
    result = invoke("explain", "--shape", shape, "--parts", 1 << 20)
    assert result.exit_code == 0
    assert len(result.output) < 5000


def test_svg_file(invoke, tmp_path):
    target = tmp_path / "split.svg"
    result = invoke("explain", "--shape", "6,4", "--parts", "2", "--svg", target, "--json")
    assert result.exit_code == 0
    json.loads(result.output)
    ET.parse(target)
    assert [path.name for path in tmp_path.iterdir()] == ["split.svg"]
    result = invoke(
        "explain", "--shape", "6,4", "--parts", "2", "--svg", target, "--html", tmp_path / "p.html"
    )
    assert result.output.splitlines()[-2:] == [f"Written to {target}", f"Written to {tmp_path / 'p.html'}"]
    result = invoke("explain", "--shape", "6,4", "--parts", "2", "--svg", tmp_path / "none" / "split.svg")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1


def test_groups_that_are_not_shown_are_told(invoke):
    sizes = ",".join(map(str, range(1, 41)))
    shown = invoke("explain", "--shape", 820, "--sizes", sizes).output
    assert "... and more parts; --json lists all of them." in shown
    assert "more parts" not in invoke("explain", "--shape", 820, "--parts", 41).output


def test_groups_that_are_not_drawn_are_told(invoke, tmp_path):
    sizes = ",".join(map(str, range(1, 41)))
    assert invoke("explain", "--shape", 820, "--sizes", sizes, "--svg", tmp_path / "x.svg").exit_code == 0
    assert "and more parts of other sizes" in (tmp_path / "x.svg").read_text()


def test_no_parts(invoke):
    shown = invoke("explain", "--shape", 0, "--op", "SplitToSequence", "--chunk", 2)
    assert "no parts: the axis has size 0" in shown.output


def test_a_slice_of_a_layout():
    layout = explain(splitops.plan("Split", shape=(10,), num_outputs=5), FLOAT)
    assert [part.offset for part in layout[1:4:2]] == [2, 6]
