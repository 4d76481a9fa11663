"""codex with a home of its own, talking to the loopback model."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from .bench import API_KEY, RealCli, bench_environment
from .fetch import binary_of


class RealCodex(RealCli):
    """The pinned codex with a fresh HOME and project below ``folder``, on the model at ``base_url``."""

    def __init__(self, folder: Path, base_url: str, *, trust: bool = True) -> None:
        self.sockets: set[Path] = set()
        """Where its servers listen. codex never removes the sockets that these lead to (0.166.0)."""
        super().__init__(folder, base_url, trust=trust, binary=binary_of("codex"))
        for name in ("refs", "objects"):  # `codex exec` needs a repository, or a flag
            (self.project / ".git" / name).mkdir(parents=True)
        (self.project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")

    def rollouts(self) -> list[Path]:
        """Return the files of its conversations, oldest first."""
        return sorted((self.home / ".codex" / "sessions").rglob("rollout-*.jsonl"))

    def close(self) -> None:
        super().close()
        for path in self.sockets:
            name = hashlib.sha256(os.fsencode(os.path.realpath(path.parent) + f"/{path.name}")).hexdigest()
            for suffix in ("", ".lock"):
                Path(f"/tmp/codex-daemon-{os.getuid()}", name + suffix).unlink(missing_ok=True)  # noqa: S108

    def _environment(self, base_url: str) -> dict[str, str]:
        self._base_url = base_url
        programs = self._made("bin")
        (programs / "codex").symlink_to(self.binary)
        variables = bench_environment(self.home, self._place.temporary)
        return {**variables, "PATH": f"{programs}:{variables['PATH']}", "LOOPBACK_KEY": API_KEY}

    def _configure(self, trusted: list[Path]) -> None:
        trust = "\n".join(f'[projects."{path.resolve()}"]\ntrust_level = "trusted"' for path in trusted)
        config = self.home / ".codex" / "config.toml"
        config.parent.mkdir()
        config.write_text(
            'model = "loopback-model"\nmodel_provider = "loopback"\ncheck_for_update_on_startup = false\n'
            f'[model_providers.loopback]\nname = "loopback"\nbase_url = "{self._base_url}/v1"\n'
            'wire_api = "responses"\nenv_key = "LOOPBACK_KEY"\nrequest_max_retries = 1\n'
            f"stream_max_retries = 1\n[analytics]\nenabled = false\n{trust}\n"
        )
