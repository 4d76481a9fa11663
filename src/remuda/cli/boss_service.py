"""The boss as a user service: a systemd unit, or a launchd plist"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from remuda.agents import agent_setups
from remuda.durable import replace_file
from remuda.errors import InvalidOptions
from remuda.paths import config_home

from .common import short_path
from .file_changes import Agreement, agreed, forget_program, remember_program
from .output import echo, print_json

_UNIT = "remuda-boss.service"
_LABEL = "remuda.boss"
_FOLDERS = ("REMUDA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
"""Folders of the boss. A service does not inherit them from a shell, nor those of agents and of tmux."""
_WORDS = (
    "REMUDA_HUNG_AFTER",
    "TRAILBOSS_POLL_INTERVAL_MS",
    "TRAILBOSS_QUIET_THRESHOLD_MS",
    "TRAILBOSS_OPT_IN_PREFIX",
)
"""Timeouts of the boss, and settings of its detector."""
_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def install_service(port: int | None, as_json: bool) -> None:
    """Write the file, show it, and print the commands that start the service. The user runs them."""
    path, _, text = _change(port)
    _write(path, text)
    if as_json:
        print_json({"file": str(path), "content": text, "commands": _commands("install", path)})
        return
    echo(f"wrote {path}:\n")
    echo(text)
    _print_commands("install", path)


def set_up_service(how: Agreement) -> None:
    """Show the file, ask, write it, and print the commands that start the service."""
    path, before, text = _change(None)
    place = short_path(str(path))
    if before == text:
        echo(f"{place}: already installed; nothing to change")
    elif agreed(place, before, text, f"write {place}", how):
        _write(path, text)
        echo(f"wrote {place}")
        _print_commands("install", path)


def remove_service(how: Agreement) -> None:
    """Show the file, ask, remove it, and print the commands that stop the service."""
    path = service_file()
    place = short_path(str(path))
    if agreed(place, path.read_text(errors="replace"), None, f"remove {place}", how):
        uninstall_service(as_json=False)


def _change(port: int | None) -> tuple[Path, str | None, str]:
    """Return the file, its text now, and the one to write. Raises `InvalidOptions` if it is not ours."""
    path = service_file()
    text = (_plist if _is_mac() else _unit)(_arguments(port), _environment(os.environ))
    if path.exists() and not _is_ours(path):
        raise InvalidOptions(f"{path} was not written by Remuda", hint="move it away first")
    return path, path.read_text(errors="replace") if path.exists() else None, text


def _write(path: Path, text: str) -> None:
    remember_program(path, None, text)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode(), 0o644)


def _print_commands(what: str, path: Path) -> None:
    echo("now run:")
    for one in _commands(what, path):
        echo(f"  {one}")


def uninstall_service(as_json: bool) -> None:
    path = service_file()
    if not path.exists():
        raise InvalidOptions(f"{path} does not exist", hint="the service is not installed")
    if not _is_ours(path):
        raise InvalidOptions(f"{path} was not written by Remuda", hint="it was left alone")
    path.unlink()
    forget_program(path)
    if as_json:
        print_json({"file": str(path), "commands": _commands("uninstall", path)})
        return
    echo(f"removed {path}")
    _print_commands("uninstall", path)


def has_service() -> bool:
    path = service_file()
    return path.exists() and _is_ours(path)


def _is_mac() -> bool:
    return sys.platform == "darwin"


def service_file() -> Path:
    if _is_mac():
        return Path("~/Library/LaunchAgents").expanduser() / f"{_LABEL}.plist"
    return config_home(os.environ) / "systemd" / "user" / _UNIT


def _arguments(port: int | None) -> list[str]:
    return [sys.executable, "-P", "-m", "remuda", "up", *(["--port", str(port)] if port is not None else [])]


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for the service. Raises `InvalidOptions` for a value that the file cannot hold."""
    of_agents = [name for setup in agent_setups() for name in setup.folder_variables]
    folders = [*_FOLDERS, *of_agents, "TMUX_TMPDIR"]
    variables = {name: _absolute(environ[name]) for name in folders if environ.get(name)}
    variables |= {name: environ[name] for name in _WORDS if environ.get(name)}
    variables["PATH"] = environ.get("PATH") or os.defpath
    for name, value in variables.items():
        if _UNWRITABLE.search(value):
            raise InvalidOptions(f"{name} cannot be given to a service: {value!r}")
    return variables


def _absolute(path: str) -> str:
    """Return an absolute path, because a service starts in another folder."""
    return path if path.startswith("~") else os.path.abspath(path)


def _unit(arguments: list[str], given: Mapping[str, str]) -> str:
    program, *words = arguments
    # systemd expands dollar signs in the words of a command.
    command = [_quoted(program), *(_quoted(word.replace("$", "$$")) for word in words)]
    return "\n".join(
        [
            "# Written by 'remuda setup boss --service'; 'remuda setup boss --remove' removes it.",
            "[Unit]",
            "Description=Remuda's boss: the queue of waiting agents",
            "",
            "[Service]",
            f"ExecStart={' '.join(command)}",
            *(f"Environment={_quoted(f'{name}={value}')}" for name, value in given.items()),
            "Restart=on-failure",
            "RestartSec=1",
            "# Do not kill the sessions when the boss stops.",
            "KillMode=process",
            "",
            "[Install]",
            "WantedBy=default.target",
            "",
        ]
    )


def _quoted(word: str) -> str:
    """Quote a word for systemd, which expands percent signs."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _plist(arguments: list[str], given: Mapping[str, str]) -> str:
    words = "".join(f"\n    <string>{escape(word)}</string>" for word in arguments)
    environment = "".join(
        f"\n    <key>{name}</key>\n    <string>{escape(value)}</string>" for name, value in given.items()
    )
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<!-- Written by 'remuda setup boss', its option service. -->
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>{_LABEL}</string>
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


def _is_ours(path: Path) -> bool:
    text = path.read_text(errors="replace")
    # 'remuda up' wrote it until version 0.2.
    return "Written by 'remuda setup boss" in text or "Written by 'remuda up" in text


def _commands(what: str, path: Path) -> list[str]:
    if _is_mac():
        return [
            f"launchctl {'load' if what == 'install' else 'remove'} {path if what == 'install' else _LABEL}"
        ]
    enable = f"systemctl --user enable --now {_UNIT}"
    disable = f"systemctl --user disable --now {_UNIT}"
    reload = "systemctl --user daemon-reload"
    return [reload, enable] if what == "install" else [disable, reload]
