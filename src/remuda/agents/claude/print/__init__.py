"""`remuda print` with Claude Code: its flags, its dialogs, and its transcript as what `claude -p` prints."""
