"""The words of limits: what each says of splits of which all, little or nothing is known."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from splitops.errors import NOWHERE, Where
from splitops.models.check import RUNTIMES, check
from splitops.models.check.predicates import (
    PREDICATES,
    Certainty,
    ModelContext,
    SplitPredicates,
    parse_condition,
)
from splitops.models.check.targets import Target
from splitops.models.split_nodes import Origin, SplitNode
from splitops.spec.elements.types import ELEMENT_TYPES
from splitops.spec.operators import schema
from splitops.spec.sizes.dims import Range
from splitops.splitting.binding import Fact
from splitops_compare.cases import list_cases
from splitops_compare.cases.models import make_model

YES, MAYBE, NO = Certainty.YES, Certainty.MAYBE, Certainty.NO
OPEN = Range(0, None, "N")
SOME = Range(0, 9)
LONG = 1 << 40
BODY = Where(graph="body of 'if'")
AROUND = ModelContext(
    outputs=frozenset({"a"}),
    conflicting=frozenset({(None, "a")}),
    opset=13,
)


def split_node(domain: str, outputs: tuple[str, ...]) -> ir.Node:
    """Return a split whose output a is transposed and whose output b is sliced."""
    split = ir.Node(domain, "Split", [], outputs=[ir.Value(name=name) for name in outputs])
    order = [ir.AttrInt64s("perm", [1, 0, 2])]
    readers = [
        ir.Node(domain, "Transpose", [value], order)
        if value.name == "a"
        else ir.Node(domain, "Slice", [value])
        for value in split.outputs
        if value.name in ("a", "b")
    ]
    ir.Graph([], [], nodes=[split, *readers])
    return split


def site(
    shape: tuple[Any, ...] | None = (6,),
    *more: Fact | None,
    kind: str | None = "float32",
    outputs: str = "a b",
    of: str = "Split-18",
    value: Any = None,
    where: Where = NOWHERE,
    inputs: tuple[str, ...] = (),
    constant: bool = False,
    **attributes: int,
) -> SplitNode:
    name, _, version = of.rpartition("-")
    domain, _, name = name.rpartition(".")
    data = Fact(type=None if kind is None else ELEMENT_TYPES[kind], shape=shape, value=value)
    names = tuple("" if name == "-" else name for name in outputs.split())
    return SplitNode(
        schema=schema(name, int(version), domain=domain),
        node=split_node(domain, names),
        attributes=attributes,
        facts=(data, *more),
        inputs=inputs,
        outputs=names,
        where=where,
        origins=tuple([Origin.MODEL if constant else Origin.RUN] * (1 + len(more))),
    )


def lengths(*entries: int | None) -> Fact:
    return Fact(type=ELEMENT_TYPES["int64"], shape=(len(entries),), value=entries)


def number(entry: int | None = None) -> Fact:
    return Fact(type=ELEMENT_TYPES["int64"], shape=(), value=entry)


def sequence(shape: tuple[Any, ...] | None = (6,), *more: Fact | None, **how: Any) -> SplitNode:
    return site(shape, *more, of="SplitToSequence-11", **{"outputs": "a", **how})


def layer(shape: tuple[Any, ...] | None, axis: int | None, *entries: int | None, **how: Any) -> SplitNode:
    given = lengths(*entries) if entries else Fact(type=ELEMENT_TYPES["int64"], shape=(2,))
    return site(shape, number(axis), given, of="openvino.VariadicSplit-1", **how)


UNKNOWN = Fact(type=ELEMENT_TYPES["int64"], shape=(2,))
HALVES = {"num_outputs": 2}
WORDS_OF_SPLITS: dict[str, list[tuple[SplitNode, Certainty]]] = {
    "operator missing": [(site(), YES)],
    "sequence": [(sequence(), YES), (site(), NO)],
    "opset above 12": [(site(), YES)],
    "opset above 13": [(site(), NO)],
    "opset below 14": [(site(), YES)],
    "opset below 13": [(site(), NO)],
    "inside a body": [(site(where=BODY), YES), (site(), NO)],
    "types in [int8, float32]": [(site(), YES), (site(kind="int32"), NO), (site(kind=None), NO)],
    "types not in [int8, int32]": [(site(), YES), (site(kind="int32"), NO), (site(kind=None), MAYBE)],
    "packed elements": [(site(kind="int4"), YES), (site(kind="int8"), NO)],
    "parts inside bytes": [
        (layer((6,), 0, 3, 3, kind="uint4"), YES),
        (layer((6,), 0, 2, 4, kind="uint4"), NO),
        (layer((OPEN,), 0, kind="uint4"), MAYBE),
    ],
    "constant data": [(site(constant=True), YES), (site(), NO)],
    "values beyond 32 bits": [
        (site((2,), value=(1, 1 << 33)), YES),
        (site((2,), value=(1, 2)), NO),
        (site((2,)), MAYBE),
    ],
    "rank above 1": [(site((2, 3)), YES), (site((2,)), NO), (site(None), MAYBE)],
    "rank unknown": [(site(None), MAYBE), (site(), NO)],
    "negative axis": [
        (site((2, 4), axis=-1), YES),
        (site((2, 4), axis=1), NO),
        (layer((2, 4), -1, 2, 2), YES),
        (layer((2, 4), 1, 2, 2), NO),
        (layer((2, 4), None, 2, 2), MAYBE),
    ],
    "axis left out": [(site(), YES), (site(axis=0), NO), (layer((4,), 0, 2, 2), NO)],
    "axis not in [1, -1]": [
        (site((4, 2, 3), **HALVES), YES),
        (site((2, 4, 3), axis=1, **HALVES), NO),
        (site((2, 3, 4), axis=2, **HALVES), NO),
        (layer((2, 4), None, 2, 2), MAYBE),
    ],
    "open axis": [(site((OPEN,), **HALVES), YES), (site(**HALVES), NO)],
    "empty axis": [(site((0,), **HALVES), YES), (site(**HALVES), NO), (site((OPEN,), **HALVES), MAYBE)],
    "size above 9": [
        (site((10,), **HALVES), YES),
        (site((9,), **HALVES), NO),
        (site((OPEN,), lengths(5, 5)), YES),
        (site((OPEN,), **HALVES), NO),
    ],
    "declared size above 9": [(site((10,), **HALVES), YES), (site((OPEN,), lengths(5, 5)), NO)],
    "uneven": [
        (site((7,), **HALVES), YES),
        (site((6,), **HALVES), NO),
        (site((OPEN,), **HALVES), MAYBE),
        (site((OPEN,), outputs="a", num_outputs=1), NO),
        (site((OPEN,), of="Split-13"), NO),
        (site((OPEN,), lengths(2, 3)), YES),
        (site((OPEN,), lengths(3, 3)), NO),
        (site((6,), UNKNOWN), MAYBE),
        (layer((6,), 0, 2, -1), YES),
        (layer((6,), 0, 3, -1), NO),
        (layer((OPEN,), 0, 3, -1), MAYBE),
        (sequence((7,), number(3)), YES),
        (sequence((2,), number(3)), NO),
        (sequence((OPEN,), number(3)), MAYBE),
        (sequence((OPEN,)), NO),
    ],
    "last part smaller": [
        (site((7,), **HALVES), YES),
        (site((6,), **HALVES), NO),
        (site((5,), lengths(2, 3)), NO),
        (site((OPEN,), **HALVES), MAYBE),
        (sequence((7,), number(3)), YES),
    ],
    "last part smaller by more than 1": [
        (site((9,), outputs="a b c d", num_outputs=4), YES),
        (site((7,), outputs="a b c d", num_outputs=4), NO),
        (site((OPEN,), **HALVES), MAYBE),
        (site((7,), lengths(6, 1)), NO),
        (sequence((7,), number(3)), NO),
    ],
    "last part empty": [
        (site((1,), **HALVES), YES),
        (site((2,), **HALVES), NO),
        (site((SOME,), **HALVES), MAYBE),
        (site((OPEN,), **HALVES), NO),
    ],
    "last part empty at run time": [
        (site((OPEN,), **HALVES), MAYBE),
        (site((SOME,), **HALVES), NO),
        (site((1,), **HALVES), NO),
    ],
    "last part beyond the axis": [
        (site((5,), outputs="a b c d", num_outputs=4), YES),
        (site((6,), outputs="a b c d", num_outputs=4), NO),
        (site((OPEN,), outputs="a b c d", num_outputs=4), NO),
    ],
    "empty part": [
        (site((6,), lengths(6, 0)), YES),
        (site((6,), lengths(3, 3)), NO),
        (site((0, 6), axis=1, **HALVES), NO),
        (site((OPEN,), **HALVES), MAYBE),
        (site((6,), UNKNOWN), MAYBE),
        (site((OPEN,), of="Split-13"), NO),
    ],
    "empty part as an output": [
        (site((6,), lengths(0, 6)), YES),
        (site((6,), lengths(6, 0)), NO),
        (site((OPEN,), outputs="b a", **HALVES), MAYBE),
    ],
    "empty part transposed": [
        (site((6, 1, 1), lengths(0, 6)), YES),
        (site((6, 1, 1), lengths(6, 0)), NO),
        (site((6, 2, 1), lengths(0, 6)), NO),
    ],
    "equal parts": [(site(**HALVES), YES), (site((6,), lengths(3, 3)), NO), (site((6,), UNKNOWN), NO)],
    "lengths given": [(site((6,), lengths(3, 3)), YES), (site(**HALVES), NO), (site((6,), UNKNOWN), NO)],
    "length above 4": [(site((6,), lengths(1, 5)), YES), (site((6,), lengths(2, 4)), NO)],
    "lengths as an input": [(site((6,), UNKNOWN), YES), (site(**HALVES), NO)],
    "lengths at run time": [
        (site((6,), UNKNOWN), YES),
        (site((6,), lengths(2, 4)), NO),
        (site(**HALVES), NO),
    ],
    "lengths without entries": [
        (sequence((0,), lengths(), constant=True), YES),
        (sequence((0,), lengths()), NO),
        (sequence((6,), lengths(6), constant=True), NO),
    ],
    "negative remainder": [(layer((6,), 0, -1, 8), YES), (layer((6,), 0, -1, 6), NO)],
    "chunks": [(sequence((6,), number(2)), YES), (sequence(), YES), (sequence((6,), lengths(6)), NO)],
    "number of parts at run time": [
        (sequence((6,), number()), YES),
        (sequence((6,), Fact(shape=(OPEN,))), YES),
        (sequence((6,), Fact()), MAYBE),
        (sequence((6,), UNKNOWN), NO),
        (site((6,), UNKNOWN), NO),
    ],
    "unbind": [
        (sequence((6,), number(1), keepdims=0), YES),
        (sequence((6,), number(), keepdims=0), MAYBE),
        (sequence((6,), number(2), keepdims=0), NO),
        (sequence((6,), number(1)), NO),
    ],
    "squeezed chunks": [
        (sequence((6,), number(2), keepdims=0), YES),
        (sequence((6,), number(1), keepdims=0), NO),
        (sequence((6,), number(2)), NO),
    ],
    "more outputs than 1": [(site(), YES)],
    "more outputs than 2": [(site(), NO)],
    "num_outputs": [(site(**HALVES), YES), (site((6,), UNKNOWN), NO)],
    "num_outputs above 1": [(site(**HALVES), YES)],
    "num_outputs above 2": [(site(**HALVES), NO), (site((6,), UNKNOWN), NO)],
    "fewer outputs than num_outputs": [(site(outputs="a", **HALVES), YES), (site(**HALVES), NO)],
    "more outputs than num_outputs": [(site(outputs="a b c", **HALVES), YES), (site(**HALVES), NO)],
    "absent input named ''": [(site(inputs=("x", "")), YES), (site(inputs=("x",)), NO)],
    "output left out": [(site(outputs="a -"), YES), (site(), NO)],
    "output of the model": [(site(), YES), (site(outputs="b c"), NO)],
    "last part sliced": [(site(**HALVES), YES), (site(outputs="b a", **HALVES), NO)],
    "merged": [(site(), YES), (site(outputs="b c"), NO)],
}


def test_every_word_has_a_test() -> None:
    assert {parse_condition(text).predicate.text for text in WORDS_OF_SPLITS} == set(PREDICATES)
    assert all(word.meaning for word in PREDICATES.values())


@pytest.mark.parametrize("text", WORDS_OF_SPLITS)
def test_a_word_says_surely_maybe_or_no(text: str) -> None:
    opposite = parse_condition(f"not {text}")
    for one, expected in WORDS_OF_SPLITS[text]:
        assert parse_condition(text).evaluate(SplitPredicates(one, AROUND)) is expected, one
        assert opposite.evaluate(SplitPredicates(one, AROUND)) is {YES: NO, MAYBE: MAYBE, NO: YES}[expected]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("more output than 4", "unknown condition 'more output than N'; did you mean 'more outputs than N'?"),
        ("uneven 4", "unknown condition 'uneven N'"),
        ("types in [int9]", "unknown type 'int9': use bfloat16, bool"),
        ("axis not in [one]", "'one' is not a number"),
        ("", "unknown condition ''"),
    ],
)
def test_what_is_no_word_is_said(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"^") as caught:
        parse_condition(text)
    assert str(caught.value).startswith(message)


def test_the_limits_find_in_the_listed_cases_what_they_found_as_python() -> None:
    """Of the limits of the time when they were moved into files; ``?`` is what depends on the input."""
    content = Path(__file__).with_name("found.json").read_text()
    recorded: dict[str, list[str]] = json.loads(content)
    codes = {code.rstrip("?") for found in recorded.values() for code in found}
    assert len(codes) > 50
    cases = list_cases()
    assert len(recorded.keys() & cases.keys()) > 500
    for name, expected in recorded.items():
        if name not in cases:
            continue
        found = {
            finding.code if finding.severity == "error" else f"{finding.code}?"
            for finding in check(make_model(cases[name].spec), RUNTIMES)
            if finding.code in codes
        }
        assert sorted(found) == expected, name


ARGUMENTS = {" N": ("1", "4"), "[...]": ("[1]", "[-1, 0]")}


def clauses() -> Iterator[tuple[str, str]]:
    """Every word with each kind of argument, as it stands in a file, and what a message says of it."""
    for word in PREDICATES.values():
        given = ("[float16]", "[float16, int8]") if word.known else ARGUMENTS.get(word.text[-2:], ("",))
        given = ARGUMENTS["[...]"] if word.text.endswith("[...]") and not word.known else given
        base = word.text.removesuffix(" N").removesuffix(" [...]")
        for argument in given:
            yield from (
                (text, parse_condition(text).description)
                for text in (f"{base} {argument}", f"not {base} {argument}")
            )


def test_every_word_and_its_negation_is_a_sentence() -> None:
    found = dict(clauses())
    assert len(found) >= 2 * len(PREDICATES)
    for text, clause in found.items():
        opposite = found[text.removeprefix("not ")] if text.startswith("not ") else found[f"not {text}"]
        assert clause != opposite
        assert re.search(r"\bN\b|these|\[|not so|;|  |\b1 (elements|outputs|axes)\b", clause) is None, clause
        assert not clause.endswith(".")
        assert clause[0].islower(), clause
        numbers = re.findall(r"\d+", text.replace("num_outputs", ""))
        assert all(number in clause for number in numbers if "32 bits" not in text), (text, clause)


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("axis not in [1]", "the axis is not 1"),
        ("axis not in [-1, 1]", "the axis is none of -1, 1"),
        ("not axis not in [1]", "the axis is 1"),
        ("not axis not in [0, 1]", "the axis is one of 0, 1"),
        ("types in [string]", "the element type of the data is string"),
        ("not types in [int8, string]", "the element type of the data is none of int8, string"),
        ("not uneven", "all parts have the same size"),
        ("not rank above 1", "the data has at most 1 axis"),
        ("rank above 4", "the data has more than 4 axes"),
        ("more outputs than 1", "the split declares more than 1 output"),
        ("not size above 2147483647", "the axis has at most 2147483647 elements"),
        ("not open axis", "the size of the axis is known before the run"),
        ("not operator missing", "the runtime has the operator"),
        ("not num_outputs", "the split sets neither num_outputs nor num_splits"),
        ("unbind", "keepdims = 0 is used with chunks of 1, as PyTorch exports a scripted unbind"),
    ],
)
def test_what_a_condition_says(text: str, clause: str) -> None:
    assert parse_condition(text).description == clause


def test_conditions_are_joined_in_the_message_of_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "npu.toml"
    path.write_text('[[limits]]\ncode = "a"\nwhen = ["not uneven", "rank above 1", "axis not in [1]"]\n')
    (limit,) = Target.load(path).limits
    assert limit.message == (
        "npu rejects a split if all parts have the same size and the data has more than 1 axis "
        "and the axis is not 1"
    )
    assert limit.rewrites == ()  # the usual forms of what is uneven do not avoid what is not


def test_a_list_without_entries_is_wrong() -> None:
    with pytest.raises(ValueError, match="the list of 'axis not in' is empty"):
        parse_condition("axis not in []")
