"""Claude Code: the only place that knows its flags, files, hooks and screens (measured on 2.1.325).

`launch` prepares a start that leaves the user's own settings alone, `observer` reads what it shows of itself.
"""
