"""What one split means: attributes and inputs come in; a valid request, its plan or inferred parts go out."""
