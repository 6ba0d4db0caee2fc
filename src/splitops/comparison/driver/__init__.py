"""Asks the implementations, each in processes of its own, and says what is to be said of their answers."""
