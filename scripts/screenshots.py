"""Make the pictures of the page in docs/pictures: a real boss, scripted agents, a real browser.

Run it after a change of the page: `make screenshots`. With `--all DIR` it writes every view at both sizes,
light and dark, into DIR, to look at. Its projects are in /srv, in a namespace in which that is empty: the
pictures show no path of this machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from playwright.sync_api import Page, ViewportSize, expect  # noqa: E402

from remuda.keeper.start import start_session  # noqa: E402
from support.browser import PHONE, WIDE, PageBench, live, open_browser, ready, tool  # noqa: E402
from support.keeper import Kept, make_spec, until  # noqa: E402

_PLACE = Path("/srv")
_PLACED = "REMUDA_IN_PLACE"
PICTURES = ROOT / "docs/pictures"
SHOWN = (
    ("queue-wide-light", WIDE, "light", "queue/cart"),
    ("queue-phone-dark", PHONE, "dark", "queue/cart"),
    ("agents-wide-dark", WIDE, "dark", "agents"),
    ("session-wide-light", WIDE, "light", "session/receipts/conversation"),
    ("messages-wide-light", WIDE, "light", "session/translate/messages"),
)
VIEWS = (
    *(
        "queue",
        "queue/receipts",
        "queue/cart",
        "queue/search",
        "queue/release",
        "agents",
        "usage",
        "statistics",
    ),
    *("session/receipts/conversation", "session/translate/messages", "session/receipts/changes"),
    *("session/cart/evidence", "session/cart/terminal"),
)
_CART = '''"""The cart of a customer."""


def total(items):
    return sum(item.price for item in items)


def is_empty(items):
    return not items
'''
_ANSWER = """The cart now counts items and takes a discount.

**What changed**
- `total()` multiplies price by count, and subtracts `discount`
- two new tests in `test_cart.py`; all **42 tests pass**

| case | before | now |
| --- | --- | --- |
| two of the same | 9.90 | 19.80 |
| 10 % discount | – | 17.82 |

Shall I also show the discount on the receipt?"""
_PLAN = "`total()` ignores how many of an item are in the cart. I multiply by `count`, and add the discount."
_FOUND = "The site has 40,000 pages. Two indexes fit; they differ in what has to be installed."
_READY = "All 42 tests pass and the changelog names 2.4. I can publish it now."
_QUESTION = {
    "question": "Which index should the search use?",
    "header": "Index",
    "multiSelect": False,
    "options": [
        {"label": "SQLite FTS5", "description": "No server; 2 ms on our 40,000 pages"},
        {"label": "Tantivy", "description": "Faster, but one more dependency"},
    ],
}


def begin(bench: PageBench, other: Path) -> None:
    """Start agents of which some wait, and some work."""
    project = bench.project
    (project / "cart.py").write_text(_CART)
    for words in (("init", "-q", "-b", "main"), ("add", "."), (*_AUTHOR, "commit", "-qm", "cart")):
        subprocess.run(["git", *words], cwd=project, check=True)
    bench.agent("receipts", env={"MOCK_RESPONSE": _ANSWER}).send(
        "Count items in the cart and support a discount."
    )
    (project / "test_cart.py").write_text(
        "from cart import total\n\n\ndef test_total_of_nothing():\n    assert total([]) == 0\n"
    )
    edits = bench.agent("cart")
    edits.send("List what is in this folder.")
    old = "def total(items):\n    return sum(item.price for item in items)\n"
    new = (
        "def total(items, discount=0):\n    subtotal = sum(item.price * item.count for item in items)\n"
        "    return subtotal * (1 - discount)\n"
    )
    path = str(project / "cart.py")
    edits.put(tool("Edit", say=_PLAN, file_path=path, old_string=old, new_string=new))
    search = bench.agent("search", cwd=str(other))
    search.put(tool("AskUserQuestion", say=_FOUND, questions=[_QUESTION]))
    release = bench.agent("release", cwd=str(other))
    release.put(tool("Bash", say=_READY, command="make release VERSION=2.4 && git push --tags"))
    works = bench.agent("translate", cwd=str(other))
    works.send("List the pages that have no German translation.")
    works.put("SLOW 600")
    works.put("Then translate the new page on discounts.")
    bench.agent("spare")
    until(lambda: len(bench.boss.waiting()) >= 4, "items in the queue")


_AUTHOR = ("-c", "user.name=Ana", "-c", "user.email=ana@example.invalid")


def main(arguments: Sequence[str]) -> int:
    if _PLACED not in os.environ:
        mount = f'mount -t tmpfs none {_PLACE} && {_PLACED}=1 exec "$@"'
        again = [sys.executable, sys.argv[0], *arguments]
        os.execvp("unshare", ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh", *again])
    everything = Path(arguments[1]) if arguments[:1] == ["--all"] else None
    home, folder = Path(tempfile.mkdtemp(prefix="rmd-", dir="/tmp")), _PLACE
    begun: list[Kept] = []

    def start(name: str, argv: Sequence[str], **more: Any) -> Kept:
        spec = make_spec(home / "sessions", name, argv, **more)
        begun.append(Kept(spec, start_session(spec)))
        return begun[-1]

    os.environ["REMUDA_HOME"] = str(home)
    try:
        with open_browser() as browser:
            bench = PageBench(start, home, folder, browser)
            (folder / "docs").mkdir()
            bench.boss.start()
            begin(bench, folder / "docs")
            take_pictures(bench, everything)
            bench.close()
    finally:
        for kept in begun:
            kept.end()
        shutil.rmtree(home, ignore_errors=True)
    return 0


def take_pictures(bench: PageBench, everything: Path | None) -> None:
    if everything is None:
        for name, size, scheme, view in SHOWN:
            _picture(bench, size, scheme, (view,), lambda _view, name=name: PICTURES / f"page-{name}.png")
        return
    for scheme in ("light", "dark"):
        for size, word in ((WIDE, "wide"), (PHONE, "phone")):
            _picture(
                bench,
                size,
                scheme,
                VIEWS,
                lambda view, end=f"{word}-{scheme}": everything / f"{view.replace('/', '-')}-{end}.png",
            )


def _picture(bench: PageBench, size: ViewportSize, scheme: str, views: Sequence[str], path: Any) -> None:
    page = bench.open(size, color_scheme=scheme)
    for view in views:
        _show(bench, page, view)
        page.screenshot(path=path(view))
    page.context.close()


def _show(bench: PageBench, page: Page, view: str) -> None:
    kind, _, rest = view.partition("/")
    name, _, tab = rest.partition("/")
    if name:
        item = next((one for one in bench.boss.waiting() if one["session"]["name"] == name), None)
        session = next(one for one in bench.boss.client.get("sessions")["sessions"] if one["name"] == name)
        view = f"queue/{(item or {})['id']}" if kind == "queue" else f"session/{session['id']}/{tab}"
    page.goto(f"{bench.address}/#/{view}")
    live(page)
    expect(page.locator("main")).not_to_contain_text("Loading")
    if kind == "queue" and name and name not in ("receipts", "search"):
        ready(page)
    page.wait_for_timeout(1200)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
