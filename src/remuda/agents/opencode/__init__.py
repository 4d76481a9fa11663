"""opencode: everything that is true of it and of no other agent. Facts as measured on 1.18.33."""
