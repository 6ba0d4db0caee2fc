"""Fix a model of either format and report the changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from splitops.errors import ModelError
from splitops.models.check import baked
from splitops.models.check.checking import examine_nodes
from splitops.models.check.findings import Finding, Severity
from splitops.models.check.targets import Target
from splitops.models.fix.cleared_sizes import declare_cleared
from splitops.models.fix.declared import Declarations, Repair
from splitops.models.fix.driver import ModelSnapshot, fix_splits
from splitops.models.fix.functions import ConvertedFunctions
from splitops.models.fix.opening import Opening
from splitops.models.fix.report import FixReport, FixStatus, Reason, SplitReport, Unbind
from splitops.models.formats.model import CheckedModel
from splitops.models.graph.provenance import record_fix
from splitops.models.infer.interpreter import infer_model


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
    functions, declarations = ConvertedFunctions(model), Declarations()
    edited = functions.edited
    look = partial(ModelSnapshot.take, edited, model.where, targets, unbind, opening, declarations.repair)
    splits, last = fix_splits(look, targets, unbind)
    splits = functions.add_reasons(splits)
    if any(reason.code == baked.CODE for split in splits for reason in split.reasons):
        declare_cleared(edited, model.where)
    inferred = last.inferred
    if not (last.is_current and inferred.is_complete):
        inferred = infer_model(edited, model.where)
        declarations.repair(inferred)
    splits = _add_repairs(splits, declarations.repairs)
    changed = any(split.after != split.before or split.status is FixStatus.REWRITTEN for split in splits)
    runtimes = tuple(target.label for target in targets)
    if changed:
        record_fix(edited, runtimes)
    fixed = model.write(edited, changed=changed)
    # Check the result like any other model, so that the report lists all errors that are left.
    found = examine_nodes(edited, model.where, inferred, targets, last.context)
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
