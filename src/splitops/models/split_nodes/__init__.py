"""Split nodes in a form that is independent of graphs and files, and equivalent ways to write them."""

from __future__ import annotations

from splitops.models.split_nodes.split_node import Origin, SplitNode

__all__ = ["Origin", "SplitNode"]
