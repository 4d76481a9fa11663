"""The commands: what each is for, on which page of help, and where its code is."""

from __future__ import annotations

import sys

DAILY: dict[str, dict[str, str]] = {
    "Sessions": {
        "start": "Start an agent or any command as a session",
        "attach": "Show a session in this terminal and type into it",
        "ls": "List all agents and what each is doing",
        "show": "Show one session: state, evidence, messages, screen",
        "logs": "Print the output of a session",
        "kill": "End a session and every process it started",
    },
    "Messages": {
        "send": "Send a prompt to an agent",
        "cancel": "Cancel a waiting message, or interrupt the running turn",
        "messages": "List messages and how far each got",
    },
    "One shot": {
        "ask": "Ask once and print the answer, like claude -p",
    },
    "Attention": {
        "queue": "List agents that are waiting for you, and why",
        "next": "Go to the first agent in the queue",
        "approve": "Allow a permission request, or answer a question",
        "deny": "Deny a permission request",
        "later": "Postpone an agent in the queue, or remove it",
        "dash": "Show all agents on one screen, and answer from there",
        "open": "Open the page in a browser, or show its login link",
    },
    "This machine": {
        "setup": "Set up hooks, tmux keys and completion, or remove them",
        "doctor": "Check this machine and say how to fix what is wrong",
        "demo": "Take a one-minute tour; needs no account and no network",
        "help": "Show the help of a command, or a page of the manual",
    },
}
"""The first page of help."""
MORE: dict[str, dict[str, str]] = {
    "More on sessions": {
        "status": "Show the state of a session (part of 'show')",
        "screen": "Print the screen of a session (part of 'show')",
        "resume": "Bring back sessions that ended with their machine",
        "sleep": "End an idle agent until it is needed again",
        "wake": "Start the agent of a session that is asleep",
        "resize": "Change the terminal size of a session",
        "usage": "Show the tokens and the money that agents used",
        "budget": "List the limits on usage, and check their file",
        "clean": "Remove logs and records of ended sessions",
        "launch": "Run a command on its own terminal, without a keeper",
    },
    "More on messages": {
        "wait": "Wait until a message has ended, or a session is idle",
        "receipt": "Show the receipt of a message",
        "inbox": "Put, list, recover and serve messages of an inbox",
        "stop-hook": "Return the next message of an inbox to a Stop hook",
    },
    "More on one shot": {
        "print": "Ask once, with the exact interface of claude -p",
        "run": "Ask a warm agent of a pool",
        "pool": "Keep agents warm for other processes",
    },
    "More on attention": {
        "agents": "List the agents of this machine that the boss knows",
        "reply": "Send a prompt to an idle agent, wherever it runs",
        "approvals": "List permission requests and their outcomes",
        "preview": "Print the screen of a waiting agent",
        "popup": "Choose from the queue in a tmux popup",
        "return": "Go back to the pane that 'next' left",
        "skip": "Move an agent to the end of the queue",
        "snooze": "Hide an agent from the queue for a while",
        "dismiss": "Remove an agent from the queue",
        "policy": "Check and explain permission rules",
        "notify": "List who is notified, or send a test notice",
    },
    "The boss": {
        "boss": "Start, stop and inspect the boss, which keeps the queue",
        "up": "Start the boss",
        "down": "Stop the boss; sessions keep running",
        "bootstrap": "Add agents in tmux panes that the boss does not know",
        "segment": "Print the queue for a status line",
    },
    "Many machines": {
        "fleet": "Run a hub, join it, and see all machines",
    },
    "Agents that run agents": {
        "mcp": "Serve tools by which an agent runs other agents",
    },
    "More on this machine": {
        "hooks": "Install, remove and show hooks and tmux keys",
        "completion": "Print the completion script of a shell",
        "version": "Print the version",
    },
}
"""The rest: exact forms, and names from before `show`, `later`, `messages` and `setup` united them."""
COMMANDS = {
    name: text for page in (DAILY, MORE) for section in page.values() for name, text in section.items()
}
SHARED_MODULES = {
    "agents": "queue",
    "approvals": "approve",
    "ask": "print",
    "deny": "approve",
    "dismiss": "queue_steps",
    "down": "boss",
    "later": "queue_steps",
    "next": "queue_steps",
    "reply": "send",
    "resize": "screen",
    "return": "queue_steps",
    "run": "print",
    "skip": "queue_steps",
    "snooze": "queue_steps",
    "stop-hook": "inbox",
    "up": "boss",
    "wait": "receipt",
    "wake": "sleep",
}
"""Commands that are in the module of another, as `NAME_command`. All others are `command` in `NAME.py`."""


def load(name: str) -> object | None:
    """Return the command of that name, from its module; None if there is none."""
    if name not in COMMANDS:
        return None
    name, shared = name.replace("-", "_"), SHARED_MODULES.get(name)
    package = "tui" if name == "dash" else "cli"  # above the commands, which it uses
    module = f"remuda.{package}.{shared or name}"
    __import__(module)
    command: object = getattr(sys.modules[module], f"{name}_command" if shared else "command")
    return command
