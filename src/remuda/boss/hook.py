"""The hook of agents without a keeper: passes its input to the boss. One file, run alone.

    python -I -S hook.py BOSS_FOLDER [--wait SECONDS | --agent NAME]

It runs for every event of every session, so it imports nothing of ours and nothing slow. It never fails or
delays the agent: it always exits with 0, and waits 0.2 s for the boss. An event that the boss did not take is
left in BOSS_FOLDER/spool, where the boss finds it later. The folder is bounded: the oldest event is dropped
first, and each dropped one adds a byte to `spool/.dropped`. Most events do not come here: `hook.sh` leaves
them in the same folder, in a fifth of the time.

With `--wait` it reports a permission request and waits for the decision, but only if a dialog is on a
terminal as well. If the boss dies it waits a while for the next one; if the boss was stopped it does not
wait. Without a decision it prints nothing: the dialog stays for the user at the terminal. A boss that runs
and cannot be reached is reported on standard error, and in BOSS_FOLDER/unreached, where `remuda doctor` finds
it.
"""

import posix
import sys
import time
from _socket import AF_UNIX, SOCK_STREAM, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PATIENCE = 0.2
SPOOL_FILES = 2000
SPOOL_BYTES = 64 << 20
LARGE_BYTES = 64 << 10
MAX_BYTES = 15 << 20
"""The largest body that the boss takes."""
GONE_PATIENCE = 60.0
"""How long a request is kept for the next boss."""
_RETRY_PAUSE = 0.25
# Of all agents that run this file: it imports nothing, so it cannot ask their folders. The one with `--agent`
# is the parent of this process, and needs none.
_VARIABLES = (b"TMUX", b"TMUX_PANE", b"CLAUDE_PID", b"CLAUDE_CODE_ENTRYPOINT", b"CLAUDE_JOB_DIR")


class Refused(Exception):
    """The boss was reached, and will never take this."""


class Lost(OSError):
    """The boss was reached, but it died, is too busy or does not answer: it may have taken the event."""


def read_all(fd: int) -> bytes:
    pieces = []
    while piece := posix.read(fd, 1 << 20):
        pieces.append(piece)
    return b"".join(pieces)


def quoted(text: str) -> str:
    try:
        from _json import encode_basestring_ascii
    except ImportError:
        import json

        return json.dumps(text)
    return str(encode_basestring_ascii(text))


def shortened(payload: bytes) -> bytes:
    is_large = len(payload) > LARGE_BYTES and b'"tool_response"' in payload
    return without_output(payload) if is_large else payload


def without_output(payload: bytes) -> bytes:
    """Drop the output of a tool: the boss does not use it, and it may have megabytes.

    Returns the payload unchanged if it is not JSON or holds NaN or Infinity: the boss refuses that.
    """
    import json

    try:
        document = json.loads(payload)
        document.pop("tool_response", None)
        return json.dumps(document, allow_nan=False).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return payload


def with_session(payload: bytes) -> bytes:
    """Name the session as the boss expects it: some agents write `sessionId`."""
    import json

    document = json.loads(payload)
    if "session_id" not in document and "sessionId" in document:
        document["session_id"] = document["sessionId"]
    return json.dumps(document, allow_nan=False).encode()


def make_body(payload: bytes, event_id: str, at: float, wait: float | None, agent: str = "") -> bytes:
    """Claude Code names its process in a variable. Any other agent is the parent of this process."""
    env = posix.environ
    variables = [
        f"{quoted(name.decode())}: {quoted(env[name].decode('utf-8', 'replace'))}"
        for name in _VARIABLES
        if name in env
    ]
    variables += [f'"AGENT_PID": "{posix.getppid()}"'] if agent else []
    more = "" if wait is None else f', "wait": {wait:.3f}'
    more += f', "agent": {quoted(agent)}' if agent else ""
    head = f'{{"id": {quoted(event_id)}, "at": {at:.6f}, "env": {{{", ".join(variables)}}}{more}, "payload": '
    return head.encode() + payload + b"}"


# ── the boss ──


def connect(folder: str, deadline: float) -> socket:
    sock = socket(AF_UNIX, SOCK_STREAM)
    try:
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        posix.chdir(folder)  # a socket's path may be longer than an address holds; its name never is
        sock.connect("boss.sock")
    except BaseException:
        sock.close()
        raise
    return sock


def post(
    folder: str, path: str, body: bytes, patience: float = PATIENCE, answer: float | None = None
) -> bytes:
    """Return the answer of the boss, waiting `answer` seconds for it after the request was sent.

    Raises `Refused`, or OSError if the boss cannot be reached or does not confirm.
    """
    deadline = time.monotonic() + patience
    try:
        sock = connect(folder, deadline)
    except (TimeoutError, BlockingIOError) as error:  # it runs, and its backlog is full
        raise Lost("it does not accept the connection") from error
    try:
        fd = posix.open("token", posix.O_RDONLY | posix.O_CLOEXEC)
        try:
            token = read_all(fd).strip()
        finally:
            posix.close(fd)
        head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %b\r\n" % (path.encode(), token)
        head += b"Content-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(
            body
        )
        sock.sendall(head + body)
        if answer is not None:
            deadline = time.monotonic() + answer
        status, reply = receive(sock, deadline)
    finally:
        sock.close()
    if status in (b"400", b"413", b"415"):
        raise Refused
    if status == b"503":
        raise Lost("it is too busy")
    if status[:1] != b"2":
        raise OSError("not taken")
    return reply


def receive(sock: socket, deadline: float) -> "tuple[bytes, bytes]":
    """Return status and body. Reads to the end: the connection carries one answer."""
    data = b""
    try:
        while True:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            if not (piece := sock.recv(65536)):
                break
            data += piece
    except OSError as error:
        raise Lost("it does not answer") from error
    head, _, body = data.partition(b"\r\n\r\n")
    if not body:
        raise Lost("it went away")
    return head[9:12], body


# ── the spool ──


def spool(folder: str, body: bytes, at: int) -> None:
    place = f"{folder}/spool"
    try:
        posix.mkdir(place, 0o700)
    except FileExistsError:
        pass
    name = f"{at:020d}-{posix.getpid():07d}-{len(body)}.json"
    temporary = f"{place}/.{name}"
    fd = posix.open(temporary, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC | posix.O_CLOEXEC, 0o600)
    try:
        left = body
        while left:
            left = left[posix.write(fd, left) :]
    except BaseException:
        posix.unlink(temporary)
        raise
    finally:
        posix.close(fd)
    posix.rename(temporary, f"{place}/{name}")
    bound(place)


def bound(place: str) -> None:
    """Other hooks may do the same at the same time: the one that removes a file counts it."""
    files = sorted(entry(place, name) for name in posix.listdir(place) if name[:1] != ".")
    total = sum(size for _, size, _ in files)
    for number, (_, size, name) in enumerate(files):
        if len(files) - number <= SPOOL_FILES and total <= SPOOL_BYTES:
            return
        total -= size
        try:
            posix.unlink(f"{place}/{name}")
        except FileNotFoundError:
            continue
        fd = posix.open(
            f"{place}/.dropped", posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND | posix.O_CLOEXEC, 0o600
        )
        posix.write(fd, b".")
        posix.close(fd)


def entry(place: str, name: str) -> "tuple[int, int, str]":
    """Return when the file was written, its size and its name. The name of our files holds all of that."""
    parts = name[:-5].split("-")
    if len(parts) == 3 and parts[0].isdigit() and parts[2].isdigit():
        return int(parts[0]), int(parts[2]), name
    try:
        seen = posix.stat(f"{place}/{name}")
    except FileNotFoundError:  # taken
        return 0, 0, name
    return seen.st_mtime_ns, seen.st_size, name


# ── leave ──


def ask(folder: str, payload: bytes, event_id: str, at: int, wait: float) -> "Any":
    """Return what the agent gets as the decision; None for nothing. Raises OSError if no boss is running."""
    parent, end = posix.getppid(), time.monotonic() + wait
    lost_at: float | None = None
    why = ""
    while (left := end - time.monotonic()) > 0 and posix.getppid() == parent:
        body = make_body(payload, event_id, at / 1e9, left)
        try:
            body_text = post(folder, "/v1/hooks/permission", body, answer=left + 1.0)
        except Lost as error:
            lost_at, why = time.monotonic(), str(error)
        except OSError as error:
            if lost_at is None:
                if not isinstance(error, ConnectionRefusedError):  # its socket is gone: it was stopped
                    raise
                spool(folder, make_body(payload, event_id, at / 1e9, None), at)
                lost_at, why = time.monotonic(), "it was killed"
            if time.monotonic() - lost_at > GONE_PATIENCE:
                break
        else:
            import json

            answer = json.loads(body_text)
            if answer.get("state") != "closing":
                return answer.get("output")
            lost_at, why = time.monotonic(), "it has ended"
        time.sleep(_RETRY_PAUSE)
    if why and posix.getppid() == parent:
        report(folder, why, at)
        spool(folder, make_body(payload, event_id, at / 1e9, None), at)  # the boss counts it once, by its id
    return None


def report(folder: str, why: str, at: int) -> None:
    """Report that a request was left to the terminal."""
    sys.stderr.write(f"remuda: cannot reach the boss: {why}; answer the permission request here\n")
    flags = posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC | posix.O_CLOEXEC
    fd = posix.open(f"{folder}/unreached", flags, 0o600)
    try:
        posix.write(fd, f"{at // 10**9} {why}\n".encode())
    finally:
        posix.close(fd)


# ── main ──


def main() -> None:
    folder = sys.argv[1]
    wait = float(sys.argv[3]) if sys.argv[2:3] == ["--wait"] else None
    agent = sys.argv[3] if sys.argv[2:3] == ["--agent"] else ""
    payload = read_all(0).strip()
    if b"REMUDA_SESSION" in posix.environ or not payload:
        return
    if posix.stat(folder).st_uid != posix.geteuid():  # it would get prompts, and could allow what is asked
        return
    payload = shortened(with_session(payload) if agent else payload)
    if len(payload) > MAX_BYTES:
        return
    at = time.time_ns()
    event_id = f"h{at}-{posix.getpid()}"
    # A program that reads the answer shows no dialog: it would wait for us, and it knows what it wants.
    # Only Claude Code runs this file with --wait (agents/claude/setup/boss_hooks.py).
    if posix.environ.get(b"CLAUDE_CODE_ENTRYPOINT", b"").startswith(b"sdk"):
        wait = None
    try:
        if wait is not None:
            output = ask(folder, payload, event_id, at, wait)
            if output is not None:
                import json

                sys.stdout.write(json.dumps(output, allow_nan=False))
            return
        post(folder, "/v1/hooks", make_body(payload, event_id, at / 1e9, None, agent))
    except Refused:
        pass
    except OSError:
        spool(folder, make_body(payload, event_id, at / 1e9, None, agent), at)


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
    except Exception:  # noqa: BLE001  # an agent must not notice a missing boss
        posix._exit(0)  # Python would write once more what could not be written, and exit with 120
