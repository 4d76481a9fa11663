"""What is sent to machines of a fleet while things die, and the judge of what became of it."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from remuda.errors import RemudaError
from remuda.inbox.receipts import FINAL, read_receipts
from remuda.paths import SessionPaths
from support.fleet import Machine

_COMMAND_TIMEOUT = 120
_SETTLE_TIMEOUT = 300.0
_UNSURE = "not known whether"


class Sent(NamedTuple):
    """A message whose id is known; `accepted` if the sender was told that it is stored."""

    id: str
    session: str
    text: str
    accepted: bool


class Decision(NamedTuple):
    """One attempt to allow a permission request with another input."""

    request: str
    code: int
    error: str


class Requested(NamedTuple):
    prompt: str
    command: subprocess.Popen[bytes]


class FleetJudge:
    """Sends messages and decisions from `desk` to `host`, and requests to any; finds what went wrong."""

    def __init__(self, desk: Machine, host: Machine, *others: Machine) -> None:
        self.desk, self.host = desk, host
        self._hosts = (host, *others)
        self.sent: list[Sent] = []
        self.refused = 0
        """Messages that were refused with an error, and have no id."""
        self.decisions: list[Decision] = []
        self.requests: list[Requested] = []

    # ── sending ──

    def send(self, session: str, text: str) -> None:
        begun = self.desk.remuda.begin("send", f"{self.host.name}/{session}", text, "--json")
        out, err = begun.communicate(timeout=_COMMAND_TIMEOUT)
        if begun.returncode == 0:
            self.sent.append(Sent(str(json.loads(out)["id"]), session, text, accepted=True))
        elif word := next((word for word in err.decode().split() if word.startswith("m1")), ""):
            self.sent.append(Sent(word.strip(";.,'"), session, text, accepted=False))
        else:
            self.refused += 1

    def request(self, prompt: str) -> None:
        words = ("--fleet", "--demo", "--timeout", "10m", "--cwd", "/")
        self.requests.append(Requested(prompt, self.desk.remuda.begin("run", prompt, *words)))

    def open_requests(self) -> list[str]:
        try:
            return [str(one["id"]) for one in self.host.client.get("approvals", state="open")["approvals"]]
        except RemudaError:  # its boss is dead
            return []

    def decide(self) -> None:
        """Allow the permission requests that are open at the host, each with a command of its own."""
        for request in self.open_requests():
            edited = json.dumps({"command": self._command(request)})
            words = ("approve", f"{self.host.name}/{request}", "--edit", edited, "--yes")
            begun = self.desk.remuda.begin(*words)
            _, err = begun.communicate(timeout=_COMMAND_TIMEOUT)
            self.decisions.append(Decision(request, begun.returncode, err.decode()))

    def _command(self, request: str) -> str:
        return f"echo done >> {self.host.remuda.cwd / f'decided-{request}'}"

    # ── the end ──

    def settle(self) -> None:
        """Wait until everything has ended, or for as long as it may take."""
        deadline = time.monotonic() + _SETTLE_TIMEOUT
        while time.monotonic() < deadline:
            self.decide()
            if not [*self._undecided(), *self._message_faults(), *self._unended()]:
                return
            time.sleep(0.2)

    def faults(self) -> list[str]:
        """Say everything that is not as promised."""
        found = [*self._undecided(), *self._message_faults(), *self._put_faults()]
        return [*found, *self._decision_faults(), *self._unended(), *self._request_faults()]

    def figures(self) -> dict[str, int]:
        """How much of what was tried."""
        return {
            "accepted": sum(one.accepted for one in self.sent),
            "unsure": sum(not one.accepted for one in self.sent),
            "refused": self.refused,
            "decided": sum(one.code == 0 for one in self.decisions),
            "not decided": sum(one.code != 0 for one in self.decisions),
            "requests": len(self.requests),
            "requests taken": len(self._listed()),
            "answered": sum("result" in one["outcome"] for one in self._listed()),
        }

    def _undecided(self) -> Iterator[str]:
        for request in self.open_requests():
            yield f"permission request {request} is still open"

    # ── messages ──

    def _put(self, session: str) -> list[str]:
        try:
            return self.host.prompts(session)
        except FileNotFoundError:
            return []

    def _message_faults(self) -> Iterator[str]:
        put = {session: self._put(session) for session in {one.session for one in self.sent}}
        runs = self._runs()
        for one in self.sent:
            stage = self.desk.receipt(one.id)["stage"]
            inbox = SessionPaths.of(one.session, self.host.remuda.sessions).inbox
            steps = read_receipts(inbox, one.id)
            ends = [str(step["stage"]) for step in steps if step["stage"] in FINAL]
            if one.text not in put[one.session]:
                if one.accepted:
                    yield f"{one} was lost; its receipt says {stage}"
                elif stage not in ("sent", "expired"):
                    yield f"{one} is not there, and its receipt says {stage}"
            elif [stage] != ends:
                yield f"{one} ended as {ends}, and its receipt says {stage}"
            else:
                written = sum(step["stage"] == "written" for step in steps)
                if not int(stage == "acked") <= runs[one.text] <= written:
                    yield f"{one} was run {runs[one.text]} times, and handed over {written} times: {steps}"

    def _put_faults(self) -> Iterator[str]:
        for session in {one.session for one in self.sent}:
            put = self._put(session)
            yield from (f"{text!r} was put twice" for text in {*put} if put.count(text) > 1)
            known = [one.text for one in self.sent if one.session == session and one.accepted]
            if [one for one in put if one in known] != [one for one in known if one in put]:
                yield f"the messages of {session} were put in another order than they were sent"

    def _runs(self) -> Counter[str]:
        """How often agents of any host were given each prompt, by their transcripts."""
        records: dict[str, str] = {}
        for path in self._transcripts():
            for line in path.read_text().splitlines():
                if '"type":"user"' in line:
                    record = json.loads(line)
                    records[record["uuid"]] = str(record["message"]["content"])
        return Counter(records.values())

    def _transcripts(self) -> Iterator[Path]:
        for host in self._hosts:
            yield from (host.remuda.home / "claude" / "projects").rglob("*.jsonl")

    # ── decisions ──

    def _decision_faults(self) -> Iterator[str]:
        ledger = {str(one["id"]): one for one in self._ledger()}
        for one in self.decisions:
            answer = ledger.get(one.request, {}).get("answer") or {}
            is_ours = answer.get("updated_input", {}).get("command") == self._command(one.request)
            attempts = [other for other in self.decisions if other.request == one.request]
            if one.code == 0 and not is_ours:
                yield f"{one} is not in the ledger of the host: {ledger.get(one.request)}"
            if one.code and not one.error.startswith("remuda: "):
                yield f"{one} failed without a word"
            if is_ours and all(other.code and _UNSURE not in other.error for other in attempts):
                yield f"the ledger has a decision that every sender was told had failed: {attempts}"
            done = self.host.remuda.cwd / f"decided-{one.request}"
            if done.exists() and done.read_text() != "done\n":
                yield f"{one} was carried out {done.read_text().count('done')} times"
        if any(self.host.remuda.cwd.glob("made-*")):
            yield "a command was run that no one allowed"

    def _ledger(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.host.client.get("approvals", limit=1000)["approvals"]
        return listed

    # ── requests to any host ──

    def _listed(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.desk.client.get("fleet", "requests")["requests"]
        return listed

    def _unended(self) -> Iterator[str]:
        for one in self._listed() if self.requests else []:
            if one["outcome"] is None:
                yield f"a request has not ended: {one}"

    def _request_faults(self) -> Iterator[str]:
        listed = self._listed() if self.requests else []
        answers = [
            str(one["outcome"]["result"]["text"]) for one in listed if "result" in (one["outcome"] or {})
        ]
        runs = self._runs()
        most = max((one["attempts"] for one in listed), default=0)
        for prompt, command in self.requests:
            out, err = command.communicate(timeout=_COMMAND_TIMEOUT)
            answered = [one for one in listed if prompt in str((one["outcome"] or {}).get("result"))]
            if sum(prompt in one for one in answers) > 1:
                yield f"{prompt} was answered twice"
            if command.returncode == 0 and (prompt.encode() not in out or not answered):
                yield f"{prompt} has an answer that is not its own: {out!r}"
            if command.returncode > 0 and not err:
                yield f"{prompt} failed without a word"
            if answered and not 1 <= runs[prompt] <= answered[0]["attempts"]:
                yield f"{prompt} was run {runs[prompt]} times in {answered[0]['attempts']} attempts"
            if not answered and runs[prompt] > most:
                yield f"{prompt} was run {runs[prompt]} times and has no answer"
