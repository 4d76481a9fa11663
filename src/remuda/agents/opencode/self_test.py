"""How `remuda doctor --agent opencode` tries opencode. Tests on the real program use the same bench."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from remuda.agents.self_test import MADE_UP_KEY, BenchPlace, Hazard


class OpencodeSelfTest:
    program = "opencode"
    time_limit = 115.0
    variables: Mapping[str, str] = {}
    arguments: Sequence[str] = ()
    allowed_command = "echo remuda-tool"
    failing_command = "ls no-such-file"
    sources: Sequence[str] = ("hook",)
    hooks: Sequence[str] = ()
    dismiss = b"\x1b"
    bang: Sequence[Hazard] = (
        Hazard("!touch PWNED", arrives=True),
        Hazard("x\x1b[201~!touch PWNED", arrives=True),
    )
    slash: Sequence[Hazard] = (
        Hazard("/new", arrives=True),
        Hazard("/help", arrives=True),
        Hazard("/exit", arrives=True),
    )
    compact = "/compact"
    clear = "/new"
    refused_commands: Sequence[str] = (compact,)
    describes_calls = False
    asks_trust = False
    backends: Sequence[str] = ("terminal",)

    def environment(self, place: BenchPlace) -> dict[str, str]:
        return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}

    def files(self, place: BenchPlace) -> Mapping[Path, bytes]:
        settings = {
            "autoupdate": False,
            "share": "disabled",
            "model": "anthropic/claude-sonnet-4-5",
            "provider": {
                "anthropic": {"options": {"baseURL": f"{place.model_url}/v1", "apiKey": MADE_UP_KEY}}
            },
            # The last rule that matches counts.
            "permission": {
                "bash": {"*": "ask", self.allowed_command: "allow", self.failing_command: "allow"}
            },
        }
        return {place.home / ".config" / "opencode" / "opencode.json": json.dumps(settings).encode()}

    def leftovers(self, place: BenchPlace) -> Sequence[Path]:
        return ()

    def missing_calls(self, binary: Path, folder: Path) -> Sequence[str]:
        return ()

    def tool_prompt(self, command: str) -> str:
        given = {"command": command, "description": "run it"}
        return f"TOOL {json.dumps({'name': 'bash', 'input': given})}"
