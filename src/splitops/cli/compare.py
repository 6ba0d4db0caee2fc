"""``splitops compare``: the command of splitops-compare, if it is installed."""

from __future__ import annotations

from importlib.util import find_spec

import click

command: click.Command
if find_spec("splitops_compare") is not None:
    from splitops_compare.cli import command
else:

    @click.command(
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
        short_help="Compare the installed runtimes, with splitops-compare.",
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments: tuple[str, ...]) -> None:
        """Compare the installed runtimes with the specification, with splitops-compare."""
        raise click.UsageError("The comparison is another package: pip install splitops-compare")
