"""The plan language, and the cuts that it gives: sizes of the operators, rejections with what would do."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharding_helpers import save

from splitops import SplitError, sharding
from splitops.common.json_schema import WORDS
from splitops.errors import PlanError
from splitops.sharding import Piece, Shard
from splitops.sharding.documents import get_schema, validate
from splitops.sharding.expressions import Names
from splitops.sharding.globs import match_glob
from splitops.sharding.tensor_sharding import AxisSharding, shard_axis


def rejected(function, *arguments, **keywords) -> str:
    with pytest.raises(SplitError) as found:
        function(*arguments, **keywords)
    text = str(found.value)
    assert "\n" not in text
    return text


# Expressions and globs -----------------------------------------------------------------------------------


def test_expressions_use_variables_before_the_configuration():
    names = Names(
        {"q": "heads * head_dim", "heads": 3}, {"head_dim": 8, "heads": 5, "n": None, "text_config": {"n": 7}}
    )
    assert names.evaluate("q + n") == 31
    assert names.evaluate("-(q - 30) // 4") == 1
    assert names.evaluate(12) == 12


def test_what_a_configuration_leaves_out_follows_as_in_transformers():
    names = Names({}, {"hidden_size": 32, "num_attention_heads": 8})
    assert names.evaluate("num_key_value_heads * head_dim") == 32


@pytest.mark.parametrize(
    ("expression", "variables", "says"),
    [
        ("a", {"a": "b", "b": "c", "c": "a"}, "refers to itself: a -> b -> c -> a"),
        ("a", {"a": "a"}, "refers to itself"),
        ("nobody", {}, "neither in the plan's vars nor in config.json"),
        ("__import__('os').getcwd()", {}, "is not an expression"),
        ("2 ** 9", {}, "is not an expression"),
        ("1.5", {}, "is not an expression"),
        ("True", {}, "is not an expression"),
        ("7 // (3 - 3)", {}, "division by 0 in"),
        ("(" * 150 + "1" + ")" * 150, {}, "is not an expression"),
        ("1 +", {}, "is not an expression"),
        (
            "a0",
            {f"a{i}": f"a{i + 1} * a{i + 1}" for i in range(30)} | {"a30": 2},
            "does not fit into 63 bits",
        ),
        ("kind", {}, "not an integer"),
        ("flag", {}, "not an integer"),
    ],
)
def test_what_is_no_arithmetic_is_rejected(expression, variables, says):
    assert says in rejected(Names(variables, {"kind": "llama", "flag": True}).evaluate, expression)


@given(st.text("ab.*?", max_size=8), st.text("ab.", max_size=10))
def test_globs_match_as_regular_expressions_that_go_back_do(glob, name):
    plain = "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in glob)
    assert (match_glob(glob, name) is not None) == (re.fullmatch(plain, name, re.DOTALL) is not None)


def test_a_glob_of_many_stars_ends():
    """Going back, it would try more ways than there are atoms."""
    assert match_glob("*a" * 50 + "*b", "a" * 1000) is None


def test_captures_stand_between_dots():
    found = match_glob("*.experts.{e}.{part}.weight", "l.0.experts.12.up.weight")
    assert found == {"e": "12", "part": "up", "*": "l.0"}
    assert match_glob("x.{e}", "x.1.2") is None
    assert "braces must contain different names" in rejected(match_glob, "x.{e}.{e}", "x.1.1")
    assert "braces must contain different names" in rejected(match_glob, "x.{", "x.{")


# Cuts ----------------------------------------------------------------------------------------------------


@given(st.integers(0, 40), st.integers(1, 9))
def test_an_axis_is_cut_as_numpy_and_torch_chunk_cut_it(size, ranks):
    cut = shard_axis(AxisSharding(0), size, ranks)
    each = -(-size // ranks)
    wanted = [range(size)[rank * each : (rank + 1) * each] for rank in range(ranks)]
    assert [shard.size for shard in cut.shards] == [len(found) for found in wanted]
    assert [[p[:2] for p in shard.pieces] for shard in cut.shards] == [
        [(found[0], len(found))] if found else [] for found in wanted
    ]


def test_sections_are_cut_each_and_joined_for_a_rank():
    cut = shard_axis(AxisSharding(0, sections=(8, 4, 4)), 16, 2)
    assert cut.shards[1] == Shard(8, (Piece(4, 4, 0), Piece(10, 2, 4), Piece(14, 2, 6)))


def test_heads_repeat_where_there_are_fewer_than_ranks():
    recipe = AxisSharding(0, sections=(16, 4, 4), unit=2, replicate=frozenset({1, 2}))
    cut = shard_axis(recipe, 24, 8)
    # Rank r holds head r // (8 / 2).
    assert [shard.pieces[1].begin for shard in cut.shards] == [16] * 4 + [18] * 4
    assert [shard.size for shard in cut.shards] == [6] * 8


@pytest.mark.parametrize(
    ("recipe", "size", "ranks", "says"),
    [
        (
            AxisSharding(0, unit=4),
            24,
            4,
            "4 ranks would split 24 elements at 6, inside of a unit of 4: use [1, 2, 3, 6] ranks",
        ),
        (AxisSharding(0, unit=128), 320, 2, "inside of a unit of 128: use [1] ranks"),
        (AxisSharding(0, pack=8), 3, 2, "inside of a unit of 8: use [1, 3] ranks, of [24, 8] elements"),
        (
            AxisSharding(0, unit=2, replicate=frozenset({0})),
            6,
            4,
            "cannot be repeated on 4 ranks, as neither number divides the other: use [1, 3, 6] ranks",
        ),
        (
            AxisSharding(0, replicate=frozenset({0}), pad_to=2**62),
            6,
            3,
            "as neither number divides the other: use [1, 2, 4, 8, 16, 32, ..., 65536] (17 values) ranks",
        ),
        (
            AxisSharding(0, unit=4, replicate=frozenset({0})),
            6,
            4,
            "units of 4 cannot be repeated: 6 elements are not a positive multiple of 4",
        ),
        (AxisSharding(0, sections=(4, 4)), 9, 2, "split_lengths = [4, 4] sums to 8, but axis 0 of data (9,)"),
        (AxisSharding(0, sections=(-1, -1)), 9, 2, "remainder.repeated"),
        (
            AxisSharding(0, sections=(4, 5), replicate=frozenset({2})),
            9,
            2,
            "replicate = [2], but there are 2 sections",
        ),
        (AxisSharding(0, even=True), 5, 2, "requires equal parts, but axis 0 of data (5,) has size 5"),
        (AxisSharding(0, sections=(4, 12), pack=8), 2, 1, "would split 8 packed elements"),
    ],
)
def test_a_cut_that_cannot_be_says_which_would(recipe, size, ranks, says):
    assert says in rejected(shard_axis, recipe, size, ranks)


def test_padding_is_at_the_end_and_no_piece_holds_it():
    cut = shard_axis(AxisSharding(0, pad_to=64), 1001, 4)
    assert [shard.size for shard in cut.shards] == [256] * 4
    assert cut.padded == 1024
    assert cut.shards[3].pieces == (Piece(768, 233, 0),)
    wide = shard_axis(AxisSharding(0, pad_to=8), 1, 4)
    assert [shard.pieces for shard in wide.shards] == [(Piece(0, 1, 0),), (), (), ()]


def test_each_section_is_padded():
    cut = shard_axis(AxisSharding(0, sections=(5, 3), pad_to=4), 8, 2)
    assert cut.padded == 12
    assert cut.shards == (
        Shard(6, (Piece(0, 4, 0), Piece(5, 2, 4))),
        Shard(6, (Piece(4, 1, 0), Piece(7, 1, 4))),
    )


def test_a_remainder_takes_what_is_left():
    assert shard_axis(AxisSharding(0, sections=(4, -1)), 10, 1).shards[0].pieces[1] == Piece(4, 6, 4)


# Documents -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    tensors = {"w": np.zeros((6, 4), np.float32), "b": np.zeros(6, np.float32), "s": np.float32(1)}
    return save(tmp_path_factory.mktemp("model"), {k: np.asarray(v) for k, v in tensors.items()}, {"n": 2})


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (
            {"match": "*", "axis": 2},
            "tensor 'b', rule 1 ('*'): axis 2 is out of range for shape [6] of rank 1",
        ),
        ({"match": "w", "axis": 0}, "no rule matches tensor 'b'"),
        ({"match": "*"}, "set one of axis, hf, place, replicate"),
        ({"match": [], "axis": 0}, "match is empty"),
        ({"match": "*", "hf": "colwize"}, "unknown hf = 'colwize': use one of colwise"),
        ({"match": "*", "hf": "colwise", "axis": 0}, "hf and axis cannot be combined"),
        ({"match": "*", "place": "e"}, "place = 'e' is not captured by match"),
        ({"match": "*", "place": 0, "unit": 2}, "place and unit cannot be combined"),
        ({"match": "*", "place": 4}, "place = 4 is out of range for 4 ranks"),
        ({"match": "{e}", "place": "e"}, "place = 'e' captures 'b', which is not a number"),
        ({"match": "*", "replicate": False}, "replicate = False requires an axis: set axis or hf"),
        ({"match": "*", "replicate": True, "unit": 2}, "unit requires an axis: set axis or hf"),
        ({"match": "*", "axis": 0, "unit": 2, "groups": 2}, "unit and groups cannot be combined"),
        ({"match": "*", "axis": 0, "groups": 4}, "6 elements cannot be divided into 4 equal groups"),
        ({"match": "*", "axis": 0, "unit": "n - 2"}, "unit = 0: the minimum is 1"),
        ({"match": "*", "axis": 0, "unit": 0}, "rule[0].unit is 0, not "),
        ({"match": "*", "axis": "0"}, "rule[0].axis is '0', not an integer"),
        ({"match": "*", "axis": True}, "rule[0].axis is True, not an integer"),
        ({"match": "*", "axiz": 0}, "rule[0] has the unknown key 'axiz': use match, hf, axis"),
        ({"axis": 0}, "rule[0] lacks 'match'"),
        ({"match": "*", "axis": 0, "sections": ["nobody"]}, "neither in the plan's vars nor in config.json"),
        ({"match": "w", "hf": "packed_colwise"}, "no rule matches"),
    ],
)
def test_a_plan_that_cannot_be_is_one_line(model, rule, says):
    found = rejected(sharding.plan, model, {"version": 1, "rule": [rule]}, ranks=4)
    assert says in found, found


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"rule": []}, "the document lacks 'version'"),
        ({"version": 2, "rule": []}, "version is 2, not 1"),
        ({"version": 1, "rule": [], "layout": "gguf"}, "layout is 'gguf', not one of hf"),
        ({"version": 1, "rule": {}}, "rule is {}, not an array"),
        ({"version": 1, "rule": [], "vars": {"q": 1.5}}, "vars.q is 1.5, not "),
    ],
)
def test_a_document_that_is_no_plan_is_one_line(model, document, says):
    assert says in rejected(sharding.plan, model, document, ranks=2)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("plan.toml", "version = ", "is not TOML"),
        ("plan.json", '{"version": 1, "version": 1}', "appears twice"),
        ("plan.json", "[" * 100_000, "is not JSON"),
        ("plan.json", "[]", "is [], not an object"),
        ("plan.json", b"\xff", "is not JSON"),
    ],
)
def test_a_file_that_is_no_plan_is_one_line(model, tmp_path, name, text, says):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert says in rejected(sharding.plan, model, tmp_path / name, ranks=2)
    assert "no such file" in rejected(sharding.plan, model, tmp_path / "none.toml", ranks=2)


def test_toml_and_json_say_the_same(model, tmp_path):
    (tmp_path / "plan.toml").write_text(
        'version = 1\n[vars]\nq = "n * 3"\n[[rule]]\nmatch = "w"\naxis = 0\nsections = ["q"]\n'
        '[[rule]]\nmatch = "*"\nreplicate = true\n'
    )
    rules = [{"match": "w", "axis": 0, "sections": ["q"]}, {"match": "*", "replicate": True}]
    one = sharding.plan(model, tmp_path / "plan.toml", ranks=2)
    other = sharding.plan(model, {"version": 1, "vars": {"q": "n * 3"}, "rule": rules}, ranks=2)
    assert one.placements == other.placements
    assert one.rank_bytes == (3 * 16 + 24 + 4,) * 2


def test_the_first_rule_that_matches_wins_and_scalars_stay_whole(model):
    rules = [{"match": "b", "replicate": True}, {"match": "*", "hf": "colwise"}]
    cuts = sharding.plan(model, {"version": 1, "rule": rules}, ranks=2).placements
    by_name = {tensor.name: cut for tensor, cut in zip(cuts.tensors, cuts.cuts, strict=True)}
    assert by_name["b"].axis is None
    assert by_name["s"].axis is None
    assert by_name["w"].axis == 0


def test_the_validator_knows_every_word_of_the_schemas():
    def walk(found):
        assert set(found) <= WORDS, set(found) - WORDS
        for inner in found.get("properties", {}).values():
            walk(inner)
        for inner in (found.get("items"), found.get("additionalProperties"), *found.get("anyOf", ())):
            if isinstance(inner, dict):
                walk(inner)

    for kind in ("plan", "manifest"):
        walk(get_schema(kind))
        with pytest.raises(PlanError):
            validate([], kind, "it")
