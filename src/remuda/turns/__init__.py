"""Handing a prompt to an agent, and following it to its end. Nothing else of ours ever types a prompt."""
