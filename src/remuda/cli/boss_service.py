"""The boss and the hub as services of the user: a systemd unit, or a launchd plist"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from remuda.agents import agent_setups
from remuda.boss.notices.notify_file import AMOUNTS, TELEGRAM
from remuda.durable import replace_file
from remuda.errors import InvalidOptions
from remuda.frozen import frozen
from remuda.paths import config_home

from .common import short_path
from .file_changes import Agreement, agreed, forget_program, remember_program
from .output import echo, print_json

_FOLDERS = ("REMUDA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
"""Folders of the boss. A service does not inherit them from a shell, nor those of agents and of tmux."""
_WORDS = (
    "REMUDA_HUNG_AFTER",
    "TRAILBOSS_POLL_INTERVAL_MS",
    "TRAILBOSS_QUIET_THRESHOLD_MS",
    "TRAILBOSS_OPT_IN_PREFIX",
    *TELEGRAM,
    *AMOUNTS,
)
"""Timeouts of the boss, settings of its detector, and who is notified."""
_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")

_PLIST = """<?xml version="1.0" encoding="UTF-8"?>
<!-- Written by '{made_by}'{option}. -->
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>{label}</string>
  <key>ProgramArguments</key>
  <array>{words}
  </array>
  <key>EnvironmentVariables</key>
  <dict>{environment}
  </dict>
  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <dict>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
</dict>
</plist>
"""


@frozen
class Service:
    """A command of ours that systemd or launchd runs."""

    name: str
    about: str
    words: tuple[str, ...]
    """The command, without its options."""
    restart: tuple[str, ...]
    """How systemd restarts and ends it."""
    option: str = ""
    """The option of 'remuda setup' that writes the file."""
    before: str = ""
    """What else wrote it, until version 0.2."""
    variables: tuple[str, ...] = ()
    """Names of variables that it gets besides its folders."""

    @property
    def unit(self) -> str:
        return f"remuda-{self.name}.service"

    @property
    def label(self) -> str:
        return f"remuda.{self.name}"

    @property
    def file(self) -> Path:
        if _is_mac():
            return Path("~/Library/LaunchAgents").expanduser() / f"{self.label}.plist"
        return config_home(os.environ) / "systemd" / "user" / self.unit

    @property
    def is_installed(self) -> bool:
        return self.file.exists() and self._is_ours()

    def install(self, options: Sequence[str], as_json: bool) -> None:
        """Write the file, show it, and print the commands that start the service. The user runs them."""
        _, text = self._change(options)
        self._write(text)
        if as_json:
            print_json({"file": str(self.file), "content": text, "commands": self._commands("install")})
            return
        echo(f"wrote {self.file}:\n")
        echo(text)
        self._print_commands("install")

    def set_up(self, options: Sequence[str], how: Agreement) -> bool:
        """Show the file, ask, write it, and print the commands that start the service."""
        before, text = self._change(options)
        place = short_path(str(self.file))
        if before == text:
            echo(f"{place}: already installed; nothing to change")
            return False
        if not agreed(place, before, text, f"write {place}", how):
            return False
        self._write(text)
        echo(f"wrote {place}")
        self._print_commands("install")
        return True

    def remove(self, how: Agreement) -> None:
        """Show the file, ask, remove it, and print the commands that stop the service."""
        place = short_path(str(self.file))
        if agreed(place, self.file.read_text(errors="replace"), None, f"remove {place}", how):
            self.uninstall(as_json=False)

    def uninstall(self, as_json: bool) -> None:
        if not self.file.exists():
            raise InvalidOptions(f"{self.file} does not exist", hint="the service is not installed")
        if not self._is_ours():
            raise InvalidOptions(f"{self.file} was not written by Remuda", hint="it was left alone")
        self.file.unlink()
        forget_program(self.file)
        if as_json:
            print_json({"file": str(self.file), "commands": self._commands("uninstall")})
            return
        echo(f"removed {self.file}")
        self._print_commands("uninstall")

    def _change(self, options: Sequence[str]) -> tuple[str | None, str]:
        """Return the text of the file now and the one to write. Raises `InvalidOptions` if it is not ours."""
        for word in options:
            if _UNWRITABLE.search(word):
                raise InvalidOptions(f"{word!r} cannot be given to a service")
        arguments = [sys.executable, "-P", "-m", "remuda", *self.words, *options]
        text = (self.plist if _is_mac() else self.unit_text)(arguments, self._environment(os.environ))
        if self.file.exists() and not self._is_ours():
            raise InvalidOptions(f"{self.file} was not written by Remuda", hint="move it away first")
        return self.file.read_text(errors="replace") if self.file.exists() else None, text

    def _write(self, text: str) -> None:
        remember_program(self.file, None, text)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.file, text.encode(), 0o644)

    def _is_ours(self) -> bool:
        text = self.file.read_text(errors="replace")
        return f"Written by 'remuda setup {self.name}" in text or (
            bool(self.before) and f"Written by '{self.before}" in text
        )

    def _print_commands(self, what: str) -> None:
        echo("now run:")
        for one in self._commands(what):
            echo(f"  {one}")

    def _commands(self, what: str) -> list[str]:
        if _is_mac():
            return [f"launchctl load {self.file}" if what == "install" else f"launchctl remove {self.label}"]
        enable = f"systemctl --user enable --now {self.unit}"
        disable = f"systemctl --user disable --now {self.unit}"
        reload = "systemctl --user daemon-reload"
        return [reload, enable] if what == "install" else [disable, reload]

    def _environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return its variables. Raises `InvalidOptions` for a value that the file cannot hold."""
        variables = {name: _absolute(environ[name]) for name in _FOLDERS if environ.get(name)}
        if self.variables:
            folders = [name for setup in agent_setups() for name in setup.folder_variables]
            folders.append("TMUX_TMPDIR")
            variables |= {name: _absolute(environ[name]) for name in folders if environ.get(name)}
        variables |= {name: environ[name] for name in self.variables if environ.get(name)}
        variables["PATH"] = environ.get("PATH") or os.defpath
        for name, value in variables.items():
            if _UNWRITABLE.search(value):
                raise InvalidOptions(f"{name} cannot be given to a service: {value!r}")
        return variables

    def unit_text(self, arguments: list[str], given: Mapping[str, str]) -> str:
        program, *words = arguments
        # systemd expands dollar signs in the words of a command.
        command = [_quoted(program), *(_quoted(word.replace("$", "$$")) for word in words)]
        made_by = f"remuda setup {self.name}"
        return "\n".join(
            [
                f"# Written by '{made_by}{self.option}'; '{made_by} --remove' removes it.",
                "[Unit]",
                f"Description={self.about}",
                "",
                "[Service]",
                f"ExecStart={' '.join(command)}",
                *(f"Environment={_quoted(f'{name}={value}')}" for name, value in given.items()),
                "Restart=on-failure",
                *self.restart,
                "",
                "[Install]",
                "WantedBy=default.target",
                "",
            ]
        )

    def plist(self, arguments: list[str], given: Mapping[str, str]) -> str:
        words = "".join(f"\n    <string>{escape(word)}</string>" for word in arguments)
        environment = "".join(
            f"\n    <key>{name}</key>\n    <string>{escape(value)}</string>" for name, value in given.items()
        )
        option = f", its option{self.option.replace('--', '')}" if self.option else ""
        return _PLIST.format(
            made_by=f"remuda setup {self.name}",
            option=option,
            label=self.label,
            words=words,
            environment=environment,
        )


BOSS = Service(
    "boss",
    "Remuda's boss: the queue of waiting agents",
    ("up",),
    ("RestartSec=1", "# Do not kill the sessions when the boss stops.", "KillMode=process"),
    option=" --service",
    before="remuda up",
    variables=_WORDS,
)
HUB = Service(
    "hub",
    "Remuda's hub: the NATS server of your fleet",
    ("fleet", "serve"),
    ("RestartSec=5", "# It ends its nats-server itself, in order.", "KillMode=mixed"),
)


def _is_mac() -> bool:
    return sys.platform == "darwin"


def _absolute(path: str) -> str:
    """Return an absolute path, because a service starts in another folder."""
    return path if path.startswith("~") else os.path.abspath(path)


def _quoted(word: str) -> str:
    """Quote a word for systemd, which expands percent signs."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
