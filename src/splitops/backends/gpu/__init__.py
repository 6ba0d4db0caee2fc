"""Copies on a GPU: one launch for all parts, with what there is of a table in the kernel's arguments.

:mod:`~splitops.backends.gpu.layout` decides what a launch does, in integers only; the Triton and CUDA C
kernels beside it do it.
"""
