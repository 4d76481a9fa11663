"""The policy's file, and requests for leave that it answers.

The file is looked at again for each request. One that cannot be read, or is not right, decides nothing: a
human is asked.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from remuda.agents.claude.asking import file_path, is_plain, shell_command
from remuda.errors import InvalidOptions, NotInQueue

from ..attention.model import Approval, Reason, Session
from ..folder import BossFolder
from .approvals import Approvals
from .policy import Decision, Policy, Request, Verdict, read_policy

log = logging.getLogger("remuda.boss.answers.policy")

DENIED = "A rule of the user's does not allow this. Go on without it, or say what you would need."


def policy_file(folder: BossFolder, environ: Mapping[str, str]) -> Path:
    """The first that exists: in the boss's folder, or beside the configuration."""
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "/"), ".config")
    own = folder.path / "policy.toml"
    other = Path(base, "remuda", "policy.toml")
    return other if other.exists() and not own.exists() else own


def load_policy(path: Path) -> Policy:
    """Without a file, nothing is decided. Raises `InvalidOptions` that names the file."""
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if found.st_uid not in (os.getuid(), 0) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise InvalidOptions(
                    f"{path} could be written by others", hint=f"make it yours alone: chmod 600 {path}"
                )
            return read_policy(tomllib.load(file), os.path.expanduser("~"))
    except FileNotFoundError:
        return Policy()
    except OSError as error:
        raise InvalidOptions(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidOptions(f"{path}: {error}") from error
    except InvalidOptions as error:
        if str(path) in error.message:
            raise
        raise InvalidOptions(f"{path}: {error.message}", hint=error.hint) from None


def make_request(
    tool: str, reason: Reason, given: Mapping[str, Any], names: Sequence[str | None], cwd: str | None
) -> Request:
    """Looks at the disk: what a path means is known when its symbolic links are."""
    path = file_path(given)
    if path is not None and (cwd is not None or os.path.isabs(path)):
        path = os.path.realpath(os.path.join(cwd or "/", os.path.expanduser(path)))
    return Request(
        tool,
        reason,
        shell_command(tool, given),
        is_plain(tool, given),
        path,
        os.path.realpath(cwd) if cwd else None,
        tuple(name for name in names if name),
    )


class Automatic:
    """Answers what the policy decides; every decision stands in the ledger with the name of its rule."""

    def __init__(self, approvals: Approvals, folder: BossFolder) -> None:
        self._approvals = approvals
        self._folder = folder

    async def consider(self, approval: Approval) -> None:
        try:
            session: Session | None = self._approvals.desk.session(approval.session_id)
        except NotInQueue:
            session = None
        try:
            policy, verdict = await asyncio.to_thread(self._decide, approval, session)
        except InvalidOptions as error:
            log.warning("the policy decides nothing: %s", error)
            return
        if verdict.rule is None:
            return
        if policy.dry_run:
            await self._note(approval, verdict)
        elif verdict.decision is not Decision.ASK:
            await self._answer(approval, verdict)

    def _decide(self, approval: Approval, session: Session | None) -> tuple[Policy, Verdict]:
        policy = load_policy(policy_file(self._folder, os.environ))
        if not policy.rules:
            return policy, Verdict(Decision.ASK)
        names = (approval.session_id, session.name if session else None)
        cwd = session.cwd if session else None
        return policy, policy.decide(make_request(approval.tool, approval.reason, approval.input, names, cwd))

    async def _answer(self, approval: Approval, verdict: Verdict) -> None:
        answer = {"behavior": str(verdict.decision)}
        if verdict.decision is Decision.DENY:
            answer["message"] = (verdict.rule.message if verdict.rule else "") or DENIED
        await self._approvals.answer(approval.id, answer, f"policy: {verdict.name}")

    async def _note(self, approval: Approval, verdict: Verdict) -> None:
        desk = self._approvals.desk
        current = desk.approval(approval.id)
        would = {"decision": str(verdict.decision), "rule": verdict.name, "dry_run": True}
        if current.detail.get("policy") != would:
            await desk.change_approval(replace(current, detail={**current.detail, "policy": would}))
