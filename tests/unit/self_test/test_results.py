"""Results of self-tests: found again by the binary, and what follows from them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuda.errors import NotSafe
from remuda.self_test.promises import PROMISES, PromiseResult, PromiseVerdict, find_promise
from remuda.self_test.results import SelfTestResult, find_result, find_standing, save
from remuda.tried_program import check_program, digest_of, stamp_of, tried_folder


@pytest.fixture
def binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program named `claude`, the only one on the PATH."""
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "remuda"))
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return write(folder / "claude", "version one")


def write(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n# {text}\n")
    path.chmod(0o755)
    return path


def result_of(binary: Path, **broken: str) -> SelfTestResult:
    outcomes = [
        PromiseResult(
            one,
            PromiseVerdict.FAILS if one.key in broken else PromiseVerdict.HOLDS,
            broken.get(one.key, "seen"),
        )
        for one in PROMISES
    ]
    return SelfTestResult(
        agent="claude",
        program="Claude Code",
        version="9.9.9",
        digest=digest_of(binary),
        binary=str(binary),
        stamp=stamp_of(binary),
        at=1000.0,
        offline="in a namespace",
        remuda="0.3.0",
        outcomes=tuple(outcomes),
        words=("its words",),
    )


def test_saved_result_is_found_again_as_it_was(binary: Path) -> None:
    save(result_of(binary, print="no usage"))
    assert find_result("claude", binary) == result_of(binary, print="no usage")
    assert find_result("codex", binary) is None


def test_result_belongs_to_the_contents_of_the_binary_and_not_to_its_name(binary: Path) -> None:
    save(result_of(binary))
    copied = write(binary.with_name("copy"), "version one")
    assert find_result("claude", copied) == result_of(binary)
    write(binary, "version two")  # the same size
    os.utime(binary, ns=(0, 0))
    assert find_result("claude", binary) is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"agent": "claude"}', '{"stamp": "no"}'])
def test_damaged_result_counts_as_none(binary: Path, text: str) -> None:
    save(result_of(binary))
    (path,) = tried_folder().iterdir()
    path.write_text(text)
    assert find_result("claude", binary) is None


def test_outcome_of_another_version_of_remuda_is_passed_over() -> None:
    assert PromiseResult.read({"promise": "new one", "verdict": "holds"}) is None
    assert PromiseResult.read({"promise": "exact", "verdict": "perhaps"}) is None
    kept = PromiseResult(find_promise("exact"), PromiseVerdict.HOLDS, "seen", 1.5)
    assert PromiseResult.read(kept.document()) == kept


def test_new_version_that_npm_starts_by_the_same_script_counts_as_another(binary: Path) -> None:
    package = binary.parent / "package.json"
    package.write_text('{"version": "1.0.1"}')
    save(result_of(binary))
    assert find_result("claude", binary) == result_of(binary)
    package.write_text('{"version": "1.0.2"}')
    assert find_result("claude", binary) is None


def test_standing_says_never_tried_then_what_does_not_hold(binary: Path) -> None:
    standing = find_standing("claude")
    assert standing is not None
    assert "never tried here" in standing.words
    save(result_of(binary))
    standing = find_standing("claude")
    assert standing is not None
    assert standing.level == "ok"
    save(result_of(binary, print="no usage"))
    standing = find_standing("claude")
    assert standing is not None
    assert (standing.level, "tokens and costs of 'print' may be missing" in standing.words) == ("note", True)


def test_only_a_broken_promise_about_safety_is_refused(binary: Path) -> None:
    check_program(str(binary))
    for promise in PROMISES:
        save(result_of(binary, **{promise.key: "seen"}))
        if promise.safety:
            with pytest.raises(NotSafe, match=f"Claude Code 9.9.9: does not hold: .*{promise.follows}"):
                check_program(str(binary))
            check_program(str(binary), "codex")  # it was tried as another agent
        else:
            check_program(str(binary))
    check_program(str(binary.with_name("other")))


def test_agent_without_a_self_test_and_one_that_is_not_installed_have_no_standing(binary: Path) -> None:
    assert find_standing("demo") is None
    assert find_standing("simple", ["sh"]) is None
    binary.unlink()
    assert find_standing("claude") is None
