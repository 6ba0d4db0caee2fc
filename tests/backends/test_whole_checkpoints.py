"""Checkpoints by size beside transformers, which writes and reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from splitops.cli import cli

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
load_file = pytest.importorskip("safetensors.torch").load_file


def run(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output


def test_files_by_size_are_those_of_transformers(tmp_path: Path) -> None:
    """What we write loads there; what is written there is merged to its one file, byte by byte."""
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, vocab_size=64
    )
    made = transformers.LlamaForCausalLM(config)
    made.save_pretrained(tmp_path / "whole")
    made.save_pretrained(tmp_path / "theirs", max_shard_size="8KB")
    run("merge", tmp_path / "theirs", "--out", tmp_path / "one.safetensors")
    assert (tmp_path / "one.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()
    run("split", tmp_path / "whole", "--max-size", "8KB", "--out", tmp_path / "ours")
    assert len(list((tmp_path / "ours").glob("*.safetensors"))) > 2
    loaded = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "ours").state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in made.state_dict().items())


# Refitted --------------------------------------------------------------------------------------------------

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 64}
HEADS = {**SIZES, "num_attention_heads": 4, "num_key_value_heads": 2}
FALCON = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64, "num_attention_heads": 4, "bias": True}
FALCON |= {"alibi": False, "tie_word_embeddings": False}
EXPERTS = {"num_local_experts": 3, "num_experts_per_tok": 2}
TOKENS = torch.arange(12).reshape(2, 6) * 5 % 64
CASES = {
    "llama": ("Llama", HEADS, "fuse"),
    "qwen3": ("Qwen3", HEADS | {"head_dim": 16}, "fuse"),
    "gemma": ("Gemma", HEADS | {"head_dim": 16}, "fuse"),
    "phi3": ("Phi3", HEADS | {"pad_token_id": 0}, "unfuse"),
    "gpt_neox": ("GPTNeoX", SIZES | {"num_attention_heads": 4}, "unfuse"),
    "falcon by groups": (
        "Falcon",
        FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2, "multi_query": False},
        "unfuse",
    ),
    "falcon with one key": (
        "Falcon",
        FALCON | {"new_decoder_architecture": False, "multi_query": True},
        "unfuse",
    ),
    "falcon by head": (
        "Falcon",
        FALCON | {"new_decoder_architecture": False, "multi_query": False},
        "unfuse",
    ),
    "gpt2": ("GPT2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64}, "unfuse"),
    "gpt_oss": ("GptOss", HEADS | EXPERTS | {"head_dim": 16}, "unfuse"),
    "mixtral": ("Mixtral", HEADS | EXPERTS, "fuse"),
}


def model_of(kind: str, sizes: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**sizes)
    found = {"GPT2": "GPT2LMHeadModel"}.get(kind, f"{kind}ForCausalLM")
    made = getattr(transformers, found)(config).eval()
    with torch.no_grad():  # biases and norms that start as zeros and ones would hide what is wrong
        for parameter in made.parameters():
            parameter.copy_(torch.randn_like(parameter) / 8)
    return made


def logits(model: Any) -> Any:
    with torch.no_grad():
        return model(TOKENS).logits


class Apart(torch.nn.Module):
    """Three projections in place of a fused one, whose results lie as the attention of a model expects."""

    def __init__(self, weights: dict[str, Any], name: str, groups: int) -> None:
        super().__init__()
        self.groups = groups
        found = [[weights.get(f"{name}.{x}_proj.{leaf}") for leaf in ("weight", "bias")] for x in "qkv"]
        self.parts = found

    def forward(self, x: Any) -> Any:
        made = [torch.nn.functional.linear(x, *part).unflatten(-1, (self.groups, -1)) for part in self.parts]
        return torch.cat(made, -1).flatten(-2)


class Slice(torch.nn.Module):
    """Some outputs of a fused projection."""

    def __init__(self, weight: Any, begin: int, end: int) -> None:
        super().__init__()
        self.weight, self.at = weight, slice(begin, end)

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.linear(x, self.weight)[..., self.at]


class Experts(torch.nn.Module):
    """Experts of gpt-oss, each with projections of its own, as its paper says."""

    def __init__(self, weights: dict[str, Any], name: str) -> None:
        super().__init__()
        self.weights, self.name = weights, name

    def forward(self, x: Any, index: Any, scores: Any) -> Any:
        x = x.reshape(-1, x.shape[-1])
        made = torch.zeros_like(x)
        for token, chosen in enumerate(index.reshape(len(x), -1).tolist()):
            for place, expert in enumerate(chosen):
                gate, up = (self.project(x[token], expert, each) for each in ("gate", "up"))
                gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
                held = (up + 1) * gate * torch.sigmoid(gate * 1.702)
                made[token] += scores.reshape(len(x), -1)[token, place] * self.project(held, expert, "down")
        return made

    def project(self, x: Any, expert: int, each: str) -> Any:
        name = f"{self.name}.{expert}.{each}_proj"
        return torch.nn.functional.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])


def rebuilt(name: str, model: Any, out: Path) -> Any:
    """The model with the tensors of the rewritten checkpoint, each used for what its name says."""
    weights = load_file(out / "model.safetensors")
    kind, sizes, _ = CASES[name]
    if kind in ("Phi3", "Llama"):  # the same model with other names: transformers' own class loads them
        other = "Llama" if kind == "Phi3" else "Phi3"
        made = model_of(other, sizes | {"pad_token_id": 0, "rms_norm_eps": model.config.rms_norm_eps})
        missing, strange = made.load_state_dict(weights, strict=False)
        assert (missing, strange) == ([], [])
        return made
    layers = model.model.layers if hasattr(model, "model") else model.base_model
    layers = getattr(layers, "layers", getattr(layers, "h", layers))
    for number, layer in enumerate(layers):
        if kind == "GPTNeoX":
            layer.attention.query_key_value = Apart(weights, f"gpt_neox.layers.{number}.attention", 4)
        elif kind == "Falcon":
            groups = 2 if sizes.get("num_kv_heads") else 1 if sizes["multi_query"] else 4
            layer.self_attention.query_key_value = Apart(
                weights, f"transformer.h.{number}.self_attention", groups
            )
        elif kind == "GPT2":
            layer.attn.c_attn = Apart(weights, f"transformer.h.{number}.attn", 1)
        elif kind == "GptOss":
            layer.mlp.experts = Experts(weights, f"model.layers.{number}.mlp.experts")
        else:
            at = 0
            for each, size in (("q", 64), ("k", 32), ("v", 32)):
                fused = weights[f"model.layers.{number}.self_attn.qkv_proj.weight"]
                setattr(layer.self_attn, f"{each}_proj", Slice(fused, at, at + size))
                at += size
            fused = weights[f"model.layers.{number}.mlp.gate_up_proj.weight"]
            layer.mlp.gate_proj, layer.mlp.up_proj = Slice(fused, 0, 48), Slice(fused, 48, 96)
    return model


@pytest.mark.parametrize("name", [name for name in CASES if name != "mixtral"])
def test_a_rewritten_model_gives_the_same_logits(tmp_path: Path, name: str) -> None:
    kind, sizes, way = CASES[name]
    model = model_of(kind, sizes)
    expected = logits(model)
    model.save_pretrained(tmp_path / "model")
    run(way, tmp_path / "model", "--out", tmp_path / "other", "--verify")
    assert (
        load_file(tmp_path / "other/model.safetensors").keys()
        != load_file(tmp_path / "model/model.safetensors").keys()
    )
    found = logits(rebuilt(name, model, tmp_path / "other"))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    back = {"fuse": "unfuse", "unfuse": "fuse"}[way]
    run(back, tmp_path / "other", "--out", tmp_path / "again")
    for path in (tmp_path / "model").iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name
    again = type(model).from_pretrained(tmp_path / "again")
    assert torch.equal(logits(again), expected)


def test_mixtral_loads_its_stacked_experts_and_gives_the_same_bits(tmp_path: Path) -> None:
    """Experts in one tensor, as transformers 5 can save them, and one by one, as others read them."""
    kind, sizes, _ = CASES["mixtral"]
    model = model_of(kind, sizes)
    expected = logits(model)
    model.save_pretrained(tmp_path / "apart")
    model.save_pretrained(tmp_path / "theirs", save_original_format=False)
    run("fuse", tmp_path / "apart", "--out", tmp_path / "ours")
    ours, theirs = (tmp_path / each / "model.safetensors" for each in ("ours", "theirs"))
    assert ours.read_bytes() == theirs.read_bytes()
    assert torch.equal(logits(type(model).from_pretrained(tmp_path / "ours")), expected)
    run("unfuse", tmp_path / "theirs", "--out", tmp_path / "single")
    assert (tmp_path / "single/model.safetensors").read_bytes() == (
        tmp_path / "apart/model.safetensors"
    ).read_bytes()
