"""Where servers listen, which versions will do, where a control client may go, what tmux's words mean."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from remuda.errors import PermissionRefused, RemudaError, TmuxError, TmuxGone, TmuxTargetGone, TmuxTooOld
from remuda.tmux.address import (
    POPUPS,
    Address,
    check_version,
    known_addresses,
    parse_version,
    surroundings,
    why_unsafe,
)
from remuda.tmux.control import SessionFact, companion_session
from remuda.tmux.once import cut_rows, error_of, row_format
from remuda.tmux.popup import popup_words

UID = os.getuid()


def test_address_inside_tmux_is_that_server(tmp_path: Path) -> None:
    assert Address.here({"TMUX": f"{tmp_path}/mine,123,4"}) == Address(f"{tmp_path}/mine")


def test_address_outside_is_the_default_server(tmp_path: Path) -> None:
    assert Address.here({"TMUX_TMPDIR": str(tmp_path)}) == Address(f"{tmp_path}/tmux-{UID}/default")
    assert Address.here({"TMUX": ""}) == Address.named("default", {})


def test_address_through_a_linked_folder_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert Address.of(f"{tmp_path}/link/s") == Address.of(f"{tmp_path}/real/s")


def test_known_addresses_are_the_sockets_and_the_own_server_once(tmp_path: Path) -> None:
    env = {"TMUX_TMPDIR": str(tmp_path)}
    assert known_addresses(env) == [Address.named("default", env)]
    folder = tmp_path / f"tmux-{UID}"
    folder.mkdir(mode=0o700)
    (folder / "no socket").touch()
    for name in ("b", "default"):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / name))
    env["TMUX"] = f"{tmp_path}/elsewhere,1,0"
    assert known_addresses(env) == [
        Address(f"{tmp_path}/elsewhere"),
        Address.named("b", env),
        Address.named("default", env),
    ]


def test_known_addresses_in_an_open_folder_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / f"tmux-{UID}"
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "b"))
    env = {"TMUX_TMPDIR": str(tmp_path)}
    assert Address.named("b", env) in known_addresses(env)
    folder.chmod(0o701)
    assert Address.named("b", env) not in known_addresses(env)


def test_why_unsafe_names_what_others_can_change(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o755)
    address = Address.of(str(folder / "s"))
    assert why_unsafe(address) is None  # nothing is there
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address.path)
    assert why_unsafe(address) is None
    folder.chmod(0o1777)  # as /tmp: others cannot replace our socket
    assert why_unsafe(address) is None
    folder.chmod(0o777)
    assert why_unsafe(address) == f"other users can write to {folder}"
    folder.chmod(0o755)
    tmp_path.chmod(0o777)
    assert why_unsafe(address) == f"other users can write to {tmp_path}"


def test_why_unsafe_link_in_place_of_a_socket_is(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "real"))
    (tmp_path / "link").symlink_to("real")
    assert why_unsafe(Address.of(str(tmp_path / "link"))) == f"{tmp_path}/link is not a socket of this user"


def test_surroundings_forget_the_pane_that_we_are_in_and_all_secrets() -> None:
    kept = {"HOME": "/", "PATH": "/bin", "LC_ALL": "C", "LANG": "C", "TERM": "xterm", "TMUX_TMPDIR": "/x"}
    dropped = {"TMUX": "x", "TMUX_PANE": "%1", "ANTHROPIC_API_KEY": "k", "SSH_AUTH_SOCK": "s", "LCX": ""}
    assert surroundings(kept | dropped) == kept


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("tmux 3.3a", (3, 3)), ("2.9", (2, 9)), ("3.10", (3, 10)), ("next-3.6", (3, 6)), ("3.5-rc2", (3, 5)),
        ("tmux next-3.6", (3, 6)), ("master", (99, 0)), ("openbsd-7.4", (99, 0)), ("", (99, 0)),
    ],
)  # fmt: skip
def test_parse_version(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


def test_check_version_too_old_names_both() -> None:
    check_version("3.0")
    with pytest.raises(TmuxTooOld, match=r"3\.0 or newer; this one is 2\.9a"):
        check_version("tmux 2.9a")
    with pytest.raises(TmuxTooOld, match=r"a popup needs tmux 3\.2"):
        check_version("3.1c", POPUPS, "a popup")


@pytest.mark.parametrize(
    ("complaint", "kind"),
    [
        ("no server running on /tmp/x", TmuxGone),
        ("error connecting to /tmp/x (No such file or directory)", TmuxGone),
        ("error connecting to /tmp/x (Connection refused)", TmuxGone),
        ("error connecting to /tmp/x (Permission denied)", PermissionRefused),
        ("server exited unexpectedly", TmuxGone),
        ("lost server", TmuxGone),
        ("protocol version mismatch (client 8, server 7)", TmuxTooOld),
        ("can't find pane: %9", TmuxTargetGone),
        ("can't find client: /dev/pts/1", TmuxTargetGone),
        ("unknown command: nonsense", TmuxError),
        ("", TmuxError),
    ],
)
def test_error_of_what_tmux_says_is_of_its_kind(complaint: str, kind: type[RemudaError]) -> None:
    error = error_of(complaint + "\n", Address("/tmp/x"))
    assert type(error) is kind
    assert complaint in str(error)


# ── rows ──


def test_cut_rows_values_with_anything_in_them_are_kept_apart() -> None:
    fields, mark = ("a", "b"), "7f3a"
    rows = [["", "x\ny"], ["%end 1 2 3", "tab\t: . }"], ["\udcff", "é"]]
    lines = ["".join(f"{mark}:{value}" for value in row) + f"{mark}." for row in rows]
    output = "\n".join(["a hook says", *lines, "and this", ""]).encode("utf-8", "surrogateescape")
    assert cut_rows(output, fields, mark) == rows
    assert row_format(fields, mark) == "7f3a:#{a}7f3a:#{b}7f3a."
    assert cut_rows(b"", fields, mark) == []


def test_cut_rows_of_another_width_is_an_error() -> None:
    with pytest.raises(TmuxError):
        cut_rows(b"7f3a:one7f3a.\n", ("a", "b"), "7f3a")


# ── where a control client may go ──


def session(id_: str, activity: int = 0, **more: str) -> SessionFact:
    facts = {"marks": "*", "destroy_unattached": "0", "exit_unattached": "0", "version": "3.3a", **more}
    return SessionFact(id_, activity, **facts)


def test_companion_session_is_the_humans_that_was_used_last() -> None:
    sessions = [session("$0", 1), session("$1", 5), session("$2", 9)]
    assert companion_session(sessions, ["$0", "$1"], []) == "$1"


@pytest.mark.parametrize(
    "why_not",
    [
        {"marks": "*!"}, {"marks": "##*"}, {"marks": "~*"}, {"destroy_unattached": "1"},
        {"destroy_unattached": "keep-last"}, {"exit_unattached": "1"}, {"version": "3.1c"},
    ],
    ids=str,
)  # fmt: skip
def test_companion_session_that_would_lose_something_is_none(why_not: dict[str, str]) -> None:
    bad = session("$0", 9, **why_not)
    assert companion_session([bad], ["$0"], []) is None
    assert companion_session([bad, session("$1")], ["$0", "$1"], []) == "$1"


def test_companion_session_without_a_human_or_with_a_hook_is_none() -> None:
    assert companion_session([session("$0")], [], []) is None
    assert companion_session([session("$0")], ["$0"], ["client-attached"]) is None
    assert companion_session([], [], []) is None


# ── a popup ──


def test_popup_words_pass_the_program_as_it_is_and_escape_what_is_a_format() -> None:
    found = popup_words(
        "/dev/pts/1", ["prog", "a b"], "3.3a", title="#1", cwd="/a/#{x}", env={"A": "1 2"}, width="50%"
    )
    start = ["display-popup", "-E", "-c", "/dev/pts/1", "-w", "50%", "-h", "80%", "-T", " ##1 "]
    assert found == [*start, "-d", "/a/##{x}", "--", "env", "A=1 2", "prog", "a b"]


def test_popup_words_of_an_older_tmux_have_no_title_or_are_refused() -> None:
    assert "-T" not in popup_words("c", ["prog"], "3.2a", title="x")
    with pytest.raises(TmuxTooOld):
        popup_words("c", ["prog"], "3.1")
