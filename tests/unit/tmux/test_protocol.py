"""Control mode without a tmux: golden streams, every cut, imitations; and what we say."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.errors import LocalProtocolError, RemoteProtocolError
from remuda.tmux.protocol import (
    Answer,
    ControlReader,
    Event,
    Exited,
    Notice,
    Output,
    arguments_of,
    line_of,
    literal,
    unescape,
)

GOLDEN: dict[str, tuple[bytes, list[Event]]] = {
    "attached": (
        b"%begin 1700000000 276 0\n%end 1700000000 276 0\n%session-changed $0 my work\n",
        [Answer(276, False, True, []), Notice("session-changed", ("$0", "my work"))],
    ),
    "answer": (b"%begin 17 3 1\none\n\n two \n%end 17 3 1\n", [Answer(3, True, True, ["one", "", " two "])]),
    "refused": (
        b"%begin 17 4 1\ncan't find pane: %9\n%error 17 4 1\n",
        [Answer(4, True, False, ["can't find pane: %9"])],
    ),
    "text that looks like the protocol": (
        b"%begin 17 5 1\n%end 17 6 1\n%exit\n%begin 17 5 1\n%end 17 5 1 \n%end 17 5 1\n",
        [Answer(5, True, True, ["%end 17 6 1", "%exit", "%begin 17 5 1", "%end 17 5 1 "])],
    ),
    "notices": (
        b"%window-add @2\n%sessions-changed\n%window-renamed @2 a  b\n"
        b"%client-session-changed /dev/pts/1 $1 x y\n%layout-change @0 a b *\n"
        b"%some-day a b\n%client-detached /dev/pts/1\n",
        [
            Notice("window-add", ("@2",)),
            Notice("sessions-changed", ()),
            Notice("window-renamed", ("@2", "a  b")),
            Notice("client-session-changed", ("/dev/pts/1", "$1", "x y")),
            Notice("layout-change", ("@0", "a", "b", "*")),
            Notice("some-day", ("a", "b")),
            Notice("client-detached", ("/dev/pts/1",)),
        ],
    ),
    "output": (
        b"%output %1 a\\015\\012b\\134 c\n%extended-output %2 17 : x\\033[m\n%output\n",
        [Output("%1", b"a\r\nb\\ c"), Output("%2", b"x\x1b[m"), Output("", b"")],
    ),
    "not UTF-8": (b"%begin 1 1 1\n\xff\xc3\xa9\n%end 1 1 1\n", [Answer(1, True, True, ["\udcff\xe9"])]),
    "end": (b"%exit\n%exit server exited\n", [Exited(""), Exited("server exited")]),
}
golden = pytest.mark.parametrize(("stream", "events"), GOLDEN.values(), ids=list(GOLDEN))


@golden
def test_feed_golden_cut_at_every_index_gives_the_same_events(stream: bytes, events: list[Event]) -> None:
    for cut in range(len(stream) + 1):
        reader = ControlReader()
        assert [*reader.feed(stream[:cut]), *reader.feed(stream[cut:])] == events
        assert not reader.pending


def test_feed_all_golden_byte_by_byte_gives_all_in_order() -> None:
    reader = ControlReader()
    stream = b"".join(stream for stream, _ in GOLDEN.values())
    got = [event for byte in stream for event in reader.feed(bytes((byte,)))]
    assert got == [event for _, events in GOLDEN.values() for event in events]


@pytest.mark.parametrize(
    "stream", [b"hello\n", b"\n", b"%end 1 2 3\n", b"%error 1 2 3\n"], ids=["text", "empty", "end", "error"]
)
def test_feed_what_stands_in_no_answer_is_the_peers_error(stream: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        list(ControlReader().feed(stream))


def test_feed_imitated_end_of_an_answer_breaks_the_stream_at_the_true_one() -> None:
    reader = ControlReader()
    events = reader.feed(b"%begin 17 5 1\nmine\n%end 17 5 1\n%end 17 5 1\n")
    assert next(events) == Answer(5, True, True, ["mine"])
    with pytest.raises(RemoteProtocolError):
        next(events)


def test_pending_is_true_within_a_line_and_within_an_answer() -> None:
    reader = ControlReader()
    list(reader.feed(b"%window-add"))
    assert reader.pending
    list(reader.feed(b" @1\n%begin 1 1 1\n"))
    assert reader.pending
    list(reader.feed(b"%end 1 1 1\n"))
    assert not reader.pending


@pytest.mark.parametrize("flood", [b"x" * 101, b"%begin 1 1 1\n" + b"line\n" * 21], ids=["line", "answer"])
def test_feed_beyond_the_bound_is_refused(flood: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        list(ControlReader(100).feed(flood))


def test_feed_many_answers_within_the_bound_are_taken() -> None:
    reader = ControlReader(100)
    assert len(list(reader.feed(b"%begin 1 1 1\nline\n%end 1 1 1\n" * 50))) == 50


CHARACTERS = "ab1 %'\"\\;#{}$~=-@&|<>*?!`()[]\t\r\x1b\x7fé中🙂\u0301"
lines = st.text(st.sampled_from(CHARACTERS), max_size=20)


@given(st.lists(st.lists(lines, max_size=5), max_size=5), st.lists(st.integers(1, 60), max_size=20))
def test_feed_any_answers_cut_anywhere_gives_them_again(answers: list[list[str]], cuts: list[int]) -> None:
    stream = b""
    for number, answer in enumerate(answers):
        body = "".join(f"{line}\n" for line in answer)
        stream += f"%begin 1 {number} 1\n{body}%end 1 {number} 1\n".encode()
    reader = ControlReader()
    got: list[Event] = []
    for size in [*cuts, len(stream) + 1]:
        got += reader.feed(stream[:size])
        stream = stream[size:]
    assert got == [Answer(number, True, True, answer) for number, answer in enumerate(answers)]


@given(st.binary(max_size=200))
def test_feed_any_bytes_gives_events_or_the_peers_error(data: bytes) -> None:
    try:
        list(ControlReader().feed(data))
    except RemoteProtocolError:
        pass


@given(st.binary())
def test_unescape_gives_what_tmux_escaped(data: bytes) -> None:
    escaped = b"".join(b"\\%03o" % byte if byte < 32 or byte == 92 else bytes((byte,)) for byte in data)
    assert unescape(escaped) == data


# ── what we say ──


@given(st.lists(st.text(st.sampled_from(CHARACTERS + "\n\udcff"), max_size=20), max_size=4))
def test_line_of_any_words_is_one_line_of_quoted_words(words: list[str]) -> None:
    words = ["name", *words]
    line = line_of(words)
    assert line.endswith(b"\n")
    assert re.fullmatch(rb'"[\w ./:@%,+=\\-]*"(?: "[\w ./:@%,+=\\-]*")*', line[:-1])
    quoted = re.findall(rb'"([^"]*)"', line)
    assert [unescape(word).decode("utf-8", "surrogateescape") for word in quoted] == words


def test_line_of_plain_words_stays_readable() -> None:
    assert line_of(["list-panes", "-t", "$1:@2", "a b;"]) == b'"list-panes" "-t" "\\0441:@2" "a b\\073"\n'


def test_arguments_of_commands_escapes_only_a_last_semicolon() -> None:
    found = arguments_of(["a", ";", "b;c", "d\\;"], ["e", "#{f}"])
    assert found == ["a", "\\;", "b;c", "d\\\\;", ";", "e", "#{f}"]


@pytest.mark.parametrize("words", [[], [""], ["", "x"], ["x", "a\0b"]], ids=repr)
def test_words_that_tmux_cannot_be_given_are_our_own_error(words: list[str]) -> None:
    with pytest.raises(LocalProtocolError):
        line_of(words)
    with pytest.raises(LocalProtocolError):
        arguments_of(words)


def test_literal_doubles_what_begins_a_format() -> None:
    assert literal("#{pane_id} #1") == "##{pane_id} ##1"
