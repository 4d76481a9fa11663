"""The keeper's protocol: Heimdall's framing byte for byte, and our additions. No I/O in here.

`frames` cuts a byte stream into frames and back, `messages` gives frames their meaning, `connection` holds
what each end may send and when. docs/reference/wire.md is the specification.
"""
