"""Checkpoints by size beside transformers, which writes and reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from splitops.cli import cli

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


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
