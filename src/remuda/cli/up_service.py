"""The boss as a service of the user's: a systemd unit, or a launchd plist."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from xml.sax.saxutils import escape

import click

from remuda.durable import replace_file
from remuda.errors import InvalidOptions

from .common import print_json

_UNIT = "remuda-boss.service"
_LABEL = "remuda.boss"


def install_service(port: int | None, as_json: bool) -> None:
    """Write the file, show it, and say what is left to do: starting services is the user's."""
    path, text = _service(port)
    if path.exists() and not _is_ours(path):
        raise InvalidOptions(f"{path} is not of our making", hint="move it away first")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode(), 0o644)
    commands = _commands("install", path)
    if as_json:
        print_json({"file": str(path), "content": text, "commands": commands})
        return
    click.echo(f"wrote {path}:\n")
    click.echo(text)
    click.echo("now run:")
    for one in commands:
        click.echo(f"  {one}")


def uninstall_service(as_json: bool) -> None:
    path, _ = _service(None)
    if not path.exists():
        raise InvalidOptions(f"there is no {path}")
    if not _is_ours(path):
        raise InvalidOptions(f"{path} is not of our making", hint="it was left alone")
    path.unlink()
    commands = _commands("uninstall", path)
    if as_json:
        print_json({"file": str(path), "commands": commands})
        return
    click.echo(f"removed {path}; now run:")
    for one in commands:
        click.echo(f"  {one}")


def _service(port: int | None) -> tuple[Path, str]:
    arguments = [sys.executable, "-m", "remuda", "up", *(["--port", str(port)] if port is not None else [])]
    home = os.environ.get("REMUDA_HOME")
    if sys.platform == "darwin":
        return Path("~/Library/LaunchAgents").expanduser() / f"{_LABEL}.plist", _plist(arguments, home)
    base = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    return base / "systemd" / "user" / _UNIT, _unit(arguments, home)


def _unit(arguments: list[str], home: str | None) -> str:
    environment = [f"Environment={_quoted(f'REMUDA_HOME={home}')}"] if home else []
    return "\n".join(
        [
            "# Written by 'remuda up --install'; 'remuda up --uninstall' removes it.",
            "[Unit]",
            "Description=Remuda's boss: which agent waits for you",
            "",
            "[Service]",
            f"ExecStart={' '.join(map(_quoted, arguments))}",
            *environment,
            "Restart=on-failure",
            "RestartSec=1",
            "# What it may have started is not its own.",
            "KillMode=process",
            "",
            "[Install]",
            "WantedBy=default.target",
            "",
        ]
    )


def _quoted(word: str) -> str:
    """As systemd reads it: a percent sign and a dollar sign are its own."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _plist(arguments: list[str], home: str | None) -> str:
    words = "".join(f"\n    <string>{escape(word)}</string>" for word in arguments)
    environment = (
        "\n  <key>EnvironmentVariables</key>\n  <dict>\n    <key>REMUDA_HOME</key>\n"
        f"    <string>{escape(home)}</string>\n  </dict>"
        if home
        else ""
    )
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<!-- Written by 'remuda up', its option install. -->
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>{_LABEL}</string>
  <key>ProgramArguments</key>
  <array>{words}
  </array>{environment}
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
    return "Written by 'remuda up" in path.read_text(errors="replace")


def _commands(what: str, path: Path) -> list[str]:
    if sys.platform == "darwin":
        return [
            f"launchctl {'load' if what == 'install' else 'remove'} {path if what == 'install' else _LABEL}"
        ]
    enable = f"systemctl --user enable --now {_UNIT}"
    disable = f"systemctl --user disable --now {_UNIT}"
    reload = "systemctl --user daemon-reload"
    return [reload, enable] if what == "install" else [disable, reload]
