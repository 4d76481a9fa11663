"""A program behind a supervisor: it and all that it started end when we do, however we end."""
