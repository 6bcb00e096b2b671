"""Runs the whole product before two engines of the overhead benchmark; nothing is turned off."""

from __future__ import annotations

import argparse
from pathlib import Path

import uvloop

from router.config.models import Config
from router.observe.log import configure_logging
from router.processes.reload import ConfigFile
from router.processes.single import serve


def configuration(port: int, engines: list[int], folder: Path) -> Config:
    """One plain and one drafting pool, with policy, store, decision log and metrics on."""
    methods = (("plain", "none"), ("ngram", "ngram"))
    return Config.model_validate(
        {
            "listen": {"port": port},
            "admin": {"port": 0},
            "store": {"url": "embedded:", "directory": str(folder / "store")},
            "decision_log": {"path": str(folder / "decisions.jsonl")},
            "routes": [
                {
                    "model": "bench-model",
                    "baseline": "plain",
                    "pools": [
                        {
                            "name": name,
                            "method": method,
                            "engine": "vllm",
                            "replicas": [{"url": f"http://127.0.0.1:{engine}"}],
                        }
                        for (name, method), engine in zip(methods, engines, strict=True)
                    ],
                }
            ],
        }
    )


def main() -> None:
    """Serves until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--engines", type=int, nargs=2, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    configure_logging("warning")
    made = configuration(options.port, options.engines, options.folder)
    file = ConfigFile(options.folder / "specroute.json")
    file.path.write_text(made.model_dump_json(exclude_none=True), encoding="utf-8")
    uvloop.run(serve(file, file.parse(file.read()), lambda _: None))


if __name__ == "__main__":
    main()
