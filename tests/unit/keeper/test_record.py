"""A record that was damaged is none: nothing that looks at all sessions fails because of one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.config import Config
from remuda.frozen import fields_of, replaced
from remuda.keeper.record import SessionRecord
from remuda.keeper.resume import Restarter

RECORD = SessionRecord("a", "none", ["true"], "/", 1.0, options={"restart": "always"})


@pytest.mark.parametrize("field", sorted(fields_of(RECORD)))
@pytest.mark.parametrize("value", [[1], {"a": [1]}, "1", 1, 1.5, True], ids=str)
def test_record_with_a_value_of_another_type_is_none(field: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**fields_of(RECORD), field: value}))
    loaded = SessionRecord.load(path)
    kind = str(SessionRecord.__annotations__[field])
    right = {"str": "str", "int": "int", "float": "int float", "bool": "bool", "dict[str, Any]": "dict"}
    fits = type(value).__name__ in right.get(kind.removesuffix(" | None"), "").split()
    assert (loaded is not None) == fits


def test_record_that_was_saved_is_loaded(tmp_path: Path) -> None:
    for record in (RECORD, replaced(RECORD, ended_at=2.0, exit_code=0, end_reason="exited")):
        record.save(tmp_path / "a.json")
        assert SessionRecord.load(tmp_path / "a.json") == record


@pytest.mark.parametrize("field", ["agent", "argv", "cwd", "cols", "variables"])
def test_damaged_record_does_not_end_a_round_of_restarts(field: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({**fields_of(RECORD), field: {"a": 1}}))
    assert Restarter(tmp_path, Config()).round().done == []
