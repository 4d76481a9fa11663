"""Claude Code's stream-json protocol (2.1.325): bytes to events, a client, and the pool's workers."""
