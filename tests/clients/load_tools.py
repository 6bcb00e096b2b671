"""Runs a load tool twice, on an engine and on the proxy in front of it, and reads its own report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from router.app import Application
from router.demo.wheels import fetch
from tests.clients.cases import VLLM
from tests.clients.harness import ROOT, MissingError, config_of, environment, folder, program
from tests.clients.load_engine import DRAFT, LoadEngine, load_engine

REQUESTS = 40
CONCURRENCY = 4
_PROMPT_TOKENS = 32
_TOOL_S = 120.0
_TOKENIZER_S = 120.0

Row = tuple[int | None, ...]
"""Of one request: tokens of its prompt and of its answer, then what the tool says of its drafts."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a load tool says of a run."""

    requests: int
    errors: int
    totals: Mapping[str, float]
    """Sums and means over all requests, of counts only."""
    rows: tuple[Row, ...]
    """Each request, in order of its figures."""


@dataclass(frozen=True, slots=True)
class LoadTool:
    """One way to use a load tool."""

    name: str
    package: str
    program: str
    arguments: Callable[[str, Path, Path], Sequence[str]]
    """Given the base URL, the tokenizer's folder, the folder for its output."""
    read: Callable[[Path], Report]
    env: Mapping[str, str]

    def command(self) -> str:
        """The program's path.

        Raises:
            MissingError: It is not installed.
        """
        return program(self.program, self.package)


@dataclass(frozen=True, slots=True)
class LoadRun:
    """One run: what the tool says, and what engine and proxy saw."""

    report: Report
    asked: tuple[str, ...]
    """Hashes of the prompts that reached the engine, sorted."""
    decisions: tuple[Mapping[str, Any], ...] = ()
    """The proxy's own log."""


def _aiperf(*more: str) -> Callable[[str, Path, Path], Sequence[str]]:
    def arguments(url: str, tokenizer: Path, out: Path) -> Sequence[str]:
        return (
            *("profile", "--model", VLLM, "--url", url, "--tokenizer", str(tokenizer)),
            *("--endpoint-type", "chat", "--streaming", "--ui", "none"),
            *("--request-count", str(REQUESTS), "--concurrency", str(CONCURRENCY)),
            *("--isl", str(_PROMPT_TOKENS), "--random-seed", "7"),
            *("--no-server-metrics", "--no-gpu-telemetry", "--artifact-dir", str(out)),
            *more,
        )

    return arguments


def _guidellm(url: str, tokenizer: Path, out: Path) -> Sequence[str]:
    return (
        *("run", "--backend", f"kind=openai_http,target={url},model={VLLM}"),
        *("--tokenizer", f"kind=huggingface_auto,model={tokenizer}"),
        *("--data", f"kind=synthetic_text,prompt_tokens={_PROMPT_TOKENS},output_tokens=16"),
        *("--profile", f"kind=concurrent,streams={CONCURRENCY}"),
        *("--constraint", f"kind=max_requests,count={REQUESTS}"),
        *("--seed", "kind=static,value=7", "--disable-progress"),
        *("--output", f"kind=json,path={out / 'report.json'}"),
    )


_AIPERF_TOTALS = (
    "total_isl",
    "total_osl",
    "total_usage_prompt_tokens",
    "total_usage_completion_tokens",
    "total_spec_decode_steps",
    "total_draft_tokens",
    "total_accepted_draft_tokens",
    "spec_decode_acceptance_length",
    "spec_decode_overall_draft_acceptance_rate",
)
_AIPERF_ROW = (
    "input_sequence_length",
    "output_sequence_length",
    "spec_decode_steps",
    "spec_decode_draft_tokens",
    "spec_decode_accepted_draft_tokens",
)


def _read_aiperf(out: Path) -> Report:
    report = json.loads((out / "profile_export_aiperf.json").read_text())
    lines = (out / "profile_export.jsonl").read_text().splitlines()
    metrics = [json.loads(line)["metrics"] for line in lines]
    return Report(
        requests=int(report["request_count"]["avg"]),
        errors=sum(item["count"] for item in report["error_summary"]),
        totals={key: report[key]["avg"] for key in _AIPERF_TOTALS if key in report},
        rows=_sorted(
            tuple(item[key]["value"] if key in item else None for key in _AIPERF_ROW)
            for item in metrics
        ),
    )


def _read_guidellm(out: Path) -> Report:
    [benchmark] = json.loads((out / "report.json").read_text())["benchmarks"]
    metrics, requests = benchmark["metrics"], benchmark["requests"]
    counts = metrics["request_totals"]
    return Report(
        requests=counts["successful"],
        errors=counts["errored"] + counts["incomplete"],
        totals={
            name: metrics[name]["successful"]["total_sum"]
            for name in ("prompt_token_count", "output_token_count", "total_token_count")
        },
        rows=_sorted(
            tuple(
                request[side][f"{kind}_{count}"]
                for side, kind in (("input_metrics", "text"), ("output_metrics", "text"))
                for count in ("tokens", "words", "characters")
            )
            for request in requests["successful"]
        ),
    )


def _sorted(rows: Iterator[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=repr))


_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
# With those set, aiperf looks for tokenizers in the hub's cache alone, and not in a folder.
_ONLINE = dict.fromkeys(_OFFLINE, "")

TOOLS = (
    LoadTool(
        "aiperf, the engine's counts",
        "aiperf",
        "aiperf",
        _aiperf("--use-server-token-count"),
        _read_aiperf,
        _ONLINE,
    ),
    LoadTool(
        # It is for the proxy alone then to ask the engine for its counts, and to say nothing of it.
        "aiperf, its own counts",
        "aiperf",
        "aiperf",
        _aiperf("--extra-inputs", '{"stream_options": {"include_usage": false}}'),
        _read_aiperf,
        _ONLINE,
    ),
    LoadTool("guidellm", "guidellm", "guidellm", _guidellm, _read_guidellm, _OFFLINE),
)


async def tokenizer_folder() -> Path:
    """The demo model's tokenizer, written once.

    Raises:
        MissingError: `make test-clients` has not been run.
        DemoError: The demo's model cannot be had.
    """
    place = folder()
    if place is None:
        raise MissingError("load tools are not installed: run make test-clients")
    target = place / "tokenizer"
    if not (target / "tokenizer.json").exists():
        model = (await asyncio.to_thread(fetch)).published_model
        arguments = ("-m", "tests.clients.drivers.tokenizer", str(model), str(target))
        await _run((str(place / "bin" / "python"), *arguments), environment(), _TOKENIZER_S)
    return target


async def run_tool(tool: LoadTool, place: Path) -> tuple[LoadRun, LoadRun]:
    """Runs a tool on an engine, and on the proxy in front of it."""
    tokenizer = await tokenizer_folder()
    async with load_engine() as (engine, url):
        direct = await _one(tool, url, tokenizer, place / "direct", engine)
        pool = {"engine": "vllm", "replicas": [{"url": url}]}
        pools = [
            {**pool, "name": "plain", "method": "none"},
            {**pool, "name": "ngram", "method": "ngram", "num_speculative_tokens": DRAFT},
        ]
        policy = {"name": "fixed", "parameters": {"arm": "ngram"}}
        route = {"model": VLLM, "baseline": "plain", "policy": policy, "pools": pools}
        async with Application(config_of([route], place), seed=7).running() as proxy:
            proxied = await _one(tool, proxy.data_url, tokenizer, place / "proxied", engine)
            await proxy.flush()
    lines = (place / "decisions.jsonl").read_bytes().splitlines()
    decisions = tuple(json.loads(line) for line in lines)
    return direct, LoadRun(proxied.report, proxied.asked, decisions)


async def _one(tool: LoadTool, url: str, tokenizer: Path, out: Path, engine: LoadEngine) -> LoadRun:
    engine.asked.clear()
    out.mkdir(parents=True)
    command = (tool.command(), *tool.arguments(url, tokenizer, out))
    await _run(command, {**environment(), **tool.env, "HOME": str(out)}, _TOOL_S)
    return LoadRun(tool.read(out), tuple(sorted(engine.asked)))


async def _run(command: Sequence[str], env: Mapping[str, str], limit_s: float) -> None:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(limit_s):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{out.decode()[-3000:]}")
