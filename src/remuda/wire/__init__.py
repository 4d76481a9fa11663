"""The keeper's protocol: Heimdall's framing byte for byte, and our additions. No I/O in here.

`frames` cuts a byte stream into frames and back, `messages` gives frames their meaning, `connection`
holds what each end may say and when. docs/reference/wire.md specifies all of it.
"""
