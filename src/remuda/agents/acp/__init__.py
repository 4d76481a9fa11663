"""The client side of the Agent Client Protocol (ACP): any agent as a session, or as a worker of a pool.

Nothing here knows an agent by name.
"""
