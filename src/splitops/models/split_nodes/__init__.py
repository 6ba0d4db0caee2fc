"""One split in a model: what is known of it, what it does, and how it may be written. No graph, no file."""

from __future__ import annotations

from splitops.models.split_nodes.split_node import Origin, SplitNode

__all__ = ["Origin", "SplitNode"]
