"""Requests with secrets to a warm pool of a real agent: by prompt, file, output of a tool and environment."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda import Client
from remuda.testing.loopback_model import LoopbackModel, Request
from remuda.testing.real_cli import RealCli
from support.pool_conformance import run_steps

_FIRST = 1000
_SECRET = re.compile(r"(?:prompt|file|tool|env)-secret-\d+")
_KINDS = 2


@dataclass(frozen=True)
class SecretRequest:
    """Request `number` of a profile, whose folder and environment are its own."""

    number: int
    folder: Path
    mark: str

    @classmethod
    def make(cls, number: int, folder: Path, kind: int = 0) -> SecretRequest:
        made = cls(_FIRST + number, folder, f"env-secret-{900 + kind}")
        (folder / f"of-{made.number}").write_text(f"file-secret-{made.number}")
        return made

    @property
    def env(self) -> dict[str, str]:
        return {"REMUDA_MARK": self.mark}

    @property
    def secrets(self) -> set[str]:
        return {self.mark} | {f"{kind}-secret-{self.number}" for kind in ("prompt", "file", "tool")}

    def prompt(self, cli: RealCli) -> str:
        """Its secrets but that of the prompt are made by the command: they are not in the prompt."""
        command = f'cat of-{self.number}; echo "$REMUDA_MARK tool-secret-$(({self.number}))"'
        return cli.plan.tool_prompt(f"{command} # prompt-secret-{self.number}")


def check_bodies(requests: Iterable[Request], asked: Sequence[SecretRequest]) -> None:
    """Check that each request to the model has the secrets of one of `asked` and of no other."""
    by_number = {one.number: one for one in asked}
    missing = {(one.number, secret) for one in asked for secret in one.secrets}
    for request in requests:
        seen = set(_SECRET.findall(request.raw.decode()))
        owner = re.search(r"prompt-secret-(\d+)", str(request.prompt))
        own = by_number[int(owner[1])].secrets if owner else set()
        assert seen <= own, (request.number, seen - own)
        missing -= {(int(owner[1]), secret) for secret in seen} if owner else set()
    assert not missing, f"never sent: {sorted(missing)[:8]}"


def check_secrets(
    agent: str, cli: RealCli, model: LoopbackModel, count: int, allows: dict[str, Any], **client: Any
) -> None:
    """Send requests of two profiles. `allows`: options that let the shell run."""
    asked = []
    for number in range(count):
        folder = cli.folder / f"kind{number % _KINDS}"
        folder.mkdir(exist_ok=True)
        asked.append(SecretRequest.make(number, folder, number % _KINDS))

    async def steps() -> None:
        async with Client(agent=agent, env=cli.env, inherit_env=False, pool_size=_KINDS, **client) as pool:

            async def chain(kind: int) -> list[str | None]:
                results = [
                    await pool.run(one.prompt(cli), cwd=str(one.folder), env=one.env, **allows)
                    for one in asked[kind::_KINDS]
                ]
                return [result.conversation_id for result in results]

            chains = await asyncio.gather(*(chain(kind) for kind in range(_KINDS)))
            conversations = [one for ids in chains for one in ids]
            assert len(set(conversations)) == count

    run_steps(steps)
    check_bodies(model.requests, asked)
