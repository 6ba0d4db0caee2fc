"""Element types, and the packing of their elements in files."""
