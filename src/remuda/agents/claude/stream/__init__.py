"""Claude Code's stream-json protocol (2.1.325): bytes to events, a client, and the pool's workers."""

# Here, because a keeper needs them when a turn ends, and nothing else of this package.
LASTING_TOOLS = {
    "CronCreate": "a scheduled prompt",
    "EnterWorktree": "another working folder",
    "Monitor": "something that is watched",
    "ScheduleWakeup": "a wake-up",
}
"""Tools whose effect outlives the conversation, and what that is."""
