"""The keeper: one small process per session that owns its terminal and its socket.

Others reach a session only through `client`; `start` brings one up; all else runs inside the keeper.
"""
