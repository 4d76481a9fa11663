"""remuda ls"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from pathlib import Path

from remuda.duration import show_duration
from remuda.errors import InvalidOptions, RemudaError
from remuda.keeper.elsewhere import own_host
from remuda.keeper.hidden import living_names
from remuda.keeper.listing import dead_records, list_sessions

from . import declare
from .common import (
    check_alone,
    coloured_state,
    find_folder,
    folder_option,
    format_option,
    json_option,
    print_formatted,
    short_path,
)
from .elsewhere import list_elsewhere, names_elsewhere, session_document
from .output import complain, echo, flat, print_json, table_lines
from .outside import list_outside, with_tokens

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from remuda.keeper.client import KeeperClient

    from .outside import Document

_HEAD = ("NAME", "STATE", "SINCE", "AGENT", "WHERE", "CWD", "LAST LINE")
_OPTIONAL = ("AGENT", "WHERE", "CWD")
_WIDE_HEAD = ("IN", "OUT", "CACHE READ", "CACHE WRITE")
# Sessions report their changes; new sessions are found by polling.
_RESCAN_INTERVAL = 1.0


@declare.command("ls")
@declare.option("-a", "--all", "include_dead", is_flag=True, help="Also list agents that have ended.")
@declare.option("-w", "--watch", is_flag=True, help="Keep the list on the screen and update it.")
@declare.option(
    "--wide", is_flag=True, help="Also show the tokens that each agent used, while the boss runs."
)
@declare.option("--local", is_flag=True, help="List only agents of this machine, not of your fleet.")
@declare.option("-q", "--quiet", is_flag=True, help="Print only the names of kept sessions.")
@format_option("{name} {state}")
@folder_option
@json_option
def command(
    include_dead: bool,
    watch: bool,
    wide: bool,
    local: bool,
    quiet: bool,
    template: str | None,
    folder: Path | None,
    as_json: bool,
) -> None:
    """List all agents: what each is doing, since when, where, and the last thing it said.

    Sessions of 'remuda start' are 'kept' ('attached' while a terminal shows them). Agents in tmux panes and
    in the background are listed while the boss runs; with --socket-dir only the sessions in that folder are.

    On a machine that has joined a fleet, the agents of all hosts are listed. Those of a host that cannot be
    reached are 'unreachable', and SINCE says for how long. --quiet prints them as HOST/NAME.

    \b
    Examples:
      remuda ls
      remuda ls --watch
      remuda ls --wide
      remuda ls --format '{name} {state}'
      remuda ls --json | jq -r '.[] | select(.state == "idle") | .name'
      remuda ls -q | fzf | xargs -o remuda attach
    """
    where = find_folder(folder)
    if quiet:
        if watch or as_json or wide:
            raise InvalidOptions("--quiet prints names once", hint="leave out --watch, --wide and --json")
        check_alone(template, quiet=True)
        names = {*living_names(where)} | (
            {one.name for one in dead_records(where, set())} if include_dead else set()
        )
        there = [] if local or folder is not None else list_elsewhere(ended=include_dead)
        for name in [*sorted(names), *names_elsewhere(there, ended=include_dead)]:
            echo(name)
        return
    check_alone(template, json=as_json, watch=watch)

    def listed() -> list[Document]:
        kept = list_sessions(where, include_dead=include_dead)
        note = (lambda _: None) if watch else complain  # no other line may mix with the picture
        others = list_outside(ended=include_dead, note=note) if folder is None else []
        documents = [
            *({**one, "kept": True, "pane": None} for one in kept),
            *(one.document() for one in others),
        ]
        documents = with_tokens(documents) if wide else documents
        own = own_host() if folder is None and not local else None
        if own is None:
            return documents
        there = [session_document(one) for one in list_elsewhere(note, ended=include_dead)]
        return [*({**one, "host": own} for one in documents), *there]

    if watch and not as_json:
        _watch(where, lambda: _lines(listed(), include_dead=include_dead, wide=wide))
    elif as_json:
        print_json(listed())
    elif template is not None:
        print_formatted(template, listed())
    else:
        echo("\n".join(_lines(listed(), include_dead=include_dead, wide=wide)))


def _lines(sessions: list[Document], *, include_dead: bool, wide: bool) -> list[str]:
    if not sessions:
        return [
            "no sessions" if include_dead else "no sessions; start one with: remuda start NAME --agent claude"
        ]
    notes = [
        flat(f"{session['name']}: degraded: {reason}")
        for session in sessions
        for reason in session.get("degraded") or []
    ]
    rows = [_row(session) for session in sessions]
    if wide:
        # Before the last column, which is the longest.
        rows = [(*row[:-1], *_tokens(one), row[-1]) for row, one in zip(rows, sessions, strict=True)]
    head = (*_HEAD[:-1], *_WIDE_HEAD, _HEAD[-1]) if wide else _HEAD
    if "host" in sessions[0]:
        head = ("HOST", *head)
        rows = [(str(one["host"]), *row) for row, one in zip(rows, sessions, strict=True)]
    return [*table_lines(head, rows, optional=_OPTIONAL), *notes]


def _tokens(session: Document) -> tuple[str, ...]:
    tokens = session.get("tokens") or {}
    return tuple(_count(tokens.get(kind)) for kind in ("input", "output", "cache_read", "cache_write"))


def _count(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _row(session: Document) -> tuple[str, ...]:
    age = session.get("age")
    if age is None and session.get("since"):
        age = time.time() - session["since"]
    return (
        str(session["name"]),
        coloured_state(str(session["state"] or "unknown")),
        show_duration(age) if age is not None else "-",
        str(session.get("agent") or "-"),
        _where(session),
        short_path(str(session.get("cwd") or "-")),
        _last(session),
    )


def _where(session: Document) -> str:
    if session["kept"]:
        return "attached" if session.get("clients") else "kept"
    pid = f"pid {session['pid']}" if session["pid"] and session["alive"] else "-"
    return str(session["pane"] or pid) if session["alive"] else "-"


WAITS = {"waiting_permission": "requests permission", "waiting_answer": "asks a question"}
"""By the states of `remuda.agents.state.WAITING`, which is slow to load."""


def _last(session: Document) -> str:
    """Return the last message, or what the agent waits for.

    The last line of an agent's screen is always the same, so it is not shown.
    """
    detail = str(session.get("detail") or "")
    if not session["kept"] or "reachable" in session:
        message = detail if session["state"] in WAITS else str(session["last_message"] or "")
        return message or str(session["title"] or "")
    if session.get("alive") is False:
        code = session.get("exit_code")
        return detail + (f", exit code {code}" if code is not None else "")
    if session.get("last_message") is None or session.get("delivery") is None:
        return str(session.get("last_line") or "").strip()
    if session["state"] in WAITS:
        return str(session["last_message"]) or WAITS[session["state"]]
    return str(session["last_message"])


def _watch(folder: Path, lines: Callable[[], list[str]]) -> None:
    from .redraw import LiveScreen

    clients: dict[str, KeeperClient] = {}
    with LiveScreen() as screen:
        try:
            while True:
                _keep_connected(folder, clients)
                screen.draw(lines())
                _wait_for_news(clients)
        finally:
            for client in clients.values():
                client.close()


def _keep_connected(folder: Path, clients: dict[str, KeeperClient]) -> None:
    from remuda.keeper.client import KeeperClient

    for name in set(living_names(folder)) - set(clients):
        try:
            client = KeeperClient.connect(name, folder, read_only=True)
            if client.speaks_ours:
                client.request("watch")
            clients[name] = client
        except (RemudaError, EOFError, OSError):
            continue


def _wait_for_news(clients: dict[str, KeeperClient]) -> None:
    ready, _, _ = select.select(list(clients.values()), [], [], _RESCAN_INTERVAL)
    for client in ready:
        try:
            list(client.receive())
        except (EOFError, RemudaError, OSError):
            client.close()
            clients.pop(client.name)
