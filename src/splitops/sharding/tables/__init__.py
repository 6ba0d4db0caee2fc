"""The plans that configurations of transformers declare, by the kind of model: a table that ships with us.

``python -m splitops.sharding.tables.generate`` makes it from an installed transformers, which nothing else
imports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from splitops.errors import PlanError, shown


@cache
def table() -> Mapping[str, Any]:
    """Return the table: plans, and which of them each architecture and model type has."""
    found: dict[str, Any] = json.loads(files(__package__).joinpath("transformers.json").read_text("utf-8"))
    return found


def declared_plan(config: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the words of a model's tensors, by globs, as its configuration's class declares them.

    Raises:
        PlanError: no plan is known for its kind.

    Examples:
        >>> declared_plan({"architectures": ["LlamaForCausalLM"]})["model.layers.*.self_attn.o_proj.*"]
        'rowwise'
    """
    known = table()
    architectures, kind = config.get("architectures"), config.get("model_type")
    named = architectures if isinstance(architectures, list) else []
    for names, key in (*((known["architectures"], name) for name in named), (known["model_types"], kind)):
        if isinstance(key, str) and key in names:
            found: Mapping[str, str] = known["plans"][names[key]]
            return found
    of = f"architectures {shown(named)} and " if named else ""
    raise PlanError(f"no plan is known for {of}model_type {shown(kind)}: state one with plan= (--plan FILE)")
