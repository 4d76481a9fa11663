"""docs/reference: its tables have what the code has."""

import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path

from remuda.boss.answers.permission_policy import _KEYS as RULE_KEYS
from remuda.boss.http.openapi import ROUTES
from remuda.boss.notices.notification import FIELDS
from remuda.boss.notices.notify_file import _KEYS as NOTICE_KEYS
from remuda.boss.notices.notify_file import _PUSH_KEYS as PUSH_KEYS
from remuda.boss.notices.notify_file import _TO_KEYS as RECEIVER_KEYS
from remuda.config import BOSS_KEYS, FOLDER_KEYS, KEYS, Config, parse_config
from remuda.errors import EXIT_CODES
from remuda.wire.messages import Type

DOCS = Path(__file__).parents[2] / "docs/reference"


def page(name: str) -> str:
    return (DOCS / name).read_text()


def test_exit_codes_page_has_the_table_of_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", page("exit-codes.md"), re.MULTILINE)
    assert {name: int(code) for code, name in rows} == EXIT_CODES


def test_http_page_has_every_route() -> None:
    text = page("http.md")
    shown = {one.partition("?")[0].partition("[")[0] for one in re.findall(r"(/[\w./{}?&=\[\]]+)", text)}
    assert {route.path for route in ROUTES} - shown == set()


def test_policy_and_notify_pages_have_every_key() -> None:
    rules = set(re.findall(r"^\| `(\w+)` \|", page("policy.md"), re.MULTILINE))
    text = page("notify.md")
    notices = set(re.findall(r"^\| `(?:\[\[to\]\] )?([a-z_]+)` \|", text, re.MULTILINE))
    push = set(re.findall(r"^\| `\[push\] ([a-z_]+)` \|", text, re.MULTILINE))
    assert rules == set(RULE_KEYS)
    assert notices == {*NOTICE_KEYS, *RECEIVER_KEYS} - {"to", "push"}
    assert push == set(PUSH_KEYS)
    assert {one for one in FIELDS if f"`{{{one}}}`" not in page("notify.md")} == set()


def test_configuration_page_has_every_key_with_its_default() -> None:
    text = page("configuration.md")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", text.partition("## An example")[0], re.MULTILINE))
    assert rows.keys() == {*KEYS, "boss", "classifier", "env", "prices"}
    defaults = {one.name: one.default for one in fields(Config)}
    for key, shown in rows.items():
        if re.fullmatch("`.*`", shown) and key != "log_file":
            assert json.loads(shown.strip("`")) == defaults[key], key


def test_configuration_page_has_the_keys_of_tables() -> None:
    text = page("configuration.md")
    boss = text.partition("## Boss")[2].partition("##")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", boss, re.MULTILINE)) == set(BOSS_KEYS)
    (example,) = re.findall(r"^```toml\n(detach_key.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert parse_config(tomllib.loads(example)).detach_key == 29
    (table,) = re.findall(r"^```toml\n(\[classifier.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert parse_config(tomllib.loads(table)).debounce_ms == 200


def test_configuration_page_has_what_a_working_folder_may_set() -> None:
    (harmless,) = re.findall(r"It can set only (.*?)\. Any", page("configuration.md"), re.DOTALL)
    assert set(re.findall(r"`(\w+)`", harmless)) == FOLDER_KEYS


def test_wire_page_has_every_frame_type() -> None:
    rows = re.findall(r"^\| `0x(\w\w)` \| ([A-Z_]+) \|", page("wire.md"), re.MULTILINE)
    assert {name: int(number, 16) for number, name in rows} == {one.name: one.value for one in Type}


def test_every_test_on_the_page_of_regressions_exists() -> None:
    root = DOCS.parents[1]
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (root / "docs/why/regressions.md").read_text())
    assert len(named) > 50
    missing = [one for one in named if not re.search(rf"def {one[1]}\(", (root / one[0]).read_text())]
    assert missing == []
