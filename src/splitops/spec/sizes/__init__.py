"""Sizes of axes and parts: integers, ranges, symbolic expressions, and the arithmetic of the size rules."""
