"""What is said to agents: answers to their requests, by hand and by rule, and replies."""
