"""A key of tmux, and its status line: `key.py` runs this file.

It imports nothing of ours and nothing slow, because a user waits: `os` alone takes 1 ms. It asks the boss,
which does the work and reports it in the client's status line. If the boss does not run, this file reports
that.
"""

from __future__ import annotations

import _json
import _socket
import posix
import sys

ANSWER_TIMEOUT = 10.0
SEGMENT_TIMEOUT = 0.5
DOWN = "#[fg=red]✗ down#[default]"


def variable(name: str) -> str:
    """Return a variable of the environment, or ""."""
    value = posix.environ.get(name.encode(), b"")
    return value.decode(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())


def boss_folder() -> str:
    """Return the folder that `remuda.paths.home` returns."""
    if own := variable("REMUDA_HOME"):
        return f"{_absolute(own)}/boss"
    state = variable("XDG_STATE_HOME")
    if not state.startswith("/"):
        state = _absolute("~/.local/state")
    return f"{state}/remuda/boss"


def _absolute(path: str) -> str:
    user = variable("HOME")
    if path.startswith("~/") and user.startswith("/"):
        path = f"{user}{path[1:]}"
    if not path.startswith("/"):
        from os.path import abspath, expanduser  # slow to load, and seldom needed

        path = abspath(expanduser(path))
    return path


def ask(method: str, path: str, body: str, timeout: float) -> tuple[int, str]:
    """Return status and body. Raises OSError if the boss does not run."""
    folder = boss_folder()
    if posix.stat(folder).st_uid != posix.geteuid():
        raise PermissionError(f"{folder} belongs to another user")
    with open(f"{folder}/token", "rb") as file:
        token = file.read().decode("ascii").strip()
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
        if not sys.platform.startswith("linux"):
            raise
        # The path may be too long for a socket's address; through its folder it is short.
        fd = posix.open(folder, posix.O_RDONLY)
        try:
            connection.connect(f"/proc/self/fd/{fd}/boss.sock")
        finally:
            posix.close(fd)


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
    server = variable("TMUX").partition(",")[0]
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
    import os

    server = variable("TMUX").partition(",")[0]
    where = ["-S", server] if server else []
    # As `remuda.tmux.address.surroundings`: tmux sends the complete environment to the server.
    names = ("PATH", "HOME", "TERM", "LANG", "TMUX", "TMUX_TMPDIR", "SHELL", "USER", "LD_LIBRARY_PATH")
    env = {name: one for name, one in os.environ.items() if name in names or name.startswith("LC_")}
    return os.spawnvpe(os.P_WAIT, "tmux", ["tmux", *where, *words], env)


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
    variables = [f"{name}={value}" for name in ("REMUDA_HOME", "XDG_STATE_HOME") if (value := variable(name))]
    program = [sys.executable, "-P", "-m", "remuda", "popup", "--client", client]
    size = ["-w", "80%", "-h", "80%"]
    if tmux("display-popup", "-E", "-c", client, *size, "--", "env", *variables, *program, "--inside"):
        posix.execv(sys.executable, program)  # an older tmux, which has no popups


if __name__ == "__main__":
    main(sys.argv[1:])
