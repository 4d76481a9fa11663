"""Programs that a self-test tried here: what it found of each, and the refusal of one that is not safe.

`self_test/results` writes the documents: `$REMUDA_HOME/self-tests/AGENT-DIGEST.json`. Code that starts an
agent calls `check_program` first: the keeper for an agent on a terminal, `supervised` for one without.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from .errors import NotSafe
from .paths import home

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    from typing import Any

DOES_NOT_HOLD = "does not hold"
_MOST_BYTES = 1 << 20
_MOST_PARENTS = 3


def tried_folder() -> Path:
    return home() / "self-tests"


def stamp_of(binary: Path) -> tuple[int, int]:
    """Return size and time of the last change (ns)."""
    status = binary.stat()
    return status.st_size, status.st_mtime_ns


def digest_of(binary: Path) -> str:
    """Return the sha256 of a program in hex digits.

    A script counts with the package.json of its package: npm installs many versions of an agent with the same
    few lines that start it, and gives all of them the same date.
    """
    import hashlib  # slow to load, and seldom needed

    with open(binary, "rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    if _is_script(binary):
        for folder in binary.parents[:_MOST_PARENTS]:
            if (package := folder / "package.json").is_file():
                digest.update(package.read_bytes())
                break
    return digest.hexdigest()


def _is_script(binary: Path) -> bool:
    with open(binary, "rb") as file:
        return file.read(2) == b"#!"


def find_document(binary: Path, agent: str = "*") -> dict[str, Any] | None:
    """Return what was found of a program. It is read only if one of its size was tried."""
    try:
        stamp = stamp_of(binary)
        same_size = [one for one in _documents(agent) if one["stamp"][0] == stamp[0]]
        if not same_size:
            return None
        known = [one for one in same_size if one["stamp"] == [*stamp] and one.get("binary") == str(binary)]
        if not known or _is_script(binary):
            digest = digest_of(binary)
            known = [one for one in same_size if one["digest"] == digest]
    except OSError:
        return None
    return known[0] if known else None


def _documents(agent: str) -> Iterator[dict[str, Any]]:
    from .durable import read_regular
    from .untrusted import as_object, parse_json

    for path in sorted(tried_folder().glob(f"{agent}-*.json")):
        try:
            document = as_object(parse_json(read_regular(path, _MOST_BYTES, own=True)))
            size, changed = document["stamp"]
            yield {**document, "stamp": [int(size), int(changed)], "digest": str(document["digest"])}
        except (OSError, ValueError, TypeError, KeyError):
            continue  # it is as if the test had not run


def check_program(program: str, agent: str = "*") -> None:
    """Raise `NotSafe` for the path of a program on which a promise about safety does not hold."""
    if not os.path.isdir(tried_folder()):  # no agent was ever tried here: a call of `print` is short
        return
    document = find_document(Path(os.path.realpath(program)), agent)
    unsafe = [one for one in _outcomes(document or {}) if one.get("safety")]
    if document is not None and unsafe:
        broken = "; ".join(f"{one.get('what')} ({one.get('follows')})" for one in unsafe)
        raise NotSafe(
            f"{document.get('program')} {document.get('version')}: {DOES_NOT_HOLD}: {broken}",
            hint=f"use another version, or remove the result in {tried_folder()} to start it nevertheless",
        )


def _outcomes(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    from .untrusted import as_objects

    return (one for one in as_objects(document.get("outcomes")) if one.get("verdict") == DOES_NOT_HOLD)
