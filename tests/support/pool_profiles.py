"""Requests of several profiles to one warm pool of a real agent: what each runs with."""

from __future__ import annotations

from typing import Any

from remuda import Client
from remuda.testing.loopback_model import LoopbackModel, Request
from remuda.testing.real_cli import RealCli
from support.pool_conformance import run_steps


def check_profiles(
    agent: str, cli: RealCli, model: LoopbackModel, other_model: str, allows: dict[str, Any], **client: Any
) -> None:
    """Check folder, model, environment and tools of each. `allows`: options that let the shell run."""
    other = cli.folder / "other"
    other.mkdir()
    prompt = cli.plan.tool_prompt('echo "mark-$REMUDA_MARK in-$PWD"')
    profiles: list[dict[str, Any]] = [
        {"env": {"REMUDA_MARK": "one"}, **allows},
        {"env": {"REMUDA_MARK": "two"}, "cwd": str(other), "model": other_model, **allows},
        {"env": {"REMUDA_MARK": "three"}},
        {**allows},
    ]

    async def steps() -> None:
        async with Client(
            agent=agent, env=cli.env, inherit_env=False, cwd=str(cli.project), pool_size=1, **client
        ) as pool:
            for profile in profiles:
                await pool.run(prompt, **profile)
                results.append(model.main_requests[-1])

    results: list[Request] = []
    run_steps(steps)
    shown = [str(one.said) for one in results]
    for text, wanted in zip(
        shown,
        (f"mark-one in-{cli.project}", f"mark-two in-{other}", None, f"mark- in-{cli.project}"),
        strict=True,
    ):
        assert wanted in text if wanted else "in-/" not in text, shown
    models = [one.model for one in results]
    assert models[1] == other_model.rpartition("/")[2]
    assert models[1] not in (models[0], *models[2:])
