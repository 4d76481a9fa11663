"""How `remuda doctor --agent claude` tries Claude Code. Tests on the real program use the same bench."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from remuda.agents.self_test import BenchPlace, Hazard

# Made up, and shaped as the CLI expects a key to be; it is only ever sent to loopback.
API_KEY = "sk-ant-api03-remuda-bench-made-up-key-000000000000"


class ClaudeSelfTest:
    program = "Claude Code"
    time_limit = 45.0
    variables: Mapping[str, str] = {}
    arguments: Sequence[str] = ("--allowedTools=Bash(echo:*),Bash(ls:*)",)
    allowed_command = "echo remuda-tool"
    failing_command = "ls no-such-file"
    sources: Sequence[str] = ("hook", "registry", "title", "screen")
    # Not Notification, which comes 6 to 60 s after its cause.
    hooks: Sequence[str] = (
        "SessionStart",
        "UserPromptSubmit",
        "PreToolUse",
        "PermissionRequest",
        "PostToolUse",
        "PostToolUseFailure",
        "MessageDisplay",
        "Stop",
        "StopFailure",
        "SessionEnd",
    )
    dismiss = b"\x1b"
    bang: Sequence[Hazard] = (
        Hazard("!touch PWNED", arrives=True),
        Hazard("\u2060!touch PWNED", arrives=True),
    )
    slash: Sequence[Hazard] = (
        Hazard("/clear", arrives=False),
        Hazard("\u200b/exit", arrives=False),
        Hazard("exit", arrives=False),
        Hazard("see /clear and\n/exit", arrives=True),
    )
    compact = "/compact"
    clear = "/clear"
    refused_commands: Sequence[str] = ()
    describes_calls = False
    asks_trust = True
    backends: Sequence[str] = ("terminal", "stream")

    def environment(self, place: BenchPlace) -> dict[str, str]:
        # IS_SANDBOX, which lets root use --dangerously-skip-permissions, must not be here: with it the CLI
        # (2.1.325) keeps on trying an overloaded API, without it three times. Tests use --allowedTools.
        return {
            "CLAUDE_CODE_TMPDIR": str(place.temporary),
            "ANTHROPIC_BASE_URL": place.model_url,
            "ANTHROPIC_API_KEY": API_KEY,
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            # Else the terminal has git clone a marketplace over ssh, which knows no proxy (2.1.325).
            "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
        }

    def files(self, place: BenchPlace) -> Mapping[Path, bytes]:
        config = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            # The CLI knows an approved key by its last twenty characters.
            "customApiKeyResponses": {"approved": [API_KEY[-20:]], "rejected": []},
            "projects": {str(path.resolve()): {"hasTrustDialogAccepted": True} for path in place.trusted},
        }
        return {place.home / ".claude.json": json.dumps(config).encode()}

    def leftovers(self, place: BenchPlace) -> Sequence[Path]:
        """Return the folder with the sockets of the CLI's background service; TMPDIR is ignored (2.1.325)."""
        name = hashlib.sha256(str(place.home / ".claude").encode()).hexdigest()[:8]
        return [Path(f"/tmp/cc-daemon-{os.getuid()}") / name]  # noqa: S108

    def missing_calls(self, binary: Path, folder: Path) -> Sequence[str]:
        return ()

    def tool_prompt(self, command: str) -> str:
        return f"RUNBASH {command}"
