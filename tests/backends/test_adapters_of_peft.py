"""LoRA adapters of PEFT, fused and unfused: other models with the same weights return the same logits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from splitops.cli import cli

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 64}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "pad_token_id": 0}
TOKENS = torch.arange(20).reshape(2, 10)
PARTS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj"]
FUSED = ["qkv_proj", "gate_up_proj", "down_proj"]
SETTINGS = {
    "plain": {},
    "rslora": {"use_rslora": True},
    "dora": {"use_dora": True},
    "patterns": {
        "rank_pattern": {"q_proj": 2, "qkv_proj": 3},
        "alpha_pattern": {"q_proj": 8, "qkv_proj": 5},
    },
    "one layer": {"layers_to_transform": [1]},
    "saved": {"modules_to_save": ["lm_head"]},
}


def run(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama, and a Phi 3 with its weights."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).save_pretrained(folder / "llama")
    run("fuse", folder / "llama", "--out", folder / "fused")
    transformers.Phi3Config(**SIZES).save_pretrained(folder / "phi")
    shutil.copy(folder / "fused" / "model.safetensors", folder / "phi")
    assert (logits(load(folder, "llama")) - logits(load(folder, "phi"))).abs().max() < 1e-5
    return folder


def load(models: Path, kind: str) -> Any:
    found = transformers.LlamaForCausalLM if kind == "llama" else transformers.Phi3ForCausalLM
    return found.from_pretrained(models / kind).eval()


def logits(model: Any) -> Any:
    with torch.no_grad():
        return model.eval()(TOKENS).logits


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize(
    ("kind", "targets"),
    [
        ("llama", ["q_proj", "v_proj"]),
        ("llama", PARTS),
        ("llama", r".*layers\.1\..*(q|v)_proj"),
        ("phi", FUSED),
        ("phi", "all-linear"),
    ],
)
def test_the_other_model_returns_the_same(
    tmp_path: Path, models: Path, kind: str, targets: Any, settings: str
) -> None:
    if isinstance(targets, str) and settings == "one layer":
        pytest.skip("PEFT takes layers only with a list of modules")
    config = peft.LoraConfig(r=4, lora_alpha=16, target_modules=targets, **SETTINGS[settings])
    model = peft.get_peft_model(load(models, kind), config)
    for name, values in model.named_parameters():
        if "lora_" in name:
            noise = torch.rand(values.shape) - 0.5
            values.data = values.data * (1 + noise) if "magnitude" in name else noise
    model.save_pretrained(tmp_path / "a")
    command, other = ("fuse", "phi") if kind == "llama" else ("unfuse", "llama")
    words = [command, tmp_path / "a", "--base", models / kind, "--out", tmp_path / "b", "--verify"]
    if command == "fuse" and settings == "dora" and targets != PARTS:
        assert "lora_magnitude_vector would have several element types, or lack rows" in run(*words, code=1)
        return
    run(*words)
    found = logits(peft.PeftModel.from_pretrained(load(models, other), tmp_path / "b"))
    assert (found - logits(model)).abs().max() < 1e-5
    assert (found - logits(load(models, kind))).abs().max() > 1e-2
