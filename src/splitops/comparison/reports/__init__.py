"""What is made of a report: a page, files for other programs, what changed, what was expected."""
