"""What a request to any host carries: paths of the other machine, and the content of files of this one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuda.boss.fleet_requests import portable
from remuda.errors import InvalidOptions


def test_files_of_settings_are_sent_with_their_content(tmp_path: Path) -> None:
    settings, servers = tmp_path / "settings.json", tmp_path / "mcp.json"
    settings.write_text('{"model": "m"}')
    servers.write_text('{"mcpServers": {}}')
    options = portable({"settings": settings, "mcp_config": [str(servers), ' {"mcpServers": {"a": {}}}']})
    assert options["settings"] == '{"model": "m"}'
    assert options["mcp_config"] == ['{"mcpServers": {}}', ' {"mcpServers": {"a": {}}}']


def test_a_file_that_cannot_be_read_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptions, match=r"cannot read .*/none\.json"):
        portable({"settings": str(tmp_path / "none.json")})


def test_the_folder_is_a_path_there_and_what_is_of_this_call_stays_here() -> None:
    assert portable({"cwd": "/srv/../work"}) == {"cwd": "/work", "env": {}}
    options = portable(
        {"cwd": "sub", "env": {"A": "1"}, "timeout": 5, "request_id": "x", "tools": (), "model": "m"}
    )
    assert options == {"cwd": f"{os.getcwd()}/sub", "env": {"A": "1"}, "model": "m"}
