"""What type checkers know of inboxes and sessions, and what a caller is told who does not ask them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, assert_type

import pytest

from remuda import Inbox, InvalidOptions, RemudaError, Session
from remuda.inbox.journal import Accepted
from remuda.inbox.message import PutOptions
from remuda.session import StartOptions


def fields(inbox: Inbox) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((inbox.folder / "inbox.jsonl").read_text().splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("given", "seconds"), [("8h", 28800), ("2h30m", 9000), ("90", 90), ("1.5", 1.5), (90, 90), (0.25, 0.25)]
)
def test_put_takes_times_as_the_command_line_does(tmp_path: Path, given: float | str, seconds: float) -> None:
    inbox = Inbox(tmp_path)
    assert_type(inbox.put("x", delay=given, ttl=given), Accepted)
    found = fields(inbox)
    assert found["not_before"] - found["at"] == pytest.approx(seconds, abs=0.002)
    assert found["expires"] - found["at"] == pytest.approx(seconds, abs=0.002)


@pytest.mark.parametrize("name", ["delay", "ttl"])
@pytest.mark.parametrize("given", ["", "soon", "8x", "-1h", "nan", "inf", "9" * 5000, b"8h", None])
def test_put_with_a_time_that_is_none_names_the_option(tmp_path: Path, name: str, given: Any) -> None:
    with pytest.raises(InvalidOptions, match=f"^{name} is ") as raised:
        Inbox(tmp_path).put("x", **{name: given})
    assert len(str(raised.value)) < 200
    assert not (tmp_path / "inbox.jsonl").exists()


def test_put_of_what_is_no_text_and_with_options_that_are_none_raises_our_error(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    with pytest.raises(RemudaError, match="the prompt is 3"):
        inbox.put(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidOptions, match="a message has no option 'dedupe'; did you mean 'dedup'"):
        inbox.put("x", dedupe="k")  # type: ignore[call-arg]
    with pytest.raises(InvalidOptions, match=r"no option 'zzz'; known options: delay, ttl, dedup, sender"):
        inbox.put("x", zzz=1)  # type: ignore[call-arg]
    assert not (tmp_path / "inbox.jsonl").exists()


def test_session_options_that_are_none_raise_our_error_and_start_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptions, match="a session has no option 'agnet'; did you mean 'agent'"):
        Session.start("x", folder=tmp_path, agnet="claude")  # type: ignore[call-arg]
    assert list(tmp_path.iterdir()) == []


def test_docstrings_name_every_option() -> None:
    for method in (Inbox.put, Session.send):
        assert all(f"`{name}`" in str(method.__doc__) for name in PutOptions.__annotations__), method
    assert "StartOptions" in str(Session.start.__doc__)
    assert {"agent", "resume", "trust", "cols"} <= StartOptions.__annotations__.keys()
