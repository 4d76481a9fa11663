"""Waiting agents on the command line: the boss's queue over its socket, and finding one agent in it"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from remuda.errors import InvalidOptions, NotInQueue, RemudaError
from remuda.keeper.elsewhere import split_host

from . import declare
from .elsewhere import boss_of, hint_elsewhere, item_elsewhere, read_queue

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

    from remuda.boss.client import BossClient
    from remuda.boss.navigator import Item, QueueNavigator

F = TypeVar("F", bound=Callable[..., Any])

_COMPLETION_TIMEOUT = 0.5


class BossQueue:
    def __init__(self, boss: BossClient | None = None) -> None:
        from remuda.boss.client import BossClient

        self.boss = boss or BossClient()

    def waiting(self) -> list[Item]:
        items: list[Item] = read_queue(self.boss.get, lambda _: None)["items"]
        return items

    def skip(self, item_id: str, cooldown: float | None) -> Item:
        body = {} if cooldown is None else {"cooldown": cooldown}
        item: Item = self.boss.post("queue", item_id, "skip", body=body)
        return item


def make_guide(client: str | None = None, *, elsewhere: bool = False) -> QueueNavigator:
    """Return a guide for the user's tmux client, or the named one."""
    from remuda.boss.navigator import QueueNavigator

    return QueueNavigator(BossQueue(), os.environ, client, elsewhere=elsewhere)


def elsewhere_option(function: F) -> F:
    return declare.option("--elsewhere", is_flag=True, help="Also move a client of another tmux server.")(
        function
    )


def find_session(word: str) -> dict[str, Any]:
    """Return a session and its item, by any word that its boss knows, or the beginning of its name.

    HOST/WORD is a session of another host; its item and its session have a `host` then.

    Only for commands that neither decide nor type: for those, `work` must not mean `work2`.
    Raises `NotInQueue` and `InvalidOptions`.
    """
    host, _ = split_host(word)
    boss, rest = boss_of(word)
    document = _found(boss, rest)
    if host is None:
        return document
    item = document["item"]
    return {
        "session": {**document["session"], "host": host},
        "item": None if item is None else item_elsewhere(host, item),
    }


def _found(boss: BossClient, word: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = boss.get("sessions", word)
    except NotInQueue as error:
        from remuda.boss.navigator import label

        sessions = boss.get_brief("sessions")["sessions"]
        names = {one["id"]: label({"session_id": one["id"], "session": one}) for one in sessions}
        matching = [session_id for session_id, name in names.items() if name.startswith(word)]
        if not matching:
            raise NotInQueue(error.message, hint=hint_elsewhere(word) or error.hint) from None
        if len(matching) > 1:
            several = ", ".join(sorted(names[session_id] for session_id in matching)[:5])
            raise InvalidOptions(f"'{word}' matches {len(matching)} sessions: {several}") from None
        document = boss.get("sessions", matching[0])
    return document


def item_of(word: str) -> Item:
    """Return the item of a session, also a hidden one. Raises `NotInQueue` and `InvalidOptions`."""
    item: Item | None = find_session(word)["item"]
    if item is None:
        raise NotInQueue(
            f"{word} is not waiting", hint="'remuda queue --all' lists all waiting agents, also hidden ones"
        )
    return item


def complete_waiting(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete waiting agents, by words that are unambiguous."""
    from click.shell_completion import CompletionItem

    from remuda.boss.client import BossClient
    from remuda.boss.navigator import labels, reason

    try:
        boss = BossClient(timeout=_COMPLETION_TIMEOUT)
        items = read_queue(boss.get_brief, lambda _: None, hidden=True)["items"]
    except (RemudaError, OSError):
        return []
    named = [who.rpartition(" ") for who in labels(items)]
    hosts = [
        f"{item['host']}/" if begun and item.get("host") else ""
        for (begun, _, _), item in zip(named, items, strict=True)
    ]
    words = [(host + word, item) for host, (_, _, word), item in zip(hosts, named, items, strict=True)]
    return [CompletionItem(word, help=reason(item)) for word, item in words if word.startswith(incomplete)]


def waiting_argument(name: str = "session", **more: Any) -> Callable[[F], F]:
    """Add an argument for a session of the boss, completed with waiting agents."""
    return declare.argument(name, shell_complete=complete_waiting, **more)
