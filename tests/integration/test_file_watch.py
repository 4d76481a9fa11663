"""Being told of a file that appears below folders that do not exist yet, and when no more may be watched."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from remuda.inotify import Inotify
from remuda.keeper.watch import FileWatch

PATIENCE = 10.0


class Racing(Inotify):
    """The kernel's, with someone who makes a folder in the moment after it was looked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def add(self, path: Path, mask: int) -> int | None:
        number = super().add(path, mask)
        if number is None and path == self._folder:
            self._folder.mkdir()
        return number


async def is_told(path: Path, made_in_between: Path) -> bool:
    seen = asyncio.Event()
    watched = FileWatch(path, lambda: seen.set() if path.exists() else None, Racing(made_in_between))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("here")
        async with asyncio.timeout(PATIENCE):
            await seen.wait()
    except TimeoutError:
        return False
    finally:
        watched.close()
    return True


def test_file_is_reported_when_its_folder_appears_between_a_look_and_a_watch(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    (tmp_path / "a").mkdir()
    assert asyncio.run(is_told(path, tmp_path / "a" / "b"))


def test_file_is_reported_when_a_folder_above_it_appears_between_a_look_and_a_watch(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c" / "file"
    assert asyncio.run(is_told(path, tmp_path / "a"))


SCRIPT = """
import asyncio, sys
from pathlib import Path
from remuda.boss.evidence.watches import Watches
from remuda.inbox.consumer import Consumer
from remuda.inbox.journal import Inbox
from remuda.inbox import receipts
from remuda.inotify import Inotify
from remuda.keeper.watch import watch

folder = Path(sys.argv[1])
path = folder / "file"

async def told():
    came, wanted = asyncio.Event(), None
    watched = watch(path, lambda: came.set() if path.exists() and path.read_text() == wanted else None)
    print(type(watched).__name__)
    for wanted in ("made", "and changed"):
        came.clear()
        path.write_text(wanted)
        async with asyncio.timeout(PATIENCE):
            await came.wait()
    watched.close()
""".replace("PATIENCE", str(PATIENCE))


def with_watches(number: int, folder: Path, script: str) -> list[str]:
    """What a script prints that may have this many watches."""
    limit = 'echo "$1" > /proc/sys/user/max_inotify_watches && exec "$2" -c "$3" "$4"'
    words = ["unshare", "-r", "sh", "-c", limit, "sh", str(number), sys.executable, SCRIPT + script]
    ran = subprocess.run([*words, str(folder)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_file_is_looked_at_when_nothing_may_be_watched(tmp_path: Path) -> None:
    assert with_watches(0, tmp_path, "asyncio.run(told())") == ["PolledWatch"]


def test_file_is_looked_at_when_nothing_more_may_be_watched_later(tmp_path: Path) -> None:
    """The one watch there is has the folder, in which the file then appears."""
    assert with_watches(1, tmp_path, "asyncio.run(told())") == ["FileWatch"]


def test_message_is_followed_when_nothing_may_be_watched(tmp_path: Path) -> None:
    script = """
receipts._LONGEST_WAIT = 3600.0
with Inbox(folder) as inbox:
    message = inbox.put("hello").id
consumer = Consumer(folder, "a test")
consumer.open()
following = receipts.follow(folder, message)
print(next(following).stage)
consumer.lease("test")
print(next(following).stage)
"""
    assert with_watches(0, tmp_path, script) == ["accepted", "written"]


def test_absence_is_distinguished_from_a_limit_that_is_reached(tmp_path: Path) -> None:
    script = """
inotify = Inotify()
print(inotify.add(folder / "none", 2), inotify.add(Path("/dev/null/none"), 2))
try:
    inotify.add(folder, 2)
except OSError as error:
    print(error.strerror)
"""
    assert with_watches(0, tmp_path, script) == ["None None", "no more inotify watches are allowed"]


def test_boss_has_no_watch_when_none_is_allowed(tmp_path: Path) -> None:
    script = """
async def watched():
    watches = Watches()
    print(watches.folder(folder, print))
    watches.close()
asyncio.run(watched())
"""
    assert with_watches(0, tmp_path, script) == ["None"]
