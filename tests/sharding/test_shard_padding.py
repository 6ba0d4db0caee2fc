"""Padded ranks: their configuration has the sizes of their tensors, and a merge restores the original."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sharding_helpers import contents, save

from command_line import runner
from splitops import sharding
from splitops.cli import cli

SHAPES = {
    "model.embed_tokens.weight": (1000, 16),
    "lm_head.weight": (1000, 16),
    "model.layers.0.mlp.gate_proj.weight": (40, 16),
    "model.layers.0.mlp.up_proj.weight": (40, 16),
    "model.layers.0.mlp.down_proj.weight": (16, 40),
    "model.layers.0.self_attn.q_proj.weight": (24, 16),
    "model.layers.0.self_attn.k_proj.weight": (8, 16),
    "model.layers.0.self_attn.v_proj.weight": (8, 16),
    "model.layers.0.self_attn.o_proj.weight": (16, 24),
    "model.norm.weight": (16,),
}
CONFIG = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 40,
    "vocab_size": 1000,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "rms_norm_eps": 1e-05,
    "an_other_size": 1000,
}
VOCABULARY = {"match": ["*embed_tokens.weight", "lm_head.weight"], "axis": 0, "pad_to": 64}
UP = {"match": ["*.gate_proj.weight", "*.up_proj.weight"], "axis": 0, "pad_to": 32}
DOWN = {"match": "*.down_proj.weight", "axis": 1, "pad_to": 32}
Q = {"match": "*.q_proj.weight", "axis": 0, "pad_to": 32}
O = {"match": "*.o_proj.weight", "axis": 1, "pad_to": 32}  # noqa: E741
REST = {"match": ["model.*", "lm_head.weight"], "replicate": True}


def _model(tmp_path: Path, config: dict[str, Any] | None = None, **more: Any) -> Path:
    tensors = {name: np.ones(shape, np.float32) for name, shape in (SHAPES | more.get("shapes", {})).items()}
    return save(tmp_path / "model", tensors, CONFIG if config is None else config)


def _plan(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"version": 1, "rule": [*rules, REST]}


def _changed(model: Path, rules: dict[str, Any], out: Path, ranks: int = 2, **options: Any) -> dict[str, Any]:
    """Cut, merge back to the same bytes, and return what the configuration of the ranks has otherwise."""
    made = sharding.plan(model, rules, ranks=ranks, **options)
    made.run(out, sync=False)
    sharding.merge(out).run(out.with_name("again"), sync=False)
    assert contents(out.with_name("again")) == contents(model)
    assert (out / "source" / "config.json").read_bytes() == (model / "config.json").read_bytes()
    before = json.loads((model / "config.json").read_text())
    found = [json.loads(path.read_text()) for path in sorted(out.glob("rank-*/config.json"))]
    assert all(each == found[0] for each in found)
    assert list(found[0])[: len(before)] == list(before)
    return {key: value for key, value in found[0].items() if before.get(key) != value}


def _sum(out: Path, name: str, axis: int, ranks: int = 2) -> int:
    return sum(sharding.rank(out, rank)[name].shape[axis] for rank in range(ranks))


def test_the_sizes_are_those_of_the_tensors_of_all_ranks(tmp_path):
    out = tmp_path / "ranks"
    changed = _changed(_model(tmp_path), _plan(VOCABULARY, UP, DOWN), out)
    assert changed == {"vocab_size": 1024, "intermediate_size": 64}
    assert _sum(out, "lm_head.weight", 0) == 1024
    assert _sum(out, "model.layers.0.mlp.up_proj.weight", 0) == 64
    assert _sum(out, "model.layers.0.mlp.down_proj.weight", 1) == 64
    assert sharding.rank(out, 1).config["vocab_size"] == 1024


def test_one_rank_is_larger_than_the_source_says(tmp_path):
    assert _changed(_model(tmp_path), _plan(VOCABULARY), tmp_path / "ranks", 1) == {"vocab_size": 1024}


def test_heads_are_counted_anew_and_what_follows_from_them_stays(tmp_path):
    config = {k: v for k, v in CONFIG.items() if k not in ("head_dim", "num_key_value_heads")}
    shapes = {
        name: (24, 24) if "_proj" in name and "attn" in name else shape for name, shape in SHAPES.items()
    }
    model = _model(tmp_path, config | {"hidden_size": 24}, shapes=shapes)
    changed = _changed(model, _plan(Q, O), tmp_path / "ranks")
    assert changed == {"num_attention_heads": 8, "head_dim": 4, "num_key_value_heads": 6}


@pytest.mark.parametrize(
    ("key", "name", "shape", "axis", "pad_to", "old", "new"),
    [
        ("n_vocab", "transformer.wte.weight", (50, 8), 0, 64, 50, 64),
        ("ffn_dim", "decoder.layers.0.fc1.weight", (40, 8), 0, 32, 40, 64),
        ("n_inner", "h.0.mlp.c_fc.weight", (8, 40), 1, 32, 40, 64),
        ("moe_intermediate_size", "model.layers.0.mlp.experts.3.up_proj.weight", (40, 8), 0, 32, 40, 64),
        ("intermediate_size", "model.layers.0.mlp.gate_up_proj.weight", (80, 8), 0, 64, 40, 64),
        ("num_local_experts", "model.layers.0.mlp.experts.down_proj", (6, 8, 4), 0, 4, 6, 8),
    ],
)
def test_other_names_of_the_same_sizes(tmp_path, key, name, shape, axis, pad_to, old, new):
    model = save(tmp_path / "model", {name: np.ones(shape, np.float16)}, {"model_type": "own", key: old})
    rules = {"version": 1, "rule": [{"match": "*", "axis": axis, "pad_to": pad_to}]}
    assert _changed(model, rules, tmp_path / "ranks") == {key: new}


def test_the_part_about_text_is_changed(tmp_path):
    config = {"model_type": "vision", "text_config": CONFIG, "vision_config": {"intermediate_size": 40}}
    changed = _changed(_model(tmp_path, config), _plan(VOCABULARY, UP, DOWN), tmp_path / "ranks")
    assert changed == {"text_config": CONFIG | {"vocab_size": 1024, "intermediate_size": 64}}


def test_a_size_that_is_padded_for_some_tensors_alone_stays_with_a_warning(tmp_path):
    model = _model(tmp_path)
    for rules, said in (
        (_plan(VOCABULARY | {"match": "lm_head.weight"}), "and 'model.embed_tokens.weight' is not"),
        (_plan(UP), "and 'model.layers.0.mlp.down_proj.weight' is not"),
        (_plan(UP, DOWN | {"pad_to": 48}), "is padded otherwise"),
        (_plan(UP | {"match": "*.up_proj.weight"}, DOWN), "and 'model.layers.0.mlp.gate_proj.weight' is not"),
    ):
        [warning] = sharding.plan(model, rules, ranks=2).warnings
        assert warning.startswith("config.json of the ranks keeps ")
        assert said in warning
        assert sharding.plan(model, rules, ranks=2).config is None


def test_a_size_that_no_key_has_is_named(tmp_path):
    config = {"model_type": "own", "hidden_size": 16, "also": 40}
    [warning] = sharding.plan(_model(tmp_path, config), _plan(UP), ranks=2).warnings
    assert "config.json has no size for axis 0 of 'model.layers.0.mlp.gate_proj.weight'" in warning


def test_without_padding_nothing_is_changed(tmp_path):
    model = _model(tmp_path)
    even = [{k: v for k, v in rule.items() if k != "pad_to"} for rule in (VOCABULARY, UP, DOWN)]
    sharding.plan(model, _plan(*even), ranks=2).run(tmp_path / "ranks", sync=False)
    for home in (tmp_path / "ranks").glob("rank-*"):
        assert (home / "config.json").read_bytes() == (model / "config.json").read_bytes()


def test_distributed_checkpoints_have_no_padding(tmp_path):
    model = _model(tmp_path)
    made = sharding.plan(model, _plan(VOCABULARY, UP, DOWN), ranks=2, layout="dcp")
    made.run(tmp_path / "ranks", sync=False)
    assert not made.warnings
    assert (tmp_path / "ranks" / "config.json").read_bytes() == (model / "config.json").read_bytes()


def test_ranks_of_ranks_begin_from_the_original(tmp_path):
    model, rules = _model(tmp_path), _plan(VOCABULARY, UP, DOWN)
    sharding.plan(model, rules, ranks=2).run(tmp_path / "two", sync=False)
    other = _plan(VOCABULARY | {"pad_to": 300}, UP, DOWN)
    sharding.plan(tmp_path / "two", other, ranks=3).run(tmp_path / "three", sync=False)
    assert sharding.rank(tmp_path / "three", 0).config["vocab_size"] == 1200
    sharding.merge(tmp_path / "three").run(tmp_path / "again", sync=False)
    assert contents(tmp_path / "again") == contents(model)


def test_the_command_says_so(tmp_path):
    rules = tmp_path / "plan.json"
    rules.write_text(json.dumps(_plan(VOCABULARY)))
    words = ["shard", str(_model(tmp_path)), "--plan", str(rules), "--ranks", "4", "--dry-run"]
    said = "config.json of the ranks has vocab_size = 1024, not 1000, as 'lm_head.weight' is padded"
    assert f"warning: {said}" in runner().invoke(cli, words).stdout
    assert json.loads(runner().invoke(cli, [*words, "--json"]).stdout)["warnings"] == [said]
