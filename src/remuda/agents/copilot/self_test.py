"""How `remuda doctor --agent copilot` tries copilot. Tests on the real program use the same bench."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from remuda.agents.self_test import MADE_UP_KEY, BenchPlace, Hazard

from .launch import ASK_VARIABLE
from .prompting import ESCAPE


class CopilotSelfTest:
    program = "GitHub Copilot CLI"
    time_limit = 115.0
    # Its dialog opens only when no one has decided elsewhere.
    variables: Mapping[str, str] = {ASK_VARIABLE: "1"}
    arguments: Sequence[str] = ("--allow-tool=shell(echo:*)", "--allow-tool=shell(ls:*)")
    allowed_command = "echo remuda-tool"
    failing_command = "ls no-such-file"
    sources: Sequence[str] = ("hook", "transcript", "screen")
    # Not PermissionRequest, whose payload names its event in another field. Not PostToolUseFailure:
    # copilot reports a command that failed by PostToolUse (1.0.102).
    hooks: Sequence[str] = (
        "SessionStart",
        "UserPromptSubmit",
        "PreToolUse",
        "PostToolUse",
        "Notification",
        "Stop",
        "SessionEnd",
    )
    dismiss = ESCAPE
    bang: Sequence[Hazard] = (
        Hazard("!touch PWNED", arrives=False),
        Hazard(" \n!touch PWNED", arrives=False),
        Hazard("\u200b!touch PWNED", arrives=False),
        Hazard("x\x1b[201~!touch PWNED\r", arrives=False),
    )
    slash: Sequence[Hazard] = (
        Hazard("/clear", arrives=False),
        Hazard(" /no-such-word x", arrives=False),
        Hazard("exit", arrives=False),
        Hazard("see /clear and\n/exit", arrives=True),
    )
    compact = "/compact"
    clear = "/clear"
    refused_commands: Sequence[str] = (compact, clear)
    describes_calls = False
    asks_trust = True
    backends: Sequence[str] = ("stream",)

    def environment(self, place: BenchPlace) -> dict[str, str]:
        return {
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_PROVIDER_TYPE": "anthropic",
            "COPILOT_PROVIDER_BASE_URL": place.model_url,
            # Long, because copilot masks its value in its output.
            "COPILOT_PROVIDER_API_KEY": MADE_UP_KEY,
            "COPILOT_MODEL": "claude-sonnet-4.5",
        }

    def files(self, place: BenchPlace) -> Mapping[Path, bytes]:
        folder = place.home / ".copilot"
        made: dict[Path, object] = {folder / "settings.json": {"banner": "never"}}
        if place.trusted:
            made[folder / "config.json"] = {"trustedFolders": [str(path) for path in place.trusted]}
        return {path: json.dumps(document).encode() for path, document in made.items()}

    def leftovers(self, place: BenchPlace) -> Sequence[Path]:
        return ()

    def missing_calls(self, binary: Path, folder: Path) -> Sequence[str]:
        return ()

    def tool_prompt(self, command: str) -> str:
        given = {"command": command, "description": "run it"}
        return f"TOOL {json.dumps({'name': 'bash', 'input': given})}"
