"""Fused tensors taken apart and put together: against NumPy, byte by byte, and what does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from sharding_helpers import contents, save

from command_line import runner
from splitops.cli import cli
from splitops.errors import PlanError
from splitops.sharding import fuse, unfuse
from splitops.sharding import plan as shard

CONFIG = {"model_type": "llama", "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2}
INDEX = "model.safetensors.index.json"
QKV = {"fused": "*.qkv.{leaf}", "parts": ["*.q.{leaf}", "*.k.{leaf}", "*.v.{leaf}"]}


def run(*arguments: object, code: int = 0) -> str:
    done = runner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return str(done.stdout + done.stderr)


def numbered(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def rule(**more: Any) -> dict[str, Any]:
    return {"version": 1, "rule": [QKV | more]}


def parts_of(tmp_path: Path, tensors: dict[str, np.ndarray], plan: dict[str, Any]) -> dict[str, np.ndarray]:
    """Unfuse a checkpoint, and fuse it to the same bytes; return the parts."""
    model = save(tmp_path / "model", tensors, CONFIG)
    unfuse(model, plan).run(tmp_path / "parts", sync=False, verify=True)
    fuse(tmp_path / "parts", plan).run(tmp_path / "again", sync=False)
    assert contents(tmp_path / "again") == contents(model)
    return load_file(tmp_path / "parts" / "model.safetensors")


def test_sections_of_queries_keys_and_values(tmp_path: Path) -> None:
    sections = ["num_attention_heads * head_dim", "num_key_value_heads * head_dim"]
    whole = numbered(32, 16)
    found = parts_of(
        tmp_path, {"a.qkv.weight": whole, "a.qkv.bias": numbered(32)}, rule(sections=[*sections, sections[1]])
    )
    for name, part in zip("qkv", np.split(whole, [16, 24]), strict=True):
        np.testing.assert_array_equal(found[f"a.{name}.weight"], part)
    assert [found[f"a.{name}.bias"].shape for name in "qkv"] == [(16,), (8,), (8,)]


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
@pytest.mark.parametrize("axis", [0, 1])
def test_groups_interleaved_along_any_axis(tmp_path: Path, axis: int, dtype: Any) -> None:
    """Three heads of queries and one of keys and values a group, four groups: Falcon's form."""
    whole = np.ascontiguousarray(np.moveaxis(numbered(40, 6, dtype=dtype), 0, axis))
    plan = rule(sections=[24, 8, 8], groups=4, axis=axis)
    found = parts_of(tmp_path, {"a.qkv.weight": whole}, plan)
    heads = np.moveaxis(whole, axis, 0).reshape(4, 5, 2, 6)
    for name, held in (("q", heads[:, :3]), ("k", heads[:, 3:4]), ("v", heads[:, 4:])):
        np.testing.assert_array_equal(np.moveaxis(found[f"a.{name}.weight"], axis, 0), held.reshape(-1, 6))


@pytest.mark.parametrize("groups", [1, 4])
def test_stacked_experts_transposed_and_interleaved(tmp_path: Path, groups: int) -> None:
    whole, bias = numbered(3, 6, 8), numbered(3, 8)
    parts = [f"*.experts.{{e}}.{each}_proj" for each in ("gate", "up")]
    same = {"stack": True, "groups": groups}
    rules = [
        {"fused": "*.gate_up", "parts": [f"{each}.weight" for each in parts], "transpose": True, **same},
        {"fused": "*.gate_up_bias", "parts": [f"{each}.bias" for each in parts], **same},
    ]
    found = parts_of(tmp_path, {"m.gate_up": whole, "m.gate_up_bias": bias}, {"version": 1, "rule": rules})
    for expert in range(3):
        for number, name in enumerate(("gate", "up")):
            at = slice(number, None, 2) if groups == 4 else slice(4 * number, 4 * number + 4)
            name = f"m.experts.{expert}.{name}_proj"
            np.testing.assert_array_equal(found[f"{name}.weight"], whole[expert].T[at])
            np.testing.assert_array_equal(found[f"{name}.bias"], bias[expert][at])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_transposed_parts_lie_along_any_axis(tmp_path: Path, axis: int) -> None:
    whole = numbered(6, 12, 9)
    found = parts_of(tmp_path, {"a.qkv.w": whole}, rule(transpose=True, axis=axis, groups=1))
    for name, part in zip("qkv", np.split(whole.swapaxes(1, 2), 3, axis), strict=True):
        np.testing.assert_array_equal(found[f"a.{name}.w"], part)


@pytest.mark.parametrize("experts", [None, 2])
def test_a_scalar_of_the_whole_belongs_to_each_part(tmp_path: Path, experts: int | None) -> None:
    """As the scale of a quantised weight: copied, and one again where all are equal."""
    parts = [f"*.{{e}}.{each}.{{leaf}}" if experts else f"*.{each}.{{leaf}}" for each in "qkv"]
    plan = rule(parts=parts, stack=experts is not None)
    scales = np.arange(2.0, 4.0) if experts else np.array(2.0)
    found = parts_of(tmp_path, {"a.qkv.scale": scales}, plan)
    assert {name: float(value) for name, value in found.items()} == {
        f"a.{f'{expert}.' if experts else ''}{each}.scale": 2.0 + expert
        for expert in range(experts or 1)
        for each in "qkv"
    }
    first = next(iter(found))
    model = save(tmp_path / "other", found | {first: np.array(7.0)}, CONFIG)
    with pytest.raises(PlanError, match=r"the copies in .* differ"):
        fuse(model, plan)


def test_what_is_renamed_and_what_stays(tmp_path: Path) -> None:
    plan = {"version": 1, "rule": [{"fused": "model.*.w", "parts": ["*.weight"]}]}
    found = parts_of(
        tmp_path, {"model.a.b.w": numbered(3), "other": numbered(2, 2), "model.c.w": np.zeros(0)}, plan
    )
    assert sorted(found) == ["a.b.weight", "c.weight", "other"]


def test_files_of_a_checkpoint_their_index_and_ranks(tmp_path: Path) -> None:
    """Each tensor stays in its file; what the index says besides stays; ranks are unfused as their whole."""
    layers = {f"model.layers.{i}.self_attn.qkv_proj.weight": numbered(32, 16) + i for i in range(4)}
    model = save(tmp_path / "model", layers | {"model.norm.weight": numbered(16)}, CONFIG, 2)
    index = json.loads((model / INDEX).read_text())
    index["metadata"]["total_parameters"] = 2064
    (model / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
    said = run("unfuse", model, "--out", tmp_path / "parts")
    assert "*.self_attn.qkv_proj.{leaf}: 4 to 12 tensors\n" in said
    found = json.loads((tmp_path / "parts" / INDEX).read_text())
    assert found["metadata"] == index["metadata"]
    for name, file in found["weight_map"].items():
        assert name in load_file(tmp_path / "parts" / file)
    run("fuse", tmp_path / "parts", "--out", tmp_path / "again", "--verify")
    assert contents(tmp_path / "again") == contents(model)
    shard(model, {"version": 1, "rule": [{"match": "*", "axis": 0}]}, ranks=3).run(
        tmp_path / "ranks", sync=False
    )
    run("unfuse", tmp_path / "ranks", "--out", tmp_path / "other")
    assert contents(tmp_path / "other") == contents(tmp_path / "parts")


def test_a_file_without_tensors_is_left_out_and_the_total_of_the_index_is_right(tmp_path: Path) -> None:
    """All tensors of the second file become parts in the first one, and equal scalars become one."""
    plan = {"version": 1, "rule": [{"fused": "*.qk.{leaf}", "parts": ["*.q.{leaf}", "*.k.{leaf}"]}]}
    weights = {f"a.{part}.weight": numbered(2, 3) for part in "qk"}
    scales = {f"a.{part}.scale": np.full((), 5, np.float32) for part in "qk"}
    model = save(tmp_path / "model", weights | scales, CONFIG, 2)
    fuse(model, plan).run(tmp_path / "fused", sync=False)
    unfuse(tmp_path / "fused", plan).run(tmp_path / "parts", sync=False)
    for folder in (tmp_path / "fused", tmp_path / "parts"):
        every = {"version": 1, "rule": [{"match": "*", "replicate": True}]}
        found = shard(folder, every, ranks=1, strict=True)
        assert [file.name for file in found.checkpoint.files] == ["model-00001-of-00002.safetensors"]
        assert not [each for each in found.checkpoint.warnings if "total_size" in each]


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    model = save(tmp_path / "model", {"model.layers.0.self_attn.qkv_proj.weight": numbered(32, 16)}, CONFIG)
    arguments = ["unfuse", model, "--out", tmp_path / "out", "--dry-run"]
    assert "nothing is written" in run(*arguments)
    found = json.loads(run(*arguments, "--json"))
    assert found["rules"] == [{"fused": "*.self_attn.qkv_proj.{leaf}", "from": 1, "to": 3}]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("plan", "make_plan", "tensors", "says"),
    [
        (rule(sections=[16, 8, 4]), unfuse, {"a.qkv.w": (32, 16)}, "sum to 28, but the axis has size 32"),
        (rule(), unfuse, {"a.qkv.w": (32, 16)}, "an axis of size 32 cannot be divided into 3 equal parts"),
        (rule(groups=4), unfuse, {"a.qkv.w": (30, 4)}, "cannot be divided into 4 equal groups"),
        (rule(axis=2), unfuse, {"a.qkv.w": (30, 4)}, "has too few axes"),
        (rule(sections=["heads"]), unfuse, {"a.qkv.w": (3,)}, "rule 1 has 1 section for 3 parts"),
        (rule(sections=["heads", 1, 1]), unfuse, {"a.qkv.w": (3,)}, "name 'heads' is neither"),
        (rule(transpose=True, axis=1), unfuse, {"a.qkv.w": (4, 3)}, "size 4 cannot be divided into 3"),
        (rule(), unfuse, {"a.b.w": (3,)}, "matches the plan, which has names such as '*.qkv.{leaf}'"),
        (rule(), unfuse, {"a.qkv.w": (3,), "a.q.w": (1,)}, "2 tensors would have the name 'a.q.w'"),
        (rule(fused="a.?kv.w", parts=["a.?.w"]), unfuse, {"a.qkv.w": (3,)}, "has a ?: use"),
        (rule(parts=["*.q.w"]), unfuse, {"a.qkv.w": (3,)}, "must have each of *, {leaf} once"),
        (rule(stack=True), unfuse, {"a.qkv.w": (3,)}, "must have each of *, {e}, {leaf} once"),
        ({"version": 2, "rule": []}, unfuse, {"a": (3,)}, "version"),
        ({"version": 1, "rule": []}, unfuse, {"a": (3,)}, "has no rule"),
        (rule(), fuse, {"a.q.w": (2,), "a.v.w": (2,)}, "part 'a.k.w' is missing"),
        (rule(), fuse, {"a.q.w": (2,), "a.k.w": (2,), "a.v.w": (2, 2)}, "have no common axis 0"),
        (rule(), fuse, {"a.q.w": (2, 3), "a.k.w": (2, 4), "a.v.w": (2, 4)}, "differ outside axis 0"),
        (rule(), fuse, {"a.q.w": (2, 3), "a.k.w": (1, 3), "a.v.w": (3, 3)}, "has to be F32 [2, 3]"),
        ("auto", fuse, {"model.mlp.up_proj.weight": (2, 2)}, "part 'model.mlp.gate_proj.weight' is missing"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_error(
    tmp_path: Path, plan: Any, make_plan: Any, tensors: dict[str, tuple[int, ...]], says: str
) -> None:
    model = save(tmp_path / "model", {name: numbered(*shape) for name, shape in tensors.items()}, CONFIG)
    with pytest.raises(PlanError) as found:
        make_plan(model, plan)
    assert says in str(found.value)
    assert "\n" not in str(found.value)


def test_numbers_of_experts_that_lie(tmp_path: Path) -> None:
    plan = {"version": 1, "rule": [{"fused": "*.up", "parts": ["*.{e}.up"], "stack": True}]}
    for names, says in (
        (("0", "2"), "part 'a.1.up' is missing"),
        (("0", "999999999"), "part 'a.1.up' is missing"),
        (("0", "01"), "'01', not the number of an expert"),
        (("9" * 5000,), "9', not the number of an expert"),
    ):
        model = save(tmp_path / names[-1][:9] / "m", {f"a.{name}.up": numbered(2) for name in names})
        with pytest.raises(PlanError, match=says):
            fuse(model, plan)
    model = save(tmp_path / "m", {"a.0.up": numbered(2), "a.1.up": numbered(2).astype(np.int32)})
    with pytest.raises(PlanError, match=r"is I32 .*has to be F32"):
        fuse(model, plan)
    model = save(tmp_path / "many", {"a.up": np.broadcast_to(np.float32(0), (1 << 40, 0))})
    with pytest.raises(PlanError, match="more than 1048576 entries to unfuse"):
        unfuse(model, plan)


def test_models_that_are_not_known(tmp_path: Path) -> None:
    for config, says in (
        ({"model_type": "mamba"}, "no rules for fused tensors of model_type 'mamba'"),
        ({"model_type": "falcon"}, "with this configuration"),
        (
            {"model_type": "llama", "quantization_config": {}},
            "no rules for the scales of quant_method None",
        ),
    ):
        model = save(tmp_path / "model", {"a": numbered(2)}, config)
        assert says in run("unfuse", model, "--out", tmp_path / "out", code=1)
    assert "does not exist" in run("unfuse", model, "--plan", "no.toml", "--out", tmp_path / "out", code=2)


def test_what_is_fused_already(tmp_path: Path) -> None:
    model = save(tmp_path / "model", {"model.layers.0.self_attn.qkv_proj.weight": numbered(32, 16)}, CONFIG)
    assert "it is already fused" in run("fuse", model, "--out", tmp_path / "a", code=1)
    run("unfuse", model, "--out", tmp_path / "apart")
    said = run("unfuse", tmp_path / "apart", "--out", tmp_path / "b", code=1)
    assert "it is already unfused" in said
