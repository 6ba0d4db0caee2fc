"""What all rooms stand on: limits for hostile files, writing of all files or none, progress, the version."""
