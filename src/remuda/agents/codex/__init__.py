"""OpenAI's codex: a session has an app-server of its own, and the terminal shows the same conversation.

Facts about it were measured on 0.166.0.
"""
