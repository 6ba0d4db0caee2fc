"""What the project is measured and tried with; nothing here is installed."""
