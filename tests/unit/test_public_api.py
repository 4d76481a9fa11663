"""What `remuda` exports, what importing it costs, and that its errors are as their module draws them."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import assert_type

import pytest

import remuda
from remuda import errors, pool
from remuda.inbox.journal import Accepted

ERRORS = {
    name for name, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.RemudaError)
}
DOCUMENTED = {
    "Accepted",
    "Allow",
    "Approval",
    "AsyncBoss",
    "AsyncRunOptions",
    "AsyncSession",
    "Boss",
    "Cancelled",
    "Client",
    "ClientOptions",
    "Deny",
    "Done",
    "Entry",
    "Failed",
    "Fate",
    "Inbox",
    "KeeperClient",
    "Overview",
    "PermissionRequest",
    "PrewarmOptions",
    "PutOptions",
    "Raw",
    "Reclaimed",
    "Recovered",
    "RemoteClient",
    "ReplyResult",
    "RequestDone",
    "RequestError",
    "RunOptions",
    "RunResult",
    "Session",
    "SessionEvicted",
    "SessionSpawned",
    "SessionSpec",
    "StartOptions",
    "Started",
    "StreamEvent",
    "SyncClient",
    "Token",
    "ToolResult",
    "ToolUse",
    "Trace",
    "Usage",
    "WaitingItem",
    "__version__",
    "start_session",
} | ERRORS
HEAVY = {"asyncio", "click", "ctypes", "logging", "socket", "subprocess", "typing", "dataclasses"}


def test_exported_names_are_exactly_the_documented_ones() -> None:
    assert set(remuda.__all__) == DOCUMENTED
    assert remuda.__all__ == sorted(remuda.__all__)


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_exported_name_can_be_had(name: str) -> None:
    assert getattr(remuda, name) is not None


def test_exported_names_keep_their_types(tmp_path: Path) -> None:
    # Checked by mypy: a lazy name that it does not know would be Any.
    inbox = assert_type(remuda.Inbox(tmp_path / "inbox"), remuda.Inbox)
    accepted = assert_type(inbox.put("hello"), Accepted)
    assert [entry.id for entry in inbox.waiting()] == [accepted.id]
    assert issubclass(assert_type(remuda.RemudaError, type[remuda.RemudaError]), Exception)


def test_every_error_that_a_pool_raises_is_exported() -> None:
    caught = {"AlreadyAnswered", "SessionExists"}  # the second only by the command that serves
    used = set()
    for path in Path(pool.__file__).parent.glob("*.py"):
        for found in ast.walk(ast.parse(path.read_text())):
            if isinstance(found, ast.ImportFrom) and found.module == "remuda.errors":
                used |= {
                    one.name for one in found.names if one.name[1:2].islower() and one.name[:1].isupper()
                }
    assert len(used) > 20
    assert used - caught <= set(remuda.__all__)


def test_importing_the_inbox_loads_no_asyncio_click_or_keeper() -> None:
    assert not loaded_by("import remuda; remuda.Inbox") & {"asyncio", "click", "remuda.keeper"}


def test_importing_the_client_loads_no_backend_click_or_terminal() -> None:
    loaded = loaded_by("import remuda; remuda.Client")
    backends = {"remuda.pool.terminal_worker", "remuda.pool.serve", "remuda.agents.claude.stream.workers"}
    assert not loaded & {"click", "ctypes", "remuda.keeper", "remuda.terminal", *backends}


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nope"):
        remuda.nope  # noqa: B018


def loaded_by(statement: str) -> set[str]:
    # Isolated: what pytest or a .pth file loads says nothing about us.
    program = f"import sys; before = set(sys.modules); {statement}; import json; "
    program += "print(json.dumps(sorted(set(sys.modules) - before)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return set(json.loads(done.stdout))


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = loaded_by("import remuda")
    assert "remuda" in loaded
    assert not loaded & HEAVY
    assert {name for name in loaded if name.startswith("remuda")} == {"remuda", "remuda._version"}


def test_importing_the_session_and_the_boss_loads_no_asyncio_or_click() -> None:
    for name in ("Session", "Boss"):
        assert not loaded_by(f"import remuda; remuda.{name}") & {"asyncio", "click", "starlette"}


def test_async_forms_have_every_method_of_the_blocking_ones() -> None:
    for blocking, form in ((remuda.Session, remuda.AsyncSession), (remuda.Boss, remuda.AsyncBoss)):
        wanted = {name for name in vars(blocking) if not name.startswith("_")} - {"attach"}
        assert {name for name in vars(form) if not name.startswith("_")} == wanted
        for name in wanted:
            one, other = inspect.getattr_static(blocking, name), inspect.getattr_static(form, name)
            if isinstance(one, property):
                continue
            one, other = getattr(blocking, name), getattr(form, name)
            assert inspect.iscoroutinefunction(other)
            assert inspect.signature(one) == inspect.signature(other), name


def test_importing_the_errors_loads_no_asyncio_click_or_ctypes() -> None:
    assert not loaded_by("import remuda; remuda.RemudaError") & {"asyncio", "click", "ctypes"}


def test_listing_the_commands_loads_none_of_them() -> None:
    loaded = loaded_by("from remuda.cli import app; app.cli.list_commands(None)")
    assert not loaded & {"asyncio", "ctypes", "remuda.keeper.client", "remuda.terminal.screen"}


def drawn_tree() -> dict[str, str | None]:
    """Each class that the docstring draws, with the one that it hangs from."""
    found: dict[str, str | None] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        drawn = re.match(r"    ([│ ├└─]*)([A-Z]\w+)", line)
        if drawn is None:
            continue
        depth = len(drawn[1])
        above = [(at, name) for at, name in above if at < depth]
        found[drawn[2]] = above[-1][1] if above else None
        above.append((depth, drawn[2]))
    return found


def test_error_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    classes = {
        name: kind
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.RemudaError)
    }
    real = {
        name: None if kind is errors.RemudaError else kind.__bases__[0].__name__
        for name, kind in classes.items()
    }
    assert drawn_tree() == real


def test_every_error_of_the_package_has_a_code_and_an_exit_code_of_the_table() -> None:
    kinds = [errors.RemudaError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert len(kinds) > 15
    for kind in kinds:
        assert kind.__module__ == "remuda.errors", f"{kind} is not drawn in the tree"
        assert re.fullmatch(r"[A-Z_]+", kind.code)
        assert kind("x").exit_code in errors.EXIT_CODES.values()
