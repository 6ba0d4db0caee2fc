"""``python -m splitops.cli``."""

from splitops.cli import main

if __name__ == "__main__":
    main()
