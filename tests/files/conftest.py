from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _small_blocks(request, monkeypatch):
    """Reach every path of the engine with small files, where a test asks for it."""
    if "small_blocks" in request.keywords:
        from splitops.files import engine

        for name, size in {
            "_BLOCK": 64,
            "_LONG_RUN": 24,
            "_PIECE": 16,
            "_MAX_GAP": 4,
            "TASK_BYTES": 200,
        }.items():
            monkeypatch.setattr(engine, name, size)
