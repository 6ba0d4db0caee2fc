"""Element types and how files store their elements."""
