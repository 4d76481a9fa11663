"""Being told of a file that appears below folders that do not exist yet."""

from __future__ import annotations

import asyncio
from pathlib import Path

from remuda.inotify import Inotify
from remuda.keeper.watch import FileWatch

PATIENCE = 10.0


class Racing(Inotify):
    """The kernel's, with somebody who makes a folder in the moment after it was looked for."""

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


def test_file_is_told_of_when_its_folder_appears_between_a_look_and_a_watch(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    (tmp_path / "a").mkdir()
    assert asyncio.run(is_told(path, tmp_path / "a" / "b"))


def test_file_is_told_of_when_a_folder_above_it_appears_between_a_look_and_a_watch(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c" / "file"
    assert asyncio.run(is_told(path, tmp_path / "a"))
