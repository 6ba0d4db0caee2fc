"""Split nodes: their inferred facts, their meaning, and the ways to write them. No graph, no file."""

from __future__ import annotations

from splitops.models.split_nodes.split_node import Origin, SplitNode

__all__ = ["Origin", "SplitNode"]
