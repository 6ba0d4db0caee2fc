"""Plans of splits and merges of files, which can be run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

from splitops.files.plans import PlannedFiles, Report, RunOptions, all_options
from splitops.files.running import Run
from splitops.files.tensors import without_collector


@dataclass(frozen=True)
class FilePlan(PlannedFiles):
    """A split or merge of files that is proved valid and can be carried out; see :class:`PlannedFiles`.

    Examples:
        >>> import pathlib, tempfile
        >>> import numpy as np, splitops
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> np.save(folder / "x.npy", np.arange(12.0).reshape(3, 4))
        >>> plan = splitops.files.plan_split(folder / "x.npy", folder / "parts", axis=1, num_outputs=2)
        >>> [part.shape for part in plan.parts], plan.dry_run().bytes
        ([(3, 2), (3, 2)], 96)
        >>> report = plan.run(verify=True)
        >>> [path.name for path, _ in report.files]
        ['x.0.npy', 'x.1.npy']
    """

    def run(self, **options: Unpack[RunOptions]) -> Report:
        """Write the targets: all of them whole, or none.

        Args:
            **options: the fields of :class:`RunOptions`.

        Raises:
            FileError: a target exists, a source cannot be read or has changed, the disk is full, a byte does
                not read back as it was written. Nothing is left then, but for what a run was to go on with
                whose sources have changed.
        """
        return self.start(all_options(options)).done()

    @without_collector()
    def start(self, how: RunOptions) -> Run:
        """Return a run of the plan that has done nothing yet.

        Args:
            how: all options, as :func:`all_options` returns them.

        Raises:
            FileError: the memory is too little, or the plan cannot be run on a cluster.
        """
        return Run(self, how)
