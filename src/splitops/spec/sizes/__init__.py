"""Sizes of axes and parts: dimensions, the size rules and their arithmetic, ranges, names."""
