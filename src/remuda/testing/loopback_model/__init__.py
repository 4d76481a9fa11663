"""A stand-in for the Messages and Responses APIs on 127.0.0.1: an agent runs without account and network.

:class:`LoopbackModel` is the server, scriptable per request; it keeps every :class:`Request` in full. What it
says is made of the steps of :mod:`remuda.testing.script`.

By hand: ``python -m remuda.testing.loopback_model --port N``.
"""

from .model_request import Conversation, Request
from .model_server import Gate, Handler, LoopbackModel

__all__ = ["Conversation", "Gate", "Handler", "LoopbackModel", "Request"]
