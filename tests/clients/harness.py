"""Runs a client's driver twice, to an engine and to the proxy in front of it, and keeps both."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from router.app import Application
from router.config.models import Config
from router.demo.fleet import RunningPool
from tests.clients.answers import script
from tests.clients.cases import (
    EMBEDDINGS,
    HEADER,
    LLAMA,
    VLLM,
    Case,
    anthropic_cases,
    langchain_cases,
    openai_cases,
)
from tests.support.flow_backend import Received, ScriptedBackend, scripted_backend
from tests.support.tap import Exchanged, Tap, tapped

ROOT = Path(__file__).parents[2]
DRIVER_S = 300.0
FOLDER_VARIABLE = "SPECROUTE_CLIENTS"


def folder() -> Path | None:
    """The environment that `make test-clients` has made; None outside it."""
    given = os.environ.get(FOLDER_VARIABLE)
    return Path(given).resolve() if given else None


class MissingError(Exception):
    """A client is not installed here; the message names it."""


@dataclass(frozen=True, slots=True, eq=False)
class Client:
    """One client library."""

    name: str
    package: str
    cases: tuple[Case, ...]
    arguments: tuple[str, ...]
    """Of the interpreter."""
    interpreter: str = "python"

    def case(self, name: str) -> Case:
        """One of its cases."""
        return next(case for case in self.cases if case.name == name)

    def command(self) -> tuple[str, ...]:
        """What is run; the base URL comes behind it.

        Raises:
            MissingError: It is not installed.
        """
        if self.interpreter == "node":
            return (_node(self.package), *self.arguments, str(_node_folder()))
        return (_python(self.package), *self.arguments)

    def version(self) -> str:
        """Its version, as its package says.

        Raises:
            MissingError: It is not installed.
        """
        if self.interpreter == "node":
            self.command()
            package = _node_folder() / "node_modules" / self.package / "package.json"
            return str(json.loads(package.read_text())["version"])
        return version_of(self.package)


_STAINLESS = ("-m", "tests.clients.drivers.stainless")
CLIENTS = (
    Client("openai for Python", "openai", openai_cases(), (*_STAINLESS, "openai")),
    Client(
        "openai for Node",
        "openai",
        # The helpers of the two clients have little more than their names in common.
        tuple(case for case in openai_cases() if case.name != "parse"),
        ("tests/clients/drivers/openai_node.mjs",),
        "node",
    ),
    Client("anthropic", "anthropic", anthropic_cases(), (*_STAINLESS, "anthropic")),
    Client(
        "langchain-openai",
        "langchain_openai",
        langchain_cases(),
        ("-m", "tests.clients.drivers.langchain"),
    ),
)


def version_of(package: str) -> str:
    """Version of a package for Python.

    Raises:
        MissingError: It is not installed.
    """
    found = _site_packages(package)
    if found is None:
        raise _missing(package)
    pattern = f"{package.replace('-', '_')}-*.dist-info"
    return next(found.glob(pattern)).name.removesuffix(".dist-info").rpartition("-")[2]


def program(name: str, package: str) -> str:
    """A program of a package that `make test-clients` has installed.

    Raises:
        MissingError: It is not installed.
    """
    place = folder()
    if place is None or not (place / "bin" / name).exists():
        raise _missing(package)
    return str(place / "bin" / name)


def _site_packages(package: str) -> Path | None:
    place = folder()
    if place is not None:
        return next((path.parent for path in place.glob(f"lib/*/site-packages/{package}")), None)
    spec = find_spec(package)
    return Path(spec.origin).parents[1] if spec is not None and spec.origin else None


def _python(package: str) -> str:
    if _site_packages(package) is None:
        raise _missing(package)
    place = folder()
    return sys.executable if place is None else str(place / "bin" / "python")


def _node_folder() -> Path:
    return (folder() or ROOT / ".venv-clients") / "node"


def _node(package: str) -> str:
    node = shutil.which("node")
    if node is None:
        raise MissingError("node is not on the PATH")
    if folder() is None or not (_node_folder() / "node_modules" / package).is_dir():
        raise _missing(f"{package} for Node")
    return node


def _missing(package: str) -> MissingError:
    return MissingError(f"{package} is not installed: run make test-clients")


@dataclass(frozen=True, slots=True)
class Side:
    """What one way gave."""

    results: Mapping[str, Any]
    """What the client gave its user, by case."""
    exchanges: Mapping[str, Sequence[Exchanged]]
    """What came and went on the client's side, by case."""
    received: Mapping[str, Sequence[Received]]
    """What a scripted engine got, by case."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The same cases on both ways."""

    direct: Side
    proxied: Side


async def run_driver(client: Client, cases: Sequence[Case], url: str) -> dict[str, Any]:
    """Runs cases with a client against a base URL."""
    process = await asyncio.create_subprocess_exec(
        *(*client.command(), url),
        cwd=ROOT,
        env=environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    given = json.dumps([case.for_driver() for case in cases]).encode()
    try:
        async with asyncio.timeout(DRIVER_S):
            out, err = await process.communicate(given)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise RuntimeError(f"the driver of {client.name} failed:\n{err.decode()[-3000:]}")
    results: dict[str, Any] = json.loads(out)
    return results


def environment() -> dict[str, str]:
    """For programs under test: no proxies of the developer's, no hub, nothing of this project."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}

    return {**kept, "NO_PROXY": "*", "PYTHONPATH": str(ROOT)}


async def scripted_pair(client: Client, cases: Sequence[Case], place: Path) -> Pair:
    """Runs cases on a scripted engine."""
    async with scripted_backend() as engine:
        engine.always(script(cases))
        pool = {"name": "plain", "method": "none", "replicas": [{"url": engine.url}]}
        routes = [
            _route(LLAMA, [{**pool, "engine": "llamacpp"}]),
            _route(VLLM, [{**pool, "engine": "vllm"}]),
            _route(EMBEDDINGS, [{**pool, "engine": "llamacpp"}]),
        ]
        async with Application(config_of(routes, place), seed=7).running() as proxy:
            direct = await _scripted_side(client, cases, engine, engine.url)
            proxied = await _scripted_side(client, cases, engine, proxy.data_url)
    return Pair(direct, proxied)


async def _scripted_side(
    client: Client, cases: Sequence[Case], engine: ScriptedBackend, url: str
) -> Side:
    engine.requests.clear()
    async with tapped(url) as tap:
        results = await run_driver(client, cases, tap.url)
    received: dict[str, list[Received]] = {case.name: [] for case in cases}
    for request in engine.requests:
        for name in request.header(HEADER):
            received[name].append(request)
    return Side(results, _by_case(tap, cases), received)


async def real_pair(client: Client, pools: Mapping[str, RunningPool], place: Path) -> Pair:
    """Runs the cases that a real engine can answer.

    Args:
        client: The client.
        pools: Servers by name: one for texts, one that embeds.
        place: For the proxy's files.
    """
    cases = [case for case in client.cases if case.real]
    routes = [
        _route(model, [_pool(pool)])
        for model, pool in zip((LLAMA, EMBEDDINGS), pools.values(), strict=True)
    ]
    texts = [case for case in cases if case.model == LLAMA]
    vectors = [case for case in cases if case.model == EMBEDDINGS]
    text_url, vector_url = (pool.url for pool in pools.values())

    async def direct() -> dict[str, Any]:
        found = await run_driver(client, texts, text_url)
        return found | (await run_driver(client, vectors, vector_url) if vectors else {})

    async with Application(config_of(routes, place), seed=7).running() as proxy:
        first = await direct()
        second = await run_driver(client, texts, proxy.data_url)
        if vectors:
            second |= await run_driver(client, vectors, proxy.data_url)
    return Pair(Side(first, {}, {}), Side(second, {}, {}))


def _by_case(tap: Tap, cases: Sequence[Case]) -> dict[str, list[Exchanged]]:
    found: dict[str, list[Exchanged]] = {case.name: [] for case in cases}
    for exchange in tap.exchanges():
        name = exchange.header(HEADER)
        assert name is not None
        found[name].append(exchange)
    return found


def _pool(pool: RunningPool) -> dict[str, Any]:
    return {
        "name": pool.name,
        "method": pool.method,
        "engine": "llamacpp",
        "num_speculative_tokens": pool.num_speculative_tokens,
        "replicas": [{"url": pool.url}],
    }


def _route(model: str, pools: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "model": model,
        "baseline": pools[0]["name"],
        "policy": {"name": "fixed"},
        "pools": pools,
    }


def config_of(routes: Sequence[dict[str, Any]], place: Path) -> Config:
    """A proxy of its own, with everything on that a deployment has on."""
    return Config.model_validate(
        {
            "listen": {"port": 0},
            "admin": {"port": 0},
            "store": {"url": "memory:", "directory": str(place / "store")},
            "decision_log": {"path": str(place / "decisions.jsonl")},
            "routes": list(routes),
        }
    )
