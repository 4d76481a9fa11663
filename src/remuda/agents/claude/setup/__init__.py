"""Remuda's hooks in Claude Code's own settings files: writing, recognising, checking and removing them."""
