"""`remuda print`: one prompt and one answer, as with `claude -p`, on a session that you can watch."""
