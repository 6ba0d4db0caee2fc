"""``--pad``: sizes grow by zeros to fit the ranks, the model computes the same, and a merge is exact."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sharding_helpers import contents, save
from test_shard_quantised import F8, KINDS, ActOrder, Awq, Gptq, compressed, config, module, plain, words

from command_line import runner
from splitops.cli import cli
from splitops.errors import PlanError, SplitError
from splitops.sharding import ShardPlan, find_ranks, merge, plan, rank

Tensors = dict[str, np.ndarray]
LAYER = "model.layers.0.mlp"
HIDDEN = 16


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


def llama(inner: int, vocabulary: int, *, heads: int = 4) -> tuple[Tensors, dict[str, Any]]:
    shapes = {
        "model.embed_tokens.weight": (vocabulary, HIDDEN),
        "lm_head.weight": (vocabulary, HIDDEN),
        f"{LAYER}.gate_proj.weight": (inner, HIDDEN),
        f"{LAYER}.up_proj.weight": (inner, HIDDEN),
        f"{LAYER}.down_proj.weight": (HIDDEN, inner),
        "model.layers.0.self_attn.q_proj.weight": (4 * heads, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    stated = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "head_dim": 4,
        "vocab_size": vocabulary,
    }
    return {name: numbers(*shape) for name, shape in shapes.items()}, stated


def joined(out: Path, ranks: int, axes: Mapping[str, int]) -> Tensors:
    """Concatenate the tensors of all ranks along the axes; those without one must be on every rank."""
    found = [{name: each.numpy() for name, each in rank(out, r).items()} for r in range(ranks)]
    made = {}
    for name, first in found[0].items():
        if name in axes:
            assert {each[name].shape for each in found} == {first.shape}, name  # equal parts
            made[name] = np.concatenate([each[name] for each in found], axes[name])
        else:
            assert all(np.array_equal(each[name], first) for each in found)
            made[name] = first
    return made


def feed_forward(gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
    """Return the output of the layer for one input, with weights of shape (in, out)."""
    x = np.random.default_rng(1).normal(size=len(gate)).astype(np.float64)
    return (np.maximum(x @ gate, 0) * (x @ up)) @ down


def cut(source: Path, out: Path, ranks: int, rules: Any = "auto", **options: Any) -> ShardPlan:
    """Shard with padding, check that a merge is exact, and return the plan."""
    made = plan(source, rules, ranks=ranks, pad_for=options.pop("pad_for", ranks), **options)
    made.run(out, sync=False)
    merge(out).run(out.with_name("again"), sync=False)
    assert contents(out.with_name("again")) == contents(source)
    return made


def stated(out: Path) -> dict[str, Any]:
    found = [json.loads(path.read_text()) for path in out.glob("rank-*/config.json")]
    assert all(each == found[0] for each in found)
    return found[0]


AXES = {
    "model.embed_tokens.weight": 0,
    "lm_head.weight": 0,
    f"{LAYER}.gate_proj.weight": 0,
    f"{LAYER}.up_proj.weight": 0,
    f"{LAYER}.down_proj.weight": 1,
    "model.layers.0.self_attn.q_proj.weight": 0,
}


@given(
    st.integers(1, 70), st.integers(2, 70), st.sampled_from([1, 2, 3, 4, 6]), st.sampled_from([0, 1, 2, 12])
)
@settings(max_examples=40, deadline=None)
def test_sizes_grow_by_less_than_one_unit_per_rank(tmp_path_factory, inner, vocabulary, ranks, pad_for):
    if inner == vocabulary:
        vocabulary += 1
    tmp_path = tmp_path_factory.mktemp("pad")
    tensors, known = llama(inner, vocabulary, heads=12)
    source = save(tmp_path / "model", tensors, known, 2)
    count = pad_for or ranks
    cut(source, tmp_path / "ranks", ranks, pad_for=count)
    wanted = known | {
        "intermediate_size": math.ceil(inner / count) * count,
        "vocab_size": math.ceil(vocabulary / count) * count,
    }
    assert stated(tmp_path / "ranks") == wanted
    if count % ranks:
        return
    found = joined(tmp_path / "ranks", ranks, AXES)
    assert found["lm_head.weight"].shape == (wanted["vocab_size"], HIDDEN)
    assert found[f"{LAYER}.down_proj.weight"].shape == (HIDDEN, wanted["intermediate_size"])
    for name, array in found.items():
        axis = AXES.get(name, 0)
        true, added = np.split(array, [tensors[name].shape[axis]], axis)
        np.testing.assert_array_equal(true, tensors[name])
        assert not added.any()


QUANTISED: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    name: (
        lambda rows, columns, kind=kind: dict(kind.make(rows, columns, 16, 4)),
        lambda found, kind=kind: kind.numbers(found, 16, 4),
        {"quant_method": kind.method, "bits": 4, "group_size": 16, "desc_act": name == "act order"},
    )
    for name, kind in (("awq", Awq()), ("gptq", Gptq()), ("act order", ActOrder()))
} | {
    name: (
        lambda rows, columns, make=make: make(columns, rows),
        lambda found, values=values: values(found).T,
        known,
    )
    for name, ((make, values), known) in KINDS.items()
    if name not in ("modelopt fp8", "int8", "fp8 blocks", "rows of 8 bits")
} | {
    name: (
        lambda rows, columns, dtype=dtype: {
            "weight": (8 * numbers(columns, rows)).astype(dtype),
            "weight_scale": np.array([0.25], np.float32),
        },
        lambda found: found["weight"].astype(np.float32).T * found["weight_scale"],
        known,
    )
    for name, dtype, known in (
        ("one scale", F8, KINDS["modelopt fp8"][1]),
        ("int8", np.int8, KINDS["int8"][1]),
    )
} | {
    "rows of 8 bits": (
        lambda rows, columns: words(rows, zeros=False, bits=8)[0](columns, rows),
        lambda found: words(1 << 20, zeros=False, bits=8)[1](found).T,
        KINDS["rows of 8 bits"][1],
    ),
    "blocks": (
        lambda rows, columns: {
            "weight": numbers(columns, rows).astype(F8),
            "weight_scale_inv": 1 + abs(numbers(-(-columns // 16), -(-rows // 32))),
        },
        lambda found: (
            found["weight"].astype(np.float32)
            * np.kron(found["weight_scale_inv"], np.ones((16, 32), np.float32))[
                : found["weight"].shape[0], : found["weight"].shape[1]
            ]
        ).T,
        {"quant_method": "fp8", "weight_block_size": [16, 32]},
    )
}  # fmt: skip
"""By name: the tensors of a weight (in, out), its numbers, and the ``quantization_config``."""


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("kind", QUANTISED)
def test_quantised_layers_compute_the_same_with_padding(tmp_path: Path, kind: str, ranks: int) -> None:
    make, values, known = QUANTISED[kind]
    inner, hidden = 384, 128
    weights = {
        "gate_proj": make(hidden, inner),
        "up_proj": make(hidden, inner),
        "down_proj": make(inner, hidden),
    }
    tensors = {
        f"{LAYER}.{name}.{leaf}": array for name, own in weights.items() for leaf, array in own.items()
    }
    source = save(tmp_path / "model", tensors, config(**known) | {"intermediate_size": inner})
    cut(source, tmp_path / "ranks", 1, pad_for=ranks)
    whole = {name: each.numpy() for name, each in rank(tmp_path / "ranks", 0).items()}
    gate, up, down = (values(module(whole, f"{LAYER}.{name}")) for name in weights)
    grown = stated(tmp_path / "ranks")["intermediate_size"]
    assert gate.shape == up.shape == (hidden, grown)
    assert down.shape == (grown, hidden)
    assert grown == inner if ranks == 1 else grown % ranks == 0 and grown >= inner
    before = feed_forward(*(values(weights[name]) for name in weights))
    np.testing.assert_allclose(feed_forward(gate, up, down), before, rtol=1e-4, atol=1e-4)
    made = plan(source, "auto", ranks=ranks, pad_for=ranks)
    sizes = {shard.size for each in made.placements.cuts for shard in each.shards if each.axis is not None}
    assert len(sizes) > 0
    for each in made.placements.cuts:
        assert len({shard.size for shard in each.shards}) == 1  # equal parts on every rank
    made.run(tmp_path / "cut", sync=False)
    merge(tmp_path / "cut").run(tmp_path / "back", sync=False)
    assert contents(tmp_path / "back") == contents(source)


@pytest.mark.parametrize(("ranks", "pad_for"), [(1, 4), (2, 2), (4, 4), (5, 5), (2, 8)])
def test_padded_rows_of_gptq_belong_to_the_new_groups(tmp_path: Path, ranks: int, pad_for: int) -> None:
    """Readers subtract the first group of a rank, and would have negative groups if padded rows had 0."""
    make, _, known = QUANTISED["gptq"]
    tensors = {f"{LAYER}.{n}.{k}": a for n in ("gate_proj", "up_proj") for k, a in make(128, 80).items()}
    tensors |= {f"{LAYER}.down_proj.{k}": a for k, a in make(80, 128).items()}
    source = save(tmp_path / "model", tensors, config(**known) | {"intermediate_size": 80})
    cut(source, tmp_path / "ranks", ranks, pad_for=pad_for)
    size = stated(tmp_path / "ranks")["intermediate_size"]
    assert size >= 80
    found = [rank(tmp_path / "ranks", number) for number in range(ranks)]
    groups = [each[f"{LAYER}.down_proj.g_idx"].numpy() for each in found]
    np.testing.assert_array_equal(np.concatenate(groups), np.arange(size) // 16)
    for each, own in zip(found, groups, strict=True):
        rows = each[f"{LAYER}.down_proj.scales"].shape[0]
        assert sorted({*(own - own[0]).tolist()}) == [*range(rows)]
    assert found[0][f"{LAYER}.up_proj.g_idx"].shape == (128,)
    plan(tmp_path / "ranks", ranks=3, pad_for=3).run(tmp_path / "three", sync=False, verify=True)
    again = [rank(tmp_path / "three", number)[f"{LAYER}.down_proj.g_idx"].numpy() for number in range(3)]
    np.testing.assert_array_equal(np.concatenate(again), np.arange(96) // 16)


def test_padded_rows_of_gptq_in_any_order_belong_to_a_group_that_every_rank_has(tmp_path: Path) -> None:
    make, _, known = QUANTISED["act order"]
    tensors = {f"{LAYER}.{n}.{k}": a for n in ("gate_proj", "up_proj") for k, a in make(128, 80).items()}
    tensors |= {f"{LAYER}.down_proj.{k}": a for k, a in make(80, 128).items()}
    source = save(tmp_path / "model", tensors, config(**known) | {"intermediate_size": 80})
    cut(source, tmp_path / "ranks", 4)
    found = [rank(tmp_path / "ranks", number) for number in range(4)]
    groups = np.concatenate([each[f"{LAYER}.down_proj.g_idx"].numpy() for each in found])
    np.testing.assert_array_equal(groups, np.pad(tensors[f"{LAYER}.down_proj.g_idx"], (0, len(groups) - 80)))
    assert {each[f"{LAYER}.down_proj.scales"].shape for each in found} == {(5, 128)}


def test_a_last_block_that_is_not_full_is_padded_first(tmp_path: Path) -> None:
    """40 rows are two and a half blocks of 16, whose scales are 3: both grow to the same size."""
    make, _, known = QUANTISED["blocks"]
    tensors = {
        f"{LAYER}.{name}.{leaf}": array
        for name in ("gate_proj", "up_proj")
        for leaf, array in make(32, 40).items()
    }
    tensors |= {f"{LAYER}.down_proj.{leaf}": array for leaf, array in make(40, 32).items()}
    source = save(tmp_path / "model", tensors, config(**known) | {"intermediate_size": 40})
    cut(source, tmp_path / "ranks", 2)
    assert stated(tmp_path / "ranks")["intermediate_size"] == 64
    held = rank(tmp_path / "ranks", 1)
    assert held[f"{LAYER}.gate_proj.weight"].shape == (32, 32)
    assert held[f"{LAYER}.gate_proj.weight_scale_inv"].shape == (2, 1)
    assert held[f"{LAYER}.down_proj.weight_scale_inv"].shape == (2, 1)


@pytest.mark.parametrize(
    ("make", "known"),
    [
        (words(128, zeros=False)[0], compressed("pack-quantized", num_bits=4, strategy="tensor")),
        (plain(np.int8, 64, 1 << 20)[0], compressed("int-quantized", strategy="tensor", symmetric=False)),
    ],
)
def test_zeros_that_one_scale_does_not_make_zeros_are_rejected(tmp_path: Path, make: Any, known: Any) -> None:
    tensors = {f"{LAYER}.up_proj.{leaf}": array for leaf, array in make(64, 128).items()}
    source = save(tmp_path / "model", tensors, config(**known) | {"intermediate_size": 64})
    plan(source, "auto", ranks=2, pad_for=2)
    with pytest.raises(
        PlanError, match="cannot be padded from 64 to 66: with an offset and a single scale, zeros change"
    ):
        plan(source, "auto", ranks=3, pad_for=3)


PHI = {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "hidden_size": 16, "intermediate_size": 10}


def test_fused_gates_are_padded_each_in_a_whole_model(tmp_path: Path) -> None:
    tensors = {f"{LAYER}.gate_up_proj.weight": numbers(20, 16), f"{LAYER}.down_proj.weight": numbers(16, 10)}
    source = save(tmp_path / "model", tensors, PHI)
    cut(source, tmp_path / "ranks", 1, pad_for=4)
    assert stated(tmp_path / "ranks") == PHI | {"intermediate_size": 12}
    held = rank(tmp_path / "ranks", 0)
    gate, up = np.split(held[f"{LAYER}.gate_up_proj.weight"].numpy(), 2)
    before = tensors[f"{LAYER}.gate_up_proj.weight"]
    np.testing.assert_allclose(
        feed_forward(gate.T, up.T, held[f"{LAYER}.down_proj.weight"].numpy().T),
        feed_forward(before[:10].T, before[10:].T, tensors[f"{LAYER}.down_proj.weight"].T),
        rtol=1e-5,
    )
    with pytest.raises(
        PlanError,
        match=r"2 fused parts cannot be padded from 10 to 12: the rule shards them as one.*--ranks 1",
    ):
        plan(source, "auto", ranks=4, pad_for=4)
    sections = ["intermediate_size", "intermediate_size"]
    rules = {
        "version": 1,
        "rule": [
            {"match": "*.gate_up_proj.weight", "axis": 0, "sections": sections},
            {"match": "*.down_proj.weight", "axis": 1},
        ],
    }
    cut(source, tmp_path / "other" / "four", 4, rules)
    assert stated(tmp_path / "other" / "four") == PHI | {"intermediate_size": 12}
    parts = [rank(tmp_path / "other" / "four", r)[f"{LAYER}.gate_up_proj.weight"].numpy() for r in range(4)]
    np.testing.assert_array_equal(np.concatenate([part[:3] for part in parts]), gate)
    np.testing.assert_array_equal(np.concatenate([part[3:] for part in parts]), up)


def test_shared_experts_of_several_sizes_grow_with_their_size(tmp_path: Path) -> None:
    known = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "intermediate_size": 50,
        "moe_intermediate_size": 10,
        "n_shared_experts": 3,
    }
    sizes = {"experts.0": 10, "shared_experts": 30}
    tensors = {
        "model.layers.0.mlp.up_proj.weight": numbers(50, 4),
        "model.layers.0.mlp.down_proj.weight": numbers(4, 50),
    }
    for name, size in sizes.items():
        tensors[f"model.layers.1.mlp.{name}.up_proj.weight"] = numbers(size, 4)
        tensors[f"model.layers.1.mlp.{name}.down_proj.weight"] = numbers(4, size)
    tensors["model.layers.1.mlp.gate.weight"] = numbers(10, 4)  # routes to 10 experts: not a size
    source = save(tmp_path / "model", tensors, known)
    cut(source, tmp_path / "ranks", 4)
    assert stated(tmp_path / "ranks") == known | {"intermediate_size": 52, "moe_intermediate_size": 12}
    held = rank(tmp_path / "ranks", 0)
    assert held["model.layers.1.mlp.shared_experts.up_proj.weight"].shape == (9, 4)
    assert held["model.layers.1.mlp.experts.0.down_proj.weight"].shape == (4, 3)
    assert held["model.layers.1.mlp.gate.weight"].shape == (10, 4)


@pytest.mark.parametrize("shared_first", [True, False])
def test_shared_experts_with_a_size_of_their_own_are_no_multiple_of_another(
    tmp_path: Path, shared_first: bool
) -> None:
    """20 is 2 x 10 by chance: each size is padded as its own key says, in any order of the tensors."""
    known = {
        "architectures": ["Qwen2MoeForCausalLM"],
        "model_type": "qwen2_moe",
        "moe_intermediate_size": 10,
        "shared_expert_intermediate_size": 20,
    }
    sizes = {"experts.0": 10, "shared_expert": 20}
    order = [*reversed(sizes.items())] if shared_first else [*sizes.items()]
    tensors = {}
    for layer, (name, size) in enumerate(order):
        tensors[f"model.layers.{layer}.mlp.{name}.up_proj.weight"] = numbers(size, 4)
        tensors[f"model.layers.{layer}.mlp.{name}.down_proj.weight"] = numbers(4, size)
    source = save(tmp_path / "model", tensors, known)
    rules = [{"match": "*.up_proj.weight", "axis": 0}, {"match": "*.down_proj.weight", "axis": 1}]
    cut(source, tmp_path / "ranks", 7, {"version": 1, "rule": rules})
    new = {"moe_intermediate_size": 14, "shared_expert_intermediate_size": 21}
    assert stated(tmp_path / "ranks") == known | new
    held = rank(tmp_path / "ranks", 0)
    assert {each.shape for each in map(held.__getitem__, tensors)} == {(2, 4), (4, 2), (3, 4), (4, 3)}


def test_embeddings_that_are_whole_on_every_rank_have_the_padded_vocabulary(tmp_path: Path) -> None:
    known = {
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        "vocab_size": 11,
        "hidden_size": 4,
    }
    tensors = {"gpt_neox.embed_in.weight": numbers(11, 4), "embed_out.weight": numbers(11, 4, seed=1)}
    source = save(tmp_path / "model", tensors, known)
    cut(source, tmp_path / "ranks", 3)
    assert stated(tmp_path / "ranks") == known | {"vocab_size": 12}
    found = joined(tmp_path / "ranks", 3, {"embed_out.weight": 0})
    for name, array in tensors.items():
        np.testing.assert_array_equal(found[name], np.concatenate([array, np.zeros((1, 4), np.float32)]))


def test_engines_get_a_vocabulary_that_their_own_padding_leaves(tmp_path: Path) -> None:
    """An engine pads 100 to 128, which 6 ranks do not divide, and rejects it: 192 it leaves as it is."""
    tensors, known = llama(12, 100, heads=12)
    tensors |= {f"model.layers.0.self_attn.{n}_proj.weight": numbers(48, HIDDEN) for n in "kv"}
    tensors["model.layers.0.self_attn.o_proj.weight"] = numbers(HIDDEN, 48)
    source = save(tmp_path / "model", tensors, known)
    with pytest.raises(PlanError, match=r"parts\.divisible"):
        plan(source, "auto", ranks=6, layout="vllm")
    made = cut(source, tmp_path / "ranks", 6, layout="vllm")
    assert json.loads(made.config or b"") == known | {"vocab_size": 192}
    four = plan(source, "auto", ranks=4, pad_for=4, layout="vllm")
    assert four.config is None  # 128, as vLLM pads it itself


@pytest.mark.parametrize(
    ("more", "rules", "says"),
    [
        (
            {f"{LAYER}.ffn_norm.weight": (10,)},
            "auto",
            "'model.layers.0.mlp.ffn_norm.weight', .* 10 is padded to 12 for .*, but not here: shard it, too",
        ),
        (
            {},
            {"version": 1, "rule": [{"match": "*up_proj*", "axis": 0}, {"match": "*", "replicate": True}]},
            "10 is padded to 12 for .*, but not here",
        ),
    ],
)
def test_a_size_that_only_some_tensors_would_have_is_rejected(tmp_path: Path, more, rules, says) -> None:
    tensors, known = llama(10, 30)
    tensors |= {name: numbers(*shape) for name, shape in more.items()}
    source = save(tmp_path / "model", tensors, known)
    with pytest.raises(PlanError, match=says):
        plan(source, rules, ranks=3, pad_for=3)
    assert plan(source, rules, ranks=2, pad_for=2).config is None  # 10 and 30 are even


def test_another_size_of_the_same_number_stays(tmp_path: Path) -> None:
    """A tower of its own has by chance the size of the layers: its rule says so."""
    tensors, known = llama(10, 30)
    tensors["visual.merger.mlp.gate_proj.weight"] = numbers(10, HIDDEN)
    source = save(tmp_path / "model", tensors, known)
    with pytest.raises(PlanError, match=r"'visual.merger.*set hf = \"replicate\" in a rule for it"):
        plan(source, "auto", ranks=3, pad_for=3)
    [listed] = find_ranks(source, "auto", ranks=[3], pad=True)
    assert (listed.verdict, "set hf" in listed.note) == ("impossible", True)
    document = plan(source, "auto", ranks=3).document
    rules = [{"match": "visual.*", "hf": "replicate"}, *document["rule"]]
    cut(source, tmp_path / "ranks", 3, {**document, "rule": rules})
    assert stated(tmp_path / "ranks")["intermediate_size"] == 12
    assert rank(tmp_path / "ranks", 0)["visual.merger.mlp.gate_proj.weight"].shape == (10, HIDDEN)


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (
            [{"match": "*.gate_proj.weight", "hf": "colwise"}, {"match": "*", "hf": "replicate"}],
            "_proj.weight', rule 2 .* 10 is padded to 12 for 'model.layers.0.mlp.gate_proj.weight'",
        ),
        (
            [
                {"match": ["*.gate_proj.weight", "*.up_proj.weight"], "hf": "colwise"},
                {"match": "*.down_proj.weight", "hf": "replicate"},
                {"match": "*", "replicate": True},
            ],
            "down_proj.weight', rule 2 .* 10 is padded to 12",
        ),
        (
            [
                {"match": ["*.gate_proj.weight", "*.up_proj.weight"], "hf": "colwise"},
                {"match": "*.down_proj.weight", "axis": 0},  # the other axis
                {"match": "*", "replicate": True},
            ],
            "down_proj.weight', rule 2 .* 10 is padded to 12",
        ),
        (
            [{"match": "lm_head.weight", "hf": "colwise"}, {"match": "*", "hf": "replicate"}],
            "embed_tokens.weight', rule 2 .* 31 is padded to 33 for 'lm_head.weight'.*replicate = true$",
        ),
        (
            [
                {"match": "lm_head.weight", "hf": "colwise"},
                {"match": "*.embed_tokens.weight", "hf": "embedding_colwise"},  # along the hidden size
                {"match": "*", "replicate": True},
            ],
            "embed_tokens.weight', rule 2 .* 31 is padded to 33",
        ),
    ],
)
def test_no_rule_leaves_a_part_of_a_model_without_its_padding(tmp_path: Path, rules, says, ranks) -> None:
    tensors, known = llama(10, 31)
    source = save(tmp_path / "model", tensors, known)
    with pytest.raises(PlanError, match=says):
        plan(source, {"version": 1, "rule": rules}, ranks=ranks, pad_for=3)


def test_the_outputs_of_a_layer_with_an_unknown_name_are_not_left_unpadded(tmp_path: Path) -> None:
    up, down = "bert.layer.0.intermediate.dense.weight", "bert.layer.0.output.dense.weight"
    source = save(
        tmp_path / "model",
        {up: numbers(10, 4), down: numbers(4, 10)},
        {"hidden_size": 4, "intermediate_size": 10},
    )
    rules = [
        {"match": "*.intermediate.dense.weight", "axis": 0},
        {"match": "*.output.dense.weight", "axis": 1},
    ]
    with pytest.raises(PlanError, match=r"'bert.layer.0.output.dense.weight', rule 2 .* 10 is padded to 12"):
        plan(source, {"version": 1, "rule": rules}, ranks=3, pad_for=3)
    rules[1]["pad_to"] = 12
    cut(source, tmp_path / "ranks", 3, {"version": 1, "rule": rules})
    assert stated(tmp_path / "ranks")["intermediate_size"] == 12


def test_config_json_keeps_a_size_that_a_closing_rule_does_not_pad(tmp_path: Path) -> None:
    tensors, known = llama(12, 30)
    source = save(tmp_path / "model", tensors, known)
    rules = [{"match": "lm_head.weight", "axis": 0, "pad_to": 32}, {"match": "*", "hf": "replicate"}]
    made = plan(source, {"version": 1, "rule": rules}, ranks=2)
    assert made.config is None
    assert any("keeps vocab_size = 30" in line for line in made.warnings)


def test_tensors_of_one_shape_are_padded_by_their_names(tmp_path: Path) -> None:
    """One rule and one shape for a vocabulary and for queries: heads are not padded."""
    tensors = {
        "lm_head.weight": numbers(10, 4),
        "a.q_proj.weight": numbers(10, 4),
        "b.other.weight": numbers(10, 4),
    }
    source = save(tmp_path / "model", tensors, {"vocab_size": 10, "num_attention_heads": 5, "head_dim": 2})
    made = plan(source, {"version": 1, "rule": [{"match": "*", "axis": 0}]}, ranks=4, pad_for=4)
    padded = {t.name: c.padded for t, c in zip(made.placements.tensors, made.placements.cuts, strict=True)}
    assert padded == {"lm_head.weight": 12, "a.q_proj.weight": 0, "b.other.weight": 0}


def test_the_list_with_padding_is_what_a_plan_with_padding_does(tmp_path: Path) -> None:
    make, _, known = QUANTISED["awq"]
    tensors = {f"{LAYER}.{n}.{k}": a for n in ("gate_proj", "up_proj") for k, a in make(32, 48).items()}
    tensors |= {f"{LAYER}.down_proj.{k}": a for k, a in make(48, 32).items()}
    tensors |= {f"model.layers.0.self_attn.q_proj.{k}": a for k, a in make(32, 64).items()}
    source = save(tmp_path / "model", tensors, config(**known) | {"intermediate_size": 48})
    without = {each.ranks: each.verdict for each in find_ranks(source, "auto", ranks=range(1, 9))}
    listed = {each.ranks: each for each in find_ranks(source, "auto", ranks=range(1, 9), pad=True)}
    assert {n for n, each in listed.items() if each.works} == {1, 2, 4, 8}  # words of 8 queries stay whole
    assert {n for n, verdict in without.items() if verdict == "fits"} == {1}
    for count, each in listed.items():
        if each.works:
            made = plan(source, "auto", ranks=count, pad_for=count)
            assert {c.padded for c in made.placements.cuts} - {0} != set() if each.padding else True
        else:
            with pytest.raises(PlanError):
                plan(source, "auto", ranks=count, pad_for=count)


@given(
    st.sampled_from(["awq", "gptq", "act order", "blocks", ""]),
    st.sampled_from([32, 48, 96]),
    st.sampled_from([(8, 8), (8, 2), (4, 4), (6, 3)]),
    st.integers(30, 33),
    st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_the_list_with_padding_agrees_with_the_command(tmp_path_factory, kind, inner, heads, words, pad):
    """A number works if and only if it is not impossible, and no padding of heads is suggested."""
    tmp_path = tmp_path_factory.mktemp("list")
    queries, keys = heads
    make, known = (
        QUANTISED[kind][::2] if kind else ((lambda rows, columns: {"weight": numbers(columns, rows)}), {})
    )
    shapes = {
        "mlp.gate_proj": (32, inner),
        "mlp.up_proj": (32, inner),
        "mlp.down_proj": (inner, 32),
        "self_attn.q_proj": (32, 8 * queries),
        "self_attn.k_proj": (32, 8 * keys),
        "self_attn.o_proj": (8 * queries, 32) if 8 * queries % 16 == 0 else (32, 32),
    }
    tensors = {f"model.layers.0.{n}.{k}": a for n, shape in shapes.items() for k, a in make(*shape).items()}
    tensors["lm_head.weight"] = numbers(words, 32)
    stated = {"intermediate_size": inner, "vocab_size": words, "hidden_size": 32, "head_dim": 8}
    stated |= {"num_attention_heads": queries, "num_key_value_heads": keys}
    architecture = config(**known)
    if not kind:
        architecture.pop("quantization_config")
    source = save(tmp_path / "model", tensors, architecture | stated)
    for each in find_ranks(source, "auto", ranks=range(1, 13), pad=pad):
        assert not any("_proj" in needed.match and "self_attn" in needed.match for needed in each.padding)
        assert "pads" not in each.verdict or each.works or not pad
        try:
            made = plan(source, "auto", ranks=each.ranks, pad_for=each.ranks if pad else None)
            made.plan_files(tmp_path / "out")
        except PlanError:
            assert not each.works
            assert each.verdict == "impossible" or not pad
            continue
        assert each.works
        assert each.verdict != "impossible"
        assert (each.verdict == "pads") == any(c.padded for c in made.placements.cuts)


def run(*words: object, code: int = 0) -> str:
    done = runner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def test_the_command(tmp_path: Path) -> None:
    tensors, known = llama(10, 100)
    source = save(tmp_path / "model", tensors, known)
    said = run("shard", source, "--ranks", 3, "--pad", "--out", tmp_path / "ranks", "--verify")
    assert "vocab_size = 102, not 100, as 'lm_head.weight' is padded" in said
    assert "intermediate_size = 12, not 10" in said
    run("merge", tmp_path / "ranks", "--out", tmp_path / "again", "--verify")
    assert contents(tmp_path / "again") == contents(source)
    run("reshard", tmp_path / "ranks", "--ranks", 7, "--pad", "--out", tmp_path / "seven")
    assert stated(tmp_path / "seven")["vocab_size"] == 105
    run("reshard", tmp_path / "ranks", "--ranks", 1, "--pad-for", 8, "--out", tmp_path / "one")
    assert stated(tmp_path / "one")["intermediate_size"] == 16
    run("reshard", tmp_path / "ranks", "--ranks", 2, "--out", tmp_path / "two")
    assert stated(tmp_path / "two") == known  # padding is requested, and not part of the plan
    shown = json.loads(
        run("shard", source, "--ranks", 3, "--pad", "--dry-run", "--json", "--out", tmp_path / "x")
    )
    assert {row["repeats"] for row in shown["rules"]} == {"2 padded", "", "all on 3"}
    assert not (tmp_path / "x").exists()
    listed = json.loads(run("shard", source, "--list", "--pad", "--json"))
    assert [each["verdict"] for each in listed[:4]] == ["fits", "fits", "pads", "pads"]
    assert "layout dcp has no padding" in run(
        "shard", source, "--ranks", 3, "--pad", "--layout", "dcp", "--out", tmp_path / "x", code=1
    )
    for wrong in (["--pad", "--pad-for", 2], ["--pad-for", 0], ["--list", "--pad-for", 2]):
        run(
            "shard",
            source,
            "--ranks" if "--list" not in wrong else "--strict",
            *([2] if "--list" not in wrong else []),
            *wrong,
            code=2,
        )
    with pytest.raises(PlanError, match="it must be an integer from 1 to 65536"):
        plan(source, ranks=2, pad_for=1 << 20)


def test_a_whole_padded_model_is_sharded_like_any_model(tmp_path: Path) -> None:
    tensors, known = llama(10, 31, heads=12)
    source = save(tmp_path / "model", tensors, known)
    plan(source, "auto", ranks=1, pad_for=3).run(tmp_path / "one", sync=False)
    whole = tmp_path / "one" / "rank-00000-of-00001"
    for layout in ("hf", "dcp"):
        made = plan(whole, "auto", ranks=3, layout=layout)
        assert any("'rank.json' is not copied" in line for line in made.warnings)
        made.run(tmp_path / layout, sync=False)
        merge(tmp_path / layout).run(tmp_path / f"again-{layout}", sync=False)
        expected = contents(whole, but=("rank.json",))
        found = contents(tmp_path / f"again-{layout}", but=("model.safetensors.index.json",))
        assert {"config.json", "model.safetensors"} <= {*found} if layout == "hf" else "config.json" in found
        if layout == "hf":
            assert found == expected
    assert stated(tmp_path / "hf")["intermediate_size"] == 12
    assert [each.verdict for each in find_ranks(whole, "auto", ranks=[3])] == ["fits"]
    with pytest.raises(
        PlanError, match=r"is rank 2 of 3, not a complete model: pass the folder of all ranks"
    ):
        plan(tmp_path / "hf" / "rank-00002-of-00003", "auto", ranks=2)
    (whole / "rank.json").write_text("[]")  # another file of this name
    with pytest.raises(SplitError, match="two files would have the name"):
        plan(whole, "auto", ranks=3).run(tmp_path / "other", sync=False)
