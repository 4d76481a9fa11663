"""Whether a message can be sent to a session, and what its agent makes of a prompt."""

from __future__ import annotations

from remuda.errors import InvalidOptions
from remuda.paths import SessionPaths

from .claim import read_holder
from .record import SessionRecord

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from remuda.agents.prompting import PromptProtocol


def find_prompts(paths: SessionPaths) -> PromptProtocol | None:
    """Return how prompts reach the agent of a session; None if that is unknown.

    Raises `InvalidOptions` for a session whose program never receives messages.
    """
    refuse_foreign(paths)
    record = SessionRecord.load(paths.record)
    if record is None:
        return None
    from remuda.agents import find_agent

    prompts = find_agent(record.agent).prompts
    if prompts is None:
        raise InvalidOptions(
            f"session '{paths.name}' runs a plain command, which cannot confirm messages",
            hint=f"type into it with 'remuda attach {paths.name}'",
        )
    return prompts


def refuse_foreign(paths: SessionPaths) -> None:
    """Raise `InvalidOptions` when the name is held by a supervisor that is not ours."""
    holder, record = read_holder(paths), SessionRecord.load(paths.record)
    if holder is None or (record is not None and record.keeper_pid == holder.keeper_pid):
        return  # else the record may be of an earlier session
    from .client import KeeperClient

    with KeeperClient.connect(paths.name, paths.folder, read_only=True) as client:
        if client.welcome is not None:
            return
    raise InvalidOptions(
        f"session '{paths.name}' is kept by another program (hm), which delivers no messages",
        hint=f"type into it: remuda attach {paths.name}",
    )
