"""Code that every package uses: untrusted files, atomic writes, progress, JSON values, the version."""
