"""Writes reports: a page, SARIF, folders that reproduce a finding, and differences between reports."""
