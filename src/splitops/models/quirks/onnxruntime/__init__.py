"""Optimiser passes of onnxruntime that are wrong around splits, one module per pass."""
