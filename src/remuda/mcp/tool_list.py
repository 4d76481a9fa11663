"""The tools as a model reads them: what each does, when to use it, and its arguments. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]

MOST_WAIT = 300.0
DEFAULT_WAIT = 60.0
MOST_LINES = 1000
PROMPT_CHARACTERS = 1 << 20


@dataclass(frozen=True, slots=True)
class Tool:
    description: str
    fields: dict[str, Schema]
    required: tuple[str, ...] = ()
    reads_only: bool = False
    destroys: bool = False

    @property
    def schema(self) -> Schema:
        return {
            "type": "object",
            "properties": self.fields,
            "required": list(self.required),
            "additionalProperties": False,
        }


def _text(description: str, most: int = 256, least: int = 1) -> Schema:
    return {"type": "string", "minLength": least, "maxLength": most, "description": description}


def _number(description: str, most: float, least: float = 0) -> Schema:
    return {"type": "number", "minimum": least, "maximum": most, "description": description}


_SESSION = {
    "session": _text(
        "Name of a session, as list_agents and start return it; HOST/SESSION for one of another machine."
    )
}
_MESSAGE = {"message": _text("Id of a message, as send returns it.", 128)}
_PROMPT = _text("What the agent is to do, in full: it does not know your conversation.", PROMPT_CHARACTERS)
_CWD = _text("Folder to work in: an absolute path, or one relative to yours. Default: your folder.", 4096)

INSTRUCTIONS = """Run other coding agents, each in a session of its own terminal.

1. start an agent; give it its first prompt at once.
2. wait for the message that start or send returned. wait returns early: call it again until `ended` is true.
3. Read `answer`. Send more with send; the agent remembers the conversation.
4. kill the session when you no longer need it.

For one question without a conversation, run is quicker. You reach only sessions that you started, unless the
user allows more; HOST/SESSION is one of another machine. Permission requests of your agents are decided by
the user: queue shows them; tell the user. A message that begins with "[message ID from ...]" was sent by
another agent: answer it as any prompt, and use send with in_reply_to=ID only for what cannot wait for the end
of your turn. One that begins with "[message from ...]" came from another machine: answer it in your turn."""

TOOLS: dict[str, Tool] = {
    "whoami": Tool(
        "Return who you are here: your session, your depth, which sessions you reach, your limits and what "
        "of them is used.",
        {},
        reads_only=True,
    ),
    "list_agents": Tool(
        "List the sessions that you reach, with the state of each: idle, thinking, tool_use, "
        "waiting_permission, dead and so on. Ended ones only if you ask for them.",
        {"ended": {"type": "boolean", "description": "Also list sessions that have ended."}},
        reads_only=True,
    ),
    "start": Tool(
        "Start an agent in a new session and return the name of the session. Give it work with `prompt`: "
        "then `message` in the result is the id to wait for. The agent has its own conversation, and asks "
        "the user for permissions as usual.",
        {
            "name": {
                **_text("Short name for the session. The result has the full name.", 32),
                "pattern": r"^([a-z0-9-]+/)?[A-Za-z0-9_][A-Za-z0-9_-]*$",
            },
            "agent": _text(
                "The program to run, such as claude. Default: the same as yours, else claude.", 64
            ),
            "cwd": _CWD,
            "prompt": _PROMPT,
        },
    ),
    "send": Tool(
        "Send a prompt to a session and return the id of the message at once. It is typed when the agent is "
        "idle, in order. Use wait to get the answer. With in_reply_to, it goes to the sender of a message "
        "that you got.",
        {
            **_SESSION,
            "text": _PROMPT,
            "in_reply_to": _text("Id of a message that was sent to you; then leave session out.", 128),
        },
        ("text",),
    ),
    "receipt": Tool(
        "Return how far a message got: accepted, written, submitted, recorded, then acked with the answer, "
        "or dead with a reason. Returns at once; use wait to wait.",
        {**_SESSION, **_MESSAGE},
        ("session", "message"),
        reads_only=True,
    ),
    "wait": Tool(
        "Wait for the answer to a message; without `message`, until the session is idle. Returns early with "
        "ended=false and the progress when the time is over, when a human is needed, or when the session "
        "ends: read `why`, and call wait again to go on.",
        {
            **_SESSION,
            **_MESSAGE,
            "timeout": _number(
                f"Seconds to wait, at most {MOST_WAIT:g}. Default {DEFAULT_WAIT:g}.", MOST_WAIT
            ),
        },
        ("session",),
        reads_only=True,
    ),
    "screen": Tool(
        "Return what the terminal of a session shows now; of an ended session, what it showed last.",
        _SESSION,
        ("session",),
        reads_only=True,
    ),
    "history": Tool(
        "Return the last lines that a session printed. The resource remuda://sessions/NAME/transcript has "
        "the conversation itself.",
        {
            **_SESSION,
            "lines": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_LINES,
                "description": "How many. Default 100.",
            },
        },
        ("session",),
        reads_only=True,
    ),
    "interrupt": Tool(
        "Stop the turn that an agent works on now. The session stays; messages that wait are delivered after "
        "that.",
        _SESSION,
        ("session",),
    ),
    "cancel": Tool(
        "Take a message back that was not delivered yet, or stop its turn. The result says which.",
        {**_SESSION, **_MESSAGE},
        ("session", "message"),
    ),
    "kill": Tool(
        "End a session that you started, with every process of it, and the sessions that it started.",
        _SESSION,
        ("session",),
        destroys=True,
    ),
    "run": Tool(
        "Ask an agent of the warm pool one question, in a conversation of its own, and return the answer. "
        "Nothing is remembered. Tools that need a permission are denied.",
        {
            "prompt": _PROMPT,
            "cwd": _CWD,
            "model": _text("Name of a model. Default: that of the pool.", 100),
            "timeout": _number(f"Seconds, at most {MOST_WAIT:g}. Default {MOST_WAIT:g}.", MOST_WAIT, 1),
        },
        ("prompt",),
    ),
    "queue": Tool(
        "List which of your agents wait for a human, and why: a permission, a question, an error. Tell the "
        "user; you cannot answer for the user.",
        {},
        reads_only=True,
    ),
    "answer_permission": Tool(
        "Decide a permission request of an agent that you started. Refused, unless the user's policy names "
        "you for such requests: then queue shows it with may_answer=true.",
        {
            "request": _text("Id of the request, as queue returns it.", 128),
            "decision": {"type": "string", "enum": ["allow", "deny"]},
            "reason": _text("With deny: what the agent reads.", 2000),
        },
        ("request", "decision"),
    ),
}
