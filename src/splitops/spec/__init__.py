"""What the operators are: one row of data for each version, element types, and the only size arithmetic."""
