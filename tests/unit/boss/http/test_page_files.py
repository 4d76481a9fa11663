"""The files of the page: small, unchanged where they are others', and with no inline script."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import remuda.boss
from remuda.boss.http.assets import Assets
from remuda.cli.picker import Picker, PickerRow

WEB = Path(remuda.boss.__file__).parent / "web"
ROOT = Path(__file__).parents[4]
_IMPORT = re.compile(
    r"""(?:^import|^export)[^;]*?from\s*["'](\./[^"']+)["']|^import\s*["'](\./[^"']+)["']|["'](\./[\w/-]+\.js)["']""",
    re.M,
)
_TERMINAL = "terminal.js"
ASSETS = Assets(WEB)
_GZIP = {"accept-encoding": "gzip"}
OWN = sorted(path for path in WEB.glob("*") if path.suffix in (".js", ".css", ".html", ".json"))


def packed(path: Path) -> int:
    """Its size as it is sent; of a file that is not served, as it would be packed."""
    name = f"/assets/{path.relative_to(WEB).as_posix()}"
    served = ASSETS.index(_GZIP) if path.name == "index.html" else ASSETS.find(name, _GZIP)
    return len(served.body) if served is not None else len(gzip.compress(path.read_bytes(), 9))


def test_comments_of_our_modules_are_not_sent_and_lines_keep_their_numbers() -> None:
    for path in WEB.glob("*.js"):
        served = ASSETS.find(f"/assets/{path.name}", {})
        assert served is not None
        sent, written = served.body.decode().split("\n"), path.read_text().split("\n")
        assert len(sent) == len(written)
        for one, other in zip(sent, map(str.lstrip, written), strict=True):
            assert other == one or other.removeprefix(one).lstrip().startswith(("//", "/**"))
        assert not any(line.strip().startswith("//") for line in sent)
    vendored = ASSETS.find("/assets/vendor/xterm.js", {})
    assert vendored is not None
    assert vendored.body == (WEB / "vendor/xterm.js").read_bytes()


def loaded(start: str, seen: set[str] | None = None) -> set[str]:
    """All modules that a module needs, also those that it loads later, without the terminal."""
    seen = set() if seen is None else seen
    if start in seen or start == _TERMINAL:
        return seen
    seen.add(start)
    folder = Path(start).parent
    for found in _IMPORT.finditer((WEB / start).read_text()):
        name = next(one for one in found.groups() if one)
        if name.endswith(".js"):
            loaded((folder / name).as_posix(), seen)
    return seen


def test_page_without_a_terminal_has_at_most_60_kb() -> None:
    names = {*loaded("app.js"), "index.html", "style.css", "keys.json", "icon.svg", "manifest.webmanifest"}
    assert {"queue.js", "session.js", "figures.js", "details.js", "vendor/preact.js"} <= names
    assert not any("xterm" in name for name in names)
    assert sum(packed(WEB / name) for name in names) <= 60_000


def test_whole_page_has_at_most_300_kb() -> None:
    files = [path for path in WEB.rglob("*") if path.is_file()]
    assert sum(packed(path) for path in files) <= 300_000


def test_vendored_files_have_their_checksums_and_licences() -> None:
    script = [sys.executable, str(ROOT / "scripts/vendor.py"), "--check"]
    found = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
    for package in json.loads((WEB / "vendor/vendor.json").read_text()):
        assert any(name.endswith("LICENSE") for name in package["files"].values()), package["package"]


def test_changed_vendored_file_is_reported(tmp_path: Path) -> None:
    copy = tmp_path / "src/remuda/boss/web/vendor"
    copy.mkdir(parents=True)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/vendor.py").write_bytes((ROOT / "scripts/vendor.py").read_bytes())
    for path in (WEB / "vendor").iterdir():
        (copy / path.name).write_bytes(path.read_bytes() + (b" " if path.name == "htm.js" else b""))
    (copy / "more.js").write_text("")
    script = [sys.executable, str(tmp_path / "scripts/vendor.py"), "--check"]
    found = subprocess.run(script, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "htm.js is missing or changed" in found.stderr
    assert "more.js is not in vendor.json" in found.stderr


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_own_file_makes_no_html_and_names_no_agent_and_no_other_host(path: Path) -> None:
    text = path.read_text()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert word not in text, word
    assert "claude" not in text.lower()
    hosts = re.findall(r"(?:src|href|url|fetch|import)\W{1,3}https?://", text)
    assert not hosts


def test_index_has_no_inline_script_and_names_files_that_exist() -> None:
    text = (WEB / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", text)
    for name in re.findall(r'"/assets/([^"]+)"', text):
        assert (WEB / name).exists(), name


def test_index_preloads_every_module_that_the_page_begins_with() -> None:
    """One after the other they would take a round trip for each level of imports."""
    begun, wanted = set(), ["app.js"]
    while wanted:
        name = wanted.pop()
        begun.add(name)
        text = (WEB / name).read_text()
        found = re.findall(r"""(?:^|;)(?:import|export)[^;]*?from\s*["'](\./[^"']+)["']""", text, re.M)
        names = {(Path(name).parent / one).as_posix() for one in found}
        wanted += sorted(names - begun)
    preloaded = re.findall(r'modulepreload" href="/assets/([^"]+)"', (WEB / "index.html").read_text())
    assert sorted(preloaded) == sorted(begun - {"app.js"})


def test_popup_has_the_keys_of_the_table() -> None:
    """The page and the dashboard read the table; the popup has its keys in code, for its speed."""
    table = {one["key"]: one["action"] for one in json.loads((WEB / "keys.json").read_text())}
    items = [{"id": str(number), "reason": "permission"} for number in range(2)]
    picker = Picker([PickerRow(item, "", "") for item in items])
    for key in ("s", "z", "d", "r"):
        assert picker.press(key) == table[key]
    picker.press("j")
    assert (picker.marked or {})["id"] == "1"
    picker.press("k")
    assert (picker.marked or {})["id"] == "0"
    assert picker.press("\r") == table["Enter"]
    assert {table["a"], table["n"]} == {"allow", "deny"}
