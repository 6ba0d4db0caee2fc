"""The words of transformers' tensor-parallel plans, as rows of data.

A word says where a weight is cut; what it says of the run (who gathers, who reduces) is not of the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Word:
    """Where a word cuts.

    Attributes:
        axis: of tensors of rank 2 and more; None where they stay whole.
        bias: the axis of tensors of rank 1; None where they stay whole.
        sections: in how many equal fused parts the axis of a weight is; each of them is cut. A tensor of
            rank 1 is cut as one, as transformers has it.
    """

    axis: int | None
    bias: int | None
    sections: int = 1


_WHOLE: Final = Word(None, None)
_COLUMNS: Final = Word(-2, -1)
_ROWS: Final = Word(-1, None)

_HOOKS: Final = (
    "sequence_parallel",
    "replicated_with_grad_allreduce",
    "mla_kv_a_proj",
    "all_reduce",
    "moe_tp_experts",
    "moe_identity_expert",
    "ep_dispatch_experts",
    "local_params",
)
"""What happens at run time, to modules whose weights stay as other words say."""

WORDS: Final[Mapping[str, Word]] = MappingProxyType(
    {
        "colwise": _COLUMNS,
        "colwise_rep": _COLUMNS,
        "colwise_gather_output": _COLUMNS,
        "rowwise": _ROWS,
        "rowwise_rep": _ROWS,
        "rowwise_split_input": _ROWS,
        "embedding_rowwise": Word(0, 0),
        "embedding_colwise": Word(1, None),
        "packed_colwise": Word(-2, -1, sections=2),
        "packed_rowwise": Word(-1, None, sections=2),
        "grouped_gemm": Word(0, 0),
        "replicate": _WHOLE,
        **dict.fromkeys(_HOOKS, _WHOLE),
    }
)
