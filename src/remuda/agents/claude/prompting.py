"""How Claude Code takes a prompt: its keys, composer, dialogs and limits. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from remuda.digest import sha256

from . import prompt as prompts

# A sender only checks its prompt, and loads nothing else.
if TYPE_CHECKING:
    from remuda.agents.prompting import Carried, Choice, Composer, Past

_CREDENTIALS = ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN")


class ClaudePaste:
    kind: Literal["paste"] = "paste"
    stash = b"\x13"
    interrupt = b"\x1b"
    wipe = b"\x1b"  # not Ctrl-C: a second one ends the agent, whatever was typed between the two

    def paste(self, prompt: str, *, command: bool) -> Carried:
        return prompts.paste(prompt, command=command)


class ClaudePrompts:
    transport = ClaudePaste()
    enter = b"\r"
    # The dialog goes back to its first row once, 0.13 s after it was drawn. On a busy machine that may happen
    # after our key.
    trust_settle = 1.0
    keeps_unanswered = False  # not known: it may put the prompt back into the composer

    def check(self, prompt: str, *, command: bool, literal: bool) -> None:
        prompts.check(prompt, command=command, literal=literal)

    def argument(self, prompt: str, *, command: bool) -> Carried | None:
        return prompts.argument(prompt, command=command)

    def same(self, reported: str, prompt: str) -> bool:
        return prompts.same(reported, prompt)

    def holds(self, reported: str, prompt: str) -> bool:
        return prompts.holds(reported, prompt)

    def composer(self, lines: Sequence[str], styled: Callable[[int], bytes]) -> Composer:
        from .screen import read_composer

        return read_composer(lines, styled)

    def dialog(self, lines: Sequence[str]) -> str | None:
        from .screen import open_dialog

        return open_dialog(lines)

    def trust_choice(self, lines: Sequence[str]) -> Choice | None:
        from .screen import read_trust_choice

        return read_trust_choice(lines)

    def past(self, records: Iterable[Mapping[str, Any]], prompt: str, since: float) -> Past:
        from .transcript import read_past

        return read_past(records, prompt, since, self.same)

    # ── the account ──

    def limited_for(self, text: str, now: float) -> float | None:
        from .failure import reset_in_words

        reset = reset_in_words(text, now)
        # Its seconds are not reported: it ends with that minute.
        return None if reset is None else reset + 60.0 - now

    def account(self, env: Mapping[str, str]) -> str:
        """Return a digest of home, service and the source of the credential."""
        from .files import config_folder

        source = next((f"{name}={env[name]}" for name in _CREDENTIALS if env.get(name)), "file")
        base = env.get("ANTHROPIC_BASE_URL", "")
        return sha256(f"{config_folder(env)}\0{base}\0{source}".encode())[:24]

    def shared_account(self, env: Mapping[str, str]) -> str:
        """Return a digest that is the same on every machine with this account; empty if it is not known."""
        from .files import account_id

        source = next((env[name] for name in _CREDENTIALS if env.get(name)), "") or account_id(env)
        base = env.get("ANTHROPIC_BASE_URL", "")
        return sha256(f"{base}\0{source}".encode())[:24] if source else ""
