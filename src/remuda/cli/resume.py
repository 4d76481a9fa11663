"""remuda resume"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import click

from remuda.config import Config, load_own_config
from remuda.errors import InvalidOptions, RemudaError, SessionNotFound
from remuda.keeper.claim import already_running, read_holder
from remuda.keeper.elsewhere import split_host
from remuda.keeper.hidden import living_names
from remuda.keeper.record import SessionRecord
from remuda.keeper.resume import Restarter, Resumed, ResumeOutcome, TriesFile, bring_back, unwanted_ended
from remuda.paths import SessionPaths

from .common import complete_session, find_folder, folder_option, json_option, pick_session
from .output import complain, cut, echo, print_json
from .start import check_came_up


@click.command("resume")
@click.argument("names", nargs=-1, shell_complete=complete_session)
@click.option("--all", "everyone", is_flag=True, help="Bring back all sessions that were alive and wanted.")
@folder_option
@json_option
def command(names: tuple[str, ...], everyone: bool, folder: Path | None, as_json: bool) -> int:
    """Bring back ended sessions, with their conversations.

    With --all these are the sessions of 'start --restart' that ended with their machine, their login or their
    keeper, or crashed. They start in their old order, a few at a time. Messages that were in flight are
    decided by the transcript: what the agent got is not sent again. The boss does the same when it starts.

    A session that ends again and again is left alone after five tries, and is in the queue. With its NAME it
    is tried again. HOST/NAME is a session on another machine of your fleet.

    \b
    Examples:
      remuda resume --all
      remuda resume work
    """
    where = find_folder(folder)
    if bool(names) == everyone:
        raise InvalidOptions(
            "no session given" if not names else "session names do not go with --all",
            hint="name at least one, or pass --all",
        )
    config = load_own_config(os.environ)
    if everyone:
        return _resume_all(where, config, as_json=as_json)
    code = 0
    documents = []
    for name in names:
        document: dict[str, Any] = {"name": name}
        try:
            document["name"] = picked = _resume(name, folder, config)
            document |= {"outcome": ResumeOutcome.RESUMED, "error": None}
            if not as_json:
                echo(f"resumed {picked}; attach with: remuda attach {picked}")
        except RemudaError as error:
            code = code or error.exit_code
            document |= {"outcome": ResumeOutcome.FAILED, "error": str(error)}
            if not as_json:
                complain(str(error), error=True)
        documents.append(document)
    if as_json:
        print_json({"sessions": documents})
    return code


def _resume(name: str, folder: Path | None, config: Config) -> str:
    """Bring back one session; returns its complete name."""
    host, name = split_host(name) if folder is None else (None, name)
    if host is not None:
        from remuda.boss.elsewhere import resume

        resume(host, name)
        return f"{host}/{name}"
    where = find_folder(folder)
    picked = pick_session(name, where)
    _resume_one(SessionPaths.of(picked, where), config)
    return picked


def _resume_one(paths: SessionPaths, config: Config) -> None:
    """Bring back one session, whatever its --restart says. Its earlier tries are forgotten."""
    if read_holder(paths) is not None:
        raise already_running(paths)
    record = SessionRecord.load(paths.record)
    if record is None:
        raise SessionNotFound(f"session '{paths.name}' not found", hint="'remuda ls --all' lists all")
    TriesFile(paths.folder).set(paths.name, None)
    bring_back(record, paths.folder, config)
    check_came_up(paths)


def _resume_all(folder: Path, config: Config, *, as_json: bool) -> int:
    def show(one: Resumed) -> None:
        if as_json:
            return
        if one.error is not None:
            complain(f"{one.record.name}: {one.error}", error=True)
        else:
            echo(f"{one.outcome} {one.record.name}")

    logging.getLogger("remuda.keeper.resume").setLevel(logging.ERROR)  # 'show' reports what failed
    found = Restarter(folder, config).round(show)
    failed = [one.error for one in found.done if one.error is not None]
    code = failed[0].exit_code if failed else 0
    if as_json:
        print_json({"sessions": [_document(one) for one in found.done], "left_alone": [
            {"name": record.name, "tries": tries.count, "error": tries.error or None}
            for record, tries in found.left_alone
        ]})  # fmt: skip
        return code
    for record, tries in found.left_alone:
        why = f" ({tries.error})" if tries.error else ""
        complain(
            f"'{record.name}' is left alone after {tries.count} tries{why}; "
            f"'remuda resume {record.name}' tries it again"
        )
    if found.next_at is not None:
        echo(
            "some sessions ended soon after their last start, or could not be started: 'remuda resume --all' "
            "tries them again after a pause, and so does the boss if it runs"
        )
    others = unwanted_ended(folder, set(living_names(folder)))
    if others:
        echo(
            f"without --restart: {cut(', '.join(others), 200)}; 'remuda resume NAME' brings one back",
        )
    elif not found.done and not found.left_alone and found.next_at is None:
        echo("no session to bring back")
    return code


def _document(one: Resumed) -> dict[str, Any]:
    error = None if one.error is None else str(one.error)
    return {"name": one.record.name, "outcome": one.outcome, "error": error}
