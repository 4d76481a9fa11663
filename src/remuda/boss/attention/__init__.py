"""Who needs a human, and why: data and rules, with no I/O."""
