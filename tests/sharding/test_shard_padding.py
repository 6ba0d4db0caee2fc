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
        (_plan(VOCABULARY | {"match": "lm_head.weight"}), "but 'model.embed_tokens.weight' is not padded"),
        (_plan(UP), "but 'model.layers.0.mlp.down_proj.weight' is not padded"),
        (_plan(UP, DOWN | {"pad_to": 48}), "to another size"),
        (
            _plan(UP | {"match": "*.up_proj.weight"}, DOWN),
            "but 'model.layers.0.mlp.gate_proj.weight' is not padded",
        ),
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


KV = {"match": ["*.k_proj.weight", "*.v_proj.weight"], "axis": 0, "pad_to": 32}
MANY = {f"model.layers.0.self_attn.{name}_proj.weight": (24, 16) for name in "kv"}


@pytest.mark.parametrize("left_out", [{}, {"num_key_value_heads": None}])
def test_heads_of_keys_that_the_configuration_leaves_out_are_padded_too(tmp_path, left_out):
    config = {key: value for key, value in CONFIG.items() if key != "num_key_value_heads"} | left_out
    model = _model(tmp_path, config, shapes=MANY)
    changed = _changed(model, _plan(Q, O, KV), tmp_path / "ranks")
    assert changed == {"num_attention_heads": 8, "num_key_value_heads": 8}
    assert not [line for line in sharding.plan(model, _plan(Q, O, KV), ranks=2).warnings if "no size" in line]


@pytest.mark.parametrize("left_out", [{}, {"head_dim": None}])
def test_a_size_of_heads_that_follows_from_the_others_stays(tmp_path, left_out):
    config = (
        {key: value for key, value in CONFIG.items() if key != "head_dim"} | {"hidden_size": 24} | left_out
    )
    model = _model(tmp_path, config, shapes=MANY)
    assert _changed(model, _plan(Q, O), tmp_path / "ranks") == {"num_attention_heads": 8, "head_dim": 4}


def test_queries_that_would_read_the_keys_of_other_heads_are_told(tmp_path):
    """Padded at the end, 8 heads over 2 are 4 each: the fourth would read the first keys."""
    model = _model(tmp_path)
    said = "has 8 query heads over 2 key heads, not 6 over 2"
    assert said in sharding.plan(model, _plan(Q, O), ranks=2).warnings[-1]
    both = (Q | {"pad_to": 48}, O | {"pad_to": 48}, KV | {"pad_to": 16})
    warnings = sharding.plan(model, _plan(*both), ranks=2).warnings
    assert len(warnings) == 2
    assert not [line for line in warnings if "other heads" in line]
    one = {f"model.layers.0.self_attn.{name}_proj.weight": (4, 16) for name in "kv"}
    model = _model(tmp_path, CONFIG | {"num_key_value_heads": 1}, shapes=one)
    assert len(sharding.plan(model, _plan(Q, O), ranks=2).warnings) == 1


BERT = {
    "bert.layer.0.attention.output.dense.weight": (24, 24),
    "bert.layer.0.intermediate.dense.weight": (48, 24),
    "bert.layer.0.output.dense.weight": (24, 48),
    "bert.pooler.dense.weight": (24, 24),
    "bert.embeddings.word_embeddings.weight": (100, 24),
    "cls.predictions.bias": (100,),
}
OF_BERT = {
    "model_type": "bert",
    "hidden_size": 24,
    "intermediate_size": 48,
    "num_attention_heads": 6,
    "vocab_size": 100,
}


def _bert(tmp_path: Path, *rules: dict[str, Any]) -> sharding.ShardPlan:
    tensors = {name: np.ones(shape, np.float32) for name, shape in BERT.items()}
    model = save(tmp_path / "model", tensors, OF_BERT)
    whole = {"match": ["bert.*", "cls.*"], "replicate": True}
    return sharding.plan(model, {"version": 1, "rule": [*rules, whole]}, ranks=5)


def test_a_dense_layer_that_is_not_of_attention_has_no_heads(tmp_path):
    up = {"match": "*.intermediate.dense.weight", "axis": 0}
    down = {"match": "*.0.output.dense.weight", "axis": 1}
    pooler = {"match": "*.pooler.dense.weight", "axis": 1}
    assert _bert(tmp_path, up, down, pooler).warnings == ()
    padded = _bert(tmp_path, up | {"pad_to": 64}, down | {"pad_to": 64})
    assert json.loads(padded.config or b"{}") == OF_BERT | {"intermediate_size": 64}
    [warning] = _bert(tmp_path, {"match": "*.attention.output.dense.weight", "axis": 1}).warnings
    assert "splits attention heads" in warning


def test_an_axis_without_heads_of_a_layer_of_attention(tmp_path):
    rows = {"match": ["*.o_proj.weight", "*.attention.output.dense.weight"], "axis": 0}
    assert _bert(tmp_path, rows).warnings == ()
    model = _model(tmp_path)
    assert sharding.plan(model, _plan(rows), ranks=3).warnings == ()
    found = sharding.plan(model, _plan(rows | {"pad_to": 24}), ranks=3)
    assert found.config is None
    assert "no size for axis 0 of 'model.layers.0.self_attn.o_proj.weight'" in found.warnings[0]


def test_a_bias_of_the_vocabulary_that_is_not_padded(tmp_path):
    found = _bert(tmp_path, {"match": "*.word_embeddings.weight", "axis": 0, "pad_to": 64})
    assert found.config is None
    assert "keeps vocab_size = 100" in found.warnings[0]
    assert "'cls.predictions.bias' is not" in found.warnings[0]


EXPERTS = {"match": "*.experts.gate_up_proj", "axis": 0, "pad_to": 8}


@pytest.mark.parametrize("router", ["mlp.router.weight", "mlp.gate.weight", "block_sparse_moe.gate.weight"])
@pytest.mark.parametrize("key", ["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"])
def test_the_number_of_experts_is_that_of_all_experts_and_of_their_router(tmp_path, router, key):
    shapes = {"model.layers.0.mlp.experts.gate_up_proj": (6, 16, 8), f"model.layers.0.{router}": (6, 16)}
    same = {"num_experts_per_tok": 6, "n_shared_experts": 6}
    model = _model(tmp_path, CONFIG | same | {key: 6}, shapes=shapes)
    found = sharding.plan(model, _plan(EXPERTS), ranks=2)
    assert found.config is None
    assert f"keeps {key} = 6" in found.warnings[0]
    both = _plan(EXPERTS, {"match": f"*.{router}", "axis": 0, "pad_to": 8})
    assert _changed(model, both, tmp_path / "ranks") == {key: 8}


def test_infinity_in_a_configuration_of_transformers(tmp_path):
    """Mamba 2 and its hybrids are published with a limit of infinity."""
    model = _model(tmp_path, CONFIG | {"time_step_limit": [0.0, float("inf")]})
    assert _changed(model, _plan(VOCABULARY), tmp_path / "ranks") == {"vocab_size": 1024}
    assert sharding.rank(tmp_path / "ranks", 1).config["time_step_limit"] == [0.0, float("inf")]
    assert {each.verdict for each in sharding.find_ranks(model, _plan(UP))} == {"pads"}
