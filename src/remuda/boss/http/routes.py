"""Every operation there is. Those that are called most stand first."""

from __future__ import annotations

from . import answer, events, hold, ledger, metrics, navigate, queue, stream, trail_boss
from .openapi import openapi_route
from .route import Route

_OWN: tuple[Route, ...] = (
    *events.ROUTES,
    *hold.ROUTES,
    *trail_boss.ROUTES,
    *stream.ROUTES,
    *queue.ROUTES,
    *ledger.ROUTES,
    *answer.ROUTES,
    *navigate.ROUTES,
    *metrics.ROUTES,
)
ROUTES: tuple[Route, ...] = (*_OWN, openapi_route(_OWN))
