"""What the tests of sharding share: checkpoints made on the spot, and folders compared byte by byte."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "vocab_size": 1001,
}


def llama(layers: int = 2) -> dict[str, np.ndarray]:
    """The tensors of a small Llama, with a vocabulary that nothing divides."""
    rng = np.random.default_rng(7)
    shapes = {
        "model.embed_tokens.weight": (1001, 32),
        "lm_head.weight": (1001, 32),
        "model.norm.weight": (32,),
    }
    for layer in range(layers):
        name = f"model.layers.{layer}"
        shapes |= {
            f"{name}.self_attn.q_proj.weight": (32, 32),
            f"{name}.self_attn.k_proj.weight": (8, 32),
            f"{name}.self_attn.v_proj.weight": (8, 32),
            f"{name}.self_attn.o_proj.weight": (32, 32),
            f"{name}.mlp.up_proj.weight": (48, 32),
            f"{name}.mlp.down_proj.weight": (32, 48),
            f"{name}.input_layernorm.weight": (32,),
        }
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


LLAMA_PLAN: dict[str, Any] = {
    "version": 1,
    "rule": [
        {"match": ["*.k_proj.weight", "*.v_proj.weight"], "axis": 0, "unit": "head_dim", "replicate": True},
        {"match": "*.q_proj.weight", "hf": "colwise", "unit": "head_dim"},
        {"match": "*.up_proj.weight", "hf": "colwise"},
        {"match": ["*.o_proj.weight", "*.down_proj.weight"], "hf": "rowwise"},
        {"match": "*embed_tokens.weight", "axis": 0, "pad_to": 64},
        {"match": "lm_head.weight", "hf": "colwise"},
        {"match": "*norm.weight", "replicate": True},
    ],
}


def save(
    folder: Path, tensors: Mapping[str, np.ndarray], config: Mapping[str, Any] | None = None, shards: int = 1
) -> Path:
    """Save a checkpoint, in one file or in shards with their index."""
    folder.mkdir(parents=True, exist_ok=True)
    names = list(tensors)
    if shards == 1:
        save_file(dict(tensors), folder / "model.safetensors", metadata={"format": "pt"})
    else:
        where = {}
        for number in range(shards):
            file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
            own = names[number::shards]
            save_file({name: tensors[name] for name in own}, folder / file, metadata={"format": "pt"})
            where |= dict.fromkeys(own, file)
        index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": where}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config, indent=1))
    return folder


def contents(folder: Path, *, but: tuple[str, ...] = ()) -> dict[str, bytes]:
    """All files of a folder by name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in but
    }
