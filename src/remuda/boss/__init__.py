"""The boss: one optional process per user that knows which agent waits for a human, and carries answers."""
