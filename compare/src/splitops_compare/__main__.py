"""``python -m splitops_compare``: the command line."""

from splitops_compare.cli import main

main()
