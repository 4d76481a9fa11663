"""Many machines: one list and one queue, over a NATS server (the hub)."""
