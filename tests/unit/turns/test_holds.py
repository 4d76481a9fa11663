"""Which sessions a budget holds, by the file that the boss writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.turns.holds import Holds, save_holds


@pytest.mark.parametrize(
    ("entry", "is_held"),
    [
        ({"session": "c1", "name": "work"}, True),
        ({"session": "c2", "name": "work"}, False),  # an earlier conversation of the same name
        ({"session": "kept:work", "name": "work"}, True),
        ({"folder": "/srv"}, True),
        ({"folder": "/sr"}, False),
        ({"folder": "/"}, True),
        ({"folder": "/srv", "except": ["/srv/shop"]}, False),  # that folder has its own account
        ({"folder": "/srv", "except": ["/srv/sho"]}, True),
        ({"folder": "/srv", "except": [7]}, True),
        ({"folder": "/srv", "except": 7}, True),
        ({"folder": "/", "until": 99.0}, False),
        ({"folder": "/", "until": 101.0}, True),
        ({"folder": "/", "until": "soon"}, False),
        ({"session": 7}, False),
        ({}, False),
    ],
)
def test_entry_holds_only_what_it_names(tmp_path: Path, entry: dict[str, object], is_held: bool) -> None:
    path = tmp_path / "budget" / "holds.json"
    save_holds(path, [{"reason": "budget\x1b[31m 'x'", **entry}])
    found = Holds(path, "work", "/srv/shop").reason("c1", 100.0)
    assert bool(found) is is_held
    assert "\x1b" not in found


def test_file_that_is_missing_damaged_or_changed_is_read_as_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "holds.json"
    one = Holds(path, "work", "/srv")
    assert one.reason(None, 0.0) == ""
    save_holds(path, [{"session": "c1", "name": "work", "reason": "why"}])
    assert one.reason(None, 0.0) == "why"  # the agent has not reported its conversation yet
    path.write_text('{"holds": [')
    assert one.reason(None, 0.0) == ""
    save_holds(path, [{"folder": "/srv", "reason": "again"}])
    assert one.reason("c9", 0.0) == "again"
    path.unlink()
    assert one.reason("c9", 0.0) == ""


@pytest.mark.parametrize("folder", ["real", "link"])
def test_session_that_was_started_at_a_link_is_held_by_both_names_of_its_folder(
    tmp_path: Path, folder: str
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    save_holds(tmp_path / "holds.json", [{"folder": str(tmp_path / folder), "reason": "why"}])
    assert Holds(tmp_path / "holds.json", "work", str(tmp_path / "link")).reason(None, 0.0) == "why"
