"""Calls of operators on arrays: make plans from the arguments, and run the plans.

The modules, each using those before it: :mod:`.arguments` (arguments for binding), :mod:`.symbolic` (sizes
that a library traces), :mod:`.plan`, :mod:`.execution`, :mod:`.plan_cache` (cached calls),
:mod:`.torch_compile` and :mod:`.functions` (the functions of the dialects). :mod:`.node` runs the node of a
model.
"""
