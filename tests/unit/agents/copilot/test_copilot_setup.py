"""A file in copilot's folder of hooks that is not ours stays as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.agents.copilot.setup import CopilotSetup
from remuda.errors import InvalidOptions


@pytest.mark.parametrize(
    "text", ["not json", json.dumps({"hooks": {"Stop": [{"type": "command", "bash": "touch mine"}]}})]
)
def test_file_of_another_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("COPILOT_HOME", str(tmp_path))
    setup = CopilotSetup()
    path = setup.settings_path("user")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(InvalidOptions, match=r"nothing was changed|not ours"):
        setup.open_settings(path)
    assert setup.broken_settings() == [path]
    assert setup.boss_hooks(tmp_path) == []
    assert path.read_text() == text
