"""Slash commands, and ``!`` commands of the shell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from . import records
from .composer import SlashCommand
from .dialog import Dialog
from .layout import DIM, WARN
from .stage import Stage

_HELP = """\
! for shell mode · / for commands · @ for files · shift+tab to change the mode · esc to interrupt

Prompts that do something here: RUNBASH cmd · TOOL {json} · SLOW secs · THINK secs · err 529 · LINES n"""


class Commands:
    """Runs slash commands. ``leave`` ends the program."""

    def __init__(self, stage: Stage, leave: Callable[[str], None]) -> None:
        self._stage = stage
        self._leave = leave
        self._known: dict[str, Callable[[str], Awaitable[None]]] = {
            "clear": self._clear,
            "new": self._clear,
            "reset": self._clear,
            "exit": self._exit,
            "quit": self._exit,
            "compact": self._compact,
            "help": self._help,
            "cost": self._cost,
            "model": self._model,
        }

    async def run(self, command: SlashCommand) -> None:
        """Run a command, or say that there is none of that name."""
        known = self._known.get(command.name)
        if known is not None:
            self._stage.session.new_prompt()
            await known(command.arguments)
            return
        self._complain(f"Unknown command: /{command.name}")
        if command.arguments:
            self._complain(f"Args from unknown skill: {command.arguments}")

    def _complain(self, text: str) -> None:
        self._stage.face.show(text, "● ", WARN)
        transcript = self._stage.session.transcript
        if transcript.leaf is not None:
            transcript.add(records.informational(text), both_ids=False)

    async def _clear(self, arguments: str) -> None:
        stage = self._stage
        await stage.fire("SessionEnd", {"reason": "clear"}, "clear")
        stage.session.restart()
        stage.face.report(stage.session.id)
        stage.face.view.blocks.clear()
        stage.face.show("/clear", "❯ ")
        stage.session.transcript.helper("mode", {"mode": "normal"})
        stage.session.note_snapshot()
        for line in records.local_command("clear", arguments, ""):
            stage.session.transcript.add(line, both_ids=False)
        await stage.fire("SessionStart", {"source": "clear"}, "clear")

    async def _exit(self, _arguments: str) -> None:
        self._leave("prompt_input_exit")

    async def _compact(self, arguments: str) -> None:
        stage, trigger = self._stage, {"trigger": "manual"}
        await stage.fire("PreCompact", {**trigger, "custom_instructions": arguments or None}, "manual")
        summary = f"A made-up summary of {stage.session.said} answers."
        started = {"source": "compact", "model": stage.session.model}
        await stage.fire("SessionStart", started, "compact")
        await stage.fire("PostCompact", {**trigger, "compact_summary": summary}, "manual")
        stage.face.show("/compact", "❯ ")
        stage.face.show("Compacted", "  ⎿  ", DIM)

    async def _help(self, _arguments: str) -> None:
        await self._stage.face.ask(
            Dialog([" Help", "", *_HELP.split("\n"), ""], ["Close"], "Esc to cancel"), "dialog open"
        )

    async def _cost(self, _arguments: str) -> None:
        self._stage.face.show("/cost", "❯ ")
        self._stage.face.show("Total cost: $0.00 (nothing here costs anything)", "  ⎿  ", DIM)

    async def _model(self, wanted: str) -> None:
        stage = self._stage
        old = stage.session.model
        fields = {
            "from_model": old,
            "to_model": wanted or old,
            "requested_model": wanted,
            "source": "command",
            "context_tokens": 0,
            "prompt_cache_warm": False,
            "cache_ttl": "5m",
            "estimated_cache_write_usd": 0,
            "pricing": "catalog",
        }
        await stage.fire("PreModelSwitch", fields, "command")
        stage.session.model = wanted or old
        stage.announce("PostModelSwitch", fields, "command")
        stage.face.show(f"/model {wanted}", "❯ ")
        stage.face.show(f"Set model to {stage.session.model}", "  ⎿  ", DIM)


async def run_shell(stage: Stage, command: str) -> str:
    """Run a ``!`` command: no permission, no hook. Returns what the model reads."""
    session = stage.session
    prompt_id = session.new_prompt()
    stage.face.show(command, "! ")
    session.begin_file()
    session.note_snapshot()
    called = records.user(f"<bash-input>{command}</bash-input>")
    session.transcript.add({"promptId": prompt_id, **called}, both_ids=False)
    code, output = await stage.loop.in_thread(lambda: stage.tools.shell(command))
    out, err = ("", output) if code else (output.rstrip("\n"), "")
    told = f"<bash-stdout>{out}</bash-stdout><bash-stderr>{err}</bash-stderr>"
    session.turns += 1
    position = {"promptIndex": session.turns, "turnIndex": session.turns}
    origin = {"turnOrigin": "human", "turnPosition": position}
    session.transcript.add({"promptId": prompt_id, **records.user(told), **origin}, both_ids=False)
    stage.face.show(output.rstrip("\n") or "(no output)", "  ⎿  ", WARN if code else DIM)
    return told
