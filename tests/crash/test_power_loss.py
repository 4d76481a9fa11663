"""The power goes at any instant: with everything that was not synced gone, nothing accepted is lost.

And the proof that this test sees: the same with one fsync taken out of the program, or put too late.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from remuda.errors import RemudaError
from remuda.inbox import stop_hook
from support import counts
from support import power_loss as power
from support.crash import PAYLOAD, SOURCE, Box, Scenario, check, nothing, quick_folder
from support.scenarios import HOOK, JOURNAL

NEW_FOLDER = "print(journal.Inbox(folder + '/deep/er').put('new').id, flush=True)"
SCENARIOS = {**HOOK, **JOURNAL, "put into a new folder": Scenario(nothing, script=NEW_FOLDER)}


class Lost(AssertionError):
    """What a loss of power did, and when."""


def cut_power_everywhere(
    tmp_path: Path, scenario: Scenario, source: Path = SOURCE, step: int = counts.POWER_STEP
) -> int:
    """How many states were tried. Raises `Lost`."""
    with quick_folder(tmp_path) as work:
        box = Box(work / "box")
        scenario.prepare(box)
        expected = box.expected() if stop_hook.exists(box.files.inbox) else set()
        disk = power.Disk(box.folder)
        calls = power.record(scenario.argv(box, source), work / "trace", PAYLOAD)
        seen: set[tuple[bytes, int]] = set()
        for number, call in enumerate(calls):
            disk.step(*call)
            for state in disk.states():
                key = (disk.said, hash(repr(state)))
                if key in seen:
                    continue
                seen.add(key)
                if len(seen) % step == 0 or number == len(calls) - 1:
                    try:
                        _try(work, box, scenario, expected, disk.said, state)
                    except (AssertionError, stop_hook.InboxError, RemudaError, OSError) as error:
                        raise Lost(f"after {call[0]} ({number} of {len(calls)}): {error!r}") from error
        return len(seen)


def _try(
    work: Path, box: Box, scenario: Scenario, expected: set[str], said: bytes, state: dict[str, bytes | None]
) -> None:
    there = work / "after"
    try:
        power.lay_out(state, box.folder, there)
        put = "print(" in scenario.script
        again = Box(there / "deep" / "er" if (there / "deep" / "er").exists() else there)
        again.handed = [*box.handed]
        again.said = said.decode()
        if said and not scenario.script:
            again.handed.append(stop_hook.decode_json(said.decode())["reason"])
        scenario.after(again)
        again.settle()
        check(again, expected)
        scenario.check(again)
        if put and said:
            ended = {str(one["id"]) for one in again.receipts() if one["stage"] == "acked"}
            assert set(said.decode().split()) <= ended, "accepted, and lost"
    finally:
        shutil.rmtree(there, ignore_errors=True)


@pytest.mark.soak
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_power_loss_at_any_call_loses_nothing(tmp_path: Path, scenario: str) -> None:
    assert cut_power_everywhere(tmp_path, SCENARIOS[scenario]) > 3


SYNC_FOLDER = "        posix.fsync(fd)\n    finally:\n        posix.close(fd)\n\n\ndef remove_file"
REPLACE = (
    "                posix.fsync(fd)\n        finally:\n            posix.close(fd)\n"
    "        posix.rename(temporary, path)\n"
)
LATE = (
    "                pass\n        finally:\n            posix.close(fd)\n"
    "        posix.rename(temporary, path)\n"
    "        fd = posix.open(path, O_RDONLY)\n        posix.fsync(fd)\n        posix.close(fd)\n"
)
NEVER = REPLACE.replace("posix.fsync(fd)", "pass")
WRITTEN = "            os.fsync(fd)\n            # While it is open"
MUTATIONS = {
    "no folder is synced": (
        "acknowledges and delivers",
        "stop_hook.py",
        SYNC_FOLDER,
        SYNC_FOLDER.replace("posix.fsync(fd)", "pass"),
    ),
    "a file is synced after its rename": ("acknowledges and delivers", "stop_hook.py", REPLACE, LATE),
    "a rewritten file is synced after its rename": ("compact", "stop_hook.py", REPLACE, LATE),
    "a receipt is not synced": (
        "acknowledges and delivers",
        "stop_hook.py",
        "            posix.fsync(fd)\n        finally:\n            posix.close(fd)\n        if not size:",
        "            pass\n        finally:\n            posix.close(fd)\n        if not size:",
    ),
    "a message is not synced": ("put", "writer.py", WRITTEN, WRITTEN.replace("os.fsync(fd)", "pass")),
    "the inbox's name is not synced": (
        "put beside a key",
        "writer.py",
        "            self._files.sync()\n",
        "",
    ),
    "the key is not synced": ("put a command into nothing", "stop_hook.py", REPLACE, NEVER),
    "the key's name is not synced": (
        "put a command into nothing",
        "writer.py",
        "self._files.replace(self._files.key",
        "self._files.put_in_place(self._files.key",
    ),
    "a new folder's name is not synced": (
        "put into a new folder",
        "journal.py",
        "            stop_hook.sync_folder(str(one.parent))\n",
        "            pass\n",
    ),
    "letters are taken away before their messages are back": (
        "redrive",
        "writer.py",
        WRITTEN,
        WRITTEN.replace("os.fsync(fd)", "pass"),
    ),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_power_loss_with_an_fsync_gone_or_too_late_is_seen(tmp_path: Path, mutation: str) -> None:
    scenario, name, old, new = MUTATIONS[mutation]
    shutil.copytree(SOURCE / "remuda", tmp_path / "remuda", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "remuda" / "inbox" / name
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    with pytest.raises(Lost):
        cut_power_everywhere(tmp_path, SCENARIOS[scenario], tmp_path, step=1)
