"""Which sessions need a human, and why: data and rules, without I/O."""
