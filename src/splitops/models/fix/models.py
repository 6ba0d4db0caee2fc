"""Fix a model of either format and report the changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import onnx_ir as ir

from splitops.errors import ModelError, Where
from splitops.models.abstract_values import AbstractValue
from splitops.models.check import baked
from splitops.models.check.checking import Walked, examine_nodes, walk_model
from splitops.models.check.findings import Finding, Severity
from splitops.models.check.predicates import ModelContext
from splitops.models.check.targets import Target
from splitops.models.fix.cleared_sizes import declare_cleared
from splitops.models.fix.declared import Declarations, Repair
from splitops.models.fix.driver import ModelSnapshot, ValueName, fix_splits
from splitops.models.fix.functions import ConvertedFunctions
from splitops.models.fix.limits import find_max_outputs
from splitops.models.fix.opening import Opening
from splitops.models.fix.report import FixReport, FixStatus, Reason, SplitReport, Unbind
from splitops.models.fix.writing import FixWriter
from splitops.models.formats.model import CheckedModel
from splitops.models.formats.openvino.nodes import get_output_values
from splitops.models.formats.walk import has_layers
from splitops.models.graph.onnx import get_abstract_value
from splitops.models.graph.onnx_editor import OnnxEditor
from splitops.models.graph.openvino_editor import OpenVINOEditor
from splitops.models.graph.provenance import record_fix
from splitops.models.infer.interpreter import ForwardInterpreter
from splitops.models.split_nodes import SplitNode


def fix_model(
    model: CheckedModel,
    targets: Sequence[Target],
    unbind: Unbind | None,
    opening: Opening | None = None,
    *,
    keep_data: bool = False,
) -> FixReport:
    """Fix a model for ``targets``, and report all splits, including those that cannot be fixed."""
    for target in targets if model.is_openvino else ():
        if "openvino" not in target.formats:
            problem = f"{target.name} does not read OpenVINO IR: convert the model to ONNX"
            raise ModelError(problem, model.where)
    declarations = Declarations()
    edited, splits, last = fix_nodes(model, targets, unbind, opening=opening, on_look=declarations.repair)
    if any(reason.code == baked.CODE for split in splits for reason in split.reasons):
        declare_cleared(edited, model.where)
    walked = walk_model(edited, model.where)
    declarations.repair(walked)
    splits = _add_repairs(splits, declarations.repairs)
    changed = any(split.after != split.before or split.status is FixStatus.REWRITTEN for split in splits)
    runtimes = tuple(target.label for target in targets)
    if changed:
        record_fix(edited, runtimes)
    fixed = model.write(edited, changed=changed)
    # Check the result like any other model, so that the report lists all errors that are left.
    found = examine_nodes(edited, model.where, walked, targets, last.context)
    splits = _add_baked(splits, [one for one in found if one.code == baked.CODE])
    left = _drop_reported(splits, [one for one in found if one.severity is Severity.ERROR])
    untested = tuple(target for target in targets if not target.is_tested)
    return FixReport(runtimes, fixed, splits, left, untested, keep_data)


def _add_repairs(splits: Sequence[SplitReport], repairs: Sequence[Repair]) -> tuple[SplitReport, ...]:
    """Add each corrected output declaration to the report of its split, or to a new report."""
    reports = list(splits)
    for split_node, after, reason in repairs:
        at = next((at for at, one in enumerate(reports) if one.where == split_node.where), None)
        if at is None:  # a rewrite added the split
            reports.append(
                SplitReport(split_node.where, FixStatus.REWRITTEN, str(split_node), after, (reason,))
            )
            continue
        one = reports[at]
        fixable = one.status is not FixStatus.UNFIXABLE
        reports[at] = replace(
            one,
            status=FixStatus.REWRITTEN if fixable else one.status,
            after=f"{one.after}, {after}",
            reasons=(*one.reasons, reason) if fixable else one.reasons,
        )
    return tuple(reports)


def _add_baked(splits: Sequence[SplitReport], found: Sequence[Finding]) -> tuple[SplitReport, ...]:
    """Add the warnings about constant lengths on dynamic axes to the ``possible`` reasons of their splits."""
    warnings = {(one.where.graph, one.where.node): one for one in found}
    return tuple(
        split
        if warning is None
        else replace(
            split, possible=(*split.possible, Reason(warning.code, f"{warning.message}; help: {warning.fix}"))
        )
        for split in splits
        for warning in (warnings.get((split.where.graph, split.where.node)),)
    )


def _drop_reported(splits: Sequence[SplitReport], found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings that are not reasons of unfixable splits."""
    named = {
        (reason.code, split.where.graph, split.where.node)
        for split in splits
        if split.status is FixStatus.UNFIXABLE
        for reason in split.reasons
    }
    return tuple(one for one in found if (one.code, one.where.graph, one.where.node) not in named)


def fix_nodes(
    model: CheckedModel,
    targets: Sequence[Target],
    unbind: Unbind | None,
    *,
    repair: bool = True,
    opening: Opening | None = None,
    on_look: Callable[[Walked], None] | None = None,
) -> tuple[ir.Model, tuple[SplitReport, ...], ModelSnapshot]:
    """Fix a copy of a model.

    With ``repair``, also repair rule violations. Call ``on_look`` with the inferred model before each pass.

    Returns:
        The fixed copy, the reports of the splits, and the last snapshot.
    """
    functions = ConvertedFunctions(model)
    edited = functions.edited
    look = partial(take_snapshot, edited, model.where, targets, unbind, opening, on_look)
    splits, last = fix_splits(look, targets, unbind, repair=repair)
    return edited, functions.add_reasons(splits), last


def take_snapshot(
    model: ir.Model,
    where: Where,
    targets: Sequence[Target],
    unbind: Unbind | None = None,
    opening: Opening | None = None,
    on_look: Callable[[Walked], None] | None = None,
) -> ModelSnapshot:
    """Infer a model's types and shapes, annotate its values, and return the snapshot for one pass."""
    limit = find_max_outputs(targets)
    calls: dict[ir.Node, list[SplitNode]] = {}

    def on_split(split_node: SplitNode) -> None:
        calls.setdefault(split_node.node, []).append(split_node)

    # Forward inference: a size that a split implies for its own input may be wrong until the split has run.
    sizes = None if opening is None else baked.OpenSizes.from_model(model)
    found = ForwardInterpreter(model, where, on_split, given=None if sizes is None else sizes.given).run()
    if on_look is not None:
        on_look(Walked(found, [split_node for split_nodes in calls.values() for split_node in split_nodes]))
    found.annotate()
    to_open = None if sizes is None else sizes.describe_baked
    context = ModelContext.from_model(model)
    if not has_layers(model):
        onnx = FixWriter(OnnxEditor(model, where), unbind, limit, opening)
        return ModelSnapshot(calls, context, onnx, _get_outputs, found.index_by_name, to_open)
    # Names of inner values may change, so only the outputs are compared.
    results: dict[ValueName, AbstractValue] = {
        (None, name): get_abstract_value(value) for name, value in get_output_values(model).items()
    }
    writer = FixWriter(OpenVINOEditor(model, where), unbind, limit, opening)
    return ModelSnapshot(calls, context, writer, lambda node, path: results, lambda: results, to_open)


def _get_outputs(node: ir.Node, path: str | None) -> Mapping[ValueName, AbstractValue]:
    return {(path, value.name): get_abstract_value(value) for value in node.outputs if value.name}
