"""The plan ``auto`` beside the plan that each kind of model of transformers declares, tensor by tensor."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

PARTS = 4
SCRIPT = Path(__file__).with_name("transformers_plans.py")
NOT_BUILT = {
    "CohereCompassConfig": "full_attention",
    "CohereCompassTextConfig": "full_attention",
    "FastVlmConfig": "requires the PIL library",
    "Gemma3nConfig": "requires the PIL library",
    "Gemma4AssistantConfig": "hidden_size_per_layer_input must be 0",
    "Gemma4UnifiedAssistantConfig": "the set of layer types",
    "Granite4VisionConfig": "has no len()",
    "Lfm2MoeConfig": "is not subscriptable",
    "PerceptionLMConfig": "requires the PIL library",
    "Qwen3OmniMoeConfig": "shared_expert_intermediate_size",
    "Qwen4ExpConfig": "unsupported operand",
    "Qwen4ExpTextConfig": "unsupported operand",
    "Step3p7Config": "no plan for",
    "T5Gemma2EncoderConfig": "dropout_rate",
}
"""The classes of which transformers 5.23 builds no small model, with what it says; one that is rejected."""
HELD = (198, 381)
"""How many configuration classes are held, and by how many models."""


@pytest.fixture(scope="module")
def compared() -> list[dict[str, Any]]:
    found = []
    for part in range(PARTS):
        command = [sys.executable, SCRIPT, str(part), str(PARTS)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return found


@pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
def test_auto_cuts_what_each_declared_plan_cuts(compared: list[dict[str, Any]]) -> None:
    assert {name: wrong for each in compared for name, wrong in each["differ"].items()} == {}
    without = {name: said for each in compared for name, said in each["without"].items()}
    held = [name for each in compared for name in each["held"]]
    assert without.keys() == NOT_BUILT.keys()
    assert all(NOT_BUILT[name].lower() in said.lower() for name, said in without.items()), without
    assert (len(held), sum(each["models"] for each in compared)) == HELD


UNPADDED = {
    "AriaConfig",
    "DiffusionGemmaConfig",
    "Dots3NoteConfig",
    "Glm46VConfig",
    "Glm4vConfig",
    "GlmOcrConfig",
    "HiggsAudioV2Config",
    "Inkling2Config",
    "Inkling2TextConfig",
    "InklingConfig",
    "InklingTextConfig",
    "MiniMaxM3VLTextConfig",
    "MistralLarge4Config",
    "MistralLarge4TextConfig",
    "MuseSparkConfig",
    "MuseSparkTextConfig",
}
"""Classes with a tensor that the declared plan leaves whole, of a size that is padded in others."""
PADDED = 178
"""The classes of which some size is padded. The others have sizes that no key has."""


@pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
def test_sizes_of_each_kind_are_padded_or_the_tensor_is_named(compared: list[dict[str, Any]]) -> None:
    said = {name: text for each in compared for name, text in each["unpadded"].items()}
    assert said.keys() == UNPADDED
    assert all("but not here: shard it, too" in text for text in said.values()), said
    assert sum(count > 0 for each in compared for count in each["padded"].values()) == PADDED
