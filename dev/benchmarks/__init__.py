"""Measurements of splitops beside its peers: ``python -m dev.benchmarks``."""
