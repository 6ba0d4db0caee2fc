"""One rank of another program: ``torchrun --nproc_per_node N foreign_writers.py WRITER FOLDER``.

Each writer makes a small model from one seed, cuts it itself, and saves the tensors of each rank under the
file name that it has, as safetensors. Rank 0 saves the whole model of the same program as FOLDER/whole.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file

SIZES = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "head_dim": 4,
    "vocab_size": 48,
}
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def save(path: Path, tensors: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()}, path)


def deepspeed(folder: Path, kind: str = "Llama") -> None:
    """AutoTP, with the files that ``save_mp_checkpoint_path`` writes."""
    import deepspeed
    import transformers

    torch.manual_seed(0)
    sizes = SIZES | {"num_hidden_layers": 2, "tie_word_embeddings": False, "pad_token_id": 0}
    sizes |= {} if kind == "GPTNeoX" else {"num_key_value_heads": 2 if kind == "Llama" else RANKS}
    config = getattr(transformers, f"{kind}Config")(**sizes)
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    if RANK == 0:
        model.save_pretrained(folder / "whole")
        save(folder / "whole" / "model.safetensors", model.state_dict())  # with the names that ranks have
    dist.barrier()
    deepspeed.init_inference(
        model,
        tensor_parallel={"tp_size": RANKS},
        dtype=torch.float32,
        replace_with_kernel_inject=False,
        save_mp_checkpoint_path=str(folder / "ranks"),
    )
    dist.barrier()
    if RANK == 0:
        for path in (folder / "ranks").glob("*.pt"):
            save(path.with_suffix(".safetensors"), torch.load(path, weights_only=True))
            path.unlink()
        (folder / "ranks" / "config.json").write_text((folder / "whole" / "config.json").read_text())


def megatron(folder: Path, experts: int | None = None) -> None:
    """megatron-core's GPT, whole and cut from the same seed, in the folders of Megatron-LM."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    for ranks, home in (
        (1, "whole/model.safetensors"),
        (RANKS, f"ranks/mp_rank_{RANK:02}/model.safetensors"),
    ):
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=ranks)
        torch.manual_seed(0)
        config = TransformerConfig(
            num_layers=2,
            hidden_size=16,
            num_attention_heads=4,
            num_query_groups=2,
            ffn_hidden_size=24,
            use_cpu_initialization=True,
            tensor_model_parallel_size=ranks,
            gated_linear_unit=True,
            activation_func=torch.nn.functional.silu,
            add_bias_linear=False,
            add_qkv_bias=True,
            normalization="RMSNorm",
            num_moe_experts=experts,
            moe_ffn_hidden_size=8 if experts else None,
        )
        layers = get_gpt_layer_local_spec(normalization="RMSNorm", num_experts=experts)
        model = GPTModel(config, layers, 48, 32, share_embeddings_and_output_weights=False)
        if ranks > 1 or RANK == 0:
            state = {name: each for name, each in model.state_dict().items() if torch.is_tensor(each)}
            save(folder / home, state)
        parallel_state.destroy_model_parallel()
    if RANK == 0:
        stated = SIZES | {"num_key_value_heads": 2, "moe_intermediate_size": 8}
        (folder / "ranks" / "config.json").write_text(json.dumps(stated))


def meta(folder: Path) -> None:
    """The layers of fairscale as in the model of Meta's Llama, with its names and the name of its files."""
    from fairscale.nn.model_parallel import initialize
    from fairscale.nn.model_parallel.layers import ColumnParallelLinear, ParallelEmbedding, RowParallelLinear

    hidden, inner, words = SIZES["hidden_size"], SIZES["intermediate_size"], SIZES["vocab_size"]
    layers = {
        "attention.wq": (hidden, hidden, ColumnParallelLinear),
        "attention.wk": (hidden // 2, hidden, ColumnParallelLinear),
        "attention.wv": (hidden // 2, hidden, ColumnParallelLinear),
        "attention.wo": (hidden, hidden, RowParallelLinear),
        "feed_forward.w1": (inner, hidden, ColumnParallelLinear),
        "feed_forward.w2": (hidden, inner, RowParallelLinear),
        "feed_forward.w3": (inner, hidden, ColumnParallelLinear),
    }
    for ranks, home in ((1, "whole/model"), (RANKS, f"ranks/consolidated.{RANK:02}")):
        initialize.initialize_model_parallel(ranks)
        torch.manual_seed(0)
        tensors: dict[str, Any] = {"norm.weight": torch.rand(hidden)}
        for layer in range(2):
            for name, (rows, columns, kind) in layers.items():
                tensors[f"layers.{layer}.{name}.weight"] = kind(columns, rows, bias=False).weight
            tensors[f"layers.{layer}.attention_norm.weight"] = torch.rand(hidden)
        tensors["tok_embeddings.weight"] = ParallelEmbedding(words, hidden).weight
        tensors["output.weight"] = ColumnParallelLinear(hidden, words, bias=False).weight
        if ranks > 1 or RANK == 0:
            save(folder / f"{home}.safetensors", tensors)
        initialize.destroy_model_parallel()
    if RANK == 0:
        stated = {"dim": hidden, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "vocab_size": -1}
        (folder / "ranks" / "params.json").write_text(json.dumps(stated))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    writers = {
        "deepspeed": deepspeed,
        "deepspeed-phi3": partial(deepspeed, kind="Phi3"),
        "deepspeed-neox": partial(deepspeed, kind="GPTNeoX"),
        "megatron": megatron,
        "megatron-experts": partial(megatron, experts=2),
        "meta": meta,
    }
    writers[sys.argv[1]](Path(sys.argv[2]))
    dist.barrier()
    dist.destroy_process_group()
