"""The version of splitops-compare."""

__version__ = "0.1.0"
