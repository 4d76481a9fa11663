"""Which repository a folder is in, and what becomes of the rest when a disk does not answer."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from remuda.boss.evidence.repository import Repositories


def test_repository_is_the_nearest_folder_with_one(tmp_path: Path) -> None:
    (tmp_path / "a" / ".git").mkdir(parents=True)
    (tmp_path / "a" / "b").mkdir()

    async def look() -> None:
        found = Repositories()
        inside, outside = str(tmp_path / "a" / "b"), str(tmp_path / "c\0")
        assert not found.is_known(inside)
        assert await found.find(inside) == found.known(inside) == str(tmp_path / "a")
        assert await found.find(outside) is None
        assert found.is_known(outside)

    asyncio.run(look())


def test_disk_that_does_not_answer_takes_one_thread_and_none_of_the_others() -> None:
    answers, looked = threading.Event(), list[str]()

    def look(cwd: str) -> str:
        looked.append(cwd)
        assert answers.wait(30)
        return cwd

    async def whole() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        found = Repositories(look)
        waiting = [asyncio.create_task(found.find(cwd)) for cwd in ("/a", "/b")]
        gone = asyncio.create_task(found.find("/c"))
        async with asyncio.timeout(20):
            while not looked:
                await asyncio.sleep(0.01)
            assert await asyncio.to_thread(int, "7") == 7
            gone.cancel()
            assert looked == ["/a"]
            answers.set()
            assert await asyncio.gather(*waiting) == ["/a", "/b"]
        assert looked == ["/a", "/b"]

    try:
        asyncio.run(whole())
    finally:
        answers.set()
