"""Passes of onnxruntime's optimiser that get something wrong around a split, a file each."""
