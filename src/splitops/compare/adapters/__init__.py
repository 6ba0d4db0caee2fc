"""The peers, a file each; see :mod:`splitops.compare.worker` for what such a file has."""
