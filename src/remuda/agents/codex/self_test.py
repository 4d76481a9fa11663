"""How `remuda doctor --agent codex` tries codex. Tests on the real program use the same bench."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from remuda.agents.self_test import MADE_UP_KEY, BenchPlace, Hazard

from .protocol import find_missing, write_schema

_KEY_VARIABLE = "LOOPBACK_KEY"
_ALLOWED = (["echo", "remuda-tool"], ["ls", "no-such-file"])


class CodexSelfTest:
    program = "codex"
    time_limit = 115.0
    variables: Mapping[str, str] = {}
    arguments: Sequence[str] = ()
    allowed_command = " ".join(_ALLOWED[0])
    failing_command = " ".join(_ALLOWED[1])
    sources: Sequence[str] = ("hook",)
    hooks: Sequence[str] = ()
    dismiss = b"\x1b"
    bang: Sequence[Hazard] = (
        Hazard("!touch PWNED", arrives=True),
        Hazard(" \n!touch PWNED", arrives=True),
        Hazard("x\x1b[201~!touch PWNED", arrives=True),
    )
    slash: Sequence[Hazard] = (
        Hazard("/new", arrives=True),
        Hazard("/no-such-word", arrives=True),
        Hazard("/quit", arrives=True),
    )
    compact = "/compact"
    clear = "/clear"
    refused_commands: Sequence[str] = (compact, clear)
    describes_calls = True
    asks_trust = True
    backends: Sequence[str] = ("stream",)

    def environment(self, place: BenchPlace) -> dict[str, str]:
        return {_KEY_VARIABLE: MADE_UP_KEY}

    def files(self, place: BenchPlace) -> Mapping[Path, bytes]:
        trusted = "\n".join(
            f"[projects.{json.dumps(str(path))}]\ntrust_level = 'trusted'" for path in place.trusted
        )
        config = (
            'model = "loopback-model"\nmodel_provider = "loopback"\ncheck_for_update_on_startup = false\n'
            f'[model_providers.loopback]\nname = "loopback"\nbase_url = "{place.model_url}/v1"\n'
            f'wire_api = "responses"\nenv_key = "{_KEY_VARIABLE}"\nrequest_max_retries = 1\n'
            f"stream_max_retries = 1\n[analytics]\nenabled = false\n{trusted}\n"
        )
        # What a rule allows runs outside the sandbox, which needs a program that not every package has.
        rules = "\n".join(f'prefix_rule(pattern={json.dumps(words)}, decision="allow")' for words in _ALLOWED)
        folder = place.home / ".codex"
        made = {folder / "config.toml": config, folder / "rules" / "default.rules": f"{rules}\n"}
        for project in place.trusted:  # `codex exec` needs a repository, or a flag
            made[project / ".git" / "HEAD"] = "ref: refs/heads/main\n"
            made |= {project / ".git" / name / ".keep": "" for name in ("refs", "objects")}
        return {path: text.encode() for path, text in made.items()}

    def leftovers(self, place: BenchPlace) -> Sequence[Path]:
        sockets = [*(scratch / "s" for scratch in place.scratch), *place.sockets]
        return [path for socket in sockets for path in _socket_leftovers(socket)]

    def missing_calls(self, binary: Path, folder: Path) -> list[str]:
        write_schema(binary, folder)
        return find_missing(folder)

    def tool_prompt(self, command: str) -> str:
        """Return a prompt to run a command outside the sandbox: codex asks, unless a rule allows it."""
        given = {"cmd": command, "sandbox_permissions": "require_escalated", "justification": "it must"}
        return f"TOOL {json.dumps({'name': 'exec_command', 'input': given})}"


def _socket_leftovers(socket: Path) -> list[Path]:
    """Return the files that codex never removes of a server that listened at this path (0.166.0)."""
    name = hashlib.sha256(os.fsencode(os.path.join(os.path.realpath(socket.parent), socket.name))).hexdigest()
    return [Path(f"/tmp/codex-daemon-{os.getuid()}", name + suffix) for suffix in ("", ".lock")]  # noqa: S108
