"""Splits that no run can make valid: a session is not made of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

import onnx_ir as ir

from splitops.errors import Where
from splitops.models.graph.openvino import layer_of, source_of
from splitops.models.graph.sites import is_split, read_site
from splitops.models.infer.layers import known_before
from splitops.models.known import fact
from splitops.models.running.openvino.evaluator import needed_layers
from splitops.models.sites import Origin, Site
from splitops.splitting.binding import Fact


def reject_invalid(sites: Iterable[Site]) -> None:
    """Raise the rule that a split breaks whatever the run brings.

    Args:
        sites: splits that every run of the model evaluates, with no more than what holds in every run.

    Raises:
        RuleError: a split is invalid.
    """
    for site in sites:
        if site.error is not None:
            raise site.error.with_traceback(None)


def certain_sites(sites: Iterable[Site], inputs: Collection[str]) -> Iterator[Site]:
    """Yield the splits of the main graph of an ONNX model with what holds in every run.

    Constants do, and what the model declares of its inputs, which are checked. What it claims of other
    values may be wrong.

    Args:
        sites: all splits of the model.
        inputs: the names of the model's inputs.
    """
    for site in sites:
        if site.where.graph is None:
            facts = zip(site.facts, site.inputs, site.origins, strict=True)
            yield replace(site, facts=tuple(_certain(known, name in inputs, at) for known, name, at in facts))


def _certain(known: Fact | None, is_input: bool, origin: Origin) -> Fact | None:
    if known is None or origin is Origin.MODEL:
        return known
    return replace(known, value=None) if is_input else Fact()


def certain_ir_sites(model: ir.Model, where: Where) -> Iterator[Site]:
    """Yield the splits of the main graph of OpenVINO IR that a Result needs, with what holds in every run."""
    source = source_of(model)
    assert source is not None
    needed = needed_layers(source.graph)
    for node in model.graph:
        if is_split(node) and layer_of(node).id in needed:
            place = replace(where, node=node.name)
            makers = [value.producer() for value in node.inputs if value is not None]
            facts = [
                fact(known_before(layer_of(maker), replace(where, node=maker.name)), value=True)
                for maker in makers
                if maker is not None
            ]
            yield read_site(node, 0, place, facts=facts)
