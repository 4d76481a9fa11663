"""The table of features in the docs is made of the marks on tests."""

from __future__ import annotations

from support.feature_table import AGENTS, FEATURES, PAGE, Shown, marks, page, table


def test_page_shows_the_features_that_tests_show() -> None:
    text = PAGE.read_text()
    assert text == page(text, table(list(marks()))), "python tests/support/feature_table.py"


def test_marks_are_about_features_and_agents_of_the_table() -> None:
    found = list(marks())
    assert {one.feature for one in found} == set(FEATURES)
    assert {one.agent for one in found} == set(AGENTS)


def test_table_says_yes_refused_or_nothing() -> None:
    made = table([Shown("claude", FEATURES[1], False, "test_a"), Shown("codex", FEATURES[1], True, "test_b")])
    assert f"| {FEATURES[1]} | yes | refused | - | - |" in made
