"""Finds implementations, runs cases in them, and judges and confirms the outcomes."""
