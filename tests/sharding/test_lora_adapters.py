"""LoRA adapters, fused and unfused as their base model: the sums W + scale * B A are the same."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from command_line import runner
from splitops.cli import cli
from splitops.errors import PlanError
from splitops.sharding import fuse, unfuse

BASE = {"model_type": "llama", "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2}
ROWS = {"q_proj": 16, "k_proj": 8, "v_proj": 8}
PREFIX = "base_model.model."
RNG = np.random.default_rng(4)


def run(*arguments: object, code: int = 0) -> str:
    done = runner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return str(done.stdout + done.stderr)


def adapter(
    path: Path, modules: dict[str, tuple[int, int, int]], *, dtype: Any = np.float32, **config: Any
) -> Path:
    """Write an adapter whose modules have outputs, inputs and a rank."""
    tensors = {}
    for name, (outputs, inputs, rank) in modules.items():
        tensors[f"{PREFIX}{name}.lora_A.weight"] = RNG.standard_normal((rank, inputs)).astype(dtype)
        tensors[f"{PREFIX}{name}.lora_B.weight"] = RNG.standard_normal((outputs, rank)).astype(dtype)
    return write(path, tensors, **config)


def write(path: Path, tensors: dict[str, np.ndarray], **config: Any) -> Path:
    path.mkdir(parents=True)
    save_file(tensors, path / "adapter_model.safetensors", {"format": "pt"})
    ends = ".lora_A.weight"
    ranks = {
        n.removeprefix(PREFIX).removesuffix(ends): len(a) for n, a in tensors.items() if n.endswith(ends)
    }
    said = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "bias": "none"}
    said["rank_pattern"] = {name: rank for name, rank in ranks.items() if rank != config.get("r", 4)}
    (path / "adapter_config.json").write_text(json.dumps(said | config, indent=2, sort_keys=True))
    return path


def deltas(path: Path) -> dict[str, np.ndarray]:
    """Return scale * B A of each module, by the rules of PEFT."""
    config = json.loads((path / "adapter_config.json").read_text())
    tensors = load_file(path / "adapter_model.safetensors")
    found = {}
    for name in tensors:
        if not name.endswith(".lora_A.weight"):
            continue
        module = name.removeprefix(PREFIX).removesuffix(".lora_A.weight")
        rank, alpha = (
            next(
                (v for key, v in config.get(pattern, {}).items() if re.match(rf"(.*\.)?({key})$", module)),
                default,
            )
            for pattern, default in (("rank_pattern", config["r"]), ("alpha_pattern", config["lora_alpha"]))
        )
        a, b = tensors[name], tensors[f"{PREFIX}{module}.lora_B.weight"]
        assert a.shape[0] == b.shape[1] == rank, module
        targets = config["target_modules"]
        assert any(f".{module}".endswith(f".{target}") for target in targets), (module, targets)
        scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
        found[module] = scale * b.astype(np.float64) @ a.astype(np.float64)
    return found


def base(path: Path, **config: Any) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(BASE | config))
    return path


ATTENTION = "model.layers.{}.self_attn.{}"


def test_an_adapter_of_a_fused_module_is_unfused_and_fused_again(tmp_path: Path) -> None:
    modules = {ATTENTION.format(i, "qkv_proj"): (32, 16, 4) for i in range(2)}
    modules |= {"model.layers.0.mlp.down_proj": (16, 24, 4)}
    fused = adapter(tmp_path / "a", modules, target_modules=["down_proj", "qkv_proj"], dtype=np.float16)
    model = base(tmp_path / "base")
    said = run("unfuse", fused, "--base", model, "--out", tmp_path / "b", "--verify")
    assert "*.self_attn.qkv_proj.{leaf}: 4 to 12 tensors" in said
    before, after = deltas(fused), deltas(tmp_path / "b")
    for i in range(2):
        parts = [after.pop(ATTENTION.format(i, name)) for name in ROWS]
        assert [len(part) for part in parts] == [16, 8, 8]
        np.testing.assert_array_equal(np.concatenate(parts), before.pop(ATTENTION.format(i, "qkv_proj")))
    np.testing.assert_array_equal(before.pop("model.layers.0.mlp.down_proj"), after.popitem()[1])
    assert not before
    assert not after
    config = json.loads((tmp_path / "b" / "adapter_config.json").read_text())
    assert config["target_modules"] == ["down_proj", "k_proj", "q_proj", "v_proj"]
    assert (config["r"], config["lora_alpha"], config["rank_pattern"]) == (4, 8, {})
    run("fuse", tmp_path / "b", "--base", model, "--out", tmp_path / "c")
    again = json.loads((tmp_path / "c" / "adapter_config.json").read_text())
    assert again == json.loads((fused / "adapter_config.json").read_text()) | {
        "rank_pattern": {},
        "alpha_pattern": {},
    }
    assert (tmp_path / "c" / "adapter_model.safetensors").read_bytes() == (
        fused / "adapter_model.safetensors"
    ).read_bytes()


@settings(deadline=None, max_examples=40)
@given(
    ranks=st.lists(st.integers(1, 5), min_size=3, max_size=3),
    there=st.lists(st.booleans(), min_size=3, max_size=3).filter(any),
    rslora=st.booleans(),
    groups=st.sampled_from([1, 2]),
    inputs=st.integers(1, 6),
    targets=st.sampled_from([r"x\..*", ["x.q_proj"], ["q_proj", "k_proj", "v_proj", "o_proj"]]),
)
def test_parts_with_ranks_of_their_own_are_fused(
    tmp_path_factory: pytest.TempPathFactory,
    ranks: list[int],
    there: list[bool],
    rslora: bool,
    groups: int,
    inputs: int,
    targets: Any,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    names = [name for name, has in zip(ROWS, there, strict=True) if has]
    held = dict(zip(ROWS, [ranks[0] ** 2 if rslora else rank for rank in ranks], strict=True))
    scale = {name: 3 * (math.isqrt(rank) if rslora else rank) for name, rank in held.items()}
    path = adapter(
        folder / "a",
        {f"x.{name}": (ROWS[name], inputs, held[name]) for name in names} | {"x.o_proj": (8, 8, 2)},
        r=2,
        lora_alpha=5,
        use_rslora=rslora,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
        rank_pattern={name: held[name] for name in names},
        alpha_pattern={name: scale[name] for name in names},
    )
    before = deltas(path)
    change_config(path, target_modules=targets)
    rule = {
        "fused": "*.qkv.{leaf}",
        "parts": [f"*.{name}.{{leaf}}" for name in ROWS],
        "sections": list(ROWS.values()),
        "groups": groups,
    }
    fuse(path, {"version": 1, "rule": [rule]}).run(folder / "b", verify=True)
    after = deltas(folder / "b")
    np.testing.assert_allclose(after["x.o_proj"], before["x.o_proj"])
    wanted = []
    for group in range(groups):
        for name, rows in ROWS.items():
            part = before.get(f"x.{name}", np.zeros((rows, inputs)))
            wanted.append(part.reshape(groups, rows // groups, inputs)[group])
    np.testing.assert_allclose(after["x.qkv"], np.concatenate(wanted), rtol=1e-6, atol=1e-6)
    assert set(after) == {"x.qkv", "x.o_proj"}
    total = sum(held[name] for name in names)
    tensors = load_file(folder / "b" / "adapter_model.safetensors")
    assert tensors[f"{PREFIX}x.qkv.lora_A.weight"].shape == (total, inputs)

    unfuse(folder / "b", {"version": 1, "rule": [rule]}).run(folder / "c", verify=True)
    parts = deltas(folder / "c")
    for name, rows in ROWS.items():
        part = before.get(f"x.{name}", np.zeros((rows, inputs)))
        np.testing.assert_allclose(parts[f"x.{name}"], part, rtol=1e-6, atol=1e-6)


def test_a_module_whose_name_ends_another_keeps_its_own_scale(tmp_path: Path) -> None:
    names = ["x.qkv_proj", "dec.x.qkv_proj", "enc.x.qkv_proj"]
    modules = dict.fromkeys(names, (32, 8, 4)) | {"x.qkv_proj": (32, 8, 2)}
    patterns = {"rank_pattern": {"^x.qkv_proj": 2}, "alpha_pattern": {"^x.qkv_proj": 3}}
    path = adapter(tmp_path / "a", modules, target_modules=["qkv_proj"], **patterns)
    before = deltas(path)
    unfuse(path, QKV).run(tmp_path / "b", verify=True)
    fuse(tmp_path / "b", QKV).run(tmp_path / "c", verify=True)
    parts, after = deltas(tmp_path / "b"), deltas(tmp_path / "c")
    for name, wanted in before.items():
        found = [parts[f"{name.removesuffix('qkv_proj')}{part}"] for part in ROWS]
        np.testing.assert_allclose(np.concatenate(found), wanted)
        np.testing.assert_allclose(after[name], wanted)


def change_config(path: Path, **new: Any) -> None:
    config = json.loads((path / "adapter_config.json").read_text()) | new
    (path / "adapter_config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


QKV = {
    "version": 1,
    "rule": [
        {
            "fused": "*.qkv_proj.{leaf}",
            "parts": [f"*.{name}.{{leaf}}" for name in ROWS],
            "sections": list(ROWS.values()),
        }
    ],
}


def test_magnitudes_of_dora_and_biases_go_with_their_rows(tmp_path: Path) -> None:
    path = adapter(tmp_path / "a", {"x.qkv_proj": (32, 6, 2)})
    tensors = load_file(path / "adapter_model.safetensors")
    vectors = {"lora_magnitude_vector": np.arange(32, dtype=np.float32), "lora_B.bias": np.arange(32) / 2}
    tensors |= {f"{PREFIX}x.qkv_proj.{leaf}": value for leaf, value in vectors.items()}
    tensors[f"{PREFIX}lm_head.weight"] = np.ones((3, 2))
    save_file(tensors, path / "adapter_model.safetensors")
    unfuse(path, QKV).run(tmp_path / "b", verify=True)
    found = load_file(tmp_path / "b" / "adapter_model.safetensors")
    for leaf, value in vectors.items():
        for name, part in zip(ROWS, np.split(value, [16, 24]), strict=True):
            np.testing.assert_array_equal(found[f"{PREFIX}x.{name}.{leaf}"], part)
    fuse(tmp_path / "b", QKV).run(tmp_path / "c", verify=True)
    again = load_file(tmp_path / "c" / "adapter_model.safetensors")
    assert again.keys() == tensors.keys()
    assert all((again[name] == array).all() for name, array in tensors.items())

    del found[f"{PREFIX}x.k_proj.lora_magnitude_vector"]
    save_file(found, tmp_path / "b" / "adapter_model.safetensors")
    with pytest.raises(
        PlanError, match="lora_magnitude_vector would have several element types, or lack rows"
    ):
        fuse(tmp_path / "b", QKV)


def test_gpt2_stores_weights_transposed_but_not_its_adapters(tmp_path: Path) -> None:
    path = adapter(tmp_path / "a", {"transformer.h.0.attn.c_attn": (48, 16, 4)}, target_modules=["c_attn"])
    model = base(tmp_path / "base", model_type="gpt2")
    before = deltas(path)["transformer.h.0.attn.c_attn"]
    run("unfuse", path, "--base", model, "--out", tmp_path / "b", "--json")
    after = deltas(tmp_path / "b")
    parts = [after[f"transformer.h.0.attn.{name}"] for name in ROWS]
    np.testing.assert_array_equal(np.concatenate(parts), before)


def test_the_quantisation_of_the_base_model_does_not_matter(tmp_path: Path) -> None:
    """As in QLoRA: A and B are not quantised."""
    path = adapter(
        tmp_path / "a", {ATTENTION.format(0, "qkv_proj"): (32, 16, 4)}, target_modules=["qkv_proj"]
    )
    model = base(tmp_path / "base", quantization_config={"quant_method": "bitsandbytes"})
    run("unfuse", path, "--base", model, "--out", tmp_path / "b")
    assert len(deltas(tmp_path / "b")) == 3


def test_a_model_next_to_a_configuration_of_an_adapter_is_still_a_model(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    weight = np.arange(64, dtype=np.float32).reshape(32, 2)
    save_file({"x.qkv_proj.weight": weight}, tmp_path / "m" / "model.safetensors")
    (tmp_path / "m" / "adapter_config.json").write_text("{}")
    unfuse(tmp_path / "m", QKV).run(tmp_path / "b")
    found = load_file(tmp_path / "b" / "model.safetensors")
    np.testing.assert_array_equal(found["x.k_proj.weight"], weight[16:24])
    assert (tmp_path / "b" / "adapter_config.json").read_text() == "{}"


FUSED = ["x.qkv_proj.lora_A.weight", "x.qkv_proj.lora_B.weight"]
TWO = {"x.q_proj": (16, 6, 2), "x.k_proj": (8, 6, 2), "x.v_proj": (8, 6, 2)}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"peft_type": "IA3"}, "does not set peft_type = 'LORA'"),
        ({"lora_alpha": "8"}, "alpha of module 'x.q_proj' is '8', not a number from 0 to 2^31"),
        ({"lora_alpha": 1e300}, "is 1e+300, not a number from 0 to 2^31"),
        ({"lora_alpha": True}, "is True, not a number from 0 to 2^31"),
        ({"alpha_pattern": {"(a+)+$": 3}}, "but its keys must be names of modules"),
        ({"alpha_pattern": "q_proj"}, "but its keys must be names of modules"),
        ({"alpha_pattern": {"q_proj": 7}}, "from modules with [6] inputs and scales [3.5, 4.0, 4.0]"),
    ],
)
def test_configurations_that_cannot_be(tmp_path: Path, config: dict[str, Any], said: str) -> None:
    path = adapter(tmp_path / "a", TWO, **config)
    with pytest.raises(PlanError) as caught:
        fuse(path, QKV)
    assert said in str(caught.value)


NOT_LINEAR = "which are not those of the LoRA of a linear module"
NOT_A_PART = "matches a rule, but is not part of a linear module's LoRA"
SEVERAL = " would have several element types, or lack rows"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x.q_proj.lora_B.weight": None}, "module 'x.q_proj' has shapes"),
        ({"x.q_proj.lora_A.weight": np.ones((3, 6), np.float32)}, NOT_LINEAR),
        ({"x.q_proj.lora_A.weight": np.ones((2, 6, 3, 3), np.float32)}, NOT_LINEAR),
        ({"x.k_proj.lora_A.weight": np.ones((2, 5), np.float32)}, "from modules with [5, 6] inputs"),
        ({"x.k_proj.lora_A.weight": np.ones((2, 6), np.float16)}, "lora_A.weight" + SEVERAL),
        ({"x.k_proj.lora_B.weight": np.ones((9, 2), np.float32)}, "sum to 32, but the axis has size 33"),
        ({"x.q_proj.bias": np.ones(16, np.float32)}, NOT_A_PART),
        ({"x.q_proj.lora_embedding_A": np.ones(3, np.float32)}, NOT_A_PART),
        (dict(zip(FUSED, (np.ones((2, 6)), np.ones((32, 2))), strict=True)), "2 tensors would have the name"),
    ],
)  # fmt: skip
def test_tensors_that_cannot_be(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = adapter(tmp_path / "a", TWO, r=2)
    tensors = load_file(path / "adapter_model.safetensors")
    tensors |= {f"{PREFIX}{name}": value for name, value in change.items()}
    held = {name: value for name, value in tensors.items() if value is not None}
    save_file(held, path / "adapter_model.safetensors")
    with pytest.raises(PlanError) as caught:
        fuse(path, QKV)
    assert said in str(caught.value)


def test_rules_that_do_not_divide_outputs_and_other_faults(tmp_path: Path) -> None:
    path = adapter(tmp_path / "a", TWO)
    for more in ({"axis": 1}, {"stack": True, "parts": ["*.{e}.q_proj.{leaf}"]}):
        plan = {
            "version": 1,
            "rule": [QKV["rule"][0] | {"parts": ["*.q_proj.{leaf}"], "sections": [16]} | more],
        }
        other = adapter(tmp_path / f"a{len(more)}", {"x.0.q_proj": (16, 6, 2)})
        with pytest.raises(PlanError, match="does not divide the outputs of a module"):
            fuse(other, plan)
    rename = {"version": 1, "rule": [{"fused": "*.w", "parts": ["*.q_proj.weight"]}]}
    with pytest.raises(PlanError, match=r"the plan makes 'x\.w', but .* must end in \.weight"):
        fuse(path, rename)
    said = run("fuse", path, "--out", tmp_path / "b", code=1)
    assert "is an adapter: pass the folder of its base model (--base FOLDER)" in said
    assert "config.json" in run("fuse", path, "--base", tmp_path, "--out", tmp_path / "b", code=1)
    tensors = load_file(path / "adapter_model.safetensors")
    save_file(tensors | {"y.lora_A.weight": np.ones((2, 2))}, path / "adapter_model.safetensors")
    with pytest.raises(PlanError, match=r"only some names of LoRA tensors begin with 'base_model\.model\.'"):
        fuse(path, QKV)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"r": 4}, "A of module 'model.layers.0.self_attn.q_proj' has 8 rows, but .* states the rank 4"),
        ({"r": 8, "rank_pattern": {"q_proj": 2}}, "has 8 rows, but .* states the rank 2"),
        ({"r": 8.0}, "has 8 rows, but .* states the rank 8.0"),
        ({"r": 8, "rank_pattern": {"q_.*": 8}}, "rank_pattern is .* its keys must be names of modules"),
    ],
)
def test_a_rank_that_the_configuration_does_not_state_is_rejected(tmp_path: Path, config, says) -> None:
    """The scale is lora_alpha / r: with another r, the fused adapter would be another one."""
    parts = adapter(
        tmp_path / "a", {ATTENTION.format(0, "q_proj"): (16, 16, 8)}, **{"rank_pattern": {}} | config
    )
    with pytest.raises(PlanError, match=says):
        fuse(parts, base=base(tmp_path / "base"))
    says = says.replace("q_proj'", "qkv_proj'")
    config = json.loads(json.dumps(config).replace("q_proj", "qkv_proj"))
    fused = adapter(
        tmp_path / "b", {ATTENTION.format(0, "qkv_proj"): (32, 16, 8)}, **{"rank_pattern": {}} | config
    )
    with pytest.raises(PlanError, match=says):
        unfuse(fused, base=tmp_path / "base")


def test_scales_that_differ_by_rounding_are_equal(tmp_path: Path) -> None:
    modules = {ATTENTION.format(0, f"{n}_proj"): (rows, 16, r) for n, rows, r in (("q", 16, 2), ("v", 8, 4))}
    ranks = {"rank_pattern": {"q_proj": 2}, "use_rslora": True, "target_modules": ["q_proj", "v_proj"]}
    parts = adapter(tmp_path / "a", modules, alpha_pattern={"q_proj": 8 / math.sqrt(2)}, **ranks)
    run("fuse", parts, "--base", base(tmp_path / "base"), "--out", tmp_path / "b")
    [whole] = deltas(tmp_path / "b").values()
    found = deltas(parts)
    np.testing.assert_allclose(whole[:16], found[ATTENTION.format(0, "q_proj")], rtol=1e-12)
    np.testing.assert_allclose(whole[24:], found[ATTENTION.format(0, "v_proj")], rtol=1e-12)
    other = adapter(tmp_path / "c", modules, alpha_pattern={"q_proj": 5.66}, **ranks)
    with pytest.raises(
        PlanError, match=r"scales \[4\.00\d+, 4\.0\]: the inputs and the scales must be equal"
    ):
        fuse(other, base=tmp_path / "base")
