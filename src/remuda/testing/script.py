"""What a made-up agent says: the steps of a reply, and the small language in which a prompt asks for them.

One brain (:func:`reply_to`) serves the loopback model and the scripted agent: both take a prompt alike.
A prompt whose first word is one of these is an order; any other prompt is echoed.

==========================  ===========================================================================
``RUNBASH cmd``             says ``running``, then calls the Bash tool
``TOOL {"name", "input"}``  says ``using tool``, then calls that tool
``TOOLS [{…}, {…}]``        the same with several tools in one reply
``SLOW secs …``             forty words, ``word0`` to ``word39``, spread over that time
``THINK secs …``            thinks for that time, then the echo
``err status [secs]``       an API error; ``secs`` is its ``retry-after`` header
``CUT [words] …``           the connection breaks after that many words (5)
``BIG bytes``               a text of exactly that many bytes
``LINES n``                 ``line 1`` to ``line n``
``EMPTY``                   a reply without any content
anything else               ``REPLY#n to: <the prompt, on one line>``
a tool's result             ``REPLY#n to: tool_result <its text>``
==========================  ===========================================================================

Nothing here waits, reads or writes: the player of a reply does that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

ECHO_CHARS = 200
RESULT_CHARS = 60

# A prompt that the Stop hook hands over arrives at the model after this line.
_STOP_HOOK_HEADING = re.compile(r"\AStop hook feedback:\s*")
# The first line of a message from another agent, as `remuda mcp` writes it.
_SENDER_HEADING = re.compile(r"\A\[message (\S+ )?from [^\n]*\]\s*")
_ERROR_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class Opening(Protocol):
    """Something that is shut and will be opened once, such as the loopback model's ``Gate``."""

    def reached(self, then: Callable[[], None]) -> None:
        """Note that a reply waits here; call ``then`` once, from any thread, as soon as the way is open."""


@dataclass(frozen=True, slots=True)
class Text:
    """Words of the answer; over ``seconds``, word by word, when that is more than zero."""

    text: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Thinking:
    """A thinking block; paced as :class:`Text` is."""

    text: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call. Without an ``id`` the player of the reply makes one."""

    name: str
    input: Mapping[str, Any]
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """An API error: as the first step the HTTP answer itself, later an ``error`` event of the stream."""

    status: int
    kind: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cut:
    """Says ``after_words`` filler words, then breaks the connection without ending the stream."""

    after_words: int = 0


@dataclass(frozen=True, slots=True)
class Hold:
    """Nothing more is said until the gate is open. For tests only: :func:`reply_to` never makes one."""

    gate: Opening


Step: TypeAlias = Text | Thinking | ToolUse | Fail | Cut | Hold


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the API reports them."""

    input_tokens: int = 12
    output_tokens: int = 7
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 3


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the model. ``stop_reason`` follows from the steps unless it is given."""

    steps: tuple[Step, ...] = ()
    stop_reason: str = ""
    usage: Usage = Usage()

    def __post_init__(self) -> None:
        if not self.stop_reason:
            calls_tool = any(isinstance(step, ToolUse) for step in self.steps)
            object.__setattr__(self, "stop_reason", "tool_use" if calls_tool else "end_turn")

    @classmethod
    def of(cls, *steps: Step | str) -> Reply:
        """Return a reply of these steps, a plain string standing for :class:`Text`."""
        return cls(tuple(Text(step) if isinstance(step, str) else step for step in steps))


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the agent hands the model after a tool call, in place of a prompt."""

    text: str


def reply_to(said: str | ToolResult, n: int) -> Reply:
    """Return the answer to the ``n``-th thing said in a conversation. Same arguments, same reply."""
    if isinstance(said, ToolResult):
        return Reply.of(f"REPLY#{n} to: tool_result {one_line(said.text, RESULT_CHARS)}")
    echo = Text(f"REPLY#{n} to: {one_line(said, ECHO_CHARS)}")
    text = _SENDER_HEADING.sub("", _STOP_HOOK_HEADING.sub("", said))
    word, _, rest = text.strip().partition(" ")
    order = _ORDERS.get(word)
    steps = order(rest.strip(), echo) if order else None
    return Reply((echo,) if steps is None else steps)


def paced(text: str, seconds: float) -> Iterator[tuple[float, str]]:
    """Yield the text in pieces, each with the time to wait before it; one piece without time to spread."""
    pieces = re.findall(r"\s*\S+\s*", text) if seconds > 0 else []
    if not pieces:
        yield seconds, text
    for piece in pieces:
        yield seconds / len(pieces), piece


def filler(words: int) -> str:
    """``word0 word1 …``, that many of them."""
    return " ".join(f"word{index}" for index in range(words))


def one_line(text: str, limit: int) -> str:
    """Return the text's first ``limit`` characters with line breaks made blanks, so that they fit one row."""
    return re.sub(r"[\r\n]", " ", text.strip()[:limit])


def failure(status: int, *, retry_after: float | None = None, message: str = "") -> Fail:
    """Return the API's error of that status, with its proper kind."""
    headers = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}
    return Fail(status, _ERROR_KINDS.get(status, "api_error"), message or f"fake error {status}", headers)


# An order's steps, or None where its arguments make it no order at all and the prompt is echoed.
_Steps: TypeAlias = tuple[Step, ...] | None


def _run_bash(rest: str, _echo: Text) -> _Steps:
    return (
        (Text("running"), ToolUse("Bash", {"command": rest, "description": "Run a command"}))
        if rest
        else None
    )


def _tool(rest: str, _echo: Text) -> _Steps:
    return _tool_calls("TOOL", f"[{rest}]")


def _tools(rest: str, _echo: Text) -> _Steps:
    return _tool_calls("TOOLS", rest)


def _tool_calls(order: str, listed: str) -> _Steps:
    try:
        given = json.loads(listed)
        calls = [ToolUse(call["name"], dict(call.get("input", {})), call.get("id")) for call in given]
        said = next((str(call["say"]) for call in given if "say" in call), "using tool")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        # Said aloud: an echo would let a test with a typing error wait for a tool that never comes.
        return (failure(400, message=f"{order} cannot be read: {error!r}"),)
    return (Text(said), *calls)


def _slow(rest: str, _echo: Text) -> _Steps:
    seconds = _leading_number(rest)
    return None if seconds is None else (Text(filler(40), seconds),)


def _think(rest: str, echo: Text) -> _Steps:
    seconds = _leading_number(rest)
    return None if seconds is None else (Thinking("let me think about it", seconds), echo)


def _err(rest: str, _echo: Text) -> _Steps:
    found = re.match(r"([45]\d\d)(?:\s+(\d+(?:\.\d+)?))?\b(.*)", rest)
    if not found:
        return None
    status, wait = int(found[1]), found[2]
    after = float(wait) if wait else 1 if status == 429 else None
    return (failure(status, retry_after=after, message=found[3].strip()),)


def _cut(rest: str, _echo: Text) -> _Steps:
    words = _leading_number(rest)
    return (Cut(5 if words is None else int(words)),)


def _big(rest: str, _echo: Text) -> _Steps:
    size = _leading_number(rest)
    return None if size is None else (Text(("big " * (int(size) // 4 + 1))[: int(size)]),)


def _lines(rest: str, _echo: Text) -> _Steps:
    count = _leading_number(rest)
    return None if count is None else (Text("\n".join(f"line {i + 1}" for i in range(int(count)))),)


def _empty(rest: str, _echo: Text) -> _Steps:
    return None if rest else ()


def _leading_number(rest: str) -> float | None:
    found = re.match(r"\d+(?:\.\d+)?(?=\s|\Z)", rest)
    return float(found[0]) if found else None


_ORDERS: dict[str, Callable[[str, Text], _Steps]] = {
    "RUNBASH": _run_bash,
    "TOOL": _tool,
    "TOOLS": _tools,
    "SLOW": _slow,
    "THINK": _think,
    "err": _err,
    "CUT": _cut,
    "BIG": _big,
    "LINES": _lines,
    "EMPTY": _empty,
}
