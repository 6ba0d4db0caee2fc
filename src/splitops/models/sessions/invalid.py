"""Splits that no run can make valid: a session is not made of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from splitops.errors import Where
from splitops.models.formats.openvino import OpenVINOModel
from splitops.models.formats.openvino.sites import read_site
from splitops.models.infer.openvino_walk import known_before
from splitops.models.known import fact
from splitops.models.running.openvino.evaluator import needed_layers
from splitops.models.sites import Origin, Site
from splitops.spec.operators import FAMILY
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


def certain_ir_sites(model: OpenVINOModel, where: Where) -> Iterator[Site]:
    """Yield the splits of the main graph of OpenVINO IR that a Result needs, with what holds in every run."""
    graph, needed = model.graph, needed_layers(model.graph)
    for layer in graph.order:
        if layer.type in FAMILY["openvino"] and layer.id in needed:
            makers = [graph.by_id[source.layer] for source in graph.sources(layer)]
            facts = [fact(known_before(maker, where), value=True) for maker in makers]
            yield read_site(graph, layer, replace(where, node=layer.name), facts)
