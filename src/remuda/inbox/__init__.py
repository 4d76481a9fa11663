"""A durable inbox: anyone appends to it, messages are handed out one at a time, and acknowledged when
answered.

`stop_hook` is the one file that a session's Stop hook runs; it has the code that reads, leases and
acknowledges entries. `journal` is for senders and operators: put, list, status, dead letters, redrive, free
space. `receipts` follows one message.
"""
