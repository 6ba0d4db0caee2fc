"""What runtimes, compilers, converters and simplifiers do with the split family, held to what is decided."""
