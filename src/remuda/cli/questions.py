"""An agent's questions on the command line: shown with their options, and answered one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .output import ask_text, cells, echo, flat

Question = Mapping[str, Any]


def questions_of(approval: Mapping[str, Any]) -> list[Question]:
    """Empty for a request that asks no question, or none that can be read."""
    found = approval["input"].get("questions") if approval["reason"] == "question" else None
    questions = found if isinstance(found, list) else []
    return questions if all(isinstance(one, dict) for one in questions) else []


def question_lines(question: Question) -> Iterator[str]:
    several = " (you can choose several)" if question.get("multiSelect") else ""
    yield f"  {question.get('question', '')}{several}"
    options = _options(question)
    width = max((cells(_label(one)) for one in options), default=0)
    for number, one in enumerate(options, 1):
        name, more = flat(_label(one)), flat(str(one.get("description") or ""))
        yield f"    {number}  {name}{' ' * (width - cells(name))}  {more}".rstrip()


def ask_answers(questions: list[Question]) -> dict[str, str | list[str]]:
    """What the user says to each, by its number."""
    found: dict[str, str | list[str]] = {}
    for number, question in enumerate(questions, 1):
        for line in question_lines(question):
            echo(line)
        several = bool(question.get("multiSelect"))
        what = "numbers, separated by commas" if several else "a number"
        said = ask_text(f"{what}, or your own words" if _options(question) else "your answer")
        found[str(number)] = _meant(question, said)
    return found


def _meant(question: Question, said: str) -> str | list[str]:
    options = _options(question)
    words = [one.strip() for one in said.split(",")] if question.get("multiSelect") else [said.strip()]
    if all(one.isdecimal() and 1 <= int(one) <= len(options) for one in words):
        chosen = [_label(options[int(one) - 1]) for one in words]
        return chosen if question.get("multiSelect") else chosen[0]
    return said.strip()


def _options(question: Question) -> list[Mapping[str, Any]]:
    found = question.get("options")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _label(option: Mapping[str, Any]) -> str:
    return str(option.get("label", ""))
