"""The client and a boss of another version, which is played here."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from threading import Thread

import pytest

from remuda.boss.client import BossClient
from remuda.boss.folder import BossFolder
from remuda.errors import BossDown, NotInQueue, RemoteProtocolError
from support.heimdall_client import PATIENCE


def answer_of(folder: Path, body: bytes | None, method: str = "GET") -> object:
    """What the client makes of that answer; None is a boss that ends without one."""
    boss = BossFolder(folder)
    boss.token.write_text("t")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(boss.socket))
        listener.listen(1)

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(1 << 16)
                if body is not None:
                    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

        thread = Thread(target=serve)
        thread.start()
        try:
            return BossClient(boss, timeout=PATIENCE).ask(method, "/v1/queue", None, PATIENCE)
        finally:
            thread.join()


def test_answer_of_an_older_boss_with_infinity_and_nan_is_read_bounded(tmp_path: Path) -> None:
    found = answer_of(tmp_path, b'{"a":Infinity,"b":NaN,"c":-1e999,"d":1}')
    assert found == {"a": sys.float_info.max, "b": None, "c": -sys.float_info.max, "d": 1}


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000 + b"]" * 100_000, b"\xff"])
def test_answer_that_is_not_json_is_an_error(tmp_path: Path, body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="is not JSON"):
        answer_of(tmp_path, body)


def test_boss_that_ends_in_a_request_leaves_in_doubt_only_what_may_have_been_done(tmp_path: Path) -> None:
    with pytest.raises(BossDown, match=r"while it was answering$"):
        answer_of(tmp_path, None)
    (tmp_path / "boss.sock").unlink()
    with pytest.raises(BossDown, match=r"answering, so it is not known whether it was done$"):
        answer_of(tmp_path, None, "POST")


@pytest.mark.parametrize("word", ["", "a/b", "../x"])
def test_word_that_can_be_no_name_and_no_id_is_not_found(tmp_path: Path, word: str) -> None:
    """A script passes an empty variable. The boss would say that it has no such path."""
    with pytest.raises(NotInQueue, match=f"'{word}' not found"):
        BossClient(BossFolder(tmp_path)).post("approvals", word, "answer")
