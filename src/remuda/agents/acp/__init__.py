"""The client side of the Agent Client Protocol (version 1): JSON-RPC lines on an agent's standard streams.

`protocol` makes messages of bytes and does no I/O. `client` runs an agent and calls it. `worker` is a worker
of a pool on that. Nothing here knows which agent it is.
"""
