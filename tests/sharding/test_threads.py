"""What users ask for in threads of other projects: each is one command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sharding_helpers import LLAMA, contents, llama, save

import splitops
from command_line import runner
from splitops.cli import cli

RNG = np.random.default_rng(31)
INDEX = "model.safetensors.index.json"
KV = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "intermediate_size": 48,
    "vocab_size": 1001,
}
REPEATED = """
version = 1
rule = [
    { match = ["*.k_proj.weight", "*.v_proj.weight"], axis = 0, unit = "head_dim", replicate = true },
    { match = "*.q_proj.weight", axis = 0, unit = "head_dim" },
    { match = "*", replicate = true },
]
"""


def run(*arguments: object, code: int = 0) -> str:
    done = runner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == code, done.output + done.stderr
    return done.stdout + done.stderr


def arrays(count: int = 9) -> dict[str, np.ndarray]:
    return {f"blk.{i}.weight": RNG.standard_normal((8, 40), np.float32) for i in range(count)}


def gguf_file(path: Path, tensors: dict[str, np.ndarray]) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    for name, array in tensors.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("stem", ["diffusion_pytorch_model", "flux"])
def test_diffusers_10137_and_kohya_ss_2754_merge_three_files_of_a_flux_model(
    tmp_path: Path, stem: str
) -> None:
    """A finetuned transformer in three numbered files is to be the one file that other programs load."""
    names = list(wholes := arrays())
    for number in range(3):
        own = {name: wholes[name] for name in names[number::3]}
        save_file(own, tmp_path / f"{stem}-{number + 1:05}-of-00003.safetensors", {"format": "pt"})
    run("merge", tmp_path, "--out", tmp_path / "one" / f"{stem}.safetensors")
    found = load_file(tmp_path / "one" / f"{stem}.safetensors")
    assert found.keys() == wholes.keys()
    assert all((found[name] == wholes[name]).all() for name in wholes)


@pytest.mark.parametrize(("size", "most"), [("3KB", 3000), ("3K", 3072), ("0.003MB", 3000)])
def test_llama_cpp_6259_and_6654_split_by_the_most_bytes_of_a_file(
    tmp_path: Path, size: str, most: int
) -> None:
    """A file system or a hub takes files of so many bytes, whichever unit they are written in."""
    path = gguf_file(tmp_path / "m.gguf", arrays())
    arguments = ["split", path, "--max-size", size, "--out", tmp_path / "out"]
    said = json.loads(run(*arguments, "--dry-run", "--json"))
    assert not (tmp_path / "out").exists()
    run(*arguments)
    files = sorted((tmp_path / "out").iterdir())
    assert len(files) > 3
    assert {str(file): file.stat().st_size for file in files} == {
        each["file"]: each["bytes"] for each in said["files"]
    }
    assert all(file.stat().st_size <= most for file in files)


def test_transformers_32266_load_a_gguf_model_of_several_files(tmp_path: Path) -> None:
    """Readers that take one GGUF file only get one, with the tokenizer and no sign of the split."""
    wholes = arrays()
    run("split", gguf_file(tmp_path / "m.gguf", wholes), "--max-size", "4KB", "--out", tmp_path)
    [first] = tmp_path.glob("m-00001-of-*.gguf")
    run("merge", first, "--out", tmp_path / "one.gguf")
    found = gguf.GGUFReader(tmp_path / "one.gguf")
    assert not any(name.startswith("split.") for name in found.fields)
    assert "tokenizer.ggml.tokens" in found.fields
    assert all((tensor.data == wholes[tensor.name]).all() for tensor in found.tensors)
    assert len(found.tensors) == len(wholes)


def test_transformers_33928_write_the_files_of_a_checkpoint_in_another_size(tmp_path: Path) -> None:
    """The files of a checkpoint are too large for a host: smaller ones, without the memory of the model."""
    model = save(tmp_path / "model", llama(), LLAMA, shards=2)
    run("split", model, "--max-size", "40KB", "--out", tmp_path / "small", "--memory", "4M")
    index = json.loads((tmp_path / "small" / INDEX).read_text())["weight_map"]
    found = {name: load_file(tmp_path / "small" / file)[name] for name, file in index.items()}
    assert len(set(index.values())) > 2
    assert all((found[name] == array).all() for name, array in llama().items())
    assert (tmp_path / "small/config.json").read_bytes() == (model / "config.json").read_bytes()


def test_torchtune_222_take_apart_a_projection_interleaved_by_groups_of_heads(tmp_path: Path) -> None:
    """Heads of queries lie beside the key and the value that they share: adapters need three projections."""
    heads = RNG.standard_normal((2, 6, 4, 32)).astype(np.float32)  # 4 queries, a key and a value a group
    model = save(tmp_path / "model", {"layers.0.attn.qkv_proj.weight": heads.reshape(48, 32)}, KV)
    (tmp_path / "plan.json").write_text(json.dumps({"version": 1, "rule": [
        {
            "fused": "*.attn.qkv_proj.{leaf}", "parts": [f"*.attn.{x}_proj.{{leaf}}" for x in "qkv"],
            "sections": ["num_attention_heads * head_dim", *["num_key_value_heads * head_dim"] * 2],
            "groups": "num_key_value_heads",
        }
    ]}))  # fmt: skip
    run("unfuse", model, "--plan", tmp_path / "plan.json", "--out", tmp_path / "apart")
    found = load_file(tmp_path / "apart/model.safetensors")
    for name, held in (("q", heads[:, :4]), ("k", heads[:, 4:5]), ("v", heads[:, 5:])):
        np.testing.assert_array_equal(found[f"layers.0.attn.{name}_proj.weight"], held.reshape(-1, 32))
    run("fuse", tmp_path / "apart", "--plan", tmp_path / "plan.json", "--out", tmp_path / "again")
    assert contents(tmp_path / "again") == contents(model)


def fp8(shape: tuple[int, ...]) -> np.ndarray:
    return RNG.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn)


def test_tensorrt_llm_6761_unfuse_phi3_in_fp8_with_its_scales(tmp_path: Path) -> None:
    """FP8 checkpoints of Phi-3 have one scale of a fused weight: it belongs to each of its parts."""
    config = KV | {
        "model_type": "phi3",
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"},
    }
    name, tensors = "model.layers.0", {}
    for module, rows in (("self_attn.qkv_proj", 48), ("mlp.gate_up_proj", 96)):
        tensors[f"{name}.{module}.weight"] = fp8((rows, 32))
        tensors |= {
            f"{name}.{module}.{leaf}": RNG.random((), np.float32) for leaf in ("weight_scale", "input_scale")
        }
    model = save(tmp_path / "phi", tensors, config)
    run("unfuse", model, "--out", tmp_path / "apart")
    opened = splitops.files.open(tmp_path / "apart/model.safetensors")
    found = {name: np.asarray(opened[name]) for name in opened}
    assert len(found) == 15
    fused, at = tensors[f"{name}.self_attn.qkv_proj.weight"], 0
    for part, rows in (("q", 32), ("k", 8), ("v", 8)):
        module = f"{name}.self_attn.{part}_proj"
        assert (found[f"{module}.weight"].view(np.uint8) == fused[at : at + rows].view(np.uint8)).all()
        at += rows
        for leaf in ("weight_scale", "input_scale"):
            assert found[f"{module}.{leaf}"] == tensors[f"{name}.self_attn.qkv_proj.{leaf}"]
    run("fuse", tmp_path / "apart", "--out", tmp_path / "again")
    assert contents(tmp_path / "again") == contents(model)
    save_file(
        found | {f"{name}.mlp.up_proj.weight_scale": np.float32(7)[...]}, tmp_path / "apart/model.safetensors"
    )
    assert " differ" in run("fuse", tmp_path / "apart", "--out", tmp_path / "other", code=1)
    save_file(
        found | {f"{name}.mlp.up_proj.weight_scale": np.ones(1, np.float32)},
        tmp_path / "apart/model.safetensors",
    )
    assert "may be the scale of one row or of all rows" in run(
        "fuse", tmp_path / "apart", "--out", tmp_path / "other", code=1
    )


def test_vllm_7304_save_the_sharded_state_without_the_engine(tmp_path: Path) -> None:
    """Files of each rank of a large model, as `sharded_state` loads them, on a machine without a GPU."""
    wholes = llama()
    model = save(tmp_path / "model", wholes, KV)
    run("shard", model, "--ranks", 2, "--layout", "vllm", "--out", tmp_path / "out")
    for rank in range(2):
        found = load_file(tmp_path / "out" / f"model-rank-{rank}-part-0.safetensors")
        own = [np.split(wholes[f"model.layers.1.self_attn.{part}_proj.weight"], 2)[rank] for part in "qkv"]
        np.testing.assert_array_equal(found["model.layers.1.self_attn.qkv_proj.weight"], np.concatenate(own))
    assert (tmp_path / "out/config.json").read_bytes() == (model / "config.json").read_bytes()
    run("merge", tmp_path / "out", "--out", tmp_path / "again")
    assert contents(tmp_path / "again") == contents(model)


def test_vllm_51496_cut_fused_projections_part_by_part(tmp_path: Path) -> None:
    """A rank of a fused projection has its queries, keys and values, not a third of all rows."""
    config = KV | {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3"}
    wholes: dict[str, Any] = {
        "model.layers.0.self_attn.qkv_proj.weight": RNG.standard_normal((48, 32)),
        "model.layers.0.mlp.gate_up_proj.weight": RNG.standard_normal((96, 32)),
    }
    model = save(tmp_path / "model", wholes, config)
    run("shard", model, "--ranks", 4, "--layout", "vllm", "--out", tmp_path / "out")
    qkv, gate_up = wholes.values()
    q, k, v = np.split(qkv, [32, 40])
    for rank in range(4):
        found = load_file(tmp_path / "out" / f"model-rank-{rank}-part-0.safetensors")
        head = rank // 2  # four ranks share two heads of keys and values
        own = [np.split(q, 4)[rank], np.split(k, 2)[head], np.split(v, 2)[head]]
        np.testing.assert_array_equal(found["model.layers.0.self_attn.qkv_proj.weight"], np.concatenate(own))
        halves = [np.split(half, 4)[rank] for half in np.split(gate_up, 2)]
        np.testing.assert_array_equal(found["model.layers.0.mlp.gate_up_proj.weight"], np.concatenate(halves))
    run("merge", tmp_path / "out", "--out", tmp_path / "again")
    assert contents(tmp_path / "again") == contents(model)


def test_transformers_48307_repeat_key_and_value_heads_that_are_fewer_than_ranks(tmp_path: Path) -> None:
    """Less than one head on a rank fails in the first forward pass: each rank gets a whole one."""
    wholes = llama()
    model = save(tmp_path / "model", wholes, KV)
    (tmp_path / "plan.toml").write_text(REPEATED)
    run("shard", model, "--ranks", 8, "--plan", tmp_path / "plan.toml", "--out", tmp_path / "out")
    name = "model.layers.0.self_attn.k_proj.weight"
    for rank in range(8):
        found = load_file(tmp_path / "out" / f"rank-{rank:05}-of-00008" / "model.safetensors")[name]
        np.testing.assert_array_equal(found, np.split(wholes[name], 2)[rank // 4])
    run("merge", tmp_path / "out", "--out", tmp_path / "again")
    assert contents(tmp_path / "again") == contents(model)
    path = tmp_path / "out/rank-00005-of-00008/model.safetensors"
    data = path.read_bytes()
    at = data.index(found.tobytes())  # ranks 4 to 7 hold the same head
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    said = run("merge", tmp_path / "out", "--out", tmp_path / "other", code=1)
    assert "copies in" in said
    assert " differ" in said


def test_torchtitan_2577_say_before_the_run_which_ranks_key_and_value_heads_allow(tmp_path: Path) -> None:
    """Two heads of keys and values on more ranks crash in a reshape: it is said at planning time."""
    model = save(tmp_path / "model", llama(), KV)
    said = run("shard", model, "--ranks", 8, "--plan", "auto", "--dry-run")
    assert (
        "splits attention heads: 8 elements over 8 ranks are 1 each, but a head has 4. Use 1 or 2 ranks"
        in said
    )
    (tmp_path / "plan.toml").write_text(REPEATED.replace(", replicate = true }", " }", 1))
    arguments = ["shard", model, "--plan", tmp_path / "plan.toml", "--out", tmp_path / "out"]
    assert "8 ranks would split 8 elements at 1, inside of a unit of 4: use [1, 2] ranks" in run(
        *arguments, "--ranks", 8, code=1
    )
    assert not (tmp_path / "out").exists()
    run(*arguments, "--ranks", 2)
