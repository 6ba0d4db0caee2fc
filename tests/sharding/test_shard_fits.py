"""Which numbers of ranks a plan allows: what is listed is what a plan of that number does."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sharding_helpers import LLAMA, LLAMA_PLAN, llama, save

from command_line import runner
from splitops.cli import cli
from splitops.errors import PlanError, SplitError
from splitops.sharding import find_ranks, plan


def _plan(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"version": 1, "rule": [*rules, {"match": "*", "replicate": True}]}


UP = {"match": "*.up_proj.weight", "axis": 0}
DOWN = {"match": "*.down_proj.weight", "axis": 0}
Q = {"match": "*.q_proj.weight", "axis": 0}
KV = {"match": ["*.k_proj.weight", "*.v_proj.weight"], "axis": 0}
SIZES = {"match": ["*.q_proj.weight", "*.up_proj.weight", "*.k_proj.weight"], "axis": 0}
PLANS = {
    "llama": LLAMA_PLAN,
    "auto": "auto",
    "even": _plan(UP | {"even": True}, Q | {"unit": 4}),
    "units": _plan(UP | {"unit": 16}, Q | {"unit": 8}),
    "repeats": _plan(KV | {"unit": 4, "replicate": True}, Q | {"unit": 4}),
    "groups": _plan(UP | {"groups": 6}, {"match": "*.o_proj.weight", "axis": 1, "group_size": 8}),
    "sections": _plan(UP | {"sections": [32, 16], "unit": 8, "replicate": [1]}),
    "padded": _plan(
        UP | {"pad_to": 64, "unit": 4}, {"match": "*embed_tokens.weight", "axis": 0, "pad_to": 7}
    ),
    "packed": _plan(UP | {"pack": 8, "unit": 16}),
    "no sections": _plan(UP | {"sections": []}),
    "groups of several sizes": _plan(SIZES | {"groups": 2}),
    "repeated groups of several sizes": _plan(SIZES | {"groups": 4, "replicate": True, "even": True}),
    "sections and a vector": _plan(
        {"match": ["*.up_proj.weight", "*.input_layernorm.weight"], "hf": "packed_colwise", "even": True}
    ),
    "place": _plan({"match": "model.layers.{e}.*", "place": "e"}, {"match": "lm_head.weight", "place": 3}),
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(tmp_path / "model", llama(), LLAMA, 2)


@pytest.mark.parametrize("name", PLANS)
def test_what_is_listed_is_what_a_plan_does(model, tmp_path, name):
    rules = PLANS[name]
    found = find_ranks(model, rules)
    assert [each.ranks for each in found] == list(range(1, 65))
    assert len({each.verdict for each in found}) > 1 or name in ("auto", "llama", "padded", "no sections")
    for each in found[:20]:
        try:
            made = plan(model, rules, ranks=each.ranks)
            made.plan_files(tmp_path / "out")
        except SplitError:
            assert not each.works
            assert each.verdict in ("pads", "impossible")
            assert "rule" in each.reason
            if each.verdict == "impossible":
                continue
            # The plan with the padding that is named can be cut, and nothing less can.
            helped = copy.deepcopy(dict(rules))
            for needed in each.padding:
                if not needed.planned:
                    helped["rule"][needed.rule - 1]["pad_to"] = needed.pad_to
                    assert needed.padded % needed.pad_to == 0
                    assert needed.size < needed.padded
            cut = plan(model, helped, ranks=each.ranks)
            cut.plan_files(tmp_path / "out")
            continue
        assert each.works
        cuts = made.placements.cuts
        assert (each.verdict == "pads") == any(cut.padded for cut in cuts)
        shared = any(cut.axis is not None and _repeats(cut) for cut in cuts)
        assert bool(each.repeats) == shared
        assert bool(each.splits_heads) == any("splits attention heads" in line for line in made.warnings)
        held = [each_.shards for each_ in cuts if each_.axis is not None]
        assert bool(each.leaves_empty) == any(shard.size == 0 for shards in held for shard in shards)
        if each.verdict == "fits":
            assert not each.repeats
            assert not each.padding


def _repeats(cut) -> bool:
    pieces = [(piece.begin, piece.size) for shard in cut.shards if shard for piece in shard.pieces]
    return len(set(pieces)) < len(pieces)


def test_heads_repeat_as_often_as_is_said(model):
    found = {each.ranks: each for each in find_ranks(model, PLANS["repeats"])}
    assert {n: each.verdict for n, each in found.items() if n in (1, 2, 4, 8)} == {
        1: "fits",
        2: "fits",
        4: "repeats",
        8: "repeats",
    }
    [repeated] = found[8].repeats
    assert (repeated.rule, repeated.match, repeated.times) == (1, "*.k_proj.weight", 4)
    assert found[8].note == "rule 1: units are on up to 4 ranks"


def test_the_numbers_of_an_error_hold_for_all_rules_together(model):
    """The first axis alone would do on 1, 2, 3 and 6 ranks, the second on 1, 2 and 4."""
    rules = _plan(UP | {"unit": 8}, Q | {"unit": 8})
    with pytest.raises(PlanError, match=r"inside of a unit of 8: use \[1, 2\] ranks, of \[48, 24\]"):
        plan(model, rules, ranks=4)
    with pytest.raises(PlanError, match=r"parts.divisible.*: use \[1, 2, 4\] ranks"):
        plan(model, _plan(UP | {"even": True}, Q | {"unit": 8}), ranks=5)
    for ranks in (1, 2):
        plan(model, rules, ranks=ranks)


def test_where_only_one_rank_is_left_the_padding_is_named(model):
    """48 rows are 3 units of 16, and 32 are 1 of 32: no number of ranks divides both."""
    rules = _plan(UP | {"unit": 16}, DOWN | {"unit": 32})
    with pytest.raises(PlanError) as found:
        plan(model, rules, ranks=3)
    assert str(found.value).endswith(
        "use [1] ranks, of [32] elements each; 3 ranks need pad_to = 96 in rule 2 (32 to 96)"
    )
    with pytest.raises(
        PlanError, match=r"2 ranks need pad_to = 64 in rule 2 \(32 to 64\), pad_to = 32 in rule 1"
    ):
        plan(model, rules, ranks=2)
    rules["rule"][1]["pad_to"] = 96
    assert plan(model, rules, ranks=3).placements.cuts


def test_an_error_that_no_number_of_ranks_helps_names_none(model):
    with pytest.raises(PlanError) as found:
        plan(model, _plan(UP | {"sections": [5, 5]}), ranks=2)
    assert "use [" not in str(found.value)
    assert {each.verdict for each in find_ranks(model, _plan(UP | {"sections": [5, 5]}))} == {"impossible"}


def test_quantised_groups_are_counted_too(tmp_path):
    stated = {"quant_method": "awq", "bits": 4, "group_size": 16}
    names = {"self_attn.q_proj": (64, 8), "mlp.down_proj": (96, 8)}
    tensors = {}
    for name, (rows, words) in names.items():
        tensors |= {
            f"model.layers.0.{name}.qweight": np.zeros((rows, words), np.int32),
            f"model.layers.0.{name}.qzeros": np.zeros((rows // 16, words), np.int32),
            f"model.layers.0.{name}.scales": np.zeros((rows // 16, words * 8), np.float16),
        }
    config = LLAMA | {"architectures": ["LlamaForCausalLM"], "quantization_config": stated}
    model = save(tmp_path / "model", tensors, config)
    found = {each.ranks: each for each in find_ranks(model, "auto")}
    possible = [ranks for ranks, each in found.items() if each.works]
    # Alone, 64 columns in words of 8 go on 1, 2, 4 and 8 ranks, 96 rows in groups of 16 on 1, 2, 3 and 6.
    assert possible == [1, 2]
    for ranks in range(1, 9):
        if ranks in possible:
            plan(model, "auto", ranks=ranks).plan_files(tmp_path / "out")
        else:
            with pytest.raises(PlanError):
                plan(model, "auto", ranks=ranks)


VERDICTS = {"fits", "repeats", "pads", "impossible"}


def test_the_command_lists_64_numbers(model, tmp_path):
    rules = tmp_path / "plan.json"
    rules.write_text(json.dumps(PLANS["repeats"]))
    words = ["shard", str(model), "--plan", str(rules), "--list"]
    done = runner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["8", "repeats", *["rule", "1:", "units", "are", "on", "up", "to", "4", "ranks"]] in lines
    assert [
        line[0] for line in lines if line and line[0].isdigit() and line[1:2] and line[1] in VERDICTS
    ] == [str(n) for n in range(1, 65)]
    listed = json.loads(runner().invoke(cli, [*words, "--json"]).stdout)
    assert [(each["ranks"], each["verdict"]) for each in listed] == [
        (each.ranks, each.verdict) for each in find_ranks(model, rules)
    ]
    assert {each["verdict"] for each in listed} == {"fits", "repeats", "impossible"}
    for more in (["--ranks", "2"], ["--out", "x"], ["--svg", "x"]):
        assert runner().invoke(cli, [*words, *more]).exit_code == 2


def test_ranks_that_are_there_are_listed_by_their_own_plan(model, tmp_path):
    plan(model, PLANS["repeats"], ranks=2).run(tmp_path / "ranks", sync=False)
    done = runner().invoke(cli, ["reshard", str(tmp_path / "ranks"), "--list", "--json"])
    assert [each["verdict"] for each in json.loads(done.stdout)] == [
        each.verdict for each in find_ranks(model, PLANS["repeats"])
    ]


@pytest.mark.parametrize("ranks", [[0], [-1], [1 << 17], [1, 10**30]])
def test_numbers_of_ranks_that_there_cannot_be(model, ranks):
    with pytest.raises(PlanError, match="it must be an integer from 1 to 65536"):
        find_ranks(model, LLAMA_PLAN, ranks=ranks)


@pytest.mark.parametrize(
    ("queries", "keys", "advice"),
    [
        (5, 5, ["pad_to = 8 in rule 1 (20 to 24)", "pad_to = 8 in rule 2 (20 to 24)"]),  # both alike
        (
            5,
            1,
            ["pad_to = 8 in rule 1 (20 to 24)", "repeat them with unit = 4 and replicate = true in rule 2"],
        ),
        (9, 3, ["", ""]),
    ],
)
def test_whole_heads_by_padding_or_by_repeats_keep_their_keys(tmp_path, queries, keys, advice):
    """Zeros after the heads of queries alone, or of keys alone, would change which keys a query has."""
    tensors = {
        "model.layers.0.self_attn.q_proj.weight": np.zeros((4 * queries, 8), np.float32),
        "model.layers.0.self_attn.k_proj.weight": np.zeros((4 * keys, 8), np.float32),
        "model.layers.0.mlp.up_proj.weight": np.zeros((2, 8), np.float32),
    }
    config = {"num_attention_heads": queries, "num_key_value_heads": keys, "head_dim": 4}
    model = save(tmp_path / "model", tensors, config)
    rules = _plan(Q, {"match": "*.k_proj.weight", "axis": 0}, UP | {"even": True})
    warnings = plan(model, rules, ranks=2).warnings
    assert [line.partition("Use 1 rank to keep heads whole")[2] for line in warnings] == [
        f", or {'set ' * more.startswith('pad_to')}{more}." if more else "." for more in advice
    ]
