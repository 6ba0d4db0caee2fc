"""Models run: the split family is ours, other operators are evaluated beside it."""
