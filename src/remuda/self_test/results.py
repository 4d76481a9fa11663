"""Results of self-tests, kept by agent and digest of the binary, in `$REMUDA_HOME/self-tests`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from remuda.agents import find_agent, find_self_test
from remuda.durable import replace_file
from remuda.paths import private_folder
from remuda.tried_program import find_document, tried_folder
from remuda.untrusted import as_object

from .promises import PromiseResult, PromiseVerdict


class SelfTestResult(NamedTuple):
    """What a self-test found."""

    agent: str
    program: str
    version: str
    digest: str
    """sha256 of the binary, in hex digits."""
    binary: str
    stamp: tuple[int, int]
    """Size and time of the last change (ns) of the binary: if both are the same, it is not read again."""
    at: float
    offline: str
    remuda: str
    outcomes: tuple[PromiseResult, ...]
    words: tuple[str, ...] = ()
    """What the agent printed last, if it did not start."""
    seconds: float = 0.0

    @property
    def broken(self) -> list[PromiseResult]:
        return [one for one in self.outcomes if one.verdict is PromiseVerdict.FAILS]

    @property
    def unsafe(self) -> list[PromiseResult]:
        return [one for one in self.broken if one.promise.safety]

    def document(self) -> dict[str, Any]:
        return {
            **self._asdict(),
            "stamp": list(self.stamp),
            "outcomes": [one.document() for one in self.outcomes],
            "words": list(self.words),
            "holds": not self.broken,
        }


def result_path(agent: str, digest: str) -> Path:
    return tried_folder() / f"{agent}-{digest[:16]}.json"


def save(result: SelfTestResult) -> None:
    folder = private_folder(tried_folder())
    replace_file(
        folder / result_path(result.agent, result.digest).name, json.dumps(result.document()).encode()
    )


def find_binary(agent: str, argv: Sequence[str] = (), path: str | None = None) -> Path | None:
    """Return the file that a session runs: the first word of `argv`, or the agent's own command."""
    word = (*argv, *find_agent(agent).default_argv)[0]
    found = shutil.which(word, path=path)
    return None if found is None else Path(os.path.realpath(found))


def find_result(agent: str, binary: Path) -> SelfTestResult | None:
    """Return what was found of this binary."""
    document = find_document(binary, agent)
    try:
        return None if document is None else _read(document)
    except (ValueError, TypeError, KeyError):
        return None


def _read(document: dict[str, Any]) -> SelfTestResult:
    texts = {
        name: str(document[name]) for name in ("agent", "program", "version", "digest", "binary", "remuda")
    }
    size, changed = document["stamp"]
    outcomes = [PromiseResult.read(as_object(one)) for one in document["outcomes"]]
    return SelfTestResult(
        **texts,
        stamp=(int(size), int(changed)),
        at=float(document["at"]),
        offline=str(document["offline"]),
        outcomes=tuple(one for one in outcomes if one is not None),
        words=tuple(map(str, document.get("words") or ())),
        seconds=float(document.get("seconds") or 0.0),
    )


class Standing(NamedTuple):
    """What is known here of the agent that a session runs."""

    words: str
    level: Literal["ok", "note", "fail"]


def find_standing(agent: str, argv: Sequence[str] = (), path: str | None = None) -> Standing | None:
    """Say what the self-test found of an agent; None if it has none, or is not installed."""
    plan = find_self_test(agent)
    binary = find_binary(agent, argv, path) if plan is not None else None
    if plan is None or binary is None:
        return None
    result = find_result(agent, binary)
    if result is None:
        never = f"this version of {plan.program} was never tried here"
        return Standing(f"{never}; try it with: remuda doctor --agent {agent}", "note")
    named = f"{plan.program} {result.version}"
    if not result.broken:
        counts = {kind: sum(one.verdict is kind for one in result.outcomes) for kind in PromiseVerdict}
        rest = [
            f"{counts[kind]} {kind}" for kind in (PromiseVerdict.SLOW, PromiseVerdict.UNKNOWN) if counts[kind]
        ]
        return Standing(", ".join([f"{named}: {counts[PromiseVerdict.HOLDS]} promises hold", *rest]), "ok")
    broken = "; ".join(f"{one.promise.what} ({one.promise.follows})" for one in result.broken)
    return Standing(f"{named}: does not hold: {broken}", "fail" if result.unsafe else "note")
