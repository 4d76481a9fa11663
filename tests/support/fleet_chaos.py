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
    host: str
    session: str
    text: str
    accepted: bool


class Decision(NamedTuple):
    """One attempt to allow a permission request with another input; `code` is negative if it was killed."""

    host: str
    request: str
    code: int
    error: str


class Requested(NamedTuple):
    prompt: str
    command: subprocess.Popen[bytes]


class FleetJudge:
    """Sends messages, decisions and requests from `desk` to hosts; finds what went wrong."""

    def __init__(self, desk: Machine, *hosts: Machine) -> None:
        self.desk = desk
        self._hosts = {one.name: one for one in hosts}
        self.sent: list[Sent] = []
        self.refused = 0
        """Messages that were refused with an error, and have no id."""
        self.decisions: list[Decision] = []
        self.requests: list[Requested] = []

    # ── sending ──

    def send(self, where: str, text: str) -> None:
        """`where` is HOST/SESSION."""
        host, _, session = where.partition("/")
        begun = self.desk.remuda.begin("send", where, text, "--json")
        out, err = begun.communicate(timeout=_COMMAND_TIMEOUT)
        if begun.returncode == 0:
            self.sent.append(Sent(str(json.loads(out)["id"]), host, session, text, accepted=True))
        elif word := next((word for word in err.decode().split() if word.startswith("m1")), ""):
            self.sent.append(Sent(word.strip(";.,'"), host, session, text, accepted=False))
        else:
            self.refused += 1

    def request(self, prompt: str) -> None:
        words = ("--fleet", "--demo", "--timeout", "10m", "--cwd", "/")
        self.requests.append(Requested(prompt, self.desk.remuda.begin("run", prompt, *words)))

    def _open_requests(self) -> Iterator[tuple[Machine, str]]:
        for host in self._hosts.values():
            try:
                listed = host.client.get("approvals", state="open")["approvals"]
            except RemudaError:  # its boss is dead
                continue
            yield from ((host, str(one["id"])) for one in listed)

    def decide(self) -> None:
        """Allow the permission requests that are open at the hosts, each with a command of its own."""
        for host, request in self._open_requests():
            edited = json.dumps({"command": _command(host, request)})
            words = ("approve", f"{host.name}/{request}", "--edit", edited, "--yes")
            begun = self.desk.remuda.begin(*words)
            _, err = begun.communicate(timeout=_COMMAND_TIMEOUT)
            self.decisions.append(Decision(host.name, request, begun.returncode, err.decode()))

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
        runs = self._runs()
        return {
            "messages": len(self.sent) + self.refused,
            "accepted": sum(one.accepted for one in self.sent),
            "unsure": sum(not one.accepted for one in self.sent),
            "refused": self.refused,
            "decided": sum(one.code == 0 for one in self.decisions),
            "not decided": sum(one.code != 0 for one in self.decisions),
            "requests": len(self.requests),
            "requests taken": len(self._listed()),
            "answered": sum("result" in one["outcome"] for one in self._listed()),
            "messages that ran": sum(runs[one.text] > 0 for one in self.sent),
            "messages that ran again": sum(runs[one.text] > 1 for one in self.sent),
            "requests that ran": sum(runs[one.prompt] > 0 for one in self.requests),
            "requests that ran again": sum(runs[one.prompt] > 1 for one in self.requests),
        }

    def _undecided(self) -> Iterator[str]:
        for host, request in self._open_requests():
            yield f"permission request {request} of {host.name} is still open"

    # ── messages ──

    def _put(self, host: str, session: str) -> list[str]:
        try:
            return self._hosts[host].prompts(session)
        except FileNotFoundError:
            return []

    def _message_faults(self) -> Iterator[str]:
        put = {where: self._put(*where) for where in {(one.host, one.session) for one in self.sent}}
        runs = self._runs()
        for one in self.sent:
            stage = self.desk.receipt(one.id)["stage"]
            inbox = SessionPaths.of(one.session, self._hosts[one.host].remuda.sessions).inbox
            steps = read_receipts(inbox, one.id)
            ends = [str(step["stage"]) for step in steps if step["stage"] in FINAL]
            if one.text not in put[one.host, one.session]:
                if one.accepted:
                    yield f"{one} was lost; its receipt says {stage}"
                elif stage not in ("sent", "expired"):
                    yield f"{one} is not there, and its receipt says {stage}"
            elif [stage] != ends:
                yield f"{one} ended as {ends}, and its receipt says {stage}"
            else:
                written = sum(step["stage"] == "written" for step in steps)
                if not int(stage == "acked") <= runs[one.text] <= min(written, 1):
                    yield f"{one} was run {runs[one.text]} times, and handed over {written} times: {steps}"

    def _put_faults(self) -> Iterator[str]:
        for where in {(one.host, one.session) for one in self.sent}:
            put = self._put(*where)
            yield from (f"{text!r} was put twice" for text in {*put} if put.count(text) > 1)
            known = [one.text for one in self.sent if (one.host, one.session) == where and one.accepted]
            if [one for one in put if one in known] != [one for one in known if one in put]:
                yield f"the messages of {where} were put in another order than they were sent"

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
        for host in self._hosts.values():
            yield from (host.remuda.home / "claude" / "projects").rglob("*.jsonl")

    # ── decisions ──

    def _decision_faults(self) -> Iterator[str]:
        for host in self._hosts.values():
            known = host.client.get("approvals", limit=1000)["approvals"]
            yield from self._decision_faults_of(host, {str(one["id"]): one for one in known})
            if any(host.remuda.cwd.glob("made-*")):
                yield f"a command was run on {host.name} that no one allowed"

    def _decision_faults_of(self, host: Machine, ledger: dict[str, dict[str, Any]]) -> Iterator[str]:
        ours = [one for one in self.decisions if one.host == host.name]
        for one in ours:
            answer = ledger.get(one.request, {}).get("answer") or {}
            is_ours = answer.get("updated_input", {}).get("command") == _command(host, one.request)
            attempts = [other for other in ours if other.request == one.request]
            if one.code == 0 and not is_ours:
                yield f"{one} is not in the ledger of the host: {ledger.get(one.request)}"
            if one.code > 0 and not one.error.startswith("remuda: "):
                yield f"{one} failed without a word"
            if is_ours and all(other.code > 0 and _UNSURE not in other.error for other in attempts):
                yield f"the ledger has a decision that every sender was told had failed: {attempts}"
            done = host.remuda.cwd / f"decided-{one.request}"
            if done.exists() and done.read_text() != "done\n":
                yield f"{one} was carried out {done.read_text().count('done')} times"

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
        unanswered: list[int] = []
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
            if not answered:
                unanswered.append(runs[prompt])
        # Of a request that failed the prompt is not listed: each must find one with as many attempts.
        attempts = [one["attempts"] for one in listed if "result" not in (one["outcome"] or {})]
        attempts = sorted(attempts, reverse=True) + [0] * len(unanswered)
        for ran, said in zip(sorted(unanswered, reverse=True), attempts, strict=False):
            if ran > said:
                yield f"a request without an answer was run {ran} times; attempts are {attempts}"


def _command(host: Machine, request: str) -> str:
    return f"echo done >> {host.remuda.cwd / f'decided-{request}'}"
