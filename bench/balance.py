"""What placing a request costs, and how evenly several blind processes place.

`python -m bench.balance` prints a table; every figure is the median of rounds.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import timeit
from collections.abc import Callable
from random import Random

import orjson

from policies.types import ArmId
from router.config.models import Config
from router.fleet.affinity import prefix_of
from router.fleet.gauges import ReplicaGauges
from router.fleet.model import build_routes
from router.fleet.state import FleetState, Placement, Seen
from router.intake.parse import parse_request
from router.types import Endpoint

_MODEL = "m"
_PLAIN = ArmId("plain")
_ROUNDS = 7
_CALLS = 2000


def fleet_of(servers: int, seed: int = 1) -> FleetState:
    """A route of one pool."""
    pool = {
        "name": "plain",
        "method": "none",
        "replicas": [{"url": f"http://10.0.0.{number + 1}:8000"} for number in range(servers)],
    }
    route = {"model": _MODEL, "baseline": "plain", "pools": [pool]}
    config = Config.model_validate({"routes": [route]})
    return FleetState(build_routes(config)[_MODEL], uniform=Random(seed).random)


def microseconds(work: Callable[[], object], calls: int = _CALLS) -> float:
    """Processor time of one call."""
    times = timeit.repeat(work, number=calls, repeat=_ROUNDS, timer=time.process_time)
    return statistics.median(times) / calls * 1e6


def place(servers: int, *, blocks: int) -> float:
    """Lease, see an answer, release, with load, gauges and prompts that take turns."""
    fleet = fleet_of(servers)
    for number, replica in enumerate(fleet.replicas(_PLAIN)):
        fleet.tell(replica, ReplicaGauges(number % 3, number % 2, 0.1))
    for _ in range(3 * servers):
        fleet.lease(_PLAIN, now=0.0)
    turns = [
        Placement(tuple(hash((turn, block)) for block in range(blocks)), 4096)
        for turn in range(500)
    ]
    following = iter(range(10**9))

    def once() -> None:
        lease = fleet.lease(_PLAIN, turns[next(following) % 500], now=1.0)
        if lease is None:
            raise RuntimeError("no server")
        fleet.saw(lease.replica, Seen.ANSWERED, now=1.0)
        lease.release()

    return microseconds(once)


def prefix(chars: int) -> float:
    """Hashes of a conversation with a system prompt and five turns."""
    part = "word " * (chars // 35)
    roles = ("system", "user", "assistant", "user", "assistant", "user", "assistant")
    body = orjson.dumps(
        {"model": _MODEL, "messages": [{"role": role, "content": part} for role in roles]}
    )

    # Parsed anew each time: Python keeps the hash of a text once it is made.
    count = 20 if chars > 100_000 else 500
    requests = [parse_request(Endpoint.CHAT, body) for _ in range(count * _ROUNDS)]
    following = iter(requests)
    return microseconds(lambda: prefix_of(next(following)), calls=count)


def spread(processes: int, servers: int, *, arrivals: int = 4000, stale: int = 32) -> float:
    """Largest load over the mean, where each process sees only its own requests and old gauges.

    Each request lasts for as many arrivals as there are places; gauges are read every 200 of them.
    """
    fleets = [fleet_of(servers, seed) for seed in range(processes)]
    draws = Random(0)
    running: list[tuple[int, object]] = []
    load = [0] * servers
    worst = []
    for arrival in range(arrivals):
        if arrival % stale == 0:
            for fleet in fleets:
                for number, replica in enumerate(fleet.replicas(_PLAIN)):
                    fleet.tell(replica, ReplicaGauges(load[number], 0, 0.0))
        lease = draws.choice(fleets).lease(_PLAIN, now=0.0)
        if lease is None:
            raise RuntimeError("no server")
        number = int(lease.replica.replica_id.partition("/")[2])
        load[number] += 1
        running.append((number, lease))
        if len(running) > 16 * servers:
            over, done = running.pop(draws.randrange(len(running)))
            load[over] -= 1
            done.release()  # type: ignore[attr-defined]
            if arrival > arrivals // 4:
                worst.append(max(load) / (sum(load) / servers))
    return statistics.median(worst)


async def main() -> None:
    """Prints the table."""
    print("| what | figure |")
    print("|---|---|")
    for servers in (1, 2, 8, 32):
        print(
            f"| lease, saw and release, {servers} servers, 3 blocks "
            f"| {place(servers, blocks=3):.1f} µs |"
        )
    print(f"| same, 8 servers, 32 blocks | {place(8, blocks=32):.1f} µs |")
    for chars, name in ((2_048, "2 KB"), (65_536, "64 KB"), (1_048_576, "1 MB")):
        print(f"| prefix_of, {name} | {prefix(chars):.1f} µs |")
    for processes in (1, 4):
        print(
            f"| largest load over the mean, 8 servers, {processes} processes "
            f"| {spread(processes, 8):.2f} |"
        )


if __name__ == "__main__":
    asyncio.run(main())
