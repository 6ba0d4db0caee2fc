"""Calls: from arguments to plans, and plans run on arrays.

The files from the lowest up: :mod:`.arguments` (arguments, for binding), :mod:`.symbolic` (sizes
that a library traces), :mod:`.plan`, :mod:`.running`, :mod:`.memo` (what calls of other libraries meant),
:mod:`.compiled` (torch.compile), :mod:`.functions` (the functions of the dialects). :mod:`.node` runs what a
model's node asks for.
"""
