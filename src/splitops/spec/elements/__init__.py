"""Element types, and the storage of their elements."""
