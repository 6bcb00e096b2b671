"""`specroute simulate`: policies in worlds, over seeds, as a table and a picture."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from policies.sim.spec import WorldSpec
from router.cli.terminal import out as results
from router.simulate.contest import LEAST_LOADED, Contest, Entrant, Job, Scores, learner
from router.simulate.load import load_world, world_names
from router.simulate.picture import picture
from router.simulate.tables import report

DEFAULT_POLICIES = ("net_gain", "thompson", "rules", "least_loaded")


def simulate(
    worlds: Sequence[str],
    *,
    entrants: Sequence[str],
    seeds: int,
    requests: int | None,
    jobs: int | None,
    holdout: float,
    out: Path | None,
) -> str:
    """Run what was asked for, with progress on standard error; returns Markdown.

    Raises:
        typer.BadParameter: There is no such policy or world.
    """
    names = tuple(worlds) or world_names()
    try:
        specs = {name: load_world(name) for name in names}
        for name in entrants:
            check(name, specs.values())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    contest = Contest(
        [
            Job(name, seed, tuple(entrants), requests, holdout)
            for seed in range(seeds)
            for name in names
        ],
        out,
    )
    results = follow(contest, jobs or os.cpu_count() or 1)
    text = report(results)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "report.md").write_text(text + "\n", "utf-8")
        for spec in specs.values():
            pools = [pool.name for pool in spec.pools]
            (out / f"{spec.name}.svg").write_text(picture(spec.name, results, pools), "utf-8")
    return text


def check(entrant: str, worlds: Iterable[WorldSpec]) -> None:
    """Make sure that it can run in them.

    Raises:
        ValueError: There is no such policy, or it has no such parameter.
    """
    if Entrant.of(entrant).policy != LEAST_LOADED:
        for world in worlds:
            learner(world, entrant, 0)


def follow(contest: Contest, jobs: int) -> list[Scores]:
    """Run a contest, showing how far it is."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=sys.stderr)) as shown:
        task = shown.add_task("worlds", total=contest.runs)

        def progress(item: Scores) -> None:
            shown.update(task, advance=1, description=f"{item.world}, seed {item.seed}")

        return contest.results(jobs, progress)


def simulate_command(
    worlds: Annotated[
        list[str] | None,
        typer.Argument(help="Worlds by name, or files of worlds; all that ship if none."),
    ] = None,
    *,
    policies: Annotated[
        str,
        typer.Option(
            help="Comma-separated; `NAME-` is told no published numbers, `NAME:key=1;other=2` has "
            "parameters of its own."
        ),
    ] = ",".join(DEFAULT_POLICIES),
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each.")] = 3,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Requests of a run; those of the world if left out.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Worlds that run at once; as many as there are cores.")
    ] = None,
    holdout: Annotated[
        float,
        typer.Option(min=0.0, max=0.5, help="Share held out for the baseline, counted apart."),
    ] = 0.01,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for report, pictures and results; what is there is not run again."
        ),
    ] = None,
) -> None:
    """Let policies route simulated fleets, and tell what they gain over plain decoding."""
    text = simulate(
        worlds or [],
        entrants=policies.split(","),
        seeds=seeds,
        requests=requests,
        jobs=jobs,
        holdout=holdout,
        out=out,
    )
    results.print(text, soft_wrap=True)
