"""No request of a warm pool sees another's conversation, files, environment or settings.

What the model was sent is the witness. Each request carries secrets of its own in its prompt, in a file that
it reads and in what a tool prints; each profile has one in its environment. A request may hold its own
secrets and those of its profile, and no other.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remuda import Client, RunResult
from remuda.pool.client import backend_factory
from remuda.pool.types import BackendName
from remuda.pool.worker import Profile, Worker
from remuda.testing.loopback_model import LoopbackModel, Request
from remuda.testing.real_cli import RealCli
from support import counts

WARM: tuple[BackendName, ...] = ("terminal", "stream")
SESSIONS = 4
FIRST = 1000
"""Numbers of one length: none is the beginning of another."""
SECRET = re.compile(r"(?:prompt|file|tool|env)-secret-\d+")


@dataclass(frozen=True)
class Kind:
    """One of the profiles that share the pool."""

    number: int
    cwd: Path
    model: str
    without: str
    """A tool that it does not have."""

    @property
    def secret(self) -> str:
        return f"env-secret-{self.number}"

    @property
    def options(self) -> dict[str, Any]:
        return {
            "cwd": str(self.cwd),
            "env": {"ISOLATION_SECRET": self.secret},
            "model": self.model,
            "allowed_tools": ["Bash", "Read"],
            "disallowed_tools": [self.without],
        }


@dataclass(frozen=True)
class Case:
    """One request: reads a file, runs a command, answers."""

    number: int
    kind: Kind

    @property
    def secrets(self) -> set[str]:
        return {f"{where}-secret-{self.number}" for where in ("prompt", "file", "tool")}

    def prompt(self) -> str:
        path = self.kind.cwd / f"note-{self.number}.txt"
        path.write_text(f"file-secret-{self.number}\n")
        command = f"echo $ISOLATION_SECRET tool-secret-$(({self.number})) in $(pwd)"
        calls = [
            {"name": "Read", "input": {"file_path": str(path)}},
            {"name": "Bash", "input": {"command": command, "description": f"prompt-secret-{self.number}"}},
        ]
        return f"TOOLS {json.dumps(calls)}"


def make_kinds(cli: RealCli) -> list[Kind]:
    kinds = []
    for number in range(SESSIONS):
        folder = cli.project / f"kind{number}"
        folder.mkdir()
        model = ("claude-sonnet-5", "claude-haiku-5")[number % 2]
        kinds.append(Kind(900 + number, folder, model, ("Edit", "Write")[number // 2]))
    return kinds


def make_client(cli: RealCli, backend: BackendName, **options: Any) -> Client:
    return Client(
        backend=backend,
        claude_binary=str(cli.binary),
        env=cli.env,
        runtime_dir=str(cli.folder / "sessions"),
        max_requests_per_session=1000,
        **{"pool_size": SESSIONS, **options},
    )


async def run_all(client: Client, cases: Sequence[Case]) -> list[RunResult]:
    """All profiles at once, those of one profile one after the other."""

    async def chain(kind: Kind) -> list[RunResult]:
        return [
            await client.run(case.prompt(), request_id=f"case-{case.number}", **kind.options)
            for case in cases
            if case.kind == kind
        ]

    chains = await asyncio.gather(*(chain(kind) for kind in {case.kind: None for case in cases}))
    return [result for one in chains for result in one]


# ── what the model was sent ──


def leaks(requests: Sequence[Request], cases: Sequence[Case]) -> list[str]:
    """Every secret that a request carried and should not have."""
    found = []
    by_number = {case.number: case for case in cases}
    for request in requests:
        seen = set(SECRET.findall(request.raw.decode()))
        owner = _owner(request, by_number)
        allowed = owner.secrets | {owner.kind.secret} if owner else set()
        found += [f"{secret} in #{request.number}" for secret in sorted(seen - allowed)]
    return found


def _owner(request: Request, cases: dict[int, Case]) -> Case | None:
    """Whose request it is: the last prompt in it says so."""
    prompts = re.findall(r"prompt-secret-(\d+)", request.raw.decode())
    return cases[int(prompts[-1])] if prompts else None


def check_settings(requests: Sequence[Request], cases: Sequence[Case]) -> None:
    by_number = {case.number: case for case in cases}
    for request in requests:
        owner = _owner(request, by_number)
        assert owner is not None, request
        assert request.model == owner.kind.model
        assert owner.kind.without not in request.tools
        assert {"Edit", "Write"} - {owner.kind.without} <= set(request.tools)
        assert str(owner.kind.cwd) in request.raw.decode()
        others = {str(case.kind.cwd) for case in cases if case.kind != owner.kind}
        assert not [other for other in others if other in request.raw.decode()]


def check_tools_ran(requests: Sequence[Request], case: Case) -> None:
    """Its own file was read, its own environment and folder used."""
    own = [request for request in requests if f"prompt-secret-{case.number}" in request.raw.decode()]
    assert len(own) == 2
    last = own[-1].raw.decode()
    assert f"file-secret-{case.number}" in last
    assert f"{case.kind.secret} tool-secret-{case.number} in {case.kind.cwd}" in last


@pytest.mark.soak
@pytest.mark.parametrize("backend", WARM)
@pytest.mark.shows("a request of a pool carries nothing of another")
def test_request_of_a_warm_pool_carries_nothing_of_any_other(
    backend: BackendName, cli: RealCli, model: LoopbackModel
) -> None:
    kinds = make_kinds(cli)
    cases = [Case(FIRST + number, kinds[number % SESSIONS]) for number in range(counts.ISOLATED_REQUESTS)]
    spawned: list[object] = []
    evicted: list[object] = []

    async def serve() -> list[RunResult]:
        async with make_client(cli, backend) as client:
            client.on("session.spawned", spawned.append)
            client.on("session.evicted", evicted.append)
            results = await run_all(client, cases)
            assert evicted == []  # all but the first of each profile were served warm
            return results

    results = asyncio.run(serve())

    assert leaks(model.requests, cases) == []
    check_settings(model.main_requests, cases)
    for case in cases:
        check_tools_ran(model.main_requests, case)
    assert len(spawned) == SESSIONS
    assert len({result.conversation_id for result in results}) == len(cases)


@pytest.mark.parametrize("backend", WARM)
@pytest.mark.shows("a request of a pool runs with its own folder, model, environment and tools")
def test_request_with_another_environment_gets_another_process(
    backend: BackendName, cli: RealCli, model: LoopbackModel
) -> None:
    kinds = make_kinds(cli)
    cases = [Case(FIRST + number, kind) for number, kind in enumerate([*kinds[:3], kinds[0]])]
    evicted: list[object] = []

    async def serve() -> None:
        async with make_client(cli, backend, pool_size=1) as client:
            client.on("session.evicted", evicted.append)
            for case in cases:
                await client.run(case.prompt(), **case.kind.options)

    asyncio.run(serve())

    assert leaks(model.requests, cases) == []
    check_settings(model.main_requests, cases)
    assert len(evicted) == len(cases)


@pytest.mark.parametrize("backend", WARM)
def test_leak_is_seen_when_the_conversation_is_not_cleared(
    backend: BackendName, cli: RealCli, model: LoopbackModel
) -> None:
    kind = make_kinds(cli)[0]
    cases = [Case(FIRST + number, kind) for number in range(2)]
    make = backend_factory(backend, Path(cli.folder / "sessions"))

    def unclean(session_id: str, profile: Profile) -> Worker:
        session = make(session_id, profile)

        async def renew(timeout: float) -> None:
            """Does not, and says that it did."""
            session._fresh = True  # type: ignore[attr-defined]

        session.renew = renew  # type: ignore[method-assign]
        return session

    async def serve() -> None:
        async with make_client(cli, backend, pool_size=1, session_factory=unclean) as client:
            for case in cases:
                await client.run(case.prompt(), **case.kind.options)

    asyncio.run(serve())

    assert any(f"prompt-secret-{FIRST}" in leak for leak in leaks(model.requests, cases))
