"""Our lines in tmux.conf: put in, put in again, taken out to the byte; the status segment; the keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.errors import InvalidOptions, TmuxTooOld
from remuda.tmux.bindings import Keys, conf_lines, popup_words, segment
from remuda.tmux.conf import ConfFile, conf_file, put_block, take_block

LINES = ["bind-key a", "bind-key b"]


def block(text: bytes) -> list[bytes]:
    """What stands between our marks."""
    return text.partition(b"# >>> remuda >>>")[2].partition(b"# <<< remuda <<<")[0].splitlines()[1:]


PIECES = st.sampled_from([b"set -g a b\n", b"bind x y\r\n", b"# \xff remuda", b"\n", b" ", b"\\"])
TEXTS = st.lists(PIECES, max_size=6).map(b"".join)
# Hypothesis knows the constants of the code under test, and would write our own marks.
FOREIGN = st.binary(max_size=60).filter(lambda text: b"remuda" not in text)


@given(st.none() | TEXTS | FOREIGN)
def test_put_block_and_take_block_give_any_file_again(text: bytes | None) -> None:
    once = put_block(text, LINES)
    assert once.startswith(text or b"")
    assert block(once) == [b"bind-key a", b"bind-key b"]
    assert put_block(once, LINES) == once
    assert take_block(once) == text


@given(FOREIGN, TEXTS)
def test_take_block_keeps_what_others_wrote_after_it(text: bytes, after: bytes) -> None:
    before = text + b"\n"
    assert take_block(put_block(before, LINES) + after) == before + after


def test_put_block_again_with_other_lines_changes_only_them() -> None:
    text = put_block(b"mine\n", LINES) + b"# after\n"
    changed = put_block(text, ["bind-key c"])
    assert block(changed) == [b"bind-key c"]
    assert changed.startswith(b"mine\n")
    assert changed.endswith(b"# after\n")
    assert take_block(changed) == b"mine\n# after\n"


def test_take_block_of_a_file_that_others_have_added_to_keeps_the_file() -> None:
    assert take_block(put_block(None, LINES) + b"set -g a b\n") == b"set -g a b\n"


def test_take_block_of_a_file_without_one_changes_nothing() -> None:
    assert take_block(b"# remuda\nset -g a b") == b"# remuda\nset -g a b"


WHOLE = put_block(b"", LINES)


@pytest.mark.parametrize(
    "damaged",
    [WHOLE + WHOLE, WHOLE.replace(b"# <<< remuda <<<\n", b""), b"# <<< remuda <<<\n" + WHOLE, WHOLE[1:]],
    ids=["twice", "no end", "end first", "no beginning"],
)
def test_damaged_marks_are_refused(damaged: bytes) -> None:
    with pytest.raises(InvalidOptions):
        put_block(damaged, LINES)
    with pytest.raises(InvalidOptions):
        take_block(damaged)


# ── files ──


def test_conf_file_is_the_first_that_exists_else_the_one_in_the_home(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    assert conf_file(env) == tmp_path / ".tmux.conf"
    ours = tmp_path / ".config" / "tmux" / "tmux.conf"
    ours.parent.mkdir(parents=True)
    ours.touch()
    assert conf_file(env) == ours
    elsewhere = {**env, "XDG_CONFIG_HOME": str(tmp_path / "x")}
    assert conf_file(elsewhere) == tmp_path / ".tmux.conf"
    (tmp_path / ".tmux.conf").touch()
    assert conf_file(env) == tmp_path / ".tmux.conf"


def test_conf_file_new_is_made_and_removed_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "tmux.conf"
    file = ConfFile(path)
    file.install(LINES)
    assert not path.exists()  # shown first
    file.save()
    again = ConfFile(path)
    again.install(LINES)
    assert not again.is_changed
    again.uninstall()
    again.save()
    assert not path.exists()


def test_conf_file_through_a_link_keeps_link_mode_and_bytes(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles", tmp_path / ".tmux.conf"
    real.write_bytes(b"set -g status-left '\xff'\r\nlast")
    real.chmod(0o640)
    link.symlink_to(real)
    file = ConfFile(link)
    file.install(LINES)
    file.save()
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    file.uninstall()
    file.save()
    assert real.read_bytes() == b"set -g status-left '\xff'\r\nlast"


def test_conf_file_changed_by_somebody_else_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "tmux.conf"
    path.write_bytes(b"one\n")
    file = ConfFile(path)
    file.install(LINES)
    path.write_bytes(b"two\n")
    with pytest.raises(InvalidOptions):
        file.save()
    assert path.read_bytes() == b"two\n"


# ── what stands in it ──


def test_conf_lines_bind_the_keys_and_put_the_segment_first() -> None:
    assert conf_lines(["/opt/bin/remuda"]) == [
        'bind-key -T prefix Tab run-shell -b "/opt/bin/remuda next #{client_name}"',
        'bind-key -T prefix S run-shell -b "/opt/bin/remuda skip #{client_name}"',
        'bind-key -T prefix g run-shell -b "/opt/bin/remuda popup #{client_name}"',
        'bind-key -T prefix B run-shell -b "/opt/bin/remuda return #{client_name}"',
        "if-shell -F '#{m:*remuda*segment*,#{status-right}}' ''"
        ' "set-option -gF status-right \\"##(/opt/bin/remuda segment) #{status-right}\\""',
    ]


def test_conf_lines_with_other_keys_and_without_the_segment() -> None:
    lines = conf_lines(["remuda"], Keys(next="C-n", skip="", popup=";", back=""), segment=False)
    assert [line.split(" ")[3] for line in lines] == ["C-n", "\\;"]


@pytest.mark.parametrize("word", ["/a/#{x}/remuda", "/a'b/remuda", '/a"', "/a%H", "/a)", "$HOME", "", "a\nb"])
def test_conf_lines_of_a_program_that_cannot_be_written_is_refused(word: str) -> None:
    with pytest.raises(InvalidOptions):
        conf_lines([word])


@pytest.mark.parametrize("key", ["a b", "é", "a\n"])
def test_conf_lines_of_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidOptions):
        conf_lines(["remuda"], Keys(next=key))


# ── the status line ──


@pytest.mark.parametrize(
    ("waiting", "age", "text"),
    [
        (None, None, "✗ down"), (0, None, ""), (0, 5.0, ""), (1, None, "⚠ 1"), (3, 0.0, "⚠ 3 <1m"),
        (3, 59.9, "⚠ 3 <1m"), (3, 60.0, "⚠ 3 1m"), (3, 3599.0, "⚠ 3 59m"), (3, 3600.0, "⚠ 3 1h"),
        (12, 86399.0, "⚠ 12 23h"), (12, 200000.0, "⚠ 12 2d"),
    ],
)  # fmt: skip
def test_segment_shows_down_empty_and_how_many_wait(waiting: int | None, age: float, text: str) -> None:
    assert segment(waiting, age, styled=False) == text


def test_segment_styled_ends_in_the_default_style() -> None:
    assert segment(None) == "#[fg=red]✗ down#[default]"
    assert segment(2) == "#[fg=yellow,bold]⚠ 2#[default]"
    assert segment(0) == ""


# ── a popup ──


def test_popup_words_pass_the_program_as_it_is_and_escape_what_is_a_format() -> None:
    words = popup_words("/dev/pts/1", ["prog", "a b"], "3.3a", title="#1")
    start = ["display-popup", "-E", "-c", "/dev/pts/1", "-w", "80%", "-h", "80%", "-T", " ##1 "]
    assert words == [*start, "--", "env", "prog", "a b"]


def test_popup_words_of_an_older_tmux_have_no_title_or_are_refused() -> None:
    assert "-T" not in popup_words("c", ["prog"], "3.2a", title="x")
    with pytest.raises(TmuxTooOld):
        popup_words("c", ["prog"], "3.1")
