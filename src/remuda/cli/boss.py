"""remuda boss, and its commands up, down and status"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from remuda.boss.client import BossClient
from remuda.boss.folder import BossFolder
from remuda.boss.lock import find_holder, wait_until_free
from remuda.duration import show_duration
from remuda.errors import BossDown, BossExists, InvalidOptions
from remuda.paths import private_folder

from .click_types import OrderedGroup
from .common import (
    config_option,
    configuration,
    json_option,
    limit_lines,
    short_path,
    time_span,
)
from .output import echo, print_fields, print_json, print_lines

if TYPE_CHECKING:
    from remuda.boss.ports import BossParts
    from remuda.config import Config

# ── remuda up ──


DEFAULT_PORT = 4127

_UNREAD = {
    "set REMUDA_HOME instead": ("TRAILBOSS_DATA_DIR",),
    "run 'remuda skip --next'": ("TRAILBOSS_AUTO_JUMP",),
}


def unread_variables() -> Iterator[tuple[str, str]]:
    """Yield which of Trail Boss's variables are set and not read, and what to use instead.

    If its variables for notices are read, yield where notices go.
    """
    for instead, names in _UNREAD.items():
        if found := _set(names):
            yield f"{', '.join(found)}: Trail Boss reads this, Remuda does not", instead
    yield from _chat()


def _set(names: Iterable[str]) -> list[str]:
    return [name for name in names if name in os.environ]


def _chat() -> Iterator[tuple[str, str]]:
    from remuda.boss.notices.notify_file import AMOUNTS, TELEGRAM, notify_file, trail_boss_settings
    from remuda.boss.notices.sending import place_of

    if not (found := _set((*TELEGRAM, *AMOUNTS))):
        return
    file = notify_file(BossFolder.default(), os.environ)
    receivers = trail_boss_settings(os.environ).receivers
    names, place = ", ".join(found), short_path(str(file))
    if file.exists():
        yield f"{names}: not used", f"{place} says who is notified"
    elif receivers:
        yield f"{names}: notices go to {place_of(receivers[0])}", f"write {place} to change that"
    else:
        yield (
            f"{names}: not used",
            "set TELEGRAM_CHAT_ID and TELEGRAM_PROXY_URL, or run 'remuda setup notify'",
        )


@click.command("up", short_help="Start the boss.")
@click.option("--detach", is_flag=True, help="Run in the background; return once it is ready.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"Port on 127.0.0.1; 0 picks a free one.  [default: [boss] port, else {DEFAULT_PORT} or a free one]",
)
@click.option(
    "--print-token", "show_token", is_flag=True, help="Print the token of its HTTP interface, and exit."
)
@click.option(
    "--install", is_flag=True, help="Write a systemd unit or launchd plist that starts it at login."
)
@click.option("--uninstall", is_flag=True, help="Remove that file.")
@config_option
@json_option
def up_command(
    detach: bool,
    port: int | None,
    show_token: bool,
    install: bool,
    uninstall: bool,
    config_file: Path | None,
    as_json: bool,
) -> None:
    """Start the boss: the process that keeps the queue of waiting agents. One runs per user.

    Stopping or killing it loses nothing. Sessions keep running, hooks store their events on disk, and the
    next boss reads them.

    \b
    Examples:
      remuda boss up --detach
      remuda boss up --port 4200
      remuda boss up --install      start it at every login, by systemd or launchd
    """
    if sum((detach, show_token, install, uninstall)) > 1:
        raise click.UsageError("--detach, --print-token, --install and --uninstall exclude each other")
    folder = BossFolder.default()
    if show_token:
        print_token()
    elif install or uninstall:
        from .boss_service import BOSS

        options = () if port is None else ("--port", str(port))
        BOSS.uninstall(as_json) if uninstall else BOSS.install(options, as_json)
    else:
        for what, instead in unread_variables():
            echo(f"{what}; {instead}", err=True)
        config = configuration(config_file)
        chosen = port if port is not None else int(config.boss.get("port", DEFAULT_PORT))
        any_port = port is None and "port" not in config.boss
        try:
            (_detached if detach else _in_front)(folder, chosen, config, as_json, any_port)
        except BossExists:
            # 'remuda up' keeps its exit code.
            if not detach or not _is_in_boss_group() or not _announce_running(folder, as_json):
                raise


def _is_in_boss_group() -> bool:
    parent = click.get_current_context().parent
    return parent is not None and parent.command is command


def _announce_running(folder: BossFolder, as_json: bool) -> bool:
    """Say where the running boss is. Return False if it has just started or ended."""
    holder = find_holder(folder.lock)
    if holder is None or not holder.port:
        return False
    if as_json:
        _announce(folder, {"pid": holder.pid, "port": holder.port, "laid_aside": None}, as_json, 0)
    else:
        echo(f"the boss is already running at http://127.0.0.1:{holder.port}; nothing to do")
    return True


def print_token() -> None:
    from remuda.admission.credentials import load_token

    folder = BossFolder.default()
    private_folder(folder.path)
    echo(load_token(folder.token))


def _detached(folder: BossFolder, port: int, config: Config, as_json: bool, any_port: bool) -> None:
    from remuda.boss.detach import start_detached

    facts = start_detached(
        folder,
        port,
        config.log_level,
        config.log_max_bytes,
        any_port=any_port,
        access=access_table(config),
    )
    _announce(folder, facts, as_json, port)


def access_table(config: Config) -> dict[str, Any]:
    """Return the part of `[boss]` that says where it can be reached."""
    return {key: value for key, value in config.boss.items() if key != "port"}


def _in_front(folder: BossFolder, port: int, config: Config, as_json: bool, any_port: bool) -> None:
    from remuda.boss.access import read_access
    from remuda.boss.daemon import BossSettings, run
    from remuda.boss.ports import SOURCES

    def ready(boss: BossParts) -> None:
        aside = boss.service.store.laid_aside
        facts = {"pid": os.getpid(), "port": boss.port, "laid_aside": str(aside) if aside else None}
        _announce(folder, facts, as_json, port)

    access = read_access(access_table(config))
    run(BossSettings(folder, port, config.log_level, config.log_max_bytes, SOURCES, any_port, access), ready)


def _announce(folder: BossFolder, facts: dict[str, Any], as_json: bool, port: int) -> None:
    if port and facts["port"] != port:
        note = f"port {port} is in use by another program; the boss listens on port {facts['port']}"
        echo(f"{note} until it ends", err=True)
    url = f"http://127.0.0.1:{facts['port']}"
    if as_json:
        print_json(
            {"pid": facts["pid"], "url": url, "socket": str(folder.socket), "laid_aside": facts["laid_aside"]}
        )
        return
    echo(f"the boss is running (pid {facts['pid']}) at {url} and {short_path(str(folder.socket))}")
    if facts["laid_aside"]:
        echo(f"its database could not be read; it was moved to {facts['laid_aside']}", err=True)


# ── remuda down ──


_DOWN_TIMEOUT = 15


@click.command("down")
@click.option("--force", is_flag=True, help="Kill it at once; nothing is lost.")
@click.option(
    "--timeout",
    type=time_span,
    metavar="TIME",
    default=_DOWN_TIMEOUT,
    show_default=True,
    help="Wait up to TIME for it to stop.",
)
@json_option
def down_command(force: bool, timeout: float, as_json: bool) -> None:
    """Stop the boss. Sessions keep running, and the queue is complete again after its next start.

    \b
    Examples:
      remuda boss down
      remuda boss down && remuda boss up --detach
    """
    path = BossFolder.default().lock
    holder = find_holder(path)
    if holder is None or not holder.pid:
        raise BossDown("the boss is not running")
    try:
        os.kill(holder.pid, signal.SIGKILL if force else signal.SIGTERM)
    except ProcessLookupError:
        pass  # it has just ended
    wait_until_free(path, timeout)
    if as_json:
        print_json({"pid": holder.pid})
        return
    echo(f"stopped the boss (pid {holder.pid})")


# ── remuda boss status ──


def show_boss(as_json: bool) -> None:
    """Raises `BossDown` if no boss runs: its exit code distinguishes that from an empty queue."""
    document = BossClient().get("health")
    if as_json:
        print_json(document)
        return
    print_fields(_status_lines(document))


def _status_lines(document: dict[str, Any]) -> list[tuple[str, str]]:
    uptime = show_duration(document["uptime"])
    put_off = f", and {document['hidden']} postponed" if document["hidden"] else ""
    lines = [
        ("boss", f"{document['status']}, pid {document['pid']}, version {document['version']}, up {uptime}"),
        ("url", f"http://127.0.0.1:{document['port']}"),
        ("waiting", f"{document['waiting']}{put_off}"),
        ("sessions", str(document["sessions"])),
        ("database", short_path(document["database"])),
    ]
    if document["laid_aside"]:
        lines.append(
            ("note", f"an earlier database could not be read; it was moved to {document['laid_aside']}")
        )
    for limit in document.get("limits", []):
        first, *rest = limit_lines(limit, time.time())
        lines += [("limited", first), *(("", line) for line in rest)]
    lines += [("sources", line) for line in _source_lines(document["sources"])]
    lines += [("hooks", line) for line in _hook_lines()]
    return [*lines, *((file.name, file.text) for file in boss_files())]


def _hook_lines() -> list[str]:
    """Return what is said about hooks of sessions without a keeper, in the settings that apply here."""
    from .hooks_boss import boss_hooks

    groups = boss_hooks()
    if not groups:
        return ["none; 'remuda setup boss' lets Claude Code sessions report to it"]
    return [
        f"{len(group.events)} in {short_path(str(group.path))}"
        + "".join(f"; {problem}: {group.fix}" for problem in group.problems[:1])
        for group in groups
    ]


def _source_lines(sources: list[dict[str, Any]]) -> list[str]:
    """Return one line for all sources that run, and one for each of the others."""
    running = [source["name"] for source in sources if source["state"] == "running"]
    others = [source for source in sources if source["state"] != "running"]
    lines = [f"{', '.join(running)}: running"] if running else []
    return lines + [
        f"{source['name']}: {source['state']}" + (f": {source['error']}" if source["error"] else "")
        for source in others
    ]


class BossFile(NamedTuple):
    """A file that the user wrote for the boss: permission rules, or who is notified."""

    name: str
    text: str
    is_valid: bool


def boss_files() -> Iterator[BossFile]:
    """Yield the files that exist. The boss ignores an invalid one, so `status` and `doctor` report it."""
    from remuda.boss.answers.permission_policy import policy_file
    from remuda.boss.notices.notify_file import notify_file

    folder = BossFolder.default()
    for name, path, count in (
        ("rules", policy_file(folder, os.environ), _count_rules),
        ("notices", notify_file(folder, os.environ), _count_receivers),
    ):
        if not path.exists():
            continue
        try:
            yield BossFile(name, f"{count(path)}, by {short_path(str(path))}", True)
        except InvalidOptions as error:
            yield BossFile(name, f"ignored: {error}", False)


def _count_rules(path: Path) -> str:
    from remuda.boss.answers.permission_policy import load_policy

    policy = load_policy(path)
    return f"{len(policy.rules)}{' in a dry run' if policy.dry_run else ''}"


def _count_receivers(path: Path) -> str:
    from remuda.boss.notices.notify_file import load_settings

    settings = load_settings(path)
    count = len(settings.receivers) if settings is not None else 0
    return f"to {count} receiver{'s' if count != 1 else ''}" if count else "to no receiver"


# ── remuda boss ──


_HABITS = {"start": "up", "stop": "down"}


class _Boss(OrderedGroup):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in _HABITS:
            raise click.UsageError(f"no such command '{args[0]}'; did you mean '{_HABITS[args[0]]}'?", ctx)
        return super().resolve_command(ctx, args)


@click.group("boss", cls=_Boss, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Start, stop and inspect the boss: the process that keeps the queue of waiting agents.

    One boss runs per user. It may stop or crash at any time: sessions keep running, and it catches up when
    it starts again.

    \b
    Examples:
      remuda boss up --detach
      remuda boss status
      remuda boss down
    """
    if ctx.invoked_subcommand is None:
        print_lines(ctx.get_help().splitlines())


command.add_command(up_command, "up")
command.add_command(down_command, "down")


@command.command("status")
@json_option
def status(as_json: bool) -> None:
    """Show whether the boss runs, what it knows and where it listens.

    \b
    Example:
      remuda boss status --json
    """
    show_boss(as_json)


@command.command("token")
def token() -> None:
    """Print the token of the boss's HTTP interface.

    \b
    Example:
      curl -H "Authorization: Bearer $(remuda boss token)" http://127.0.0.1:4127/v1/queue
    """
    print_token()
