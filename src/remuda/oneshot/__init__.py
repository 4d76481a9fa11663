"""`remuda print`: one prompt, one answer, as `claude -p` does it, on a session that can be watched."""
