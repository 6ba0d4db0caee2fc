"""Code that all packages share: untrusted files, atomic writes, progress, JSON values, the version."""
