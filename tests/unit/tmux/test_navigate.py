"""Whom a command means, which of several places, what is sent to tmux, and the trail: all without a tmux."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.errors import InvalidOptions, NoTmuxClient
from remuda.tmux.address import Address
from remuda.tmux.navigate import TmuxClient, Trail, TrailFile, best_place, choose_client, next_trail, steps
from remuda.tmux.panes import Pane, Place, check_pane

ADDRESS = Address("/somewhere/default")


def client(name: str, activity: int = 0, session: str = "$0", pane: str = "%0", **more: bool) -> TmuxClient:
    return TmuxClient(
        name, 100, more.get("control", False), activity, session, "@0", pane, more.get("zoomed", False)
    )


def place(session: str, *, current: bool = True, activity: int = 0) -> Place:
    return Place(session, f"name of {session}", 1, current, False, activity)


def pane(*places: Place, id_: str = "%7", active: bool = True, zoomed: bool = False) -> Pane:
    return Pane(
        id_, 1, "/dev/pts/9", "sh", "", "/", "@7", "w", 0, active, zoomed, False, False, 0,
        places or (place("$0"),),
    )  # fmt: skip


# ── whom ──


def test_choose_client_named_is_that_one_if_another_was_active() -> None:
    assert choose_client([client("a"), client("b", 9)], name="a").name == "a"


def test_choose_client_named_and_not_attached_is_an_error() -> None:
    with pytest.raises(NoTmuxClient):
        choose_client([client("a")], name="b")


def test_choose_client_shows_the_callers_pane_before_all_others() -> None:
    clients = [client("far", 9, "$1", "%1"), client("near", 8, "$0", "%2"), client("shown", 1, "$0", "%7")]
    assert choose_client(clients, pane=pane()).name == "shown"


def test_choose_client_has_the_callers_pane_in_its_session_before_others() -> None:
    clients = [client("far", 9, "$1", "%1"), client("near", 1, "$0", "%2")]
    assert choose_client(clients, pane=pane()).name == "near"


def test_choose_client_else_is_the_one_used_last() -> None:
    clients = [client("a", 1), client("b", 3), client("c", 2)]
    assert choose_client(clients).name == "b"
    assert choose_client(clients, pane=pane(place("$5"))).name == "b"


def test_choose_client_never_is_a_control_client() -> None:
    assert choose_client([client("a", 1), client("control", 9, control=True)]).name == "a"
    for name in (None, "control"):
        with pytest.raises(NoTmuxClient):
            choose_client([client("control", control=True)], name=name)


# ── where ──


def test_best_place_is_the_clients_own_session_then_one_that_shows_it_then_the_last_used() -> None:
    own, shown, used = place("$1", current=False), place("$2"), place("$3", current=False, activity=9)
    assert best_place(pane(used, shown, own), "$1") == own
    assert best_place(pane(used, shown, own), "$8") == shown
    assert best_place(pane(own, used), "$8") == used


# ── how ──


def words(*lines: str) -> list[list[str]]:
    return [line.split(" ") for line in lines]


def test_steps_within_a_session_select_the_window_only() -> None:
    found = steps(client("/dev/pts/1"), pane(), place("$0"), zoom=False)
    assert found == words("list-panes -t %7", "select-window -t $0:@7")


def test_steps_to_another_session_and_a_pane_that_is_not_active_do_all() -> None:
    found = steps(client("/dev/pts/1"), pane(active=False), place("$4"), zoom=False)
    assert found == words(
        "list-panes -t %7",
        "switch-client -c /dev/pts/1 -t $4",
        "select-window -t $4:@7",
        "select-pane -t %7",
    )


def test_steps_with_zoom_zoom_only_what_is_not() -> None:
    found = steps(client("c"), pane(active=False, zoomed=True), place("$0"), zoom=True)
    assert found[-1] == ["if-shell", "-F", "-t", "%7", "#{?window_zoomed_flag,,1}", "resize-pane -Z -t %7"]


@pytest.mark.parametrize("bad", ["", "%", "7", "%7 ", "%7;kill-server", "$1", "{last}", "%x", "%٣"])
def test_check_pane_takes_nothing_but_an_id(bad: str) -> None:
    assert check_pane("%12") == "%12"
    with pytest.raises(InvalidOptions):
        check_pane(bad)


# ── the trail ──

TRAIL = Trail(10, 100, "$0", "@0", "%0", is_zoomed=True, target="%7")


def test_next_trail_first_begins_where_the_client_is() -> None:
    assert next_trail(None, client("c", pane="%0", zoomed=True), 10, "%7") == TRAIL


def test_next_trail_from_where_the_last_jump_ended_keeps_the_origin() -> None:
    assert next_trail(TRAIL, client("c", pane="%7"), 10, "%8") == TRAIL._replace(target="%8")


def test_next_trail_from_elsewhere_begins_anew() -> None:
    found = next_trail(TRAIL, client("c", pane="%3"), 10, "%8")
    assert (found.pane_id, found.is_zoomed, found.target) == ("%3", False, "%8")


def test_trail_file_keeps_one_trail_for_each_client_of_each_server(tmp_path: Path) -> None:
    file = TrailFile(tmp_path, ADDRESS, "/dev/pts/1")
    assert file.read(10, 100) is None
    file.write(TRAIL)
    assert TrailFile(tmp_path, ADDRESS, "/dev/pts/1").read(10, 100) == TRAIL
    for other in (
        TrailFile(tmp_path, ADDRESS, "/dev/pts/2"),
        TrailFile(tmp_path, Address("/x"), "/dev/pts/1"),
    ):
        assert other.read(10, 100) is None
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600]
    file.write(None)
    file.write(None)
    assert list(tmp_path.iterdir()) == []


def test_trail_file_of_an_earlier_server_or_client_is_none(tmp_path: Path) -> None:
    file = TrailFile(tmp_path, ADDRESS, "/dev/pts/1")
    file.write(TRAIL)
    assert file.read(11, 100) is None
    assert file.read(10, 101) is None


def test_trail_file_torn_at_every_byte_or_foreign_is_none(tmp_path: Path) -> None:
    file = TrailFile(tmp_path, ADDRESS, "c")
    file.write(TRAIL)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert file.read(10, 100) is None
    for foreign in (b"\xff\xfe", b"{}", b"\n" * 20, whole + b"more"):
        path.write_bytes(foreign)
        assert file.read(10, 100) is None
