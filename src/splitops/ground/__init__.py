"""What all packages use: limits for hostile files, writing all files or none, progress, the version."""
