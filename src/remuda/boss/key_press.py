"""A key of tmux, and its status line: `key.py` runs this file.

It imports nothing of ours and nothing slow, because a user waits. It asks the boss, which does the work and
reports it in the client's status line. If the boss does not run, this file reports that.
"""

from __future__ import annotations

import _json
import _socket
import os
import sys

ANSWER_TIMEOUT = 10.0
SEGMENT_TIMEOUT = 0.5
DOWN = "#[fg=red]✗ down#[default]"


def boss_folder() -> str:
    """Return the folder that `remuda.paths.home` returns."""
    if own := os.environ.get("REMUDA_HOME"):
        return os.path.join(os.path.abspath(os.path.expanduser(own)), "boss")
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.expanduser("~/.local/state")
    return os.path.join(state, "remuda", "boss")


def ask(method: str, path: str, body: str, timeout: float) -> tuple[int, str]:
    """Return status and body. Raises OSError if the boss does not run."""
    folder = boss_folder()
    if os.stat(folder).st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user")
    with open(f"{folder}/token", encoding="ascii") as file:
        token = file.read().strip()
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}"]
    data = body.encode()
    if data:
        head += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        _connect(connection, folder)
        connection.sendall("\r\n".join([*head, "Connection: close", "", ""]).encode() + data)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    finally:
        connection.close()
    first, _, text = answer.partition(b"\r\n\r\n")
    words = first.split(b" ", 2)
    if len(words) < 3 or not words[1].isdigit():
        raise OSError("the boss sent something that is not an answer")
    return int(words[1]), text.decode("utf-8", "replace")


def _connect(connection: _socket.socket, folder: str) -> None:
    try:
        connection.connect(f"{folder}/boss.sock")
    except OSError:
        if not os.path.isdir("/proc/self/fd"):
            raise
        # The path may be too long for a socket's address; through its folder it is short.
        fd = os.open(folder, os.O_RDONLY)
        try:
            connection.connect(f"/proc/self/fd/{fd}/boss.sock")
        finally:
            os.close(fd)


def value_of(document: str, name: str) -> str:
    """Return a string of a flat JSON object, or ""."""
    at = document.find(f'"{name}":')
    start = document.find('"', at + len(name) + 3) if at >= 0 else -1
    return str(_json.scanstring(document, start + 1, False)[0]) if start >= 0 else ""


def segment() -> None:
    try:
        status, document = ask("GET", "/v1/segment", "", SEGMENT_TIMEOUT)
        text = value_of(document, "text") if status == 200 else DOWN
    except (OSError, ValueError):
        text = DOWN
    sys.stdout.buffer.write(text.encode() + b"\n")


def press(action: str, client: str) -> None:
    """Raises OSError if the boss does not run."""
    encode = _json.encode_basestring_ascii
    server = os.environ.get("TMUX", "").partition(",")[0]
    fields = {"action": action, "client": client, "tmux": server}
    body = ",".join(f"{encode(name)}:{encode(value)}" for name, value in fields.items())
    is_taken(client, *ask("POST", "/v1/navigate", "{" + body + "}", ANSWER_TIMEOUT))


def is_taken(client: str, status: int, document: str) -> bool:
    """Show an error in the status line: the same problem may keep the boss from showing it."""
    if status == 200:
        return True
    characters = (one if one.isprintable() else " " for one in value_of(document, "message"))
    text = " ".join("".join(characters).split()) or f"the boss answered with {status}"
    # tmux expands formats and strftime in it.
    tell(client, text.replace("#", "##").replace("%", "%%"))
    return False


def tmux(*words: str) -> int:
    """Run tmux, and return its exit status."""
    server = os.environ.get("TMUX", "").partition(",")[0]
    where = ["-S", server] if server else []
    return os.spawnvpe(os.P_WAIT, "tmux", ["tmux", *where, *words], _tmux_environment())


def _tmux_environment() -> dict[str, str]:
    """As `remuda.tmux.address.surroundings`: tmux sends the complete environment to the server."""
    names = ("PATH", "HOME", "TERM", "LANG", "TMUX", "TMUX_TMPDIR", "SHELL", "USER", "LD_LIBRARY_PATH")
    return {name: one for name, one in os.environ.items() if name in names or name.startswith("LC_")}


def tell(client: str, text: str) -> None:
    tmux("display-message", "-c", client, "--", text)


def main(words: list[str]) -> None:
    """Always exits with 0: tmux would show anything else in the middle of the pane."""
    if words == ["segment"]:
        segment()
    elif len(words) == 2:
        try:
            _do(*words)
        except TimeoutError:
            tell(words[1], "the boss does not answer; see 'remuda boss status'")
        except (OSError, ValueError):
            tell(words[1], "the boss is not running; start it with 'remuda boss up --detach'")


def _do(action: str, client: str) -> None:
    if action != "popup":
        press(action, client)
        return
    if not is_taken(client, *ask("GET", "/v1/segment", "", ANSWER_TIMEOUT)):
        return
    # A popup has the environment of tmux, without the variables of our own command line.
    variables = [
        f"{name}={os.environ[name]}" for name in ("REMUDA_HOME", "XDG_STATE_HOME") if os.environ.get(name)
    ]
    program = [sys.executable, "-P", "-m", "remuda", "popup", "--client", client]
    size = ["-w", "80%", "-h", "80%"]
    if tmux("display-popup", "-E", "-c", client, *size, "--", "env", *variables, *program, "--inside"):
        os.execv(sys.executable, program)  # an older tmux, which has no popups


if __name__ == "__main__":
    main(sys.argv[1:])
