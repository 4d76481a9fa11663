"""Hands one hook payload from standard input to the keeper: `python -I -S post_hook.py ADDRESS_FILE RULE...`.

Copilot runs hooks as commands, and waits for them. So this imports nothing slow and nothing of ours. What the
keeper answers is printed. It never fails the agent: whatever goes wrong, it prints nothing and exits with 0.

Copilot runs the hook of a permission request before it looks at the rules of its user (`--allow-tool`), and
looks at them only if the hook prints nothing (1.0.102). So a request that a RULE may allow is not handed on.
If copilot's own rules do not allow it, its dialog opens at once. `post_hook.py --deny REASON RULE...` denies
every other request, without a keeper.

A Stop says nothing about the answer, and the transcript is written up to 0.15 s later (1.0.102). So this
waits until the transcript has the Stop itself, and adds the message before it.
"""

import sys
from _socket import AF_INET, SOCK_STREAM, socket

_ANSWER_PATIENCE = 86_400.0  # the agent ends a hook that takes too long
_RECORD_PATIENCE = 2.0
_TAIL_BYTES = 4 << 20
_SHELLS = ("bash", "powershell")


def _answer(transcript: str, moment: object) -> "dict[str, object]":
    """Return the last message of the turn that stopped at `moment`; nothing if it does not come in time."""
    import json
    import time

    deadline = time.monotonic() + _RECORD_PATIENCE
    while time.monotonic() < deadline:
        with open(transcript, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().splitlines()
        said: dict[str, object] = {}
        for line in lines:
            try:
                record = json.loads(line)
                kind, data = record["type"], record["data"]
            except (ValueError, KeyError, TypeError):
                continue
            if record.get("agentId"):
                continue
            if kind == "user.message":
                said = {"prompt_id": data.get("messageId")}
            elif kind == "assistant.message" and not data.get("toolRequests"):
                said["last_assistant_message"] = data.get("content")
                said["prompt_id"] = data.get("originatingMessageId") or said.get("prompt_id")
            elif kind == "hook.start" and _is_stop(data, moment):
                return said
        time.sleep(0.01)
    return {}


def _is_stop(data: "dict[str, object]", moment: object) -> bool:
    given = data.get("input")
    return (
        data.get("hookType") == "agentStop" and isinstance(given, dict) and given.get("timestamp") == moment
    )


def _epoch_ms(date: str) -> int:
    """Return a date such as 2026-11-18T12:04:42.362Z as its record has it."""
    import calendar
    import time

    whole, _, part = date.removesuffix("Z").partition(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) * 1000 + int(part.ljust(3, "0")[:3])


def _with_answer(payload: bytes) -> bytes:
    import json

    document = json.loads(payload)
    if document.get("hook_event_name") != "Stop":
        return payload
    try:
        document.update(_answer(document["transcript_path"], _epoch_ms(document["timestamp"])))
    except (OSError, KeyError, TypeError, ValueError):
        return payload
    return json.dumps(document).encode()


def _may_be_allowed(payload: bytes, rules: "list[str]") -> bool:
    """Return whether one of the rules may allow what is requested. Copilot knows, and decides after us."""
    import json

    document = json.loads(payload)
    tool, given = str(document.get("toolName")), document.get("toolInput")
    given = given if isinstance(given, dict) else {}
    patterns = [(kind, pattern.rstrip(")")) for kind, _, pattern in (rule.partition("(") for rule in rules)]
    if tool in _SHELLS:
        stems = [pattern.removesuffix(":*") for kind, pattern in patterns if kind == "shell"]
        return "" in stems or _each_begins_with(str(given.get("command")), stems)
    path, url = str(given.get("path", "")), str(given.get("url", ""))
    for kind, pattern in patterns:
        if (
            (kind == "write" and path and path.endswith(pattern))
            or (kind == "url" and url and pattern.rpartition("*")[2] in url)
            or (kind in tool and pattern in tool)
        ):
            return True
    return False


def _each_begins_with(script: str, stems: "list[str]") -> bool:
    import re

    commands = [part.strip() for part in re.split(r"[;&|\n]+", script)]
    return all(any(f"{one} ".startswith(f"{stem} ") for stem in stems) for one in commands if one)


def _post(port: int, token: bytes, body: bytes) -> bytes:
    sock = socket(AF_INET, SOCK_STREAM)
    sock.settimeout(_ANSWER_PATIENCE)
    sock.connect(("127.0.0.1", port))
    head = b"POST /hook HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nX-Remuda-Token: " + token
    sock.sendall(head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    pieces = []
    while piece := sock.recv(65536):
        pieces.append(piece)
    head, _, answer = b"".join(pieces).partition(b"\r\n\r\n")
    return answer if head.startswith(b"HTTP/1.1 200") else b""


def _denial(reason: str) -> str:
    import json

    return json.dumps({"behavior": "deny", "message": reason})


def main() -> None:
    name, *words = sys.argv[1:]
    payload = sys.stdin.buffer.read()
    if name == "--deny":
        if not _may_be_allowed(payload, words[1:]):
            sys.stdout.write(_denial(words[0]))
        return
    if words and b'"permissionRequest"' in payload and _may_be_allowed(payload, words):
        return
    with open(name, "rb") as file:
        port, token = file.read().split()
    if b'"Stop"' in payload:
        payload = _with_answer(payload)
    answer = _post(int(port), token, payload)
    if answer != b"{}":
        sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    try:
        main()
    except Exception:  # noqa: BLE001, S110  # an agent must not notice that its keeper is gone
        pass
