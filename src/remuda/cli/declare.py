"""Commands whose options are declared without click, which takes longer to load than such a command runs.

A command is declared with the words of click: `@declare.command`, `@declare.option`, `@declare.argument`.
What is declared is used twice: `to_click` makes the command of click, which has the help, the completion and
the errors; `parse` reads the usual command lines by itself, and leaves all others to click. A shared option
may be used on a function of either kind.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    import click

    F = TypeVar("F", bound=Callable[..., Any])

_PARAMETERS = "__declared__"
_KNOWN = {"type", "default", "is_flag", "required", "metavar", "help", "show_default", "shell_complete"}
"""Settings that `parse` understands, or need not know. It leaves parameters with others to click."""


class ClickType:
    """A type of click, made when it is needed: `ClickType("IntRange", 1, 9)`. `parse` leaves it to click."""

    def __init__(self, name: str, *values: Any, **settings: Any) -> None:
        self._name, self._values, self._settings = name, values, settings

    def to_click(self) -> Any:
        import click

        return getattr(click, self._name)(*self._values, **self._settings)


class Parameter:
    """One option or argument, with the names and settings that click takes for it."""

    def __init__(self, kind: str, names: tuple[str, ...], settings: dict[str, Any]) -> None:
        self.kind, self.names, self.settings = kind, names, settings
        self.is_flag = bool(settings.get("is_flag"))
        long = [one for one in names if one.startswith("--")]
        own = [one for one in names if not one.startswith("-")]
        self.name = (own or [one.lstrip("-").replace("-", "_") for one in long or names])[0]

    @property
    def is_usual(self) -> bool:
        return self.settings.keys() <= _KNOWN and not any("/" in one for one in self.names)

    @property
    def is_required(self) -> bool:
        optional = self.kind == "option" or "default" in self.settings
        return bool(self.settings.get("required", not optional))

    def default(self) -> Any:
        value = self.settings.get("default", False if self.is_flag else None)
        return value if value is None else self.convert(value)

    def convert(self, value: Any) -> Any:
        kind = self.settings.get("type")
        return value if kind is None or isinstance(kind, ClickType) else kind(value)

    def on_click(self, function: F) -> F:
        import click

        settings = {
            key: value.to_click() if isinstance(value, ClickType) else value
            for key, value in self.settings.items()
        }
        decorate: Callable[[F], F] = getattr(click, self.kind)(*self.names, **settings)
        return decorate(function)


class DeclaredCommand:
    """A command: its function, and its parameters in the order of the help."""

    def __init__(self, name: str, callback: Callable[..., Any]) -> None:
        self.name = name
        self.callback = callback
        self.parameters: list[Parameter] = list(reversed(vars(callback).get(_PARAMETERS, [])))
        self._click: click.Command | None = None

    def to_click(self) -> click.Command:
        """Return the same command for click, which knows every way to call it."""
        if self._click is None:
            import click

            vars(self.callback).pop("__click_params__", None)  # see `_declare`
            function = self.callback
            for one in reversed(self.parameters):
                function = one.on_click(function)
            self._click = click.command(self.name)(function)
        return self._click


def command(name: str) -> Callable[[Callable[..., Any]], DeclaredCommand]:
    return lambda function: DeclaredCommand(name, function)


def option(*names: str, **settings: Any) -> Callable[[F], F]:
    return _declare(Parameter("option", names, settings))


def argument(*names: str, **settings: Any) -> Callable[[F], F]:
    return _declare(Parameter("argument", names, settings))


def _declare(parameter: Parameter) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        vars(function).setdefault(_PARAMETERS, []).append(parameter)
        # For a function that becomes a command of click itself: its module has loaded click before.
        return parameter.on_click(function) if "click" in sys.modules else function

    return decorate


def usage_error(message: str) -> Exception:
    """Return the error of a command line in which no single option is wrong. The usage is printed with it."""
    import click

    return click.UsageError(message)


def bad_value(message: str) -> Exception:
    """Return the error for a converter of an option: its value is not understood."""
    import click

    return click.BadParameter(message)


# ── the usual command lines ──


def parse(command: DeclaredCommand, words: Sequence[str]) -> dict[str, Any] | None:
    """Return what click would call the command's function with. None for a line that click must read.

    Read here are flags and options with their full names, their values, and arguments. Everything else is
    left to click, also what is wrong: it says how.
    """
    if not all(one.is_usual for one in command.parameters):
        return None
    given = _split(command, words)
    if given is None:
        return None
    try:
        return {
            one.name: one.convert(given[one.name]) if one.name in given else one.default()
            for one in command.parameters
        }
    except Exception:  # noqa: BLE001 - a value that its converter refuses: click reports it
        return None


def _split(command: DeclaredCommand, words: Sequence[str]) -> dict[str, Any] | None:
    options = {name: one for one in command.parameters if one.kind == "option" for name in one.names}
    arguments = [one for one in command.parameters if one.kind == "argument"]
    given: dict[str, Any] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-") or word == "-":
            if not arguments:
                return None
            given[arguments.pop(0).name] = word
            continue
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        one = options.get(name)
        if one is None or isinstance(one.settings.get("type"), ClickType) or (one.is_flag and equals):
            return None
        if not one.is_flag and not equals:
            if not left or left[0].startswith("-"):
                return None
            value = left.pop(0)
        given[one.name] = True if one.is_flag else value
    return None if any(one.is_required for one in arguments) else given
