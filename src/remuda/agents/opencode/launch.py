"""How opencode is started: a server for each session, and the terminal attached to it.

`attach` takes few of the flags that `opencode` has. Those that have a setting go to the server as settings
(`OPENCODE_CONFIG_CONTENT`). Others are refused.
"""

from __future__ import annotations

import os
import random
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from remuda.agents.base import Companion, Launch, LaunchContext
from remuda.errors import InvalidOptions, SpawnFailed
from remuda.frozen import frozen
from remuda.untrusted import as_object, as_objects, dump_json, parse_object

from .server import USER, ServerAddress, request_now

_LISTENING = re.compile(r"listening on (http://127\.0\.0\.1:\d+)")
_SETTINGS = {"-m": "model", "--model": "model", "--agent": "default_agent"}
_OUR_SETTINGS = "--settings"
"""Our own word: settings of opencode as JSON. The pool and `print` use it."""
_SESSION = ("-s", "--session")
_CONTINUE = ("-c", "--continue")
_SERVER_FLAGS = ("--pure", "--print-logs")
_SETTINGS_VARIABLE = "OPENCODE_CONFIG_CONTENT"
_PORTS = range(20_000, 32_000)
"""Below those that a system gives to connections."""
_PORT_TRIES = 20
_PASSWORD_VARIABLE = "OPENCODE_SERVER_PASSWORD"  # noqa: S105  # its name, not its value


@frozen
class Words:
    """The words of a command line after the program's name."""

    settings: Mapping[str, Any]
    server: tuple[str, ...]
    conversation: str
    """To resume; empty for none."""
    last: bool
    """Whether to resume the last conversation of the folder."""


def read_words(words: Sequence[str]) -> Words:
    """Raises `InvalidOptions` for a word that a session cannot honour."""
    settings: dict[str, Any] = {}
    server: list[str] = []
    conversation, last = "", False
    rest = list(words)
    while rest:
        word, joined, value = rest.pop(0).partition("=")
        if word in _SETTINGS or word in _SESSION or word == _OUR_SETTINGS:
            if not joined:
                if not rest:
                    raise InvalidOptions(f"{word} of opencode needs a value")
                value = rest.pop(0)
            if word == _OUR_SETTINGS:
                settings = merged(settings, _read_settings(value, word))
            elif word in _SESSION:
                conversation = value
            else:
                settings[_SETTINGS[word]] = value
        elif word in _CONTINUE:
            last = True
        elif word in _SERVER_FLAGS:
            server.append(word)
        else:
            raise InvalidOptions(
                f"a session of opencode cannot take '{word[:80]}'",
                hint="it takes --model, --agent, --session, --continue and --pure; "
                "for a folder use --cwd, for a prompt 'remuda send'",
            )
    return Words(settings, tuple(server), conversation, last)


def _read_settings(text: str, where: str) -> dict[str, Any]:
    try:
        return parse_object(text)
    except ValueError as error:
        raise InvalidOptions(f"{where} is not a JSON object: {error}") from error


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with those of `other` over them, also within objects.

    An action for all (`"permission": "allow"`) is a rule for `*` then.
    """
    made = dict(one)
    for name, value in other.items():
        before = made.get(name)
        if isinstance(value, dict) and isinstance(before, str) and name == "permission":
            before = {"*": before}
        made[name] = merged(before, value) if isinstance(value, dict) and isinstance(before, dict) else value
    return made


def with_settings(env: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment with these settings, which come before all others. Raises `InvalidOptions`."""
    if not settings:
        return dict(env)
    given = _read_settings(env.get(_SETTINGS_VARIABLE) or "{}", _SETTINGS_VARIABLE)
    return {**env, _SETTINGS_VARIABLE: dump_json(merged(given, settings))}


def server_environment(context: LaunchContext, settings: Mapping[str, Any]) -> dict[str, str]:
    env = with_settings(context.env, settings)
    secret = context.call.secret if context.call is not None else context.call_secret
    return {**env, _PASSWORD_VARIABLE: secret, "OPENCODE_SERVER_USERNAME": USER}


def make_companion(context: LaunchContext, skip: int) -> Companion:
    """Return the server's process. `skip`: how many words start the program."""
    words = read_words(context.argv[skip:])
    port = ServerAddress.read(context.call.url).port if context.call is not None else _choose_port()
    argv = [*context.argv[:skip], "serve", "--hostname", "127.0.0.1", "--port", str(port), *words.server]
    return Companion(argv, server_environment(context, words.settings))


def _choose_port() -> int:
    """Return a port that no one else will take while the server is down: its terminal knows only this one.

    By itself opencode takes 4096, and so would the next session then. 0 if none was found free.
    """
    for port in random.sample(_PORTS, _PORT_TRIES):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    return 0


def find_address(context: LaunchContext, output: str, skip: int) -> str | None:
    """Return the address once the server listens, with the conversation for the terminal.

    The terminal is started with its conversation, so that it never shows another one than we call. Raises
    `SpawnFailed` if that conversation does not exist.
    """
    found = _LISTENING.search(output)
    if found is None:
        return None
    if context.call is not None:
        return context.call.url
    words = read_words(context.argv[skip:])
    known = context.conversation.get("session_id") or words.conversation
    try:
        conversation = _open_conversation(context, found[1], str(known or ""), last=words.last)
    except OSError as error:
        raise SpawnFailed(f"opencode's server does not answer: {error}") from error
    return ServerAddress(found[1], conversation, str(context.scratch)).url


def _open_conversation(context: LaunchContext, base: str, known: str, *, last: bool) -> str:
    secret = context.call_secret
    if known:
        status, _ = request_now(base, secret, "GET", f"/session/{quote(known, safe='')}")
        if status != 200:
            raise SpawnFailed(
                f"opencode has no conversation '{known[:80]}'",
                hint="'opencode session list' lists all; start without --resume for a new one",
            )
        return known
    if last:
        status, document = request_now(base, secret, "GET", "/session?roots=true&limit=1")
        if status == 200 and (listed := as_objects(document)):
            return str(listed[0].get("id"))
    status, document = request_now(base, secret, "POST", "/session", {})
    conversation = as_object(document).get("id")
    if status != 200 or not isinstance(conversation, str):
        raise SpawnFailed(f"opencode's server made no conversation: status {status}")
    return conversation


def make_launch(context: LaunchContext, skip: int) -> Launch:
    """Return how the terminal is started."""
    assert context.call is not None
    address = ServerAddress.read(context.call.url)
    words = read_words(context.argv[skip:])
    # The server's folder is its real path: events of another spelling would not reach the terminal.
    folder = os.path.realpath(context.cwd)
    argv = [*context.argv[:skip], "attach", address.base, "--dir", folder, "--session", address.conversation]
    return Launch([*argv, *words.server], server_environment(context, words.settings))
