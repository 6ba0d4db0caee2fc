"""The adapters, one file per implementation. :mod:`splitops_compare.worker` documents their contents."""
