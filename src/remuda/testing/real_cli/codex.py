"""codex with a home of its own, talking to the loopback model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from .bench import RealCli, plan_of
from .fetch import OTHER_VERSIONS, binary_of


class RealCodex(RealCli):
    """The pinned codex with a fresh HOME and project below ``folder``, on the model at ``base_url``."""

    plan = plan_of("codex")

    def __init__(self, folder: Path, base_url: str, *, trust: bool = True) -> None:
        super().__init__(folder, base_url, trust=trust, binary=binary_of("codex"))
        self._programs = self._made("bin")
        (self._programs / "codex").symlink_to(self.binary)
        self.env["PATH"] = f"{self._programs}:{self.env['PATH']}"

    @property
    def daemon_socket(self) -> Path:
        """Return where the server listens that all its plainly started terminals share."""
        return self.home / ".codex" / "app-server-control" / "app-server-control.sock"

    def make_package(self) -> None:
        """Put the binary into a package, as npm installs it: only from one does it start that server.

        It copies the package (320 MB) into its home first. Nothing runs the other programs of it (0.166.0).
        """
        package = self._made("package")
        for name in ("bin/codex-code-mode-host", "codex-path/rg", "codex-resources/bwrap"):
            program = package / name
            program.parent.mkdir(parents=True)
            program.write_text("#!/bin/sh\nexit 1\n")
            program.chmod(0o755)
        about = {"layoutVersion": 1, "version": OTHER_VERSIONS["codex"], "variant": "codex"}
        about |= {"target": "x86_64-unknown-linux-musl", "entrypoint": "bin/codex"}
        about |= {"resourcesDir": "codex-resources", "pathDir": "codex-path"}
        (package / "codex-package.json").write_text(json.dumps(about))
        made = package / "bin" / "codex"
        try:
            made.hardlink_to(self.binary)
        except OSError:  # another file system
            shutil.copy(self.binary, made)
        self.binary = made
        (self._programs / "codex").unlink()
        (self._programs / "codex").symlink_to(made)
        self.sockets.add(self.daemon_socket)

    def rollouts(self) -> list[Path]:
        """Return the files of its conversations, oldest first."""
        return sorted((self.home / ".codex" / "sessions").rglob("rollout-*.jsonl"))
