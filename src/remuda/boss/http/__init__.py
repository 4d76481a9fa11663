"""The boss over HTTP: `/v1`, and Trail Boss's endpoints. What it does is plain functions; `web` alone knows
starlette, `server` alone uvicorn."""
