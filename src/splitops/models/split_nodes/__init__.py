"""Split nodes with inferred facts, and the ways to write them, independent of graphs and files."""

from __future__ import annotations

from splitops.models.split_nodes.split_node import Origin, SplitNode

__all__ = ["Origin", "SplitNode"]
