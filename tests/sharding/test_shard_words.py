"""The words of transformers, the plans that its configurations declare, and the layout of serving engines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from sharding_helpers import contents, llama, save

from splitops.errors import PlanError
from splitops.sharding import merge, plan
from splitops.sharding.tables import find_declared_plan, read_table


def chunks(array: np.ndarray, ranks: int, axis: int) -> list[np.ndarray]:
    """What torch.chunk gives, with the empty ones that it leaves out."""
    size = -(-array.shape[axis] // ranks)
    return [
        np.take(array, range(r * size, min((r + 1) * size, array.shape[axis])), axis) for r in range(ranks)
    ]


def packed(array: np.ndarray, ranks: int, axis: int) -> list[np.ndarray]:
    """Each half of an axis cut for itself, and the halves of a rank joined."""
    halves = [chunks(half, ranks, axis) for half in np.split(array, 2, axis)]
    return [np.concatenate(pair, axis) for pair in zip(*halves, strict=True)]


def whole(array: np.ndarray, ranks: int, axis: int) -> list[np.ndarray]:
    return [array] * ranks


MEANING = {  # by word: what becomes of a weight, and of a bias
    **dict.fromkeys(("colwise", "colwise_rep", "colwise_gather_output"), ((chunks, -2), (chunks, -1))),
    **dict.fromkeys(("rowwise", "rowwise_rep", "rowwise_split_input"), ((chunks, -1), (whole, 0))),
    "embedding_rowwise": ((chunks, 0), (chunks, 0)),
    "embedding_colwise": ((chunks, 1), (whole, 0)),
    "packed_colwise": ((packed, -2), (chunks, -1)),
    "packed_rowwise": ((packed, -1), (whole, 0)),
    "grouped_gemm": ((chunks, 0), (chunks, 0)),
}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("word", read_table("tp_styles.toml"))
def test_a_word_cuts_as_transformers_does(tmp_path: Path, word: str, ranks: int) -> None:
    tensors = {
        "weight": np.arange(60, dtype=np.int32).reshape(10, 6),
        "experts": np.arange(5 * 6 * 4, dtype=np.int16).reshape(5, 6, 4),
        "bias": np.arange(10, dtype=np.float32),
    }
    source = save(tmp_path / "model", tensors)
    plan(source, {"version": 1, "rule": [{"match": "*", "hf": word}]}, ranks=ranks).run(tmp_path / "ranks")
    weight, bias = MEANING.get(word, ((whole, 0), (whole, 0)))
    for rank in range(ranks):
        found = load_file(tmp_path / "ranks" / f"rank-{rank:05}-of-{ranks:05}" / "model.safetensors")
        for name, array in tensors.items():
            cut, axis = bias if array.ndim == 1 else weight
            np.testing.assert_array_equal(found[name], cut(array, ranks, axis)[rank], strict=True)


def test_the_table_has_known_words_and_no_plan_twice() -> None:
    found = read_table("transformers.json")
    plans = found["plans"]
    assert len(plans) > 100
    assert {word for each in plans for word in each.values()} <= set(read_table("tp_styles.toml"))
    assert len({json.dumps(each) for each in plans}) == len(plans)
    assert {*found["architectures"].values(), *found["model_types"].values()} == set(range(len(plans)))


def test_plans_go_by_the_architecture_then_by_the_type() -> None:
    assert "lm_head.*" in find_declared_plan({"architectures": ["LlamaForCausalLM"], "model_type": "llama"})
    assert "lm_head.*" not in find_declared_plan({"architectures": ["LlamaModel"], "model_type": "llama"})
    other = {"architectures": ["LlamaForSequenceClassification"], "model_type": "llama"}
    assert find_declared_plan(other) == find_declared_plan({"model_type": "llama"})
    for config in ({}, {"model_type": "none"}, {"model_type": 3, "architectures": "LlamaModel"}):
        with pytest.raises(PlanError, match=r"no plan for .*: write one .*--plan"):
            find_declared_plan(config)


def config(**more: object) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 32,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        **more,
    }


def engine(
    tensors: dict[str, np.ndarray], rank: int, ranks: int, *, heads: int, kv: int
) -> dict[str, np.ndarray]:
    """The parameters of a rank of a serving engine, by the definitions of its layers.

    A fused projection of a rank has its query heads, then its key heads, then its value heads; heads of keys
    and values repeat where there are more ranks than heads. Merged columns are cut one by one, and joined.
    The vocabulary is padded to a multiple of 64.
    """

    def part(array: np.ndarray, axis: int, index: int, parts: int) -> np.ndarray:
        return np.split(array, parts, axis)[index]

    def vocabulary(array: np.ndarray) -> np.ndarray:
        padded = np.zeros((-(-len(array) // 64) * 64, array.shape[1]), array.dtype)
        padded[: len(array)] = array
        return part(padded, 0, rank, ranks)

    found = {}
    for name, array in tensors.items():
        before, _, leaf = name.rpartition(".weight")[0].rpartition(".")
        if leaf in ("embed_tokens", "lm_head"):
            found[name] = vocabulary(array)
        elif leaf == "q_proj":
            own = [part(array, 0, rank, ranks)]
            for other in ("k_proj", "v_proj"):
                groups = min(kv, ranks)
                own.append(part(tensors[f"{before}.{other}.weight"], 0, rank * groups // ranks, groups))
            found[f"{before}.qkv_proj.weight"] = np.concatenate(own)
        elif leaf == "gate_proj":
            both = (array, tensors[f"{before}.up_proj.weight"])
            found[f"{before}.gate_up_proj.weight"] = np.concatenate([part(a, 0, rank, ranks) for a in both])
        elif leaf in ("o_proj", "down_proj"):
            found[name] = part(array, 1, rank, ranks)
        elif leaf not in ("k_proj", "v_proj", "up_proj"):
            found[name] = array
    return found


def gated(layers: int = 2) -> dict[str, np.ndarray]:
    tensors = llama(layers)
    rng = np.random.default_rng(3)
    for layer in range(layers):
        tensors[f"model.layers.{layer}.mlp.gate_proj.weight"] = rng.normal(size=(48, 32)).astype(np.float32)
    return tensors


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_the_layout_of_serving_engines_joins_what_they_have_as_one(tmp_path: Path, ranks: int) -> None:
    source = save(tmp_path / "model", gated(), config(), shards=3)
    plan(source, "auto", ranks=ranks, layout="vllm").run(tmp_path / "ranks")
    for rank in range(ranks):
        found = load_file(tmp_path / "ranks" / f"model-rank-{rank}-part-0.safetensors")
        wanted = engine(gated(), rank, ranks, heads=8, kv=2)
        assert found.keys() == wanted.keys()
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array, strict=True)
    assert json.loads((tmp_path / "ranks" / "config.json").read_text()) == config()
    merge(tmp_path / "ranks").run(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(source)


def test_what_an_engine_has_fused_already_is_cut_in_its_sections(tmp_path: Path) -> None:
    rows = np.arange(48, dtype=np.int32)
    tensors = {
        "model.layers.0.self_attn.qkv_proj.weight": np.tile(rows[:, None], (1, 32)),
        "model.layers.0.mlp.gate_up_proj.weight": np.tile(np.arange(96, dtype=np.int32)[:, None], (1, 32)),
    }
    phi = config(architectures=["Phi3ForCausalLM"], model_type="phi3")
    source = save(tmp_path / "model", tensors, phi)
    plan(source, "auto", ranks=4, layout="vllm").run(tmp_path / "ranks")
    found = load_file(tmp_path / "ranks" / "model-rank-3-part-0.safetensors")
    qkv = found["model.layers.0.self_attn.qkv_proj.weight"][:, 0]
    # 8 heads of 4: rank 3 has 2 of the queries, and repeats the last of 2 heads of keys and of values
    assert qkv.tolist() == [*range(24, 32), *range(36, 40), *range(44, 48)]
    gate_up = found["model.layers.0.mlp.gate_up_proj.weight"][:, 0]
    assert gate_up.tolist() == [*range(36, 48), *range(84, 96)]
    # for transformers the same tensor is one contiguous cut
    plan(source, "auto", ranks=4).run(tmp_path / "hf")
    found = load_file(tmp_path / "hf" / "rank-00003-of-00004" / "model.safetensors")
    assert found["model.layers.0.self_attn.qkv_proj.weight"][:, 0].tolist() == [*range(36, 48)]


MIXED = {  # models with experts, some of whose layers are dense, by the name of those
    "deepseek_v2": ("DeepseekV2ForCausalLM", "mlp", {"first_k_dense_replace": 1}),
    "llama4_text": ("Llama4ForCausalLM", "feed_forward", {"interleave_moe_layer_step": 2}),
    "qwen2_moe": ("Qwen2MoeForCausalLM", "mlp", {"mlp_only_layers": [0]}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", "mlp", {"mlp_only_layers": [0]}),
    "qwen3_next": ("Qwen3NextForCausalLM", "mlp", {"mlp_only_layers": [0]}),
}


@pytest.mark.parametrize("kind", MIXED)
def test_dense_layers_of_models_with_experts_are_cut(tmp_path: Path, kind: str) -> None:
    architecture, leaf, more = MIXED[kind]
    name = f"model.layers.0.{leaf}"
    tensors = {
        f"{name}.gate_proj.weight": np.zeros((128, 64)),
        f"{name}.up_proj.weight": np.zeros((128, 64)),
        f"{name}.down_proj.weight": np.zeros((64, 128)),
    }
    source = save(tmp_path / "model", tensors, config(architectures=[architecture], model_type=kind, **more))
    made = plan(source, "auto", ranks=2)
    shapes = {
        tensor.name.split(".")[-2]: cut.shape(tensor.shape, 1)
        for tensor, cut in zip(made.placements.tensors, made.placements.cuts, strict=True)
    }
    assert shapes == {"gate_proj": (64, 64), "up_proj": (64, 64), "down_proj": (64, 64)}


def test_what_only_the_closing_rule_names_is_said(tmp_path: Path) -> None:
    tensors = llama(3) | {f"base.layers.{i}.lora_A.weight": np.zeros((4, 2)) for i in range(3)}
    source = save(tmp_path / "model", tensors, config())
    [said] = plan(source, "auto", ranks=2).warnings
    assert said == (
        'replicated on all ranks, since only the closing rule "*" matches: 3 x base.layers.*.lora_A.weight'
    )
    rules = [{"match": "*.o_proj.weight", "hf": "rowwise"}, {"match": ["*norm*", "*"], "replicate": True}]
    [said] = plan(source, {"version": 1, "rule": rules}, ranks=2).warnings
    assert "3 x model.layers.*.self_attn.q_proj.weight" in said
    assert "norm" not in said
    everything = {"version": 1, "rule": [{"match": "*", "axis": 0}]}
    assert plan(source, everything, ranks=2).warnings == ()


@pytest.mark.parametrize("layout", ["hf", "vllm"])
def test_names_that_no_rule_knows_are_rejected(tmp_path: Path, layout: str) -> None:
    tensors = {f"language_model.{name}": array for name, array in llama(1).items()}
    source = save(tmp_path / "model", tensors, config())
    with pytest.raises(
        PlanError, match=r"no tensor matches the plan for this type of model, which has names such as"
    ):
        plan(source, "auto", ranks=2, layout=layout)
    own = {"version": 1, "rule": [{"match": "model.*", "axis": 0}, {"match": "*", "replicate": True}]}
    with pytest.raises(PlanError, match=r'only the closing rule "\*" of the plan matches .*\'model\.\*\''):
        plan(source, own, ranks=2, layout=layout)


def test_a_word_of_a_tensor_that_is_no_module_is_for_it_alone(tmp_path: Path) -> None:
    name = "model.layers.0.self_attn.sinks"
    tensors = {name: np.arange(8, dtype=np.float32), f"{name}.weight": np.arange(8, dtype=np.float32)}
    granite = config(architectures=["GraniteSWAForCausalLM"], model_type="granite_swa")
    plan(save(tmp_path / "model", tensors, granite), "auto", ranks=2).run(tmp_path / "ranks")
    found = load_file(tmp_path / "ranks" / "rank-00001-of-00002" / "model.safetensors")
    assert found[name].tolist() == [4, 5, 6, 7]
    assert found[f"{name}.weight"].tolist() == list(range(8))


def test_tied_embeddings_and_the_router_have_the_names_that_vllm_saves(tmp_path: Path) -> None:
    layer = "model.layers.0.mlp"
    tensors = {
        "model.embed_tokens.weight": np.arange(128.0).reshape(64, 2),
        f"{layer}.gate.weight": np.arange(8.0).reshape(4, 2),
        f"{layer}.experts.0.gate_proj.weight": np.zeros((4, 2)),
        f"{layer}.experts.0.up_proj.weight": np.zeros((4, 2)),
        f"{layer}.experts.0.down_proj.weight": np.zeros((2, 4)),
        "model.layers.1.mlp.gate_proj.weight": np.zeros((4, 2)),
        "model.layers.1.mlp.up_proj.weight": np.zeros((4, 2)),
        "model.layers.1.mlp.down_proj.weight": np.zeros((2, 4)),
    }
    moe = config(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe")
    source = save(tmp_path / "model", tensors, moe | {"tie_word_embeddings": True})
    made = plan(source, "auto", ranks=2, layout="vllm")
    assert made.warnings == ()  # the router is whole by a rule
    made.run(tmp_path / "ranks")
    found = load_file(tmp_path / "ranks" / "model-rank-1-part-0.safetensors")
    assert {name: array.shape for name, array in found.items()} == {
        "lm_head.weight": (32, 2),
        f"{layer}.experts.gate.weight": (4, 2),
        f"{layer}.experts.routed_experts.w13_weight": (1, 4, 2),
        f"{layer}.experts.routed_experts.w2_weight": (1, 2, 2),
        "model.layers.1.mlp.gate_up_proj.weight": (4, 2),
        "model.layers.1.mlp.down_proj.weight": (2, 2),
    }
    assert found["lm_head.weight"].tolist() == tensors["model.embed_tokens.weight"][32:].tolist()
    merge(tmp_path / "ranks").run(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(source)
    untied = save(tmp_path / "untied", tensors, moe)
    with pytest.raises(
        PlanError, match=r"sets tie_word_embeddings = false, but the checkpoint has no lm_head"
    ):
        plan(untied, "auto", ranks=2, layout="vllm")


@pytest.mark.parametrize("place", [False, True])
def test_experts_are_stacked_for_engines(tmp_path: Path, place: bool) -> None:
    name = "model.layers.0.mlp.experts"
    tensors = {
        f"{name}.{e}.{leaf}.weight": np.full((4, 6) if leaf != "down_proj" else (6, 4), 10 * e + i, np.int32)
        for e in range(12)
        for i, leaf in enumerate(("gate_proj", "up_proj", "down_proj"))
    }
    moe = config(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe")
    source = save(tmp_path / "model", tensors, moe)
    placed = {"version": 1, "rule": [{"match": "*.experts.{e}.*", "place": "e"}]}
    plan(source, placed if place else "auto", ranks=2, layout="vllm").run(tmp_path / "ranks")
    found = load_file(tmp_path / "ranks" / "model-rank-1-part-0.safetensors")
    experts = range(6, 12) if place else range(12)
    rows = 4 if place else 2
    gates = np.stack([np.repeat([[10 * e], [10 * e + 1]], rows, 0) for e in experts])
    np.testing.assert_array_equal(found[f"{name}.routed_experts.w13_weight"], np.tile(gates, (1, 1, 6)))
    assert found[f"{name}.routed_experts.w2_weight"].shape == ((6, 6, 4) if place else (12, 6, 2))
    assert found[f"{name}.routed_experts.w2_weight"][:, 0, 0].tolist() == [10 * e + 2 for e in experts]
    merge(tmp_path / "ranks").run(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(source)


def test_parts_without_the_others_stay_alone(tmp_path: Path) -> None:
    tensors = {"a.q_proj.weight": np.zeros((4, 2)), "a.k_proj.weight": np.zeros((4, 2))}
    source = save(tmp_path / "model", tensors, config())
    rules = {"version": 1, "rule": [{"match": "*", "hf": "colwise"}]}
    plan(source, rules, ranks=2, layout="vllm").run(tmp_path / "ranks")
    assert load_file(tmp_path / "ranks" / "model-rank-0-part-0.safetensors").keys() == tensors.keys()


@pytest.mark.parametrize(
    ("more", "layout", "message"),
    [
        ({"num_attention_heads": 6, "head_dim": 4}, "vllm", r"q_proj.*inside of a unit of 4|q_proj.*divi"),
        (
            {"quantization_config": {"quant_method": "awq"}},
            "vllm",
            "layout vllm does not support quantised weights",
        ),
        (
            {"architectures": ["GPTNeoXForCausalLM"]},
            "vllm",
            r"layout vllm does not support architectures .*'GPTNeoXForCausalLM'.*It supports Llama"
            r".*as in vLLM 0\.33\.0",
        ),
        ({"architectures": None}, "vllm", "layout vllm does not support architectures None"),
        (
            {"num_attention_heads": 12, "head_dim": 2},
            "vllm",
            r"requires a rule for each tensor of rank 2 or more\. There is none for embed_out\.weight",
        ),
        (
            {"quantization_config": {"quant_method": "magic"}},
            "hf",
            "unsupported quant_method 'magic'",
        ),
    ],
)
def test_what_is_not_known_is_rejected(
    tmp_path: Path, more: dict[str, object], layout: str, message: str
) -> None:
    tensors = {
        "model.layers.0.self_attn.q_proj.weight": np.zeros((24, 32)),
        "embed_out.weight": np.zeros((8, 2)),
    }
    source = save(tmp_path / "model", tensors, config(**more))
    with pytest.raises(PlanError, match=message):
        plan(source, "auto", ranks=4, layout=layout)


def test_stacked_experts_must_be_alike(tmp_path: Path) -> None:
    name = "model.layers.0.mlp.experts.{}.{}_proj.weight"
    tensors = {
        name.format(expert, part): np.zeros((4 + expert, 2)) for expert in range(2) for part in ("gate", "up")
    }
    everything = {"version": 1, "rule": [{"match": "model.*", "replicate": True}]}
    with pytest.raises(PlanError, match=r"rank 0: .*experts\.1\.gate_proj.* but a part of .*w13_weight'"):
        plan(save(tmp_path / "model", tensors, config()), everything, ranks=2, layout="vllm").run(
            tmp_path / "out"
        )


def test_large_ranks_have_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splitops.sharding.layouts.vllm._LARGEST", 100)
    tensors = {name: np.arange(8.0) for name in "abc"}
    everything = {"version": 1, "rule": [{"match": "*", "replicate": True}]}
    source = save(tmp_path / "model", tensors, config())
    plan(source, everything, ranks=1, layout="vllm").run(tmp_path / "out")
    names = sorted(path.name for path in (tmp_path / "out").glob("*.safetensors"))
    assert names == [f"model-rank-0-part-{part}.safetensors" for part in range(3)]
    merge(tmp_path / "out").run(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(source)


def test_a_parameter_without_a_module_is_cut_by_its_own_word(tmp_path: Path) -> None:
    config = {"model_type": "granite_swa", "num_attention_heads": 8, "num_key_value_heads": 2}
    assert find_declared_plan(config)["model.layers.*.self_attn.sinks"] == "colwise"
    source = save(tmp_path / "model", {"model.layers.0.self_attn.sinks": np.arange(8.0)}, config)
    plan(source, "auto", ranks=2).run(tmp_path / "out")
    parts = [load_file(path) for path in sorted((tmp_path / "out").rglob("*.safetensors"))]
    assert [part["model.layers.0.self_attn.sinks"].tolist() for part in parts] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_sections_must_be_equal(tmp_path: Path) -> None:
    packed = {"version": 1, "rule": [{"match": "w", "hf": "packed_colwise"}]}
    with pytest.raises(PlanError, match="axis 0 of size 5 cannot be divided into 2 equal sections"):
        plan(save(tmp_path / "model", {"w": np.zeros((5, 2))}), packed, ranks=2)


def test_joined_tensors_must_fit(tmp_path: Path) -> None:
    tensors = {f"a.{leaf}_proj.weight": np.zeros((4, 2)) for leaf in "qk"} | {
        "a.v_proj.weight": np.zeros((4, 3))
    }
    source = save(tmp_path / "model", tensors, config())
    rules = {"version": 1, "rule": [{"match": "*", "hf": "colwise"}]}
    with pytest.raises(
        PlanError,
        match=r"rank 0: tensor 'a\.qkv_proj\.weight': parts of shapes .* differ outside axis 0",
    ):
        plan(source, rules, ranks=2, layout="vllm").dry_run(tmp_path / "ranks")


FUSED = "a.query_key_value.weight"


@pytest.mark.parametrize(
    ("name", "rule", "more", "ranks", "unit"),
    [
        (FUSED, {"hf": "colwise"}, {}, 4, None),
        (FUSED, {"hf": "colwise"}, {}, 3, 12),
        (FUSED, {"hf": "colwise"}, {"head_dim": 5}, 3, None),  # no axis of such heads
        (FUSED, {"hf": "colwise"}, {"num_attention_heads": None}, 3, None),  # nobody knows
        (FUSED, {"hf": "colwise"}, {"num_attention_heads": 0, "head_dim": 4}, 3, None),
        (FUSED, {"hf": "colwise_gather_output"}, {}, 3, None),
        (FUSED, {"replicate": True}, {}, 3, None),
        ("a.dense.weight", {"hf": "rowwise"}, {}, 3, 4),
        ("a.dense.bias", {"hf": "rowwise"}, {}, 3, None),
        ("a.k_proj.weight", {"hf": "colwise"}, {}, 4, 4),
        ("a.k_proj.weight", {"axis": 0, "unit": "head_dim", "replicate": True}, {}, 4, None),
        ("a.o_proj.qweight", {"axis": 0, "pack": 8}, {}, 4, None),
        ("a.o_proj.qweight", {"axis": 0, "pack": 2}, {"head_dim": 6}, 4, None),
        ("a.o_proj.qweight", {"axis": 0, "pack": 2}, {"head_dim": 6}, 6, 6),
    ],
)
def test_cuts_through_heads(
    tmp_path: Path, name: str, rule: dict[str, object], more: dict[str, object], ranks: int, unit: int | None
) -> None:
    shapes = {
        FUSED: (96, 32),
        "a.dense.weight": (32, 32),
        "a.dense.bias": (32,),
        "a.k_proj.weight": (8, 32),
        "a.o_proj.qweight": (24 if more else 4, 2),
    }
    source = save(tmp_path / "model", {name: np.zeros(shapes[name], np.int32)}, config(**more))
    warnings = plan(source, {"version": 1, "rule": [{"match": "a.*", **rule}]}, ranks=ranks).warnings
    if unit is None:
        assert warnings == ()
    else:
        [warning] = warnings
        assert f" over {ranks} ranks are " in warning
        assert f"but a head has {unit}. Use 1" in warning
