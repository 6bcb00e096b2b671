"""One server's load, share and health."""

from __future__ import annotations

import pytest

from router.fleet.gauges import ReplicaGauges
from router.fleet.placement import Weights
from router.fleet.server import Server, ServerLimits
from tests.support.builders import PLAIN, route_facts

REPLICA = route_facts().pools[PLAIN].replicas[0]
LIMITS = ServerLimits(weights=Weights(queue=2.0, kv=8.0))


@pytest.fixture
def server() -> Server:
    """One that has long been there."""
    return Server(REPLICA, LIMITS, life=1)


def test_load_is_what_runs_and_what_the_engine_tells_beyond(server: Server) -> None:
    """Ours, others' requests, a queue by its weight, and a cache as full as it is."""
    leases = [server.begin(0.0) for _ in range(2)]
    assert server.load(0.0) == 2
    server.tell(ReplicaGauges(running=5, waiting=1, kv_usage=0.5))
    assert server.load(0.0) == 2 + (5 + 1 - 2) + 2 * 1 + 8 * 0.5
    for lease in leases:
        lease.release()
    assert server.load(0.0) == 4 + 2 + 4


def test_a_request_knows_how_many_are_there_when_it_comes(server: Server) -> None:
    """Itself included; what the engine told is kept up to date by what we know."""
    first, second = server.begin(0.0), server.begin(0.0)
    assert [(lease.load, lease.waiting) for lease in (first, second)] == [(1, None), (2, None)]
    server.tell(ReplicaGauges(running=5, waiting=1))  # two of the six are ours
    third = server.begin(1.0)
    assert (third.load, third.waiting) == (7, 1)
    first.release()
    second.release()
    assert server.begin(1.0).load == 6
    server.tell(ReplicaGauges(running=0, waiting=0))  # an engine that has not begun ours yet
    assert server.begin(2.0).load == 3


def test_prompts_are_ahead_until_their_answers_begin(server: Server) -> None:
    """Those of streams, whose first piece tells that their prompts are done with."""
    first, second = (server.begin(0.0, prompt_bytes=size) for size in (400, 1000))
    server.begin(0.0, streamed=False, prompt_bytes=50)
    assert server.line(1.0)[0] == 1400
    first.touched = 1.0
    assert server.line(1.0)[0] == 1000
    second.release()
    assert server.line(1.0)[0] == 0
    for _ in range(100):
        server.begin(2.0, prompt_bytes=8).release()
    assert server.line(2.0)[0] == 0


def test_the_line_is_as_long_as_its_first_has_waited(server: Server) -> None:
    """And who has gone, answered or not, stands in none."""
    first, second = server.begin(0.0), server.begin(3.0)
    server.begin(1.0, streamed=False)
    assert server.line(4.0)[1] == 4.0
    first.touched = 5.0
    assert server.line(6.0)[1] == 3.0
    second.release()
    assert server.line(7.0)[1] == 0.0


def test_who_is_overtaken_waits_for_something_else_than_the_line(server: Server) -> None:
    """A stream that hangs, or is long in coming by itself, says nothing of who comes next."""
    server.begin(0.0)
    second = server.begin(10.0)
    assert server.line(20.0)[1] == 20.0
    second.touched = 21.0
    assert server.line(30.0)[1] == 0.0
    server.begin(31.0)
    second.release()
    assert server.line(33.0)[1] == 2.0


def test_a_server_under_a_new_configuration_is_as_loaded_as_before(server: Server) -> None:
    """Ours and others' requests still run there."""
    server.begin(0.0)
    server.tell(ReplicaGauges(running=4))
    after = Server(REPLICA, LIMITS, life=2)
    after.adopt(server)
    assert after.begin(1.0).load == 5


def test_a_failure_weighs_until_it_is_made_good(server: Server) -> None:
    """Or for as long as a breaker would first be open."""
    server.failed(0.0)
    assert server.load(0.5) > 100
    assert server.load(1.0) == 0
    server.failed(2.0)
    server.answered(2.1)
    assert server.load(2.2) == 0


def test_a_share_grows_from_a_tenth() -> None:
    """Over the slow start; without one it is there at once."""
    server = Server(REPLICA, LIMITS, life=1, now=100.0)
    assert [server.share(now) for now in (100.0, 102.0, 105.0, 110.0)] == [0.1, 0.2, 0.5, 1.0]
    at_once = Server(REPLICA, ServerLimits(slow_start_s=0.0), life=1, now=100.0)
    assert at_once.share(100.0) == 1.0


def test_the_least_bad_order() -> None:
    """Resting, then open, then suspect, then down."""

    def made(
        *, up: bool = True, stalled: bool = False, failed: int = 0, busy: bool = False
    ) -> Server:
        server = Server(REPLICA, LIMITS, life=1)
        server.mark(up=up, now=0.0, life=2)
        for _ in range(failed):
            server.failed(0.0)
        if busy:
            server.busy(0.0, 5.0)
        if stalled:
            for _ in range(2):
                server.begin(-120.0)
            server.watch(0.0)
        return server

    servers = [made(), made(busy=True), made(failed=3), made(stalled=True), made(up=False)]
    assert [server.usable(0.0) for server in servers] == [True, False, False, False, False]
    assert sorted(servers, key=lambda server: server.badness(0.0)) == servers


def test_a_busy_answer_shows_that_it_works(server: Server) -> None:
    """Somebody who refuses has not hung."""
    for _ in range(2):
        server.begin(0.0)
    server.busy(60.0, None)
    assert not server.watch(61.0)
    assert not server.watch(180.0)
    assert server.watch(181.0)
    assert server.stalled
