"""Lines of text that scroll: the list of agents on the left, and one agent on the right."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.text import Text
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Static

from . import detail
from .model import Dashboard


class Line(Static):
    """One line of text, drawn again only if it is another."""

    DEFAULT_CSS = "Line { text-wrap: nowrap; text-overflow: ellipsis; }"

    def show(self, text: Text) -> None:
        if text != self.content:
            self.update(text)


class LineView(ScrollView, can_focus=False):
    """Shows lines. Only those that have changed are drawn again, so that a slow link carries little."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    LineView {
        overflow-x: hidden; overflow-y: auto; scrollbar-gutter: stable; scrollbar-size-vertical: 1;
        scrollbar-background: ansi_default; scrollbar-color: ansi_bright_black;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: Sequence[Text] = ()

    def set_lines(self, lines: Sequence[Text]) -> None:
        before, self.lines = self.lines, lines
        if len(before) != len(lines):
            self.virtual_size = Size(0, len(lines))
        known, top = min(len(before), len(lines)), self.scroll_offset.y
        for number in range(top, top + self.size.height):
            if number >= known or not _is_same(before[number], lines[number]):
                self.refresh_lines(number)

    @property
    def columns(self) -> int:
        """The width of a line; 0 before the first layout."""
        return self.scrollable_content_region.width

    def render_line(self, y: int) -> Strip:
        number, width, style = y + self.scroll_offset.y, self.columns, self.rich_style
        if number >= len(self.lines):
            return Strip.blank(width, style)
        drawn = Segment.apply_style(self.lines[number].render(self.app.console), style)
        return Strip(drawn).crop_extend(0, width, style)


def _is_same(one: Text, other: Text) -> bool:
    return one is other or (one == other and one.style == other.style)


class AgentList(LineView):
    """Waiting agents, then all others, each group with a heading."""

    class Clicked(Message):
        """The user clicked on an agent."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, board: Dashboard) -> None:
        super().__init__()
        self._board = board
        self._is_old = False
        self._numbers: list[int] = []
        """For each line which agent it shows; -1 for a heading."""

    def on_resize(self, _event: events.Resize) -> None:
        self.draw(is_old=self._is_old)

    def draw(self, *, is_old: bool) -> None:
        board, self._is_old, self._numbers = self._board, is_old, []
        if not self.columns:
            return  # before the first layout: `on_resize` follows
        waiting = sum(row.item is not None for row in board.rows)
        lines: list[Text] = []
        for number, text in enumerate(detail.row_texts(board.rows, self.columns)):
            if number in (0, waiting):
                head = f"WAITING {waiting}" if number < waiting else f"AGENTS {len(board.rows) - waiting}"
                self._add(lines, Text(head, "dim"), -1)
            text.stylize("dim" if is_old else "")
            text.stylize("reverse" if number == board.at else "")
            self._add(lines, text, number)
        if not lines:
            self._add(lines, Text(_why_empty(board), "dim"), -1)
        self.set_lines(lines)
        if board.rows:
            self._scroll_into_view(self._numbers.index(board.at))

    def _add(self, lines: list[Text], text: Text, number: int) -> None:
        lines.append(text)
        self._numbers.append(number)

    def _scroll_into_view(self, line: int) -> None:
        top, height = self.scroll_offset.y, max(1, self.size.height)
        if line < top or line >= top + height:
            self.scroll_to(y=line - 1 if line < top else line - height + 1, animate=False, force=True)

    def on_click(self, event: events.Click) -> None:
        line = event.y + self.scroll_offset.y
        if line < len(self.lines) and self._numbers[line] >= 0:
            self.post_message(self.Clicked(self._numbers[line]))


def _why_empty(board: Dashboard) -> str:
    if board.filter:
        return f"nothing matches '{board.filter}'"
    return "no agents yet" if board.snapshot.at else "asking the boss …"


class DetailView(LineView):
    """One text, wrapped unless it says otherwise."""

    class Moved(Message):
        """Another part of the text is on the screen."""

    def __init__(self) -> None:
        super().__init__()
        self.subject: object = None
        """What the text is about. Another subject is shown from its beginning."""
        self._text, self._width = Text(), 0

    @property
    def is_laid_out(self) -> bool:
        return self.size.height > 0 and self.columns > 0

    @property
    def is_at_end(self) -> bool:
        return self.scroll_offset.y + self.size.height >= len(self.lines)

    def show(self, text: Text, subject: object, *, follows: bool = False) -> None:
        """Show a text. With `follows` its end stays on the screen if it was there."""
        is_new, was_at_end = subject != self.subject, self.is_at_end
        self.subject = subject
        if not _is_same(text, self._text) or text.no_wrap != self._text.no_wrap:
            self._text = text
            self._wrap()
        if follows and was_at_end:
            self.scroll_end(animate=False, immediate=True, force=True)
        elif is_new:
            self.scroll_home(animate=False, immediate=True, force=True)

    def scroll_by(self, lines: int) -> None:
        self.scroll_to(y=self.scroll_target_y + lines, animate=False, force=True)

    def _wrap(self) -> None:
        self._width = self.columns
        no_wrap = self._text.no_wrap or not self._width
        text = self._text
        self.set_lines([*(text.split("\n") if no_wrap else text.wrap(self.app.console, self._width))])

    def on_resize(self, _event: events.Resize) -> None:
        if self.columns != self._width:
            self._wrap()
        self.post_message(self.Moved())

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Moved())
