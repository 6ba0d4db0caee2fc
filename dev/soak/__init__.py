"""Mixed calls for a long time, each checked, while memory is watched; see ``docs/soak.md``."""
