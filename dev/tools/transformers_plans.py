"""Make the table of plans from an installed transformers: ``python -m dev.tools.transformers_plans``.

Each architecture is built without memory, on PyTorch's meta device, with few layers: from its default
configuration, and from one that mixes the kinds of layers that it can have. The plans that these give their
parameters are told of the tensors of *checkpoints*, whose names differ where transformers renames or joins
tensors as it loads them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from splitops.errors import shown
from splitops.sharding import tables

_KINDS: Final = ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "SEQ_TO_SEQ_CAUSAL_LM")
_LAYERS: Final = 8
Plan = dict[str, str]


def architectures() -> Iterator[tuple[str, str]]:
    """Yield class names and model types: of what generates text, then of the models in it."""
    from transformers.models.auto import modeling_auto

    tables = [f"MODEL_FOR_{kind}_MAPPING_NAMES" for kind in _KINDS]
    for table in (*tables, "MODEL_MAPPING_NAMES"):
        for model_type, classes in getattr(modeling_auto, table).items():
            for name in (classes,) if isinstance(classes, str) else classes:
                yield name, model_type


def models(name: str) -> Iterator[Any]:
    """Yield models on the meta device, which together have every kind of layer; none without a plan.

    Args:
        name: of a class of transformers.

    Raises:
        Exception: as transformers does where it cannot build any of them.
    """
    import torch
    import transformers

    kind = getattr(transformers, name).config_class
    if not any(getattr(part, "base_model_tp_plan", None) for part in _parts(kind())):
        return
    failures, made = [], 0
    few = {"num_hidden_layers": _LAYERS}
    ways = (  # the layers may be counted elsewhere too, so that a model with fewer of them cannot be built
        (lambda: kind(**few), kind),
        (lambda: _mixed(kind(), few), lambda: _mixed(kind(), {})),
    )
    for configurations in ways:
        for configuration in configurations:
            try:
                with torch.device("meta"):
                    model = getattr(transformers, name)._from_config(_filled(configuration()))
            except Exception as error:
                failures.append(error)
                continue
            made += 1
            yield model
            break
    if not made:
        raise failures[0]


def _mixed(config: Any, more: Mapping[str, Any]) -> Any:
    """Return a configuration, and its parts, with the kinds of layers that the default one does not have."""
    import transformers

    layers = more.get("num_hidden_layers", getattr(config, "num_hidden_layers", 0))
    values = {
        "mlp_only_layers": [0],
        "first_k_dense_replace": 1,
        "interleave_moe_layer_step": 2,
        "num_dense_layers": 1,
        "mlp_layer_types": ["dense"] + ["sparse"] * (layers - 1),
        "is_moe": True,
        "enable_moe_block": True,
        "q_lora_rank": 64 if getattr(config, "q_lora_rank", None) is None else None,
        "tie_word_embeddings": False,
        **more,
    }
    parts = {
        key: _mixed(value, more)
        for key, value in vars(config).items()
        if isinstance(value, transformers.PretrainedConfig)
    }
    return type(config)(**{key: value for key, value in values.items() if hasattr(config, key)}, **parts)


def _filled(config: Any) -> Any:
    """Return a configuration whose parts have what a model cannot be built without."""
    for part in _parts(config):
        _fill(part)
    return config


def _fill(config: Any) -> None:
    stated = vars(config)
    heads, hidden = stated.get("num_attention_heads"), stated.get("hidden_size")
    usual = {
        "num_key_value_heads": heads,
        "pad_token_id": 0,
        "moe_intermediate_size": 64,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "top_k_experts": 2,
    }
    if isinstance(heads, int) and isinstance(hidden, int):
        usual["head_dim"] = hidden // heads
    for key, value in usual.items():
        if stated.get(key, 0) is None:
            setattr(config, key, value)


def _parts(config: Any) -> Iterator[Any]:
    import transformers

    yield config
    for value in vars(config).values():
        if isinstance(value, transformers.PretrainedConfig):
            yield from _parts(value)


def plan_of(model: Any) -> Plan:
    """Return the words of the tensors that checkpoints of a model have: globs, in the order of the model.

    Raises:
        ValueError: transformers cuts a tensor in a way that no word of files says.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import (
        WeightConverter,
        WeightRenaming,
        rename_source_key,
        revert_weight_conversion,
    )

    parameters = dict(model.named_parameters())
    expanded = model._expand_parallel_plan(model.tp_plan)
    mapping = get_model_conversion_mapping(model, add_legacy=False)
    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
    state = model.state_dict()
    plan: Plan = {}
    for name, tensor in revert_weight_conversion(model, state).items():
        renamed, pattern = rename_source_key(name, renamings, converters, model.base_model_prefix, state)
        parameter = parameters.get(renamed)
        word = expanded.get(renamed)
        if word is None or parameter is None:
            continue
        merged = parameter.ndim - tensor.ndim == 1
        if merged and word in ("packed_colwise", "packed_rowwise"):
            word = word.removeprefix("packed_")  # each expert's halves are tensors of their own
        elif word.startswith("packed_") and any(
            pattern in each.source_patterns and len(each.source_patterns) > 1 for each in converters
        ):
            raise ValueError(f"{name} is joined with others, and its halves are not those of the whole")
        glob = _glob(name)
        if plan.setdefault(glob, word) != word:
            raise ValueError(f"{glob} is {plan[glob]} and {word}")
    return {glob: word for glob, word in plan.items() if "axis" in tables.read_table("tp_styles.toml")[word]}


def _joined(plans: Iterable[Plan]) -> Plan:
    """Return the globs of all plans of one class; they must agree."""
    found: Plan = {}
    for plan in plans:
        for glob, word in plan.items():
            if found.setdefault(glob, word) != word:
                raise ValueError(f"{glob} is {found[glob]} and {word}")
    return found


def _glob(name: str) -> str:
    """Return a glob for all layers and, of a module's weight, all its quantised tensors."""
    glob = re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name)
    return re.sub(r"\.(weight|bias)$", ".*", glob)


def table(report: Any = lambda line: None) -> dict[str, Any]:
    """Return the table: plans, and which of them each architecture and model type has."""
    import transformers

    transformers.logging.set_verbosity_error()
    plans: list[Plan] = []
    named: dict[str, int | None] = {}
    types: dict[str, int] = {}
    for name, model_type in architectures():
        if name not in named:
            try:
                plan = _joined(plan_of(model) for model in models(name) if model.tp_plan)
            except Exception as error:  # one that cannot be built is left out, and said
                report(f"{name}: {type(error).__name__}: {shown(str(error))}")
                plan = {}
            if plan and plan not in plans:
                plans.append(plan)
            named[name] = plans.index(plan) if plan else None
        number = named[name]
        if number is not None:
            types.setdefault(model_type, number)
    return {
        "transformers": transformers.__version__,
        "plans": plans,
        "architectures": {name: number for name, number in sorted(named.items()) if number is not None},
        "model_types": dict(sorted(types.items())),
    }


def written(found: Mapping[str, Any]) -> str:
    """Return the table as text, a plan in each line."""
    plans = ",\n  ".join(json.dumps(plan) for plan in found["plans"])
    rest = ",\n ".join(f"{json.dumps(key)}: {json.dumps(found[key])}" for key in found if key != "plans")
    return f'{{{rest},\n "plans": [\n  {plans}\n ]}}\n'


def main() -> None:
    """Write the table into the package, and list what was left out."""
    found: Mapping[str, Any] = table(lambda line: print(line, file=sys.stderr))
    (Path(tables.__file__).parent / "transformers.json").write_text(written(found), encoding="utf-8")
    print(f"{len(found['plans'])} plans of {len(found['architectures'])} architectures")


if __name__ == "__main__":
    main()
