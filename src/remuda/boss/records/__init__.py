"""The database of the boss."""
