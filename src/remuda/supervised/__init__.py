"""A program with a supervisor: it and everything it started end when we do, however we end."""
