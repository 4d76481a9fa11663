"""Who answers when the agent asks for a permission, in a bounded time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable

from .events import LOG
from .types import Allow, Decision, Deny, PermissionHandler, PermissionRequest, Permissions

REFUSED = Deny("Permission was not granted: no one is available to decide.")


def decider(permissions: Permissions, timeout: float, on_always: Callable[[], None]) -> PermissionHandler:
    """Never raises: a handler that fails, is late or says something else has denied."""

    async def decide(request: PermissionRequest) -> Decision:
        if permissions == "deny":
            return REFUSED
        decision = Allow() if permissions == "allow" else await _asked(permissions, request, timeout)
        if isinstance(decision, Allow) and decision.always:
            on_always()
        return decision

    return decide


async def _asked(handler: PermissionHandler, request: PermissionRequest, timeout: float) -> Decision:
    try:
        async with asyncio.timeout(timeout):
            said: object = handler(request)
            if inspect.isawaitable(said):
                said = await said
    except TimeoutError:
        return Deny(f"Permission was not granted: no decision within {timeout:g} seconds.")
    except Exception:  # noqa: BLE001  # it is the caller's code
        LOG.exception("the permission handler failed on %s", request.tool)
        return Deny("Permission was not granted: the permission handler failed.")
    if isinstance(said, Allow | Deny):
        return said
    LOG.error("the permission handler returned %s, not Allow or Deny", type(said).__name__)
    return Deny("Permission was not granted: the permission handler made no decision.")
