"""The files of models: read as if hostile, written whole or not at all. What is wrong is a ModelError."""
