"""Move a tmux client through the queue: to the next waiting agent, past one, and back. Blocking."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from remuda.duration import show_duration, show_moment
from remuda.errors import NotInQueue, NoTmuxClient, TmuxGone
from remuda.paths import home, private_folder
from remuda.proctree import command_lines
from remuda.tmux.address import Address, known_addresses
from remuda.tmux.command import Tmux
from remuda.tmux.navigate import Jump, ServerView, TmuxClient, choose_client, go_back, jump, take_view
from remuda.tmux.panes import KEPT_OPTION, Pane, Snapshot
from remuda.untrusted import one_line

from .attention import display

Item = Mapping[str, Any]
"""An item of the queue, as the boss sends it."""


class WaitingQueue(Protocol):
    """Where the waiting items come from."""

    def waiting(self) -> list[Item]:
        """Return them in order."""

    def skip(self, item_id: str, cooldown: float | None) -> Item: ...


class Navigation(NamedTuple):
    item: Item
    jump: Jump
    others: int
    """How many other items wait."""


class _Target(NamedTuple):
    tmux: Tmux
    view: ServerView
    pane: Pane | None
    """None: a kept session that no pane shows yet."""


class QueueNavigator:
    """Moves one client: the named one, else the one that shows our pane, else the one used last.

    A client of another server than ours is another person's terminal. It is moved only if it is named or
    `elsewhere` is true.
    """

    def __init__(
        self,
        queue: WaitingQueue,
        env: Mapping[str, str],
        client: str | None = None,
        here: Address | None = None,
        *,
        elsewhere: bool = False,
    ) -> None:
        self.queue = queue
        self.env = env
        self.is_inside = here is not None or bool(env.get("TMUX"))
        self._elsewhere = elsewhere
        self._client = client
        self._pane = env.get("TMUX_PANE") if here is None else None
        self._views: dict[Address, ServerView | None] = {}
        self._viewers: list[tuple[int, list[str]]] | None = None
        self.here = here or self._find_here()

    def _find_here(self) -> Address:
        """Return our server. Outside of tmux: the default one, else any with a client."""
        known = known_addresses(self.env)
        if self.env.get("TMUX") or len(known) == 1:
            return known[0]
        default = Address.named("default", self.env)
        return next((one for one in (default, *known) if self._has_people(one)), default)

    def _has_people(self, address: Address) -> bool:
        view = self.view(address)
        return view is not None and any(not client.is_control for client in view.clients)

    def next(self) -> Navigation:
        """Go to the first waiting item that can be shown. From a waiting item, go to the next one."""
        items = self.queue.waiting()
        if not items:
            raise NotInQueue("no agent is waiting")
        targets = [(item, self.find(item)) for item in self._in_turn(items)]
        for item, target in targets:
            if target is not None and self.may_move(target.tmux.address):
                return Navigation(item, self._go(item, target), len(items) - 1)
        many = f"{len(items)} agents are waiting" if len(items) > 1 else "1 agent is waiting"
        item, target = next((one for one in targets if one[1] is not None), targets[0])
        raise NoTmuxClient(
            f"{many}, but not in a tmux pane that can be shown here", hint=self._way(item, target)
        )

    def go_to(self, item: Item) -> Navigation:
        target = self.find(item)
        if target is None or not self.may_move(target.tmux.address):
            why = "is not in a tmux pane" if target is None else "cannot be shown here"
            raise NoTmuxClient(f"{label(item)} {why}", hint=self._way(item, target))
        return Navigation(item, self._go(item, target), len(self.queue.waiting()) - 1)

    def skip(self, item: Item | None = None, cooldown: float | None = None) -> Item:
        """Move an item to the end of the queue: the given one, else the one shown here, else the first."""
        return self.queue.skip(str((item or self.shown_or_first())["id"]), cooldown)

    def shown_or_first(self) -> Item:
        items = self.queue.waiting()
        if not items:
            raise NotInQueue("no agent is waiting")
        return items[self._standing_at(items) or 0]

    def shown(self) -> Item:
        """Return the item that the client shows. Raises `NotInQueue` if it shows none."""
        items = self.queue.waiting()
        at = self._standing_at(items)
        if at is None:
            raise NotInQueue("the agent in this pane is not waiting", hint="pass a name from 'remuda queue'")
        return items[at]

    def may_move(self, address: Address) -> bool:
        """Whether a client of that server may be moved to another pane."""
        ours = address == self.here and (self.is_inside or self._client is not None)
        return ours or self._elsewhere

    def _way(self, item: Item, target: _Target | None) -> str:
        """Return how a user can see an item that we may not or cannot show."""
        if target is None or target.pane is None:
            return way_to(item)
        pane, socket = target.pane, target.tmux.address.path
        server = "" if socket.endswith("/default") else f" -S {socket}"
        return (
            f"{label(item)} is in tmux pane {pane.address}: 'tmux{server} attach -t {pane.id}' shows it, "
            "and --elsewhere moves a client of that server there"
        )

    def back(self) -> Jump:
        if not self.may_move(self.here) and self.view(self.here) is not None:
            raise NoTmuxClient("this terminal is not inside tmux", hint="pass --client NAME or --elsewhere")
        return go_back(self.tmux(self.here), origins_folder(), client=self._client, from_pane=self._pane)

    # ── where things are ──

    def look_again(self) -> None:
        """Forget what was read from tmux."""
        self._views.clear()
        self._viewers = None

    def tmux(self, address: Address) -> Tmux:
        return Tmux(address, self.env)

    def view(self, address: Address) -> ServerView | None:
        """None: no server is running there."""
        if address not in self._views:
            try:
                self._views[address] = take_view(self.tmux(address))
            except TmuxGone:
                self._views[address] = None
        return self._views[address]

    def address_of(self, session: Mapping[str, Any]) -> Address:
        socket = session.get("tmux")
        return Address.of(str(socket)) if socket else Address.named("default", self.env)

    def find(self, item: Item) -> _Target | None:
        """Return where the item can be shown; None if it cannot."""
        session = item.get("session") or {}
        name = kept_name(session)
        if session.get("pane") and not session.get("host"):
            address = self.address_of(session)
            view = self.view(address)
            pane = view.snapshot.panes.get(session["pane"]) if view else None
            if view and pane and not pane.is_dead:
                return _Target(self.tmux(address), view, pane)
        if name and session.get("reachable", True) and (view := self.view(self.here)):
            return _Target(self.tmux(self.here), view, self._shown_in(view.snapshot, name))
        return None

    def _shown_in(self, snapshot: Snapshot, name: str) -> Pane | None:
        """Return the pane that shows a kept session: opened by us, or by the user's own `remuda attach`."""
        for pane in snapshot.panes.values():
            if pane.kept == name and not pane.is_dead:
                return pane
        if self._viewers is None:
            self._viewers = list(_viewers())
        shown = (snapshot.of_process(pid) for pid, words in self._viewers if name in words)
        return next(filter(None, shown), None)

    def _in_turn(self, items: Sequence[Item]) -> list[Item]:
        at = self._standing_at(items)
        return [*items] if at is None else [*items[at + 1 :], *items[: at + 1]]

    def _standing_at(self, items: Sequence[Item]) -> int | None:
        """Return the index of the item that the client shows now."""
        view = self.view(self.here) if self.may_move(self.here) else None
        try:
            shown = self.chosen(view).pane_id if view else None
        except NoTmuxClient:
            return None
        for index, item in enumerate(items):
            target = self.find(item) if shown else None
            if target and target.pane and (target.tmux.address, target.pane.id) == (self.here, shown):
                return index
        return None

    def chosen(self, view: ServerView) -> TmuxClient:
        pane = view.snapshot.panes.get(self._pane or "")
        return choose_client(view.clients, name=self._client, pane=pane)

    # ── going there ──

    def _go(self, item: Item, target: _Target) -> Jump:
        view: ServerView | None = target.view
        pane = target.pane.id if target.pane else ""
        if target.pane is None:
            pane, view = self._open(target, kept_name(item["session"])), None
        ours = target.tmux.address == self.here
        return jump(
            target.tmux,
            pane,
            origins_folder(),
            client=self._client if ours else None,
            from_pane=self._pane if ours else None,
            view=view,
        )

    def _open(self, target: _Target, name: str) -> str:
        """Open a window for a kept session in the session of the client; returns its pane."""
        session = self.chosen(target.view).session_id
        words = ["new-window", "-d", "-t", f"{session}:", "-n", name, "-P", "-F", "#{pane_id}", "--"]
        (pane, *_) = target.tmux.command(*words, *own_command(self.env), "attach", name)
        target.tmux.command("set-option", "-p", "-t", pane, KEPT_OPTION, name)
        return pane


def origins_folder() -> str:
    return str(private_folder(home() / "boss" / "origins"))


def own_program() -> list[str]:
    """Return the command that runs `remuda`: the script next to our interpreter, else its module."""
    beside = os.path.join(os.path.dirname(sys.executable), "remuda")
    return [beside] if os.access(beside, os.X_OK) else [sys.executable, "-P", "-m", "remuda"]


def own_command(env: Mapping[str, str]) -> list[str]:
    """Return the same for a tmux server, which has its own environment."""
    navigation_text = [f"{name}={env[name]}" for name in ("REMUDA_HOME", "XDG_STATE_HOME") if env.get(name)]
    return ["env", *navigation_text, *own_program()]


def _viewers() -> Iterator[tuple[int, list[str]]]:
    """Yield the processes that show kept sessions: pid and arguments."""
    for pid, words in command_lines():
        verb = next((at for at, word in enumerate(words[:5]) if word in ("attach", "start")), None)
        if verb and any("remuda" in word for word in words[:verb]):
            yield pid, words[verb:]


# ── words ──


def kept_name(session: Mapping[str, Any]) -> str:
    """Return the name of a kept session, as HOST/NAME on another host; empty for other agents."""
    name, host = str(session.get("name") or ""), session.get("host")
    return f"{host}/{name}" if name and host else name


def label(item: Item) -> str:
    """Return a short name for the agent of an item; with its host, if that is another one."""
    session = item.get("session") or {}
    folder = session.get("repo") or session.get("cwd")
    host, session_id = _place(item)
    return host + display.label(session.get("name"), folder, session_id)


def labels(items: Sequence[Item]) -> list[str]:
    """Return the names of several items, made distinct where two are equal."""
    names: dict[str, dict[str, str]] = {}
    for item in items:
        host, session_id = _place(item)
        names.setdefault(host, {})[session_id] = label(item)
    named = {host: display.distinct(some) for host, some in names.items()}
    return [named[host][session_id] for host, session_id in map(_place, items)]


def _place(item: Item) -> tuple[str, str]:
    """Return `HOST/` and the id of the session there; an empty string for an item of this machine."""
    session_id, host = str(item.get("session_id", "")), (item.get("session") or {}).get("host")
    return (f"{host}/", session_id.removeprefix(f"{host}:")) if host else ("", session_id)


def reason(item: Item) -> str:
    """Return the reason and what belongs to it: `permission: Bash`, `stopped (interrupted)`, `limited until
    14:30`, `hung: silent for 10m`, `left alone after 5 restarts`, `permission: Bash, over budget`.
    """
    text = one_line(str(item["reason"]))
    detail = item.get("detail") or {}
    if item["reason"] == "stopped" and detail.get("interrupted"):
        return f"{text} (interrupted)"
    if item["reason"] == "limited" and isinstance(until := detail.get("until"), float | int):
        return f"{text} until {show_moment(until, time.time())}"
    if item["reason"] == "hung" and isinstance(quiet := detail.get("quiet"), float | int):
        return f"{text}: silent for {show_duration(quiet)}"
    if item["reason"] == "left_alone":
        why = one_line(str(detail.get("error") or ""))
        return f"left alone after {detail.get('tries')} restarts" + (f": {why}" if why else "")
    if item["reason"] == "budget" and isinstance(asked := detail.get("input"), Mapping):
        return f"{text}: {one_line(str(asked.get('limit')))}"
    tool, over = detail.get("tool"), ", over budget" if detail.get("over_budget") else ""
    return f"{text}: {one_line(str(tool))}{over}" if tool and item["reason"] == "permission" else text + over


def way_to(item: Item) -> str:
    """Return how a user can see an item that we cannot show."""
    session = item.get("session") or {}
    if not session.get("reachable", True):
        away = show_duration(max(0.0, time.time() - session["unreachable_since"]))
        return f"{session['host']} cannot be reached for {away}"
    if name := kept_name(session):
        return f"open it with 'remuda attach {name}'"
    if session.get("host"):
        return f"it runs in another terminal of {session['host']}: 'remuda show {label(item)}' shows more"
    if session.get("origin") == "background":
        from remuda.agents import DEFAULT_AGENT, find_sources

        if (sources := find_sources(session.get("agent", DEFAULT_AGENT))) is not None:
            return f"open it with '{sources.attach_command(str(session['id']))}'"
    pid = f"pid {session['pid']}, " if session.get("pid") else ""
    return f"it runs in another terminal: {pid}in {one_line(session.get('cwd') or '') or 'an unknown folder'}"


def navigation_text(navigation: Navigation) -> str:
    """Return one line about where the client is now."""
    more = f"; {navigation.others} more" if navigation.others else ""
    still = "" if navigation.jump.has_moved else "already there: "
    return (
        f"{still}{label(navigation.item)} ({reason(navigation.item)}) in {navigation.jump.pane.address}{more}"
    )
