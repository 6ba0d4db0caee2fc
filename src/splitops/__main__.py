"""``python -m splitops``: the command line."""

from splitops.cli import main

main()
