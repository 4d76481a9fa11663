"""The boss: one optional process per user that knows which agents wait for a human, and answers them."""
