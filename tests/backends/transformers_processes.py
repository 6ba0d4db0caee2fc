"""One process of transformers: ``python transformers_processes.py FOLDER MODEL...``.

Its rank is in the environment. The first rank saves tiny models with random weights in ``FOLDER/MODEL``;
every rank loads them with the plan that they declare, and saves what it holds in ``FOLDER/MODEL-local``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import sharding_processes

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "vocab_size": 1001,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {"num_key_value_heads": 4}
EXPERTS = {"num_experts": 4, "moe_intermediate_size": 32, "num_experts_per_tok": 2, "head_dim": 8}
LATENT = {
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "moe_intermediate_size": 32,
    "num_experts_per_tok": 2,
    "kv_lora_rank": 16,
    "q_lora_rank": None,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
}
LLAMA4 = {"num_local_experts": 4, "head_dim": 8, "intermediate_size_mlp": 96}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", GROUPED),
    "qwen3_moe": ("Qwen3MoeConfig", GROUPED | EXPERTS | {"mlp_only_layers": [0]}),
    "deepseek_v2": ("DeepseekV2Config", LATENT | {"first_k_dense_replace": 1}),
    "llama4": ("Llama4TextConfig", GROUPED | LLAMA4 | {"interleave_moe_layer_step": 2}),
    "phi3": ("Phi3Config", GROUPED),
    "mixtral": ("MixtralConfig", GROUPED | {"num_local_experts": 4}),
    "gpt_neox": ("GPTNeoXConfig", {}),
}


def run(folder: Path, ranks: int, *models: str) -> None:
    """Make models, and load them on so many ranks."""
    sharding_processes.run(folder, ranks, *models, script=__file__)


def save(folder: Path, model: str) -> None:
    """Save a tiny model in shards."""
    import torch
    import transformers

    name, more = MODELS[model]
    config = getattr(transformers, name)(**SIZES, **more)
    torch.manual_seed(7)
    made = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn_like(parameter))
    made.save_pretrained(folder / model, max_shard_size="60KB")


def save_local(folder: Path, model: str, rank: int) -> None:
    """Load a model on all ranks, and save the tensors of this one."""
    from safetensors.torch import save_file
    from torch.distributed.tensor import DTensor
    from transformers import AutoModelForCausalLM
    from transformers.distributed import DistributedConfig

    how = DistributedConfig(tp_size=int(os.environ["WORLD_SIZE"]))
    loaded = AutoModelForCausalLM.from_pretrained(folder / model, distributed_config=how, dtype="auto")
    held = {}
    for name, tensor in loaded.state_dict(keep_vars=True).items():
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        held[name] = local.detach().clone().contiguous()
    (folder / f"{model}-local").mkdir(exist_ok=True)
    save_file(held, folder / f"{model}-local" / f"{rank}.safetensors")


def main(folder: Path, models: list[str]) -> None:
    """Take part with one rank."""
    import torch.distributed

    rank = sharding_processes.join()
    for model in models:
        if rank == 0:
            save(folder, model)
        torch.distributed.barrier()
        save_local(folder, model, rank)
    sharding_processes.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
