"""A durable inbox: appended to by anyone, handed out one at a time, acknowledged when answered.

`stop_hook` is the one file that a session's Stop hook runs, and holds how entries are read, leased and
acknowledged; `journal` is what senders and operators do: put, list, status, dead letters, redrive, give back;
`receipts` follows one message.
"""
