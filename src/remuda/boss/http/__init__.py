"""The boss over HTTP: `/v1`, and Trail Boss's endpoints. The operations are plain functions; only `web`
imports starlette, only `server` uvicorn.
"""
