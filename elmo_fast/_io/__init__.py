"""Files and folders that are complete or absent, locks, packed files, JSON that fits a type."""
