"""Ranks of other programs, without a manifest: what is merged is what was cut, or the numbers say why not."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from sharding_helpers import contents, save

from command_line import runner
from splitops import sharding
from splitops.cli import cli
from splitops.errors import PlanError, SplitError

Tensors = dict[str, np.ndarray]
Rule = tuple[str, int | None]
LAYER = "model.layers.0"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "vocab_size": 40,
}
SHAPES: dict[str, tuple[tuple[int, ...], int | None]] = {
    "model.embed_tokens.weight": ((40, 16), 0),
    f"{LAYER}.self_attn.q_proj.weight": ((32, 16), 0),
    f"{LAYER}.self_attn.k_proj.weight": ((8, 16), 0),
    f"{LAYER}.self_attn.k_proj.bias": ((8,), 0),
    f"{LAYER}.self_attn.v_proj.weight": ((8, 16), 0),
    f"{LAYER}.self_attn.o_proj.weight": ((16, 32), 1),
    f"{LAYER}.self_attn.o_proj.bias": ((16,), None),
    f"{LAYER}.mlp.gate_proj.weight": ((24, 16), 0),
    f"{LAYER}.mlp.up_proj.weight": ((24, 16), 0),
    f"{LAYER}.mlp.down_proj.weight": ((16, 24), 1),
    f"{LAYER}.input_layernorm.weight": ((16,), None),
    "model.norm.weight": ((16,), None),
    "lm_head.weight": ((40, 16), 0),
}


def numbers(shape: Sequence[int], seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


def llama() -> Tensors:
    return {name: numbers(shape, seed) for seed, (name, (shape, _)) in enumerate(SHAPES.items())}


def part_of(name: str, array: np.ndarray, axis: int | None, rank: int, ranks: int) -> np.ndarray:
    """Return the part of a rank as vLLM and Megatron-LM have it: whole heads of keys and values repeat."""
    if axis is None:
        return array
    if ("k_proj" in name or "v_proj" in name) and ranks > 2:
        head = rank // (ranks // 2)
        return array[4 * head : 4 * head + 4]
    return np.split(array, ranks, axis)[rank]


def parts(tensors: Tensors, ranks: int) -> list[Tensors]:
    return [
        {name: part_of(name, array, SHAPES[name][1], rank, ranks) for name, array in tensors.items()}
        for rank in range(ranks)
    ]


def write(path: Path, tensors: Tensors) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, path)


def as_folders(folder: Path, ranks: Sequence[Tensors]) -> None:
    for rank, tensors in enumerate(ranks):
        write(folder / f"mp_rank_{rank:02}" / "model_optim_rng.safetensors", tensors)


def as_two_files(folder: Path, ranks: Sequence[Tensors]) -> None:
    for rank, tensors in enumerate(ranks):
        for number in range(2):
            own = {name: tensors[name] for name in list(tensors)[number::2]}
            write(folder / f"mp_rank_{rank:02}" / f"model-{number}.safetensors", own)


def as_states(folder: Path, ranks: Sequence[Tensors]) -> None:
    for rank, tensors in enumerate(ranks):
        write(folder / f"mp_rank_{rank:02}_model_states.safetensors", tensors)


def as_pieces(folder: Path, ranks: Sequence[Tensors]) -> None:
    """The files that DeepSpeed's ``save_mp_checkpoint_path`` writes: tensors outside of layers are in one."""
    outside = ("model.norm.weight",)
    write(folder / "non-tp.safetensors", {name: ranks[0][name] for name in outside})
    for rank, tensors in enumerate(ranks):
        for number in range(3):
            names = [name for name in tensors if name not in outside][number::3]
            write(folder / f"tp_{rank:02}_{number:02}.safetensors", {name: tensors[name] for name in names})


def as_consolidated(folder: Path, ranks: Sequence[Tensors]) -> None:
    for rank, tensors in enumerate(ranks):
        write(folder / f"consolidated.{rank:02}.safetensors", tensors)


def as_ranks(folder: Path, ranks: Sequence[Tensors]) -> None:
    for rank, tensors in enumerate(ranks):
        write(folder / f"rank-{rank:05}-of-{len(ranks):05}" / "model.safetensors", tensors)


LAYOUTS = (as_folders, as_two_files, as_states, as_pieces, as_consolidated, as_ranks)


def foreign(
    folder: Path, ranks: Sequence[Tensors], config: Any = CONFIG, layout: Callable[..., None] = as_folders
) -> Path:
    layout(folder, ranks)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def merged(folder: Path, *plan: Any) -> Tensors:
    out = folder.with_name(f"{folder.name}-merged")
    sharding.merge(folder, *plan).run(out, sync=False)
    return {name: array for path in out.glob("*.safetensors") for name, array in load_file(path).items()}


def same(found: Tensors, wanted: Tensors) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_ranks_of_each_layout_are_merged_by_config(tmp_path: Path, layout, ranks: int) -> None:
    if layout is as_consolidated and ranks == 1:
        return  # a complete model
    whole = llama()
    folder = foreign(tmp_path / "ranks", parts(whole, ranks), layout=layout)
    same(merged(folder), whole)
    out = tmp_path / "ranks-merged"
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.safetensors"]
    assert (out / "config.json").read_text() == (folder / "config.json").read_text()


def test_heads_that_transformers_cuts_are_joined(tmp_path: Path) -> None:
    """Four ranks with half a head of keys each: what sums up to the configuration does not repeat."""
    whole = llama()
    cut = [
        {n: a if SHAPES[n][1] is None else np.split(a, 4, SHAPES[n][1])[rank] for n, a in whole.items()}
        for rank in range(4)
    ]
    same(merged(foreign(tmp_path / "ranks", cut)), whole)


def test_the_vocabulary_may_be_padded_whole_or_cut_along_the_other_axis(tmp_path: Path) -> None:
    whole = llama()
    cut = parts(whole, 2)
    for rank in range(2):  # as DeepSpeed: whole embeddings, a head along its inputs
        cut[rank]["model.embed_tokens.weight"] = whole["model.embed_tokens.weight"]
        cut[rank]["lm_head.weight"] = np.split(whole["lm_head.weight"], 2, 1)[rank]
    same(merged(foreign(tmp_path / "other", cut)), whole)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):  # as Megatron-LM: 40 rows to 64
        padded = np.concatenate([whole[name], numbers((24, 16))])
        for rank in range(2):
            cut[rank][name] = np.split(padded, 2)[rank]
    folder = foreign(tmp_path / "padded", cut)
    same(merged(folder), whole)
    said = sharding.merge(folder).checkpoint.warnings
    assert "tensor 'model.embed_tokens.weight': 24 padded rows are removed" in said
    rules = {"version": 1, "rule": [{"match": "*", "axis": 0}]}
    with pytest.raises(
        PlanError, match=r"sum to 64, but .* require .*40.*If the rest is padding, set pad_to = 64"
    ):
        sharding.merge(folder, rules)


MEGATRON = {
    "embedding.word_embeddings.weight": ((40, 16), 0),
    "decoder.layers.0.self_attention.linear_qkv.weight": ((48, 16), 0),
    "decoder.layers.0.self_attention.linear_qkv.bias": ((48,), 0),
    "decoder.layers.0.self_attention.linear_proj.weight": ((16, 32), 1),
    "decoder.layers.0.mlp.linear_fc1.weight": ((48, 16), 0),
    "decoder.layers.0.mlp.linear_fc1.bias": ((48,), 0),
    "decoder.layers.0.mlp.linear_fc2.weight": ((16, 24), 1),
    "decoder.final_layernorm.weight": ((16,), None),
    "output_layer.weight": ((40, 16), 0),
}
LEGACY = {
    "language_model.embedding.word_embeddings.weight": ((40, 16), 0),
    "language_model.encoder.layers.0.self_attention.query_key_value.weight": ((48, 16), 0),
    "language_model.encoder.layers.0.self_attention.dense.weight": ((16, 32), 1),
    "language_model.encoder.layers.0.mlp.dense_h_to_4h.weight": ((24, 16), 0),
    "language_model.encoder.layers.0.mlp.dense_h_to_4h.bias": ((24,), 0),
    "language_model.encoder.layers.0.mlp.dense_4h_to_h.weight": ((16, 24), 1),
    "language_model.encoder.layers.0.mlp.dense_4h_to_h.bias": ((16,), None),
}
META = {
    "tok_embeddings.weight": ((40, 16), 1),
    "layers.0.attention.wq.weight": ((16, 16), 0),
    "layers.0.attention.wk.weight": ((8, 16), 0),
    "layers.0.attention.wo.weight": ((16, 16), 1),
    "layers.0.feed_forward.w1.weight": ((24, 16), 0),
    "layers.0.feed_forward.w2.weight": ((16, 24), 1),
    "layers.0.feed_forward.w3.weight": ((24, 16), 0),
    "norm.weight": ((16,), None),
    "output.weight": ((40, 16), 0),
}


@pytest.mark.parametrize("config", [CONFIG, None])
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("shapes", [MEGATRON, LEGACY])
def test_names_of_megatron(tmp_path: Path, shapes, ranks: int, config) -> None:
    whole = {name: numbers(shape, seed) for seed, (name, (shape, _)) in enumerate(shapes.items())}
    cut: list[Tensors] = [{} for _ in range(ranks)]
    for name, array in whole.items():
        axis = shapes[name][1]
        for rank in range(ranks):
            if "linear_fc1" in name:  # gate and up of each rank
                both = [np.split(half, ranks)[rank] for half in np.split(array, 2)]
                cut[rank][name] = np.concatenate(both)
            else:
                cut[rank][name] = array if axis is None else np.split(array, ranks, axis)[rank]
    same(merged(foreign(tmp_path / "ranks", cut, config)), whole)


@pytest.mark.parametrize("axis", [0, 1])
def test_names_of_meta(tmp_path: Path, axis: int) -> None:
    """Embeddings were cut along their width until Llama 3, and along the vocabulary since then."""
    shapes = META | {"tok_embeddings.weight": ((40, 16), axis)}
    whole = {name: numbers(shape, seed) for seed, (name, (shape, _)) in enumerate(shapes.items())}
    cut = [
        {n: a if shapes[n][1] is None else np.split(a, 2, shapes[n][1])[rank] for n, a in whole.items()}
        for rank in range(2)
    ]
    folder = foreign(tmp_path / "ranks", cut, None, as_consolidated)
    params = {"dim": 16, "n_heads": 4, "n_kv_heads": 2, "vocab_size": -1, "norm_eps": 1e-5}
    (folder / "params.json").write_text(json.dumps(params))
    same(merged(folder), whole)
    assert (tmp_path / "ranks-merged" / "params.json").exists()


def experts(names: Sequence[str], inner: int) -> dict[str, tuple[int, ...]]:
    gate, up, down = names
    shapes: dict[str, tuple[int, ...]] = {}
    for expert in range(3):
        shapes |= {
            f"{expert}.{gate}": (inner, 16),
            f"{expert}.{up}": (inner, 16),
            f"{expert}.{down}": (16, inner),
        }
    return shapes


MIXTRAL = "block_sparse_moe"
ENGINE: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "dense": ("LlamaForCausalLM", {}),
    "tied": ("LlamaForCausalLM", {}),
    "fused": (
        "Phi3ForCausalLM",
        {
            f"{LAYER}.self_attn.qkv_proj.weight": (48, 16),
            f"{LAYER}.mlp.gate_up_proj.weight": (48, 16),
            f"{LAYER}.mlp.down_proj.weight": (16, 24),
            f"{LAYER}.self_attn.o_proj.weight": (16, 32),
        },
    ),
    "mixtral": (
        "MixtralForCausalLM",
        {f"{LAYER}.{MIXTRAL}.experts.{n}.weight": s for n, s in experts(("w1", "w3", "w2"), 24).items()}
        | {f"{LAYER}.{MIXTRAL}.gate.weight": (3, 16)},
    ),
    "qwen": (
        "Qwen3MoeForCausalLM",
        {
            f"{LAYER}.mlp.experts.{n}.weight": s
            for n, s in experts(("gate_proj", "up_proj", "down_proj"), 8).items()
        }
        | {f"{LAYER}.mlp.gate.weight": (3, 16)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("kind", ENGINE)
def test_ranks_of_vllm_get_the_names_of_the_checkpoint_back(tmp_path: Path, kind: str, ranks: int) -> None:
    """The layout ``vllm`` writes its names and bytes: see the tests of the layout."""
    architecture, more = ENGINE[kind]
    dense = {name: shape for name, (shape, _) in SHAPES.items() if not name.endswith("o_proj.bias")}
    shapes = (
        dense
        if kind in ("dense", "tied")
        else more
        | {
            name: shape
            for name, shape in dense.items()
            if ".mlp." not in name and (kind != "fused" or "attn" not in name)
        }
    )
    shapes = {name: shape for name, shape in shapes.items() if name != "lm_head.weight" or kind != "tied"}
    if kind in ("dense", "tied"):
        shapes |= {f"{LAYER}.self_attn.{n}_proj.bias": (8 if n == "v" else 32,) for n in "qv"}
    elif kind != "fused":
        del shapes[f"{LAYER}.self_attn.k_proj.bias"]
    whole = {name: numbers(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}
    known = CONFIG | {
        "architectures": [architecture],
        "tie_word_embeddings": kind == "tied",
        "moe_intermediate_size": 8,
    }
    model = save(tmp_path / "model", whole, known)
    sharding.plan(model, "auto", ranks=ranks, layout="vllm").run(tmp_path / "ranks", sync=False)
    (tmp_path / "ranks" / "manifest.json").unlink()
    shutil.rmtree(tmp_path / "ranks" / "source")
    same(merged(tmp_path / "ranks"), whole)
    sharding.plan(tmp_path / "ranks", ranks=2).run(tmp_path / "two", sync=False)
    sharding.plan(model, "auto", ranks=2, layout="vllm").run(tmp_path / "wanted", sync=False)
    assert contents(tmp_path / "two", but=("manifest.json",)) == contents(
        tmp_path / "wanted", but=("manifest.json",)
    )


# Plans of one's own ---------------------------------------------------------------------------------------


@st.composite
def cut_models(draw: st.DrawFn) -> tuple[Tensors, list[Tensors], dict[str, Any]]:
    """Tensors of random sizes, cut by NumPy along any axis into parts of any sizes, and the plan of it."""
    ranks = draw(st.integers(1, 4))
    whole: Tensors = {}
    cut: list[Tensors] = [{} for _ in range(ranks)]
    rules: list[dict[str, Any]] = []
    for index in range(draw(st.integers(1, 4))):
        name, kind = f"t{index}", draw(st.sampled_from(["axis", "whole", "sections", "heads", "padded"]))
        if kind == "axis":
            sizes = draw(st.lists(st.integers(0, 3), min_size=ranks, max_size=ranks))
            axis = draw(st.integers(0, 2))
            shape = draw(st.lists(st.integers(1, 3), min_size=3, max_size=3))
            shape[axis] = sum(sizes)
            own = np.split(numbers(shape, index), np.cumsum(sizes)[:-1], axis)
            whole[name] = np.concatenate(own, axis)
            rules.append({"match": name, "axis": axis - 3 * draw(st.booleans()), "even": False})
        elif kind == "whole":
            whole[name] = numbers(draw(st.lists(st.integers(0, 3), max_size=3)), index)
            own = [whole[name]] * ranks
            rules.append({"match": name, "replicate": True})
        elif kind == "sections":
            each = draw(st.lists(st.integers(1, 2), min_size=1, max_size=3))
            pieces = [numbers((2, ranks * n), index) for n in each]
            whole[name] = np.concatenate(pieces, 1)
            own = [np.concatenate([np.split(p, ranks, 1)[rank] for p in pieces], 1) for rank in range(ranks)]
            rules.append({"match": name, "axis": 1, "sections": [ranks * n for n in each]})
        elif kind == "heads":
            heads = draw(st.sampled_from([n for n in range(1, ranks + 1) if ranks % n == 0]))
            whole[name] = numbers((2 * heads, 3), index)
            own = [np.split(whole[name], heads)[rank * heads // ranks] for rank in range(ranks)]
            sections = {"sections": [2 * heads], "unit": 2, "replicate": True}
            rules.append({"match": name, "axis": 0, **sections})
        else:
            name = f"t{index}.lm_head.weight"
            whole[name] = numbers((7, 2), index)
            own = np.split(np.concatenate([whole[name], numbers((ranks * 8 - 7, 2), 9)]), ranks)
            rules.append({"match": name, "axis": 0, "pad_to": 8})
        for rank, array in enumerate(own):
            cut[rank][name] = array
    return whole, cut, {"version": 1, "rule": rules}


@given(cut_models(), st.sampled_from(LAYOUTS[:3]), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_any_cut_of_a_plan_is_merged_and_cut_anew(tmp_path_factory, made, layout, ranks) -> None:
    whole, cut, rules = made
    home = tmp_path_factory.mktemp("any")
    folder = foreign(home / "ranks", cut, {"vocab_size": 7}, layout)
    same(merged(folder, rules), whole)
    again = {"version": 1, "rule": [{"match": "*", "replicate": True}]}
    sharding.plan(home / "ranks-merged", again, ranks=ranks).run(home / "two", sync=False)
    sharding.merge(home / "two").run(home / "three", sync=False)
    assert contents(home / "three") == contents(home / "ranks-merged")


def test_experts_that_are_placed_are_on_the_ranks_that_have_them(tmp_path: Path) -> None:
    whole = {f"experts.{e}.w": numbers((2, 3), e) for e in range(3)} | {"norm": numbers((3,))}
    cut = [{"experts.0.w": whole["experts.0.w"]}, {f"experts.{e}.w": whole[f"experts.{e}.w"] for e in (1, 2)}]
    for each in cut:
        each["norm"] = whole["norm"]
    rules = {
        "version": 1,
        "rule": [{"match": "experts.{e}.*", "place": "e"}, {"match": "*", "replicate": True}],
    }
    same(merged(foreign(tmp_path / "ranks", cut, None), rules), whole)


def test_reshard_is_merge_and_shard(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "ranks", parts(llama(), 2))
    merged(folder)
    for layout in ("hf", "dcp"):
        sharding.plan(folder, ranks=4, layout=layout).run(tmp_path / f"{layout}-one", sync=False)
        merged_first = sharding.plan(tmp_path / "ranks-merged", ranks=4, layout=layout)
        merged_first.run(tmp_path / f"{layout}-two", sync=False)
        left = ("manifest.json", "rank.json")
        assert contents(tmp_path / f"{layout}-one", but=left) == contents(
            tmp_path / f"{layout}-two", but=left
        )
    sharding.plan(folder, ranks=3, pad_for=3).run(tmp_path / "padded", sync=False)
    assert sharding.rank(tmp_path / "padded", 2)["lm_head.weight"].shape == (14, 16)


# What does not add up -------------------------------------------------------------------------------------


def without(name: str, rank: int = 1) -> Callable[[list[Tensors]], None]:
    def change(cut: list[Tensors]) -> None:
        del cut[rank][name]

    return change


def other(
    name: str, make: Callable[[np.ndarray], np.ndarray], rank: int = 1
) -> Callable[[list[Tensors]], None]:
    def change(cut: list[Tensors]) -> None:
        cut[rank][name] = make(cut[rank][name])

    return change


def every(name: str, make: Callable[[np.ndarray], np.ndarray]) -> Callable[[list[Tensors]], None]:
    def change(cut: list[Tensors]) -> None:
        for each in cut:
            each[name] = make(each[name])

    return change


UP, Q, K = (
    f"{LAYER}.mlp.up_proj.weight",
    f"{LAYER}.self_attn.q_proj.weight",
    f"{LAYER}.self_attn.k_proj.weight",
)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (without(UP), r"'model.layers.0.mlp.up_proj.weight', rule 7 .*: it is missing on rank 1"),
        (without(UP, 0), "it is missing on rank 0"),
        (other("model.norm.weight", lambda a: a + 1), "copies in .*mp_rank_00.* and .*mp_rank_01.* differ"),
        (other("model.norm.weight", lambda a: a[:8]), r"F32 \[16\] does not fit F32 \[8\] on rank 1"),
        (other(UP, lambda a: a[:, :8]), r"F32 \[6, 16\] does not fit F32 \[6, 8\] on rank 1"),
        (other(UP, lambda a: a.astype(np.float16)), r"F32 \[6, 16\] does not fit F16 \[6, 16\] on rank 1"),
        (
            other(UP, lambda a: a[:3]),
            r"the sizes \[6, 3, 6, 6\] of the ranks along axis 0 sum to 21, but the plan and",
        ),
        (
            every(Q, lambda a: a[:6]),
            r"the sizes \[6, 6, 6, 6\] of the ranks along axis 0 sum to 24, but .* \[32\]",
        ),
        (
            every(K, lambda a: a[:3]),
            r"the sizes \[3, 3, 3, 3\] of the ranks along axis 0 sum to 12, but .* \[8\]",
        ),
        (other(K, lambda a: a + 1), "k_proj.weight': the copies in"),
        (
            every("lm_head.weight", lambda a: a[:9]),
            r"\[9, 9, 9, 9\] of the ranks along axis 0 sum to 36, but .* \[40\]",
        ),
    ],
)
def test_what_does_not_add_up_is_said_with_numbers(tmp_path: Path, change, says: str) -> None:
    cut = parts(llama(), 4)
    change(cut)
    folder = foreign(tmp_path / "ranks", cut)
    with pytest.raises(SplitError, match=says) as found:
        sharding.merge(folder).run(tmp_path / "out", sync=False)
    assert "\n" not in str(found.value)
    assert not (tmp_path / "out").exists()


def test_ranks_that_are_missing_or_twice(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "ranks", parts(llama(), 4))
    shutil.rmtree(folder / "mp_rank_01")
    with pytest.raises(PlanError, match=r"has only the ranks \[0, 2, 3\] of 4"):
        sharding.merge(folder)
    (folder / "mp_rank_03" / "model_optim_rng.safetensors").rename(tmp_path / "x.safetensors")
    with pytest.raises(PlanError, match=r"has only the ranks \[0, 2\] of 4"):  # the folder is still there
        sharding.merge(folder)
    (folder / "mp_rank_02").rename(tmp_path / "mp_rank_02")
    (folder / "mp_rank_02").symlink_to(tmp_path / "mp_rank_02", target_is_directory=True)
    with pytest.raises(PlanError, match=r"mp_rank_02' is a symbolic link"):
        sharding.merge(folder)
    other_folder = foreign(tmp_path / "twice", parts(llama(), 2))
    shutil.copy(
        other_folder / "mp_rank_01" / "model_optim_rng.safetensors",
        other_folder / "mp_rank_01" / "b.safetensors",
    )
    with pytest.raises(PlanError, match="appears twice on rank 1, again in"):
        sharding.merge(other_folder)
    (tmp_path / "many" / "mp_rank_999999").mkdir(parents=True)
    write(tmp_path / "many" / "mp_rank_999999" / "x.safetensors", {"a": numbers((2,))})
    with pytest.raises(PlanError, match=r"has files of 1000000 ranks; the limit is 65536"):
        sharding.merge(tmp_path / "many")


def test_repeated_heads_need_a_configuration(tmp_path: Path) -> None:
    cut = parts({K: numbers((8, 16))}, 4)
    rules = {"version": 1, "rule": [{"match": "*", "axis": 0, "unit": 4, "replicate": True}]}
    folder = foreign(tmp_path / "ranks", cut, {"head_dim": 4})
    with pytest.raises(
        PlanError, match=r"it is unknown whether ranks of sizes \[4, 4, 4, 4\] repeat units: set sections"
    ):
        sharding.merge(folder, rules)
    rules["rule"][0]["sections"] = [8]
    same(merged(folder, rules), {K: numbers((8, 16))})


@pytest.mark.parametrize("left_out", ["head_dim", "num_key_value_heads", "num_attention_heads"])
@pytest.mark.parametrize("value", [None, 10**30, -1, "4", [4]])
def test_a_configuration_without_heads_never_doubles_them(tmp_path: Path, left_out: str, value: Any) -> None:
    folder = foreign(tmp_path / "ranks", parts(llama(), 4), CONFIG | {left_out: value, "hidden_size": None})
    with contextlib.suppress(SplitError):
        same(merged(folder), llama())


def test_a_model_or_other_ranks_are_read_as_before(tmp_path: Path) -> None:
    model = save(tmp_path / "model", llama(), CONFIG)
    write(model / "consolidated.00.safetensors", {"a": numbers((2,))})
    write(model / "consolidated.01.safetensors", {"a": numbers((2,))})
    with pytest.raises(PlanError, match="is not a folder of ranks"):
        sharding.merge(model)
    sharding.plan(model, "auto", ranks=2).run(tmp_path / "ranks", sync=False)
    with pytest.raises(PlanError, match="plan works only for ranks without a manifest"):
        sharding.merge(tmp_path / "ranks", "auto")
    (tmp_path / "pickled" / "mp_rank_00").mkdir(parents=True)
    (tmp_path / "pickled" / "mp_rank_00" / "model_optim_rng.pt").write_bytes(b"\x80")
    with pytest.raises(
        PlanError,
        match=r"'mp_rank_00/model_optim_rng.pt' is a pickle.*\"mp_rank_00/model_optim_rng.safetensors\"",
    ):
        sharding.merge(tmp_path / "pickled")


def run(*words: object, code: int = 0) -> str:
    done = runner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def test_the_commands(tmp_path: Path) -> None:
    whole = {name: array for name, array in llama().items() if "attn" not in name}
    folder = foreign(tmp_path / "ranks", parts(whole, 2))
    (folder / "stray.safetensors").write_bytes(
        (folder / "mp_rank_00/model_optim_rng.safetensors").read_bytes()
    )
    said = json.loads(run("merge", folder, "--out", tmp_path / "x", "--dry-run", "--json"))
    assert not (tmp_path / "x").exists()
    assert "'stray.safetensors' is left out" in said["warnings"][0]
    assert "stray.safetensors" in run("merge", folder, "--out", tmp_path / "x", "--strict", code=1)
    run("merge", folder, "--out", tmp_path / "whole", "--verify", "--plan", "auto")
    same(load_file(tmp_path / "whole" / "model.safetensors"), whole)
    rules = tmp_path / "plan.toml"
    rules.write_text(
        'version = 1\n[[rule]]\nmatch = "*.down_proj.weight"\naxis = 1\n'
        '[[rule]]\nmatch = "*norm*"\nreplicate = true\n[[rule]]\nmatch = "*"\naxis = 0\n'
    )
    run("merge", folder, "--plan", rules, "--out", tmp_path / "again")
    same(load_file(tmp_path / "again" / "model.safetensors"), whole)
    run("reshard", folder, "--plan", rules, "--ranks", 4, "--out", tmp_path / "four")
    run("merge", tmp_path / "four", "--out", tmp_path / "third")
    same(load_file(tmp_path / "third" / "model.safetensors"), whole)
    assert (
        "No such file" in run("merge", folder, "--plan", tmp_path / "none", "--out", tmp_path / "x", code=2)
        or True
    )
    one = folder / "mp_rank_00" / "model_optim_rng.safetensors"
    message = run("merge", one, one, "--plan", "auto", "--out", tmp_path / "x", code=2)
    assert "--plan can be used only with a folder of ranks" in message


# Sizes that config.json implies, and what is missing on all ranks ---------------------------------------


def megatron(ranks: int, vocabulary: int = 40) -> list[Tensors]:
    """Return ranks with names of Megatron-LM, whose embeddings have ``vocabulary`` rows."""
    cut: list[Tensors] = [{} for _ in range(ranks)]
    for seed, (name, (shape, axis)) in enumerate(MEGATRON.items()):
        array = numbers((vocabulary, *shape[1:]) if shape[0] == 40 else shape, seed)
        for rank in range(ranks):
            cut[rank][name] = array if axis is None else np.split(array, ranks, axis)[rank]
    return cut


@pytest.mark.parametrize("prefix", ["", "language_model.", "module."])
@pytest.mark.parametrize("planned", [False, True])
def test_padding_of_untied_output_embeddings_is_removed(tmp_path: Path, prefix: str, planned: bool) -> None:
    cut = [{f"{prefix}{name}": array for name, array in each.items()} for each in megatron(2, 64)]
    folder = foreign(tmp_path / "ranks", cut)
    globs = ["*word_embeddings.weight", "*output_layer.weight"]
    rules: list[dict[str, Any]] = [
        {"match": globs, "axis": 0, "pad_to": 64},
        {"match": "*.linear_fc1.*", "axis": 0, "sections": [24, 24]},
        {"match": "*.linear_qkv.*", "axis": 0},
        {"match": ["*.linear_proj.weight", "*.linear_fc2.weight"], "axis": 1},
        {"match": "*", "replicate": True},
    ]
    plan = ({"version": 1, "rule": rules},) if planned else ()
    found = merged(folder, *plan)
    said = sharding.merge(folder, *plan).checkpoint.warnings
    for name in ("embedding.word_embeddings.weight", "output_layer.weight"):
        assert found[prefix + name].shape == (40, 16)
        assert f"tensor '{prefix}{name}': 24 padded rows are removed" in said


def test_padding_of_an_unknown_vocabulary_is_not_silent(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "ranks", megatron(2, 64), None)
    said = "\n".join(sharding.merge(folder).checkpoint.warnings)
    assert "'output_layer.weight': any padding remains, as config.json has no vocab_size" in said
    rules = {"version": 1, "rule": [{"match": "*", "axis": 0, "pad_to": 64}]}
    with pytest.raises(
        PlanError, match=r"whether the size \d+ includes padding: set sections in the plan, or the size in"
    ):
        sharding.merge(folder, rules)


SIZES = {
    "embedding.word_embeddings.weight": lambda a: a[:, :8],
    "decoder.layers.0.self_attention.linear_qkv.weight": lambda a: a[:8],
    "decoder.layers.0.self_attention.linear_qkv.bias": lambda a: np.concatenate([a, a]),
    "decoder.layers.0.self_attention.linear_proj.weight": lambda a: a[:, :12],
    "decoder.layers.0.mlp.linear_fc1.weight": lambda a: a[:20],
    "decoder.layers.0.mlp.linear_fc2.weight": lambda a: a[:, :8],
    "decoder.final_layernorm.weight": lambda a: a[:8],
}


@pytest.mark.parametrize("name", SIZES)
def test_each_size_of_megatron_is_that_of_the_configuration(tmp_path: Path, name: str) -> None:
    cut = megatron(2)
    for each in cut:
        each[name] = SIZES[name](each[name])
    with pytest.raises(PlanError, match=r"config.json require|as the columns of") as found:
        sharding.merge(foreign(tmp_path / "ranks", cut))
    assert name.removesuffix(".weight") in str(found.value) or "linear_fc1" in str(found.value)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        (f"{LAYER}.mlp.down_proj.weight", lambda a: a[:, :8]),  # 16 in total: the hidden size
        (f"{LAYER}.self_attn.o_proj.weight", lambda a: np.concatenate([a, a, a], 1)),
        (f"{LAYER}.self_attn.q_proj.weight", lambda a: np.concatenate([a, a, a])),
        (f"{LAYER}.self_attn.k_proj.weight", lambda a: a[:, :8]),
        (f"{LAYER}.input_layernorm.weight", lambda a: a[:8]),
        ("model.norm.weight", lambda a: a[:8]),
        ("lm_head.weight", lambda a: a[:, :12]),
    ],
)
def test_each_size_of_a_decoder_is_that_of_the_configuration(tmp_path: Path, name: str, make) -> None:
    cut = parts(llama(), 2)
    for each in cut:
        each[name] = make(each[name])
    with pytest.raises(PlanError, match=r"config.json requires? .*\["):
        sharding.merge(foreign(tmp_path / "ranks", cut))
    rules = {"version": 1, "rule": [{"match": "*", "replicate": True}]}
    same_on_all = [cut[0], cut[0]]
    folder = foreign(tmp_path / "planned", same_on_all)
    said = "\n".join(sharding.merge(folder, rules).checkpoint.warnings)
    assert f"tensor '{name}': axis" in said
    with pytest.raises(PlanError, match=r"config.json requires .*Leave out --strict"):
        sharding.merge(folder, rules, strict=True)


@pytest.mark.parametrize("name", ["up_proj", "down_proj"])
def test_the_size_of_experts_is_theirs(tmp_path: Path, name: str) -> None:
    config = CONFIG | {"model_type": "qwen3_moe", "moe_intermediate_size": 8}
    whole = llama() | {
        f"{LAYER}.mlp.experts.{n}.weight": numbers(shape)
        for n, shape in experts(("gate_proj", "up_proj", "down_proj"), 8).items()
    }
    whole = {name: array for name, array in whole.items() if "bias" not in name}
    same(merged(foreign(tmp_path / "ranks", [whole], config)), whole)
    key = f"{LAYER}.mlp.experts.1.{name}.weight"
    whole[key] = numbers((16, 24) if name == "down_proj" else (24, 16))
    with pytest.raises(PlanError, match=rf"experts.1.{name}.weight.*config.json requires? \[8\]"):
        sharding.merge(foreign(tmp_path / "other", [whole], config))


def test_a_fused_gate_of_queries_is_known_by_the_configuration(tmp_path: Path) -> None:
    whole = llama() | {Q: numbers((64, 16))}
    folder = foreign(tmp_path / "ranks", parts(whole, 2), CONFIG | {"attn_output_gate": True})
    same(merged(folder), whole)


def test_unequal_parts_are_rejected_unless_the_plan_has_them(tmp_path: Path) -> None:
    whole = {name: numbers(shape, seed) for seed, (name, (shape, _)) in enumerate(META.items())}
    cut = [
        {n: a if META[n][1] is None else np.split(a, 2, META[n][1])[rank] for n, a in whole.items()}
        for rank in range(2)
    ]
    name = "layers.0.feed_forward.w2.weight"
    cut[1][name] = cut[1][name][:, :9]
    folder = foreign(tmp_path / "ranks", cut, None, as_consolidated)
    (folder / "params.json").write_text(json.dumps({"dim": 16, "n_heads": 4, "n_kv_heads": 2}))
    with pytest.raises(PlanError, match=r"unequal sizes \[12, 9\] along axis 1 .* even = false"):
        sharding.merge(folder)
    short = foreign(tmp_path / "short", [{"x": numbers((3,))}, {"x": numbers((1,))}], None)
    rules: dict[str, Any] = {"version": 1, "rule": [{"match": "x", "axis": 0}]}
    with pytest.raises(PlanError, match=r"unequal sizes \[3, 1\]"):
        sharding.merge(short, rules)
    rules["rule"][0]["even"] = False
    assert merged(short, rules)["x"].shape == (4,)
    chunks = foreign(tmp_path / "chunks", [{"x": numbers((3,))}, {"x": numbers((2,))}], None)
    del rules["rule"][0]["even"]
    assert merged(chunks, rules)["x"].shape == (5,)  # as the rule cuts 5
    rules["rule"][0]["even"] = True
    with pytest.raises(PlanError, match=r"unequal sizes \[3, 2\]"):
        sharding.merge(chunks, rules)


def test_projections_that_do_not_fit_each_other_are_rejected_without_a_configuration(tmp_path: Path) -> None:
    cut = megatron(2)
    for each in cut:
        name = "decoder.layers.0.mlp.linear_fc1.weight"
        each[name.replace(".0.", ".1.")] = each[name][:12]
        each[name.replace(".0.", ".1.").replace("fc1", "fc2")] = each[name.replace("fc1", "fc2")]
    with pytest.raises(PlanError, match=r"layers.1.mlp.linear_fc1.weight' of rank 0 has 12 rows, not 2 x 12"):
        sharding.merge(foreign(tmp_path / "ranks", cut, None))


def as_engine(folder: Path, ranks: Sequence[Tensors]) -> None:
    for rank, tensors in enumerate(ranks):
        for number in range(3):
            own = {name: tensors[name] for name in list(tensors)[number::3]}
            write(folder / f"model-rank-{rank}-part-{number}.safetensors", own)


@pytest.mark.parametrize("gap", [0, 1])
@pytest.mark.parametrize(
    ("layout", "name"), [(as_engine, "model-rank-{}-part-{}"), (as_pieces, "tp_{:02}_{:02}")]
)
def test_gaps_in_the_numbers_of_files_are_rejected(tmp_path: Path, layout, name: str, gap: int) -> None:
    folder = foreign(tmp_path / "ranks", parts(llama(), 2), layout=layout)
    for rank in range(2):
        (folder / f"{name.format(rank, gap)}.safetensors").unlink()
    with pytest.raises(PlanError, match=rf"of rank 0: file {gap} is missing"):
        sharding.merge(folder)


@pytest.mark.parametrize("lost", ["non-tp.safetensors", "tp_*_02.safetensors"])
def test_files_that_are_missing_on_all_ranks_are_noticed(tmp_path: Path, lost: str) -> None:
    folder = foreign(tmp_path / "ranks", parts(llama(), 2), layout=as_pieces)
    for path in folder.glob(lost):
        path.unlink()
    with pytest.raises(PlanError, match=r"lacks|no embeddings|no final norm") as found:
        sharding.merge(folder)
    assert "missing on all ranks" in str(found.value)


def test_tensors_in_the_file_of_all_ranks_are_complete_even_if_a_rule_shards_them(tmp_path: Path) -> None:
    whole = numbers((4, 2))
    for rank in range(2):
        write(tmp_path / "ranks" / f"tp_{rank:02}_00.safetensors", {"a": whole[2 * rank :][:2]})
    write(tmp_path / "ranks" / "non-tp.safetensors", {"b": whole + 100, "c": whole[:2]})
    sharding.merge(tmp_path / "ranks", {"version": 1, "rule": [{"match": "*", "axis": 0}]}).run(
        tmp_path / "merged", sync=False
    )
    found = load_file(tmp_path / "merged" / "model.safetensors")
    for name, array in {"a": whole, "b": whole + 100, "c": whole[:2]}.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    ("lost", "says"),
    [
        ("layers.1.mlp", "layer 1 of 'model.layers' lacks 'mlp.down_proj.weight', which other layers have"),
        ("k_proj", "layer 0 of 'model.layers' lacks 'self_attn.k_proj', although it has 'self_attn.q_proj'"),
        ("layers.1.", "layer 1 of 2 of 'model.layers' has no tensors"),
        ("embed_tokens", "there are layers, but no embeddings"),
        ("model.norm", "there are layers, but no final norm"),
    ],
)
def test_tensors_that_are_missing_on_all_ranks_are_noticed(tmp_path: Path, lost: str, says: str) -> None:
    cut = parts(llama(), 2)
    for each in cut:
        each |= {name.replace(".0.", ".1."): array for name, array in each.items() if ".0." in name}
    complete = foreign(tmp_path / "complete", cut, CONFIG | {"num_hidden_layers": 2})
    assert sharding.merge(complete, strict=True).checkpoint.warnings == ()
    cut = [{name: array for name, array in each.items() if lost not in name} for each in cut]
    folder = foreign(tmp_path / "ranks", cut, CONFIG | {"num_hidden_layers": 2})
    assert says in sharding.merge(folder).checkpoint.warnings
    with pytest.raises(PlanError, match="Leave out --strict"):
        sharding.merge(folder, strict=True)


def test_rules_that_match_nothing_and_the_glob_of_a_tensor_are_named(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "ranks", [{"a": numbers((2,)), "b": numbers((2,))}] * 2, None)
    rules: list[dict[str, Any]] = [{"match": ["a", "b"], "axis": 0}, {"match": "c", "axis": 0}]
    found = sharding.merge(folder, {"version": 1, "rule": [*rules, {"match": "*", "replicate": True}]})
    assert found.checkpoint.warnings == ("rule 2 ('c') matches no tensor",)
    rules[0]["axis"] = 1
    folder = foreign(tmp_path / "other", [{"b": numbers((2,))}] * 2, None)
    with pytest.raises(PlanError, match=r"tensor 'b', rule 1 \('b'\): axis 1"):
        sharding.merge(folder, {"version": 1, "rule": rules})


def test_padding_is_not_the_advice_for_what_is_too_small(tmp_path: Path) -> None:
    cut = parts(llama(), 4)[:3]
    with pytest.raises(PlanError, match=r"sum to 30, but .*40\]$"):
        sharding.merge(
            foreign(tmp_path / "ranks", [{"lm_head.weight": each["lm_head.weight"]} for each in cut])
        )


@pytest.mark.parametrize("command", ["merge", "reshard"])
def test_a_folder_is_not_named_like_a_file(tmp_path: Path, command: str) -> None:
    folder = foreign(tmp_path / "ranks", parts(llama(), 2))
    more = ("--ranks", 2) if command == "reshard" else ()
    said = run(command, folder, *more, "--out", tmp_path / "one.safetensors", code=2)
    assert "is a file name" in said.replace("\n", " ")
    assert not (tmp_path / "one.safetensors").exists()


# Fused tensors, which each program cuts in its own way -----------------------------------------------------


def cut_fused(array: np.ndarray, sections: Sequence[int], ranks: int) -> list[np.ndarray]:
    """Return the parts of ranks that have a part of each section."""
    found = [np.split(each, ranks) for each in np.split(array, np.cumsum(sections)[:-1])]
    return [np.concatenate([each[rank] for each in found]) for rank in range(ranks)]


def cut_groups(array: np.ndarray, ranks: int, groups: int = 2, keys: int = 8) -> list[np.ndarray]:
    """Return the parts of ranks that repeat the keys and values of each group of fused heads."""
    found = []
    for group in np.split(array, groups):
        found += [np.concatenate([own, group[-keys:]]) for own in np.split(group[:-keys], ranks // groups)]
    return found


@pytest.mark.parametrize("name", ["decoder.layers.0.self_attention.linear_qkv", "query_key_value"])
def test_groups_of_heads_are_not_divided_by_reshard(tmp_path: Path, name: str) -> None:
    shapes = MEGATRON if "linear" in name else LEGACY
    whole = {name: numbers(shape, seed) for seed, (name, (shape, _)) in enumerate(shapes.items())}
    cut: list[Tensors] = [{} for _ in range(2)]
    for key, array in whole.items():
        axis = shapes[key][1]
        halves = [24, 24] if "linear_fc1" in key else [len(array)] if array.ndim else []
        for rank in range(2):
            own = cut_fused(array, halves, 2) if axis == 0 else np.split(array, 2, axis or 0)
            cut[rank][key] = array if axis is None else own[rank]
    folder = foreign(tmp_path / "ranks", cut)
    sharding.plan(folder, ranks=2).run(tmp_path / "two", sync=False)
    with pytest.raises(
        PlanError, match=r"4 ranks would split 48 elements at 12, .* 24: use \[1, 2\] ranks"
    ) as found:
        sharding.plan(folder, ranks=4)
    assert name in str(found.value)
    assert [each.ranks for each in sharding.find_ranks(folder, ranks=range(1, 9)) if each.works] == [1, 2]
    own = {"version": 1, "rule": [{"match": "*qkv.weight", "axis": 0}, {"match": "*", "replicate": True}]}
    (folder / "config.json").unlink()
    assert sharding.merge(folder).checkpoint.warnings[0].startswith("there is no config.json: the sizes of")
    with pytest.raises(PlanError, match="'num_attention_heads' is neither in the plan's vars nor in config"):
        sharding.plan(folder, ranks=2)
    if "linear" in name:  # a plan of one's own may divide groups, as megatron-core can
        qkv = {f"{name}.weight": whole[f"{name}.weight"]}
        four = [{f"{name}.weight": part} for part in np.split(qkv[f"{name}.weight"], 4)]
        for config in (CONFIG, None):
            same(merged(foreign(tmp_path / f"four-{config is None}", four, config), own), qkv)


@pytest.mark.parametrize("ranks", [4, 8])
def test_copies_of_keys_in_fused_heads_are_compared(tmp_path: Path, ranks: int) -> None:
    whole = {name: numbers(shape, seed) for seed, (name, (shape, _)) in enumerate(MEGATRON.items())}
    cut: list[Tensors] = [{} for _ in range(ranks)]
    for name, array in whole.items():
        axis = MEGATRON[name][1]
        own = [array] * ranks if axis is None else np.split(array, ranks, axis)
        if "linear_qkv" in name:
            own = cut_groups(array, ranks)
        elif "linear_fc1" in name:
            own = cut_fused(array, [24, 24], ranks)
        for rank in range(ranks):
            cut[rank][name] = own[rank]
    same(merged(foreign(tmp_path / "ranks", cut)), whole)
    name = "decoder.layers.0.self_attention.linear_qkv.weight"
    cut[1][name] = cut[1][name] + np.eye(len(cut[1][name]), 16, dtype=np.float32)[::-1]  # the last key
    with pytest.raises(SplitError, match=r"linear_qkv.weight': the copies in .*_00.* and .*_01.* differ"):
        sharding.merge(foreign(tmp_path / "other", cut))
    cut = [each | {name: each[name][:9]} for each in cut]
    with pytest.raises(PlanError, match=rf"sizes \[9, 9, .* sum to {9 * ranks}, but .* require \[48\]"):
        sharding.merge(foreign(tmp_path / "short", cut))


PHI = {
    "model.embed_tokens.weight": ((40, 16), 0),
    f"{LAYER}.self_attn.qkv_proj.weight": ((48, 16), 0),
    f"{LAYER}.self_attn.o_proj.weight": ((16, 32), 1),
    f"{LAYER}.mlp.gate_up_proj.weight": ((48, 16), 0),
    f"{LAYER}.mlp.down_proj.weight": ((16, 24), 1),
    "model.norm.weight": ((16,), None),
    "lm_head.weight": ((40, 16), 0),
}
SECTIONS = {"qkv_proj": [32, 8, 8], "gate_up_proj": [24, 24]}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fused_tensors_of_transformers_are_merged_if_their_cut_is_known(tmp_path: Path, layout) -> None:
    """AutoTP cuts each section of Phi-3's, transformers the whole, and other programs may do either."""
    whole = {name: numbers(shape, seed) for seed, (name, (shape, _)) in enumerate(PHI.items())}
    cut: list[Tensors] = [{} for _ in range(2)]
    for name, array in whole.items():
        axis, part = PHI[name][1], next((part for part in SECTIONS if part in name), None)
        own = [array] * 2 if axis is None else np.split(array, 2, axis)
        if part is not None and layout is as_pieces:
            own = cut_fused(array, SECTIONS[part], 2)
        for rank in range(2):
            cut[rank][name] = own[rank]
    config = CONFIG | {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3"}
    folder = foreign(tmp_path / "ranks", cut, config, layout)
    if layout in (as_pieces, as_ranks):
        same(merged(folder), whole)
        if layout is as_pieces:
            with pytest.raises(PlanError, match=r"4 ranks would split 8 .* unit of 4: use \[1, 2\] ranks"):
                sharding.plan(folder, ranks=4)
        return
    with pytest.raises(PlanError, match=r"weight' is fused: \[24, 16\] on rank 0 may .* \(--plan FILE\)"):
        sharding.merge(folder)


def test_experts_of_several_sizes_and_their_biases(tmp_path: Path) -> None:
    """Megatron-LM's experts, one by one and grouped, with shared ones, beside a dense layer."""
    config = CONFIG | {"moe_intermediate_size": 8, "shared_expert_intermediate_size": 12}
    inner = {
        "0.mlp": 24,
        "1.mlp.experts.local_experts.0": 8,
        "1.mlp.experts.local_experts.1": 8,
        "1.mlp.shared_experts": 12,
    }
    whole, cut = {}, [{}, {}]

    def add(name: str, array: np.ndarray, own: Sequence[np.ndarray]) -> None:
        whole[name] = array
        for rank in range(2):
            cut[rank][name] = own[rank]

    for module, size in inner.items():
        for leaf, shape in (("weight", (2 * size, 16)), ("bias", (2 * size,))):
            array = numbers(shape, len(whole))
            add(f"decoder.layers.{module}.linear_fc1.{leaf}", array, cut_fused(array, [size, size], 2))
        array = numbers((16, size), len(whole))
        add(f"decoder.layers.{module}.linear_fc2.weight", array, np.split(array, 2, 1))
    for expert in range(2):
        one, two = numbers((16, 16), expert + 90), numbers((16, 8), expert + 95)
        add(f"decoder.layers.2.mlp.experts.linear_fc1.weight{expert}", one, cut_fused(one, [8, 8], 2))
        add(f"decoder.layers.2.mlp.experts.linear_fc2.weight{expert}", two, np.split(two, 2, 1))
    same(merged(foreign(tmp_path / "ranks", cut, config)), whole)
    key = "decoder.layers.1.mlp.experts.local_experts.0.linear_fc"
    for each in cut:
        each[f"{key}1.weight"], each[f"{key}2.weight"] = numbers((20, 16)), numbers((16, 10))
        each[f"{key}1.bias"] = numbers((20,))
    with pytest.raises(PlanError, match=r"local_experts.0.linear_fc1.bias'.*config.json requires? \[8, 16\]"):
        sharding.merge(foreign(tmp_path / "other", cut, config))


def test_heads_that_other_programs_fuse_are_not_joined_as_those_of_megatron(tmp_path: Path) -> None:
    """SwissArmyTransformer has all queries of a rank first, under names like those of Megatron-LM."""
    names = {"attention.query_key_value": (96, 0), "attention.dense": (32, 1), "mlp.dense_h_to_4h": (24, 0)}
    cut: list[Tensors] = [{} for _ in range(2)]
    for rank in range(2):
        for name, (size, axis) in names.items():
            shape = (size // 2, 16) if axis == 0 else (16, size // 2)
            cut[rank][f"transformer.layers.0.{name}.weight"] = numbers(shape, rank)
        cut[rank]["transformer.layers.0.mlp.dense_4h_to_h.weight"] = numbers((16, 12), rank)
    with pytest.raises(PlanError, match=r"query_key_value.weight': the copies in .* differ"):
        sharding.merge(foreign(tmp_path / "ranks", cut, None))


@pytest.mark.parametrize("config", [CONFIG, None])
def test_tensors_that_are_the_same_on_all_ranks_are_not_joined(tmp_path: Path, config) -> None:
    cut = megatron(2)
    for each in cut:
        each["decoder.layers.0.mlp.experts.linear_fc1.weight0"] = numbers((16, 16))
        each["decoder.layers.0.mlp.experts.linear_fc2.weight0"] = numbers((16, 8))
    with pytest.raises(PlanError, match=r"fc1.weight0' is the same on ranks 0 and 1, .* \(--plan FILE\)"):
        sharding.merge(foreign(tmp_path / "ranks", cut, config))
    for each in cut:  # parts without values say nothing
        each["decoder.layers.0.mlp.experts.linear_fc1.weight0"] = np.ones((16, 16), np.float32)
        each["decoder.layers.0.mlp.experts.linear_fc2.weight0"] = np.zeros((16, 8), np.float32)
    assert len(merged(foreign(tmp_path / "other", cut, config))) == len(cut[0])


# Folders as strangers have them ---------------------------------------------------------------------------


def test_the_number_of_ranks_in_the_names_of_folders_counts(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "ranks", parts(llama(), 4), layout=as_ranks)
    shutil.rmtree(folder / "rank-00003-of-00004")
    rules = {"version": 1, "rule": [{"match": "*", "axis": 0}]}
    for plan in ((), (rules,)):
        with pytest.raises(PlanError, match=r"has only the ranks \[0, 1, 2\] of 4"):
            sharding.merge(folder, *plan)


@pytest.mark.parametrize(
    "name",
    [
        "mp_rank_00_000/model_optim_rng.safetensors",
        "mp_rank_01_000_003/model_optim_rng.pt",
        "zero_pp_rank_0_mp_rank_00_model_states.safetensors",
    ],
)
def test_other_kinds_of_parallelism_are_named(tmp_path: Path, name: str) -> None:
    write(tmp_path / "ranks" / name, {"a": numbers((2,))})
    with pytest.raises(PlanError, match="pipeline parallelism, expert parallelism or ZeRO-3"):
        sharding.merge(tmp_path / "ranks")


def test_optimizer_states_beside_the_ranks_are_left_out(tmp_path: Path) -> None:
    whole = llama()
    folder = foreign(tmp_path / "ranks", parts(whole, 2))
    for rank in range(2):
        write(folder / f"mp_rank_{rank:02}" / "distrib_optim.safetensors", {"step": numbers((3,), rank)})
    same(merged(folder), whole)
    said = "\n".join(sharding.merge(folder).checkpoint.warnings)
    assert "only the model's files are copied from the folder 'mp_rank_00'" in said
    states = foreign(tmp_path / "states", parts(whole, 2), layout=as_states)
    write(states / "zero_pp_rank_0_mp_rank_00_optim_states.safetensors", {"step": numbers((3,))})
    same(merged(states), whole)
    assert "optim_states.safetensors' is left out" in sharding.merge(states).checkpoint.warnings[0]


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "steps" / "iter_0000010", parts(llama(), 2), None)
    with pytest.raises(PlanError, match=r"no plan without config.json: copy it there, or write a plan"):
        sharding.merge(folder)
    (tmp_path / "steps" / "latest_checkpointed_iteration.txt").write_text("10")
    with pytest.raises(
        PlanError, match=r"is not a folder of ranks. The ranks are in its folder 'iter_0000010'"
    ):
        sharding.merge(tmp_path / "steps")
