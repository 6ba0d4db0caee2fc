"""Models of what networks write around a split, drawn at random, and what runtimes make of them."""
