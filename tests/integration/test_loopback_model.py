"""The loopback model as a client sees it on the wire."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from remuda.testing.loopback_model import Gate, LoopbackModel, Request
from remuda.testing.script import Cut, Fail, Hold, Reply, Text, Thinking, ToolUse, failure
from support.heimdall_client import PATIENCE

SESSION = {"X-Claude-Code-Session-Id": "11111111-2222-4333-8444-555555555555"}


@pytest.fixture
def model() -> Iterator[LoopbackModel]:
    with LoopbackModel() as serving:
        yield serving


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The data of each event; its name must be the type that the data states."""
        found = []
        for block in self.body.decode().strip().split("\n\n"):
            name, data = block.split("\n")
            found.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {found[-1]['type']}"
        return found


def body(prompt: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": prompt}], **fields}


def ask(
    model: LoopbackModel,
    content: Any = None,
    *,
    method: str = "POST",
    path: str = "/v1/messages",
    **headers: str,
) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", model.port, timeout=PATIENCE)
    try:
        connection.request(method, path, None if content is None else json.dumps(content), headers)
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


def say(model: LoopbackModel, prompt: Any, **headers: str) -> str:
    """The text of a plain answer."""
    return "".join(block.get("text", "") for block in ask(model, body(prompt), **headers).json["content"])


def test_stream_text_has_the_apis_sequence(model: LoopbackModel) -> None:
    answer = ask(model, body("hi", stream=True))
    assert answer.headers["content-type"].startswith("text/event-stream")
    start, ping, block, delta, stop, end, last = answer.events
    assert start["message"]["role"] == "assistant"
    assert start["message"]["model"] == "m"
    assert start["message"]["content"] == []
    assert start["message"]["usage"]["input_tokens"] == 12
    assert ping == {"type": "ping"}
    assert block == {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    assert delta["delta"] == {"type": "text_delta", "text": "REPLY#1 to: hi"}
    assert stop == {"type": "content_block_stop", "index": 0}
    assert end["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert end["usage"] == {"output_tokens": 7}
    assert last == {"type": "message_stop"}


def test_stream_thinking_text_and_tools_are_blocks_in_order(model: LoopbackModel) -> None:
    model.next(
        Reply.of(
            Thinking("hm"), "one ", Text("two", 0.01), ToolUse("A", {"x": [1, "é"]}, "t1"), ToolUse("B", {})
        )
    )
    events = ask(model, body("go", stream=True)).events
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use", "tool_use"]
    assert blocks[2] == {"type": "tool_use", "id": "t1", "name": "A", "input": {}}
    assert blocks[3]["id"].startswith("toolu_")
    deltas = [(event["index"], event["delta"]) for event in events if event["type"] == "content_block_delta"]
    assert [delta["type"] for index, delta in deltas if index == 0] == ["thinking_delta", "signature_delta"]
    assert "".join(delta["text"] for index, delta in deltas if index == 1) == "one two"
    assert json.loads("".join(delta["partial_json"] for index, delta in deltas if index == 2)) == {
        "x": [1, "é"]
    }
    stops = [event["index"] for event in events if event["type"] == "content_block_stop"]
    assert stops == [0, 1, 2, 3]
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_plain_answer_is_one_message(model: LoopbackModel) -> None:
    model.next(Reply.of(Thinking("hm"), "word", ToolUse("A", {"x": 1}, "t1")))
    message = ask(model, body("go")).json
    assert message["stop_reason"] == "tool_use"
    assert [block["type"] for block in message["content"]] == ["thinking", "text", "tool_use"]
    assert message["content"][2] == {"type": "tool_use", "id": "t1", "name": "A", "input": {"x": 1}}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("status", "kind", "retry_after"),
    [
        (400, "invalid_request_error", None),
        (401, "authentication_error", None),
        (429, "rate_limit_error", "1"),
        (529, "overloaded_error", None),
    ],
)
def test_error_has_status_headers_and_kind(
    model: LoopbackModel, stream: bool, status: int, kind: str, retry_after: str | None
) -> None:
    answer = ask(model, body(f"err {status}", stream=stream))
    assert answer.status == status
    assert answer.headers.get("retry-after") == retry_after
    assert answer.json["type"] == "error"
    assert answer.json["error"] == {"type": kind, "message": f"fake error {status}"}
    assert model.wait_for(lambda request: request.outcome == "failed").prompt == f"err {status}"


def test_error_after_words_comes_in_the_stream(model: LoopbackModel) -> None:
    model.next(Reply.of("some ", failure(529), "never said"))
    answer = ask(model, body("go", stream=True))
    assert answer.status == 200
    assert answer.events[-1]["error"]["type"] == "overloaded_error"
    assert b"never said" not in answer.body
    assert model.wait_for(lambda request: request.outcome == "failed").prompt == "go"


@pytest.mark.parametrize("stream", [True, False])
def test_cut_breaks_the_connection_in_the_middle(model: LoopbackModel, stream: bool) -> None:
    model.next(Reply.of(Cut(2)))
    with pytest.raises(http.client.IncompleteRead) as caught:
        ask(model, body("go", stream=stream))
    assert (b"word0 word1" in caught.value.partial) is stream
    assert b"message_stop" not in caught.value.partial
    assert model.wait_for(lambda request: request.outcome == "cut").prompt == "go"


def test_gate_before_the_first_word_holds_back_the_head(model: LoopbackModel) -> None:
    gate = model.hold()
    answers: list[Answer] = []
    asking = threading.Thread(target=lambda: answers.append(ask(model, body("wait", stream=True))))
    asking.start()
    gate.wait_reached()
    assert model.wait_for("wait").answered is None
    gate.open()
    asking.join(PATIENCE)
    assert b"REPLY#1 to: wait" in answers[0].body
    request = model.wait_for(lambda request: request.outcome == "answered")
    assert request.answered is not None
    assert request.answered > request.received


def test_gate_between_words_lets_the_first_ones_through(model: LoopbackModel) -> None:
    gate = Gate()
    model.next(Reply.of("before ", Hold(gate), "after"))
    with socket.create_connection(("127.0.0.1", model.port), PATIENCE) as client:
        send(client, body("go", stream=True))
        gate.wait_reached()
        assert b"before" in read_until(client, b"before")
        gate.open()
        rest = read_until(client, b"0\r\n\r\n")
    assert b"after" in rest
    assert b"content_block_start" not in rest


def test_gate_before_an_error_still_gives_its_status(model: LoopbackModel) -> None:
    gate = Gate()
    gate.open()
    model.next(Reply.of(Hold(gate), failure(529)))
    assert ask(model, body("go", stream=True)).status == 529


def test_gate_that_nothing_reaches_times_out() -> None:
    with pytest.raises(TimeoutError):
        Gate().wait_reached(0.01)


def test_client_that_leaves_is_noticed_while_held(model: LoopbackModel) -> None:
    gate = model.hold()
    with socket.create_connection(("127.0.0.1", model.port), PATIENCE) as client:
        send(client, body("interrupted", stream=True))
        gate.wait_reached()
    assert model.wait_for(lambda request: request.outcome == "abandoned").prompt == "interrupted"
    assert say(model, "next") == "REPLY#1 to: next"
    gate.open()


def test_close_ends_a_held_reply() -> None:
    with LoopbackModel() as model:
        gate = model.hold()
        client = socket.create_connection(("127.0.0.1", model.port), PATIENCE)
        send(client, body("stuck", stream=True))
        gate.wait_reached()
    with client:
        assert client.recv(1) == b""
    gate.open()


def test_queue_then_rules_then_brain_decide(model: LoopbackModel) -> None:
    model.when("spec", "old rule")
    model.when("special", "rule")
    model.next("queued")
    assert [say(model, "special") for _ in range(2)] == ["queued", "rule"]
    assert say(model, "spec") == "old rule"
    assert say(model, "other") == "REPLY#4 to: other"


def test_handler_takes_the_brains_place() -> None:
    def shout(request: Request, n: int) -> Reply:
        return Reply.of(f"{n} {request.prompt.upper()}")

    with LoopbackModel(shout) as model:
        assert [say(model, "a"), say(model, "b")] == ["1 A", "2 B"]


def test_handler_that_raises_is_reported_to_client_and_test() -> None:
    def broken(request: Request, n: int) -> Reply:
        raise LookupError("my mistake")

    model = LoopbackModel(broken)
    model.open()
    answer = ask(model, body("x"))
    assert answer.status == 500
    assert "my mistake" in answer.json["error"]["message"]
    with pytest.raises(LookupError):
        model.close()


def test_numbers_count_whole_replies_of_a_session(model: LoopbackModel) -> None:
    ask(model, body("err 529"), **SESSION)
    side = body("name this session", tools=[])
    ask(model, side, **SESSION)
    main = body("hello", tools=[{"name": "Bash"}])
    assert ask(model, main, **SESSION).json["content"][0]["text"] == "REPLY#1 to: hello"
    assert ask(model, main, **SESSION).json["content"][0]["text"] == "REPLY#2 to: hello"
    assert say(model, "hello") == "REPLY#1 to: hello"
    assert [request.is_main for request in model.requests] == [False, False, True, True, True]


def test_request_is_kept_whole(model: LoopbackModel) -> None:
    content = [
        {"type": "text", "text": "<system-reminder>\nrules\n</system-reminder>"},
        {"type": "text", "text": "the prompt"},
        {"type": "text", "text": "<system-reminder>late</system-reminder>\n"},
    ]
    sent = body(content, tools=[{"name": "Bash"}, {"name": "Read"}], system=[{"type": "text", "text": "be"}])
    sent["messages"].append({"role": "system", "content": "RUNBASH no prompt"})
    ask(model, sent, path="/v1/messages?beta=true", **SESSION)
    (request,) = model.requests
    assert (request.method, request.path, request.number) == ("POST", "/v1/messages?beta=true", 1)
    assert json.loads(request.raw) == request.body == sent
    assert request.headers["content-length"] == str(len(request.raw))
    assert request.session_id == SESSION["X-Claude-Code-Session-Id"]
    assert (request.prompt, request.model, request.system) == ("the prompt", "m", "be")
    assert request.tools == ["Bash", "Read"]
    assert [role for role, _ in request.texts] == ["user", "user", "user", "system"]


def test_tool_results_are_what_is_answered(model: LoopbackModel) -> None:
    results = [
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "one"}]},
        {"type": "tool_result", "tool_use_id": "t2", "content": "two"},
        {"type": "text", "text": "<system-reminder>x</system-reminder>"},
    ]
    assert say(model, results) == "REPLY#1 to: tool_result one two"
    assert model.requests[0].prompt == ""


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("HEAD", "/", b""),
        ("GET", "/anything", b"{}"),
        ("POST", "/v1/messages/count_tokens", b'{"input_tokens": 21}'),
    ],
)
def test_other_paths_are_answered_and_logged(
    model: LoopbackModel, method: str, path: str, expected: bytes
) -> None:
    answer = ask(model, body("count me") if method == "POST" else None, method=method, path=path)
    assert (answer.status, answer.body) == (200, expected)
    assert not model.requests[0].is_message


def test_connection_is_kept_for_the_next_request(model: LoopbackModel) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", model.port, timeout=PATIENCE)
    for n in range(1, 51):
        connection.request("POST", "/v1/messages", json.dumps(body("again", stream=True)))
        assert f"REPLY#{n} to".encode() in connection.getresponse().read()
    connection.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
    ],
)
def test_garbage_is_refused_and_harms_no_other(model: LoopbackModel, garbage: bytes) -> None:
    with socket.create_connection(("127.0.0.1", model.port), PATIENCE) as client:
        client.sendall(garbage)
        assert read_until(client, b"request_id").startswith(b"HTTP/1.1 400")
    assert say(model, "fine") == "REPLY#1 to: fine"


def test_wait_for_gives_past_and_future_requests(model: LoopbackModel) -> None:
    say(model, "first")
    assert model.wait_for("first").number == 1
    later = threading.Thread(target=say, args=(model, "second"))

    def wanted(request: Request) -> bool:
        if not later.ident:  # from within the wait, which must be woken by the mere arrival
            later.start()
        return request.prompt == "second" and request.outcome == "open"

    with model.hold():
        assert model.wait_for(wanted).number == 2
    later.join(PATIENCE)


def test_wait_for_what_never_comes_lists_what_came(model: LoopbackModel) -> None:
    say(model, "something else")
    with pytest.raises(TimeoutError) as caught:
        model.wait_for("the thing", 0.01)
    assert "something else" in str(caught.value)


def test_model_serves_inside_a_running_loop(model: LoopbackModel) -> None:
    async def run() -> str:
        return await asyncio.to_thread(say, model, "async")

    assert asyncio.run(run()) == "REPLY#1 to: async"


def test_open_on_a_taken_port_raises(model: LoopbackModel) -> None:
    with pytest.raises(OSError), LoopbackModel(port=model.port):
        pass


def test_model_listens_on_loopback_only(model: LoopbackModel) -> None:
    assert model.url == f"http://127.0.0.1:{model.port}"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", model.port), 1)


def test_custom_failure_headers_are_sent(model: LoopbackModel) -> None:
    model.next(
        Reply((Fail(429, "rate_limit_error", "slow down", {"anthropic-ratelimit-unified-reset": "9"}),))
    )
    assert ask(model, body("x")).headers["anthropic-ratelimit-unified-reset"] == "9"


def test_command_line_reports_each_request_and_ends_on_interrupt() -> None:
    command = [sys.executable, "-m", "remuda.testing.loopback_model"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        port = int(server.stdout.readline().rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.request("POST", "/v1/messages", json.dumps(body("by hand")))
        assert b"REPLY#1 to: by hand" in connection.getresponse().read()
        connection.close()
        assert server.stdout.readline() == "#1 POST /v1/messages answered by hand\n"
        server.send_signal(signal.SIGINT)
        assert server.wait(PATIENCE) == 0


def send(client: socket.socket, content: dict[str, Any]) -> None:
    raw = json.dumps(content).encode()
    client.sendall(b"POST /v1/messages HTTP/1.1\r\ncontent-length: %d\r\n\r\n%s" % (len(raw), raw))


def read_until(client: socket.socket, mark: bytes) -> bytes:
    data = b""
    while mark not in data:
        block = client.recv(65536)
        assert block, f"ended before {mark!r}: {data!r}"
        data += block
    return data
