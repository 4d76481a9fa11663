"""What goes to agents: decisions on their permission requests, by people and by rules, and replies."""
