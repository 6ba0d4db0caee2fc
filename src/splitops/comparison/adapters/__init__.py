"""The implementations, a file each; see :mod:`splitops.comparison.worker` for what such a file has."""
