"""What every room stands on: limits for hostile files, files written all or nothing, progress, the version."""
