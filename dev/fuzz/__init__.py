"""Coverage-guided fuzzing of what reads files and of what is computed from models and calls."""
