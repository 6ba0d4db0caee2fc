"""The files of models: read as if hostile, written whole or not at all."""
