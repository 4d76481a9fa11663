"""Copilot with a home of its own, talking to the loopback model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .bench import API_KEY, RealCli
from .fetch import binary_of


class RealCopilot(RealCli):
    """The pinned copilot with a fresh HOME and project below ``folder``, on the model at ``base_url``."""

    def __init__(self, folder: Path, base_url: str, *, trust: bool = True) -> None:
        super().__init__(folder, base_url, trust=trust, binary=binary_of("copilot"))

    def _environment(self, base_url: str) -> dict[str, str]:
        kept = {
            name: value
            for name, value in super()._environment(base_url).items()
            if not name.startswith(("ANTHROPIC", "CLAUDE", "DISABLE"))
        }
        programs = self._made("bin")
        (programs / "copilot").symlink_to(self.binary)
        return kept | {
            "PATH": f"{programs}:{kept['PATH']}",
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_PROVIDER_TYPE": "anthropic",
            "COPILOT_PROVIDER_BASE_URL": base_url,
            "COPILOT_PROVIDER_API_KEY": API_KEY,
            "COPILOT_MODEL": "claude-sonnet-4.5",
            # It unpacks 300 MB there at its first start. Nothing else of the home is shared.
            "XDG_CACHE_HOME": str(self.binary.parent / "unpacked"),
        }

    def _configure(self, trusted: list[Path]) -> None:
        folder = self.home / ".copilot"
        folder.mkdir()
        (folder / "settings.json").write_text(json.dumps({"banner": "never"}))
        if trusted:
            (folder / "config.json").write_text(
                json.dumps({"trustedFolders": [str(path) for path in trusted]})
            )

    def events(self) -> list[dict[str, Any]]:
        """All records of all conversations."""
        found = sorted((self.home / ".copilot" / "session-state").glob("*/events.jsonl"))
        return [json.loads(line) for path in found for line in path.read_text().splitlines()]
