"""What the model gets is what the sender wrote, byte for byte; where it is not, the receipt shows it."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from remuda.agents.claude.prompt import MAX_PASTE_BYTES, visible
from remuda.inbox.receipts import Trace
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support.keeper import Start
from support.messages import CHAIN, Post, stages, step
from support.real_sessions import keep

pytestmark = pytest.mark.real

EXACT = [
    "x",
    "two\nlines",
    "\n\n  blank lines and blanks before it\n\n\nand between",
    "    indented\n  less",
    "//comment",
    "/*x*/",
    "/foo/bar is a path",
    "# no memory",
    "& no shell",
    "? no help",
    "$HOME `id` $(id) %d {0} \\n ~",
    "ends in a backslash \\",
    "[Pasted text #1 +3 lines] and [Image #1]",
    "\N{FAMILY} \U0001f469\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f 1\ufe0f\u20e3 \U0001f1ea\U0001f1fa",
    "\u00e9 \u0915\u094d\u200d\u0937 \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "\u05e9\u05dc\u05d5\u05dd right to left \u0645\u0631\u062d\u0628\u0627",
    "no\u00a0break \u202f\u2003\u3000 spaces \ufffc \uffff \U0010ffff",
]
NORMALISED = {
    "a\ttab": "a    tab",
    "blanks at the end \t \n\n": "blanks at the end",
    "CRLF\r\nand CR\rinside": "CRLF\nand CR\ninside",
    "separators\u2028of\u2029lines": "separators\nof\nlines",
    "zero\u200bwidth": "zerowidth",
    "a mark of direction \u202eevil\u202c": "a mark of direction evil",
    "!bang": "\n!bang",
    "de\u0301compose\u0301 \u212b": "d\u00e9compos\u00e9 \u00c5",
}


@pytest.fixture
def post(cli: RealCli, start: Start) -> Post:
    return Post(keep(start, cli))


def assert_exact(found: Trace, got: str, sent: str) -> None:
    assert got == sent
    assert stages(found) == CHAIN
    assert "normalised" not in step(found, "submitted")


def test_texts_of_every_shape_arrive_as_they_are(post: Post, model: LoopbackModel) -> None:
    messages = [post.put(text) for text in EXACT]
    traces = [post.ended(message, 60.0) for message in messages]
    for found, request, text in zip(traces, model.main_requests, EXACT, strict=True):
        assert_exact(found, request.prompt, text)


def test_what_the_terminal_changes_is_told_with_what_the_model_got(post: Post, model: LoopbackModel) -> None:
    for text, expected in NORMALISED.items():
        found = post.send(text)
        assert stages(found) == CHAIN
        assert model.main_requests[-1].prompt == expected
        told = step(found, "submitted")
        assert told["normalised"] is True
        assert told["reported"] == expected


def test_sizes_from_one_byte_to_a_million(post: Post, model: LoopbackModel) -> None:
    for size in (1, 2, 79, 80, 1000, 131_071, 131_072, 1_000_000):
        sent = prose(size)
        found = post.send(sent)
        assert_exact(found, model.main_requests[-1].prompt, sent)
    line = "x" * 100_000  # without any line end
    assert_exact(post.send(line), model.main_requests[-1].prompt, line)


def prose(size: int) -> str:
    lines = "".join(f"line {number} of it, {'x' * (number % 70)}\n" for number in range(size // 10 + 2))
    return lines[: size - 1] + "z"


def test_every_character_of_unicode_arrives_as_it_is(post: Post, model: LoopbackModel) -> None:
    rows = [f"{first:06x} {row}" for first in range(0, sys.maxunicode, 64) if (row := characters(first))]
    third = len(rows) // 3 + 1
    # Of a long prompt the CLI shows its first and last lines. It does not count the columns of rows like
    # these as a terminal does, and nothing can be found on a screen that it garbled.
    plain = [f"plain line {number}" for number in range(60)]
    for begin in range(0, len(rows), third):
        sent = "\n".join([f"from {begin}", *plain, *rows[begin : begin + third], *plain])
        found = post.send(sent)
        assert_exact(found, model.main_requests[-1].prompt, sent)


def characters(first: int) -> str:
    """Of 64 in a row those that a terminal can be given, that show something, and that end no line."""
    row = map(chr, range(first, first + 64))
    return "".join(
        one for one in row if unicodedata.category(one) not in ("Cc", "Cs", "Zl", "Zp") and visible(one)
    )


def test_prompt_beyond_the_limit_is_refused_and_the_next_one_delivered(
    post: Post, model: LoopbackModel
) -> None:
    refused = post.send("x" * (MAX_PASTE_BYTES + 1))
    assert refused.stage == "dead"
    assert str(MAX_PASTE_BYTES) in refused.reason
    too_long = post.send("word " * (MAX_PASTE_BYTES // 5))  # the CLI's own limit: its model's context
    assert too_long.stage == "dead"
    assert step(too_long, "ended")["failure"] == "invalid_request"
    assert "too long" in too_long.reason
    assert stages(post.send("a short one")) == CHAIN
    assert model.main_requests[-1].prompt == "a short one"
