"""One process: ``python transformers_plans.py PART PARTS`` holds the plan ``auto`` against transformers' own.

Of every configuration class that declares a plan, models are built without memory. transformers cuts their
parameters for the first of two ranks; ``auto`` cuts the tensors of their checkpoints. The elements of the
rank must be as many. The sizes of the first model of each class are padded for a number of ranks that divides
none of them. Prints what differs, what could not be built and what cannot be padded as JSON.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from splitops.errors import PlanError
from splitops.files import StoredTensor
from splitops.files.tensors import Unit
from splitops.sharding.auto import make_auto_plan
from splitops.sharding.expressions import Names
from splitops.sharding.padding import make_padded_config, pad_sizes, separate_sizes
from splitops.sharding.plan_language import match_rules, read_shard_rules

sys.path.insert(0, str(Path(__file__).parents[2]))
from dev.tools import transformers_plans as generate

RANKS = 2
PAD_FOR = 7
TAKEN_APART = "taken apart as they are loaded"
"""Tensors that become more than one parameter: of these, the elements of all together are compared."""


def classes() -> dict[str, list[str]]:
    """Return by configuration class the architectures that have it, where any part of it declares a plan."""
    import transformers

    found: dict[str, list[str]] = {}
    for name, _ in generate.architectures():
        try:
            config = getattr(transformers, name).config_class
        except (AttributeError, ImportError):  # not public; of a library that is not installed
            continue
        if name not in found.get(config.__name__, []):
            found.setdefault(config.__name__, []).append(name)
    return found


def held_by_transformers(model: Any, mesh: Any) -> dict[str, int]:
    """Return the elements of each parameter that the first rank holds, as transformers cuts it."""
    from torch.distributed.tensor import DTensor
    from transformers.distributed.tensor_parallel import ALL_PARALLEL_STYLES

    modules, parameters = dict(model.named_modules()), dict(model.named_parameters())
    for name, style in model._expand_parallel_plan(model.tp_plan).items():
        if name in parameters:
            module, _, parameter = name.rpartition(".")
            ALL_PARALLEL_STYLES[style].shard_param(modules[module], parameter, mesh)
    return {
        name: (parameter.to_local() if isinstance(parameter, DTensor) else parameter).numel()
        for name, parameter in model.named_parameters()
        if name in parameters  # of tied ones the first: cut, it is another one than the rest
    }


def held_by_auto(model: Any, architecture: str) -> tuple[dict[str, int], int]:
    """Return the same by parameter, from the tensors of the checkpoint, and how many tensors are cut."""
    import math

    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import (
        WeightConverter,
        WeightRenaming,
        rename_source_key,
        revert_weight_conversion,
    )

    mapping = get_model_conversion_mapping(model, add_legacy=False)
    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
    state = model.state_dict()
    saved = revert_weight_conversion(model, state)
    config = {"architectures": [architecture], "model_type": model.config.model_type}
    rules = read_shard_rules(make_auto_plan(config, list(saved)))
    tensors = [
        StoredTensor(name, tuple(each.shape), "U8", Unit(1, 1), 0, each.numel())
        for name, each in saved.items()
    ]
    matches = match_rules(rules, tensors, Names({}, config))
    kinds = [kind.cut(RANKS) for kind in matches.kinds]
    cuts = [kinds[number] for number in matches.numbers.tolist()]
    held: Counter[str] = Counter()
    for tensor, cut in zip(tensors, cuts, strict=True):
        name, pattern = rename_source_key(tensor.name, renamings, converters, model.base_model_prefix, state)
        if any(pattern in each.source_patterns and len(each.target_patterns) > 1 for each in converters):
            name = TAKEN_APART
        shape = cut.shape(tensor.shape, 0)
        held[name] += 0 if shape is None else math.prod(shape)
    return held, sum(cut.axis is not None for cut in cuts)


def pad(model: Any, architecture: str) -> tuple[int, str]:
    """Pad the sizes of a whole model. Return how many tensors are padded, or why it cannot be."""
    from transformers.core_model_loading import revert_weight_conversion

    saved = revert_weight_conversion(model, model.state_dict())
    stated = {**model.config.to_dict(), "architectures": [architecture]}
    config = json.loads(json.dumps(stated, default=str))
    tensors = [
        StoredTensor(name, tuple(each.shape), "U8", Unit(1, 1), 0, each.numel())
        for name, each in saved.items()
    ]
    rules = read_shard_rules(make_auto_plan(config, list(saved)))
    matches = separate_sizes(match_rules(rules, tensors, Names({}, config)), tensors)
    try:
        padded, _ = pad_sizes(matches, config, PAD_FOR, 1)
    except PlanError as error:
        return 0, error.message
    cuts = [kind.cut(1) for kind in padded.kinds]
    said = make_padded_config(padded, cuts, config, "hf").warnings
    wrong = [line for line in said if "keeps" in line or "no size" in line]
    return sum(cuts[number].padded > 0 for number in padded.numbers.tolist()), "; ".join(wrong)


def compared(part: int, parts: int) -> dict[str, Any]:
    """Compare some of the classes."""
    import torch.distributed as dist
    import transformers
    from torch.distributed import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    transformers.logging.set_verbosity_error()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    models, tensors = 0, 0
    held: list[str] = []
    differ: dict[str, list[str]] = {}
    without: dict[str, str] = {}
    padded: dict[str, int] = {}
    unpadded: dict[str, str] = {}
    for name, architectures in sorted(classes().items())[part::parts]:
        try:
            if not _declares(name):
                continue
        except Exception as error:  # its default configuration cannot be made
            without[name] = _reason(error)
            continue
        architecture, found = _built(architectures)
        if not found:
            without[name] = architecture
            continue
        for model in found:
            if not model.tp_plan:
                continue
            try:
                ours, cut = held_by_auto(model, architecture)
            except PlanError as error:  # rejected, and not wrong
                without[name] = _reason(error)
                break
            wanted = held_by_transformers(model, mesh)
            # What no tensor becomes by the names of transformers, such as a norm that it renames, is whole.
            whole = {name: each.numel() for name, each in model.state_dict().items()}
            left = [
                key for key in wanted.keys() - ours.keys() if TAKEN_APART in ours or wanted[key] != whole[key]
            ]
            wanted[TAKEN_APART] = sum(wanted[key] for key in left)
            ours.setdefault(TAKEN_APART, 0)
            wrong = [
                f"{key}: {ours[key]}, not {wanted[key]}"
                for key in ours.keys() & wanted.keys()
                if ours[key] != wanted[key]
            ]
            if wrong:
                differ.setdefault(architecture, []).extend(sorted(wrong)[:4])
            models, tensors = models + 1, tensors + cut
        else:
            held.append(name)
            padded[name], unpadded[name] = pad(found[0], architecture) if found[0].tp_plan else (0, "")
    more = {"padded": padded, "unpadded": {name: said for name, said in unpadded.items() if said}}
    return {"held": held, "models": models, "tensors": tensors, "differ": differ, "without": without, **more}


def _declares(name: str) -> bool:
    import transformers

    kind = getattr(transformers, name)
    return any(getattr(part, "base_model_tp_plan", None) for part in generate._parts(kind()))


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"


def _built(architectures: list[str]) -> tuple[str, list[Any]]:
    """Return the first architecture that can be built, with its models; else the reason, and none."""
    reason = ""
    for name in architectures:
        try:
            found = list(generate.models(name))
        except Exception as error:  # of transformers: a library or a value that a configuration lacks
            reason = reason or _reason(error)
            continue
        if found:
            return name, found
    return reason, []


if __name__ == "__main__":
    print(json.dumps(compared(int(sys.argv[1]), int(sys.argv[2]))))
