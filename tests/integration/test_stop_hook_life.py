"""How the Stop hook waits, and what it costs to start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from support.hooks import HOOK, SYS_SIGTIMEDWAIT, Box, wait_until


def test_persist_answers_a_plain_append_by_another_process(box: Box) -> None:
    box.put("first\n")
    assert box.tick("--mode", "persist") == "first"
    waiting = box.start("--mode", "persist")
    wait_until(waiting, SYS_SIGTIMEDWAIT)
    assert box.flags() == set()  # what was answered is acknowledged before the wait
    subprocess.run(["sh", "-c", 'echo second >> "$0"', str(box.inbox)], check=True)
    ran = box.finish(waiting)
    assert (ran.code, ran.reason, ran.err) == (0, "second", "")


def test_persist_notices_an_inbox_that_is_made_later(box: Box) -> None:
    waiting = box.start("--mode", "persist")
    wait_until(waiting, SYS_SIGTIMEDWAIT)
    box.put("alpha\n")
    assert box.finish(waiting).reason == "alpha"


def test_persist_that_is_interrupted_ends_without_a_traceback(box: Box) -> None:
    waiting = box.start("--mode", "persist")
    wait_until(waiting, SYS_SIGTIMEDWAIT)
    waiting.send_signal(signal.SIGINT)
    ran = box.finish(waiting)
    assert (ran.code, ran.out, ran.err) == (130, "", "")


def test_persist_hands_out_a_line_that_never_ends(box: Box) -> None:
    box.put("no newline")
    os.utime(box.inbox, (time.time() + 1, time.time() + 1))
    waiting = box.start("--mode", "persist")
    wait_until(waiting, SYS_SIGTIMEDWAIT)
    os.utime(box.inbox, (time.time() - 3, time.time() - 3))
    assert box.finish(waiting).reason == "no newline"


def test_persist_ignores_other_files_of_the_folder(box: Box) -> None:
    waiting = box.start("--mode", "persist")
    wait_until(waiting, SYS_SIGTIMEDWAIT)
    for number in range(100):
        box.path("noise").write_text(str(number))
    assert waiting.poll() is None
    box.put("alpha\n")
    assert box.finish(waiting).reason == "alpha"


ALLOWED_MODULES = {"errno", "fcntl", "posix", "select", "sys", "time"} | {
    "_json",
    "_operator",
    "_sha256",
    "_sha2",
    "_signal",
}


def test_installed_hook_exits_without_freeing_everything_piece_by_piece(box: Box) -> None:
    box.envelope(id="a", prompt="alpha")
    command = [sys.executable, "-I", "-S", "-v", str(HOOK.with_name("stop.py")), "--inbox", str(box.inbox)]
    ran = subprocess.run(command, input="{}", capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout)["reason"] == "alpha"
    assert "# cleanup" not in ran.stderr  # what Python writes then, which takes 2 ms


@pytest.mark.parametrize("words", [[], ["--mode", "persist", "--wait", "0.001"], ["recover"]])
def test_only_builtin_and_extension_modules_are_imported(box: Box, words: list[str]) -> None:
    box.envelope(id="a", prompt="alpha")
    assert box.tick(payload={"session_id": "s"}) == "alpha"
    script = (
        "import sys; before = set(sys.modules)\n"
        f"sys.argv = {[str(HOOK), *words, '--inbox', str(box.inbox)]!r}\n"
        "source = open(sys.argv[0]).read()\n"
        "names = {'__name__': 'stop_hook'}\n"
        "exec(compile(source, sys.argv[0], 'exec'), names)\n"
        "try: names['main']()\n"
        "except SystemExit: pass\n"
        "sys.stderr.write('\\nMODULES ' + ' '.join(sorted(set(sys.modules) - before)))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script],
        input=json.dumps({"session_id": "s", "last_assistant_message": "so"}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Traceback" not in ran.stderr
    imported = set(ran.stderr.rpartition("MODULES ")[2].split())
    assert imported <= ALLOWED_MODULES
    assert "_json" in imported
