"""The Agent Client Protocol (ACP), client side: any agent that speaks it as a session, and as a pool's worker.

Nothing here knows an agent by name.
"""
