"""Which server takes a request, and what is known of the servers."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.types import ArmId
from router.fleet.breaker import BreakerState
from router.fleet.gauges import ReplicaGauges
from router.fleet.state import FleetState, Lease, Placement, Prospect, Seen
from router.types import ReplicaId
from tests.support.builders import FAST, PLAIN, pool, route_facts
from tests.support.clock import ManualClock

FACTS = route_facts(pool("plain", replicas=2), pool("fast", method="mtp", replicas=3))
P0, P1 = FACTS.pools[PLAIN].replicas
R0, R1, R2 = FACTS.pools[FAST].replicas


@pytest.fixture
def clock() -> ManualClock:
    """Time that stands still."""
    return ManualClock(monotonic=0.0)


@pytest.fixture
def fleet(clock: ManualClock) -> FleetState:
    """Five servers of which nothing is known yet."""
    return FleetState(FACTS, clock, uniform=Random(0).random)


def leased(
    fleet: FleetState, arm: ArmId = FAST, *exclude: ReplicaId, now: float = 0.0, prefix: int = 0
) -> Lease:
    """A place for a request, which there must be."""
    placement = Placement(tuple(range(prefix)), 10_000)
    lease = fleet.lease(arm, placement, frozenset(exclude), now=now)
    assert lease is not None
    return lease


def placed(fleet: FleetState, arm: ArmId = FAST, *, n: int = 60, now: float = 0.0) -> Counter[str]:
    """Where requests go that end at once."""
    counted: Counter[str] = Counter()
    for _ in range(n):
        lease = leased(fleet, arm, now=now)
        counted[lease.replica.replica_id] += 1
        lease.release()
    return counted


# --- Health and placing ---------------------------------------------------------------------------


def test_a_server_is_assumed_to_answer_until_shown_otherwise(fleet: FleetState) -> None:
    """So the first request after a start is served."""
    assert fleet.available(FAST)
    assert all(item.up for items in fleet.view().values() for item in items)


def test_only_a_change_is_news(fleet: FleetState) -> None:
    """What was known already is not logged again."""
    assert [fleet.mark(R0, up=up, now=0.0) for up in (True, False, False, True)] == [
        False,
        True,
        False,
        True,
    ]


def test_an_arm_is_available_while_one_of_its_servers_is(fleet: FleetState) -> None:
    """Other arms do not matter."""
    fleet.mark(R0, up=False, now=0.0)
    fleet.mark(R1, up=False, now=0.0)
    assert fleet.available(FAST)
    fleet.mark(R2, up=False, now=0.0)
    assert not fleet.available(FAST)
    assert fleet.available(PLAIN)


def test_the_server_with_the_fewest_requests_is_taken(fleet: FleetState) -> None:
    """Any of them where several have as few."""
    leases = [leased(fleet) for _ in range(3)]
    assert {lease.replica for lease in leases} == {R0, R1, R2}
    leases[1].release()
    assert leased(fleet).replica == leases[1].replica
    for _ in range(300):
        leased(fleet)
    assert sorted(item.in_flight for item in fleet.view()[FAST]) == pytest.approx([101] * 3, abs=8)


def test_a_server_that_was_tried_is_not_taken_again(fleet: FleetState) -> None:
    """None when all have been."""
    tried: set[ReplicaId] = set()
    for _ in range(3):
        tried.add(leased(fleet, FAST, *tried).replica.replica_id)
    assert tried == {"fast/0", "fast/1", "fast/2"}
    assert fleet.lease(FAST, exclude=frozenset(tried), now=0.0) is None


def test_the_baseline_tries_a_bad_server_rather_than_none(fleet: FleetState) -> None:
    """The least bad one: a busy one before a suspect one before one that is down."""
    fleet.mark(P0, up=False, now=0.0)
    assert placed(fleet, PLAIN) == {"plain/1": 60}
    fleet.saw(P1, Seen.BUSY, now=0.0, retry_after_s=20)
    assert not fleet.available(PLAIN)
    assert placed(fleet, PLAIN) == {"plain/1": 60}
    assert leased(fleet, PLAIN, P1.replica_id).replica == P0


def test_other_arms_refuse_when_no_server_is_usable(fleet: FleetState) -> None:
    """The baseline is one step away."""
    for replica in (R0, R1, R2):
        fleet.mark(replica, up=False, now=0.0)
    assert fleet.lease(FAST, now=0.0) is None


def test_a_server_without_a_connection_is_down_at_once(fleet: FleetState) -> None:
    """Until a probe finds it up."""
    assert fleet.saw(R0, Seen.UNREACHABLE, now=0.0)
    assert "fast/0" not in placed(fleet, now=1000.0)
    fleet.mark(R0, up=True, now=1000.0)
    assert placed(fleet, now=1010.0)["fast/0"] > 0


def test_a_server_that_just_failed_is_the_last_choice(fleet: FleetState) -> None:
    """One that fails fast is idle, and must not attract what others would serve."""
    fleet.saw(R0, Seen.FAILED, now=0.0)
    assert fleet.available(FAST)
    busy = [leased(fleet) for _ in range(20)]
    assert R0 not in {lease.replica for lease in busy}
    assert "fast/0" in placed(fleet, now=1.0)


# --- Breaker --------------------------------------------------------------------------------------


def opened(fleet: FleetState, *replicas: object, now: float = 0.0) -> None:
    """Lets requests fail until the breakers are open."""
    for replica in (R0, R1, R2):
        if replica in replicas:
            for _ in range(3):
                fleet.saw(replica, Seen.FAILED, now=now)


def test_an_open_breaker_takes_a_server_out_and_ends_in_a_probe(
    fleet: FleetState, clock: ManualClock
) -> None:
    """When its time is over the next request tries it, one at a time."""
    opened(fleet, R0)
    assert "fast/0" not in placed(fleet, now=0.9)
    clock.advance(1.0)
    probe = leased(fleet, now=1.0)
    assert probe.replica == R0
    assert "fast/0" not in placed(fleet, now=1.0)
    fleet.saw(R0, Seen.ANSWERED, now=1.5)
    probe.release()
    assert fleet.view()[FAST][0].breaker is BreakerState.CLOSED
    assert placed(fleet, now=20.0)["fast/0"] > 0


def test_a_probe_that_showed_nothing_is_followed_by_another(fleet: FleetState) -> None:
    """A client that leaves must not leave a server half open for ever."""
    opened(fleet, R0)
    for _ in range(3):
        probe = leased(fleet, now=1.0)
        assert probe.replica == R0
        assert leased(fleet, now=1.0).replica != R0
        probe.release()
    probe = leased(fleet, now=1.0)
    fleet.saw(R0, Seen.BUSY, now=1.0)
    probe.release()
    assert leased(fleet, now=1.5).replica != R0
    assert leased(fleet, now=2.0).replica == R0


def test_an_arm_of_open_breakers_becomes_available_for_its_probes(
    fleet: FleetState, clock: ManualClock
) -> None:
    """The policy goes elsewhere meanwhile, and comes back by itself."""
    opened(fleet, R0, R1, R2)
    assert not fleet.available(FAST)
    assert fleet.lease(FAST, now=0.0) is None
    clock.advance(1.0)
    assert fleet.available(FAST)
    probes = [leased(fleet, now=1.0) for _ in range(3)]
    assert {probe.replica for probe in probes} == {R0, R1, R2}
    assert not fleet.available(FAST)


def test_a_request_that_failed_elsewhere_is_no_probe_unless_it_must(fleet: FleetState) -> None:
    """It has had its share of bad luck."""
    opened(fleet, R0)
    assert leased(fleet, FAST, R1.replica_id, now=1.0).replica == R2
    assert leased(fleet, FAST, R1.replica_id, R2.replica_id, now=1.0).replica == R0


def test_a_server_that_comes_back_up_starts_afresh(fleet: FleetState) -> None:
    """It is another process: what its predecessor did is no breaker's business."""
    opened(fleet, R0)
    fleet.mark(R0, up=False, now=0.1)
    fleet.mark(R0, up=True, now=0.2)
    assert fleet.view()[FAST][0].breaker is BreakerState.CLOSED


# --- Back-pressure --------------------------------------------------------------------------------


def test_a_busy_server_is_left_alone_and_never_opens_its_breaker(
    fleet: FleetState, clock: ManualClock
) -> None:
    """For as long as it asks, then it is as any other."""
    for _ in range(50):
        fleet.saw(R0, Seen.BUSY, now=0.0, retry_after_s=5)
    clock.advance(4.9)
    shown = fleet.view()[FAST][0]
    assert shown.breaker is BreakerState.CLOSED
    assert shown.cooling_s == pytest.approx(0.1)
    assert "fast/0" not in placed(fleet, now=4.9)
    clock.advance(0.1)
    assert fleet.view()[FAST][0].cooling_s is None
    assert placed(fleet, now=5.0)["fast/0"] > 0


# --- Leases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError(), asyncio.CancelledError(), GeneratorExit()])
def test_a_request_is_counted_until_its_lease_is_released(
    fleet: FleetState, error: BaseException
) -> None:
    """However it ends, and once however often that is said: load never leaks."""

    def in_flight() -> int:
        return sum(item.in_flight for item in fleet.view()[FAST])

    def run() -> None:
        lease = leased(fleet)
        try:
            assert in_flight() == 1
            raise error
        finally:
            lease.release()
            lease.release()

    with pytest.raises(type(error)):
        run()
    assert in_flight() == 0


def test_the_view_shows_every_server_by_arm(fleet: FleetState) -> None:
    """In the order of the configuration, frozen at the moment it was taken."""
    lease = leased(fleet, FAST, R0.replica_id, R2.replica_id)
    view = fleet.view()
    lease.release()
    fleet.mark(R1, up=False, now=0.0)
    assert {
        arm: [(i.replica.replica_id, i.in_flight, i.up) for i in v] for arm, v in view.items()
    } == {
        PLAIN: [("plain/0", 0, True), ("plain/1", 0, True)],
        FAST: [("fast/0", 0, True), ("fast/1", 1, True), ("fast/2", 0, True)],
    }


# --- Affinity, weights, gauges --------------------------------------------------------------------


def test_a_conversation_stays_where_its_beginning_is_cached(fleet: FleetState) -> None:
    """With a little more load there, but not with much more."""
    first = leased(fleet, prefix=4)
    assert [leased(fleet, prefix=5).replica for _ in range(2)] == [first.replica] * 2
    busy = [leased(fleet, prefix=5) for _ in range(40)]
    assert {lease.replica for lease in busy} == {R0, R1, R2}


def test_a_server_that_came_back_has_nothing_cached(fleet: FleetState) -> None:
    """What was known of its predecessor's cache is worth nothing."""
    first = leased(fleet, prefix=4)
    fleet.mark(first.replica, up=False, now=0.0)
    fleet.mark(first.replica, up=True, now=0.0)
    assert leased(fleet, prefix=4, now=100.0).replica != first.replica


def test_load_follows_weights() -> None:
    """In the long run, with load and without."""
    heavy = pool("plain")
    heavy["replicas"] = [{"url": "http://a:1", "weight": 3}, {"url": "http://b:1"}]
    fleet = FleetState(route_facts(heavy), uniform=Random(1).random)
    idle = placed(fleet, PLAIN, n=4000)
    # Two are drawn in proportion and both are as good; three standard errors are 82.
    assert abs(idle["plain/0"] - 3000) < 82
    busy = Counter(str(leased(fleet, PLAIN).replica.replica_id) for _ in range(400))
    assert abs(busy["plain/0"] - 300) <= 12


def test_what_an_engine_tells_counts_beside_what_we_know(fleet: FleetState) -> None:
    """Requests of others, a queue and a full cache all make a server dearer."""
    for gauges in (
        ReplicaGauges(running=3),
        ReplicaGauges(running=0, waiting=2),
        ReplicaGauges(kv_usage=0.9),
    ):
        fleet.tell(R0, gauges)
        assert "fast/0" not in placed(fleet)
    fleet.tell(R0, ReplicaGauges())
    assert "fast/0" in placed(fleet)


def test_our_own_requests_are_not_counted_twice(fleet: FleetState) -> None:
    """What the engine runs for us is known already."""
    lease = leased(fleet, FAST, R1.replica_id, R2.replica_id)
    fleet.tell(R0, ReplicaGauges(running=1))
    others = [leased(fleet), leased(fleet)]
    assert {item.replica for item in others} == {R1, R2}
    assert len({leased(fleet).replica for _ in range(3)}) == 3
    lease.release()


# --- Suspects -------------------------------------------------------------------------------------


def stalled(fleet: FleetState) -> list[Lease]:
    """Two requests at one server, without a byte for two minutes."""
    leases = [leased(fleet, FAST, R1.replica_id, R2.replica_id) for _ in range(2)]
    assert fleet.watch(119.0) == []
    assert fleet.watch(120.0) == [(R0, True)]
    return leases


def test_a_server_that_sends_nothing_is_suspect(fleet: FleetState, clock: ManualClock) -> None:
    """Though its health checks succeed: it gets no more requests."""
    stalled(fleet)
    clock.advance(120.0)
    fleet.mark(R0, up=True, now=120.0)
    assert (fleet.view()[FAST][0].suspect, fleet.view()[FAST][0].word) == (True, "suspect")
    assert "fast/0" not in placed(fleet, now=120.0)


def test_a_suspect_is_cleared_by_a_byte(fleet: FleetState) -> None:
    """Of any of its requests."""
    leases = stalled(fleet)
    leases[1].touched = 3.0
    assert fleet.watch(121.0) == [(R0, False)]
    assert fleet.watch(122.0) == []
    assert leased(fleet, FAST, R1.replica_id, R2.replica_id, now=122.0).replica == R0


def test_a_suspect_is_cleared_by_a_probe(fleet: FleetState) -> None:
    """A request that is sent after a while, whatever became of the others."""
    for lease in stalled(fleet):
        lease.release()
    assert fleet.watch(149.0) == []
    probe = leased(fleet, now=150.0)
    assert probe.replica == R0
    fleet.saw(R0, Seen.ANSWERED, now=151.0)
    assert not fleet.view()[FAST][0].suspect


def test_one_slow_request_makes_nobody_suspect(fleet: FleetState) -> None:
    """Nor do many, as long as something comes, or while they are young."""
    first = leased(fleet, FAST, R1.replica_id, R2.replica_id)
    assert fleet.watch(500.0) == []
    leased(fleet, FAST, R1.replica_id, R2.replica_id, now=500.0)
    assert fleet.watch(610.0) == []
    first.touched = 1.0
    assert fleet.watch(620.0) == []
    assert fleet.watch(739.0) == []
    assert fleet.watch(740.0) == [(R0, True)]


def test_whole_answers_make_nobody_suspect(fleet: FleetState) -> None:
    """They send nothing until they are complete, however long that takes."""
    whole = Placement(streamed=False)
    for _ in range(5):
        assert fleet.lease(PLAIN, whole, frozenset({P1.replica_id}), now=0.0) is not None
    assert fleet.watch(500.0) == []


# --- Draining and changing sets -------------------------------------------------------------------


def test_a_drained_server_gets_nothing_new(fleet: FleetState) -> None:
    """Not even as the last of the baseline; what it has runs on."""
    running = leased(fleet, PLAIN, P1.replica_id)
    assert fleet.drain(P0.replica_id, draining=True)
    assert placed(fleet, PLAIN) == {"plain/1": 60}
    assert fleet.lease(PLAIN, exclude=frozenset({P1.replica_id}), now=0.0) is None
    shown = fleet.view()[PLAIN][0]
    assert (shown.in_flight, shown.draining, shown.word) == (1, True, "draining")
    running.release()
    assert fleet.drain(P0.replica_id, draining=False)
    assert placed(fleet, PLAIN, now=10.0)["plain/0"] > 0
    assert not fleet.drain(ReplicaId("plain/9"), draining=True)


def urls(*ports: int) -> list[tuple[str, float]]:
    """Servers as discovery finds them."""
    return [(f"http://plain.test:{port}", 1.0) for port in ports]


def test_a_set_of_servers_changes_while_requests_run(fleet: FleetState) -> None:
    """Who stays keeps number and load, who goes finishes, who comes gets the first free number."""
    staying = leased(fleet, PLAIN, P1.replica_id)
    leaving = leased(fleet, PLAIN, P0.replica_id)
    assert fleet.replace(PLAIN, urls(8000, 8002, 8003), now=0.0)
    assert not fleet.replace(PLAIN, urls(8000, 8002, 8003), now=0.0)
    shown = fleet.view()[PLAIN]
    assert [(item.replica.replica_id, item.in_flight) for item in shown] == [
        ("plain/0", 1),
        ("plain/2", 0),
        ("plain/3", 0),
    ]
    leaving.touched = 1.0
    fleet.saw(P1, Seen.FAILED, now=0.0)
    leaving.release()
    staying.release()
    assert [item.in_flight for item in fleet.view()[PLAIN]] == [0, 0, 0]


def test_a_server_that_returns_gets_its_number_back(fleet: FleetState) -> None:
    """So its metrics go on; numbers of servers long gone are given away."""
    fleet.replace(PLAIN, urls(8000), now=0.0)
    fleet.replace(PLAIN, urls(8000, 9000), now=0.0)
    assert [r.replica_id for r in fleet.replicas(PLAIN)] == ["plain/0", "plain/2"]
    fleet.replace(PLAIN, urls(8000, 8001), now=0.0)
    assert [r.replica_id for r in fleet.replicas(PLAIN)] == ["plain/0", "plain/1"]
    for port in range(10_000, 12_000):
        fleet.replace(PLAIN, urls(8000, port), now=0.0)
    [_, last] = fleet.replicas(PLAIN)
    assert int(last.replica_id.partition("/")[2]) <= 260


def test_a_new_server_starts_slowly() -> None:
    """Its share grows from a tenth to the whole; those of the beginning have theirs at once."""
    fleet = FleetState(FACTS, uniform=Random(2).random)
    fleet.replace(PLAIN, urls(8000, 8001, 8002), now=0.0)
    shares = [placed(fleet, PLAIN, n=2000, now=now)["plain/2"] / 2000 for now in (0.0, 5.0, 10.0)]
    # 0.1, 0.5 and 1 of what the others get; four standard errors of a third are 0.042.
    for share, ramp in zip(shares, (0.1, 0.5, 1.0), strict=True):
        assert share == pytest.approx(ramp / (2 + ramp), abs=0.042)


# --- A new configuration --------------------------------------------------------------------------


def test_a_reload_keeps_what_is_known_of_servers(fleet: FleetState, clock: ManualClock) -> None:
    """Load, drains, breakers and cached prompts, by pool and address; new ones start slowly."""
    running = leased(fleet, PLAIN, P1.replica_id, prefix=4)
    fleet.drain(P1.replica_id, draining=True)
    opened(fleet, R0)
    after = FleetState(
        route_facts(pool("plain", replicas=3), pool("fast", method="mtp", replicas=1)), clock
    )
    after.adopt(fleet, now=0.0)
    plain, [fast] = after.view()[PLAIN], after.view()[FAST]
    assert [(i.in_flight, i.draining, i.share) for i in plain] == [
        (1, False, 1.0),
        (0, True, 1.0),
        (0, False, 0.1),
    ]
    assert fast.breaker is BreakerState.OPEN
    assert leased(after, PLAIN, prefix=4, now=0.0).replica == running.replica
    running.release()
    assert after.view()[PLAIN][0].in_flight == 1
    clock.advance(1.0)
    assert leased(after, FAST, now=1.0).replica == R0


def test_what_happened_while_a_reload_was_prepared_counts(
    fleet: FleetState, clock: ManualClock
) -> None:
    """Orders and failures go to the fleet that serves; the next one takes them when it begins to."""
    fleet.drain(P0.replica_id, draining=True)
    after = FleetState(
        route_facts(pool("plain", replicas=3), pool("fast", method="mtp", replicas=2)), clock
    )
    after.adopt(fleet, now=0.0)
    fleet.drain(P0.replica_id, draining=False)
    fleet.drain(P1.replica_id, draining=True)
    fleet.mark(R0, up=False, now=0.0)
    opened(fleet, R1)
    after.go_on(fleet, now=5.0)
    plain, fast = after.view()[PLAIN], after.view()[FAST]
    assert [item.draining for item in plain] == [False, True, False]
    assert [item.word for item in fast] == ["down", "open"]
    clock.advance(10.0)
    assert [round(item.share, 1) for item in after.view()[PLAIN]] == [1.0, 1.0, 0.5]


def test_a_reload_with_other_limits_judges_anew(fleet: FleetState, clock: ManualClock) -> None:
    """An operator who changes them wants them to hold."""
    opened(fleet, R0)
    fleet.saw(R1, Seen.BUSY, now=0.0, retry_after_s=20)
    limits = {"breaker": {"failures": 9}, "cool_cap_s": 5}
    after = FleetState(
        route_facts(pool("plain"), pool("fast", method="mtp", replicas=3, health=limits)), clock
    )
    after.adopt(fleet, now=0.0)
    assert [item.word for item in after.view()[FAST]] == ["up"] * 3


def test_a_reload_keeps_servers_that_were_found(clock: ManualClock) -> None:
    """Until they are looked for again, under their numbers."""
    found = {"name": "plain", "method": "none", "discover": {"file": "servers.yaml"}}
    fleet = FleetState(route_facts(found), clock)
    fleet.replace(PLAIN, urls(8000, 8001, 8002), now=0.0)
    fleet.replace(PLAIN, urls(8001, 8002), now=0.0)
    after = FleetState(route_facts(found), clock)
    after.adopt(fleet, now=0.0)
    assert [replica.replica_id for replica in after.replicas(PLAIN)] == ["plain/1", "plain/2"]
    after.replace(PLAIN, urls(8000, 8002), now=0.0)
    assert [replica.replica_id for replica in after.replicas(PLAIN)] == ["plain/2", "plain/0"]


# --- Chance ---------------------------------------------------------------------------------------


def test_the_same_seed_places_in_the_same_way() -> None:
    """So that a test, or a replay, can be repeated."""

    def run() -> list[str]:
        fleet = FleetState(FACTS, uniform=Random(7).random)
        return [leased(fleet).replica.replica_id for _ in range(200)]

    assert run() == run()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("lease", "release", "saw", "mark", "drain", "wait", "watch", "tell")),
        st.integers(0, 2**16),
    ),
    max_size=80,
)


def happens(fleet: FleetState, clock: ManualClock, step: str, number: int) -> None:
    """Something that is no request; `number` says to whom and how."""
    now, replica = clock.monotonic(), (P0, P1, R0, R1, R2)[number % 5]
    match step:
        case "saw":
            seen = list(Seen)[number // 5 % 4]
            fleet.saw(replica, seen, now=now, retry_after_s=(None, 5.0, 500.0)[number // 20 % 3])
        case "mark":
            fleet.mark(replica, up=number % 3 > 0, now=now)
        case "drain":
            fleet.drain(replica.replica_id, draining=number % 2 > 0)
        case "wait":
            clock.advance(number / 200)
        case "watch":
            fleet.watch(now)
        case "tell":
            fleet.tell(replica, ReplicaGauges(number % 9, number % 4, number / 2**16))


@given(STEPS, st.integers(0, 2**32))
def test_whatever_happens_requests_are_placed_well_and_bad_times_end(
    steps: list[tuple[str, int]], seed: int
) -> None:
    """Whoever is available is leased, load never leaks, and all servers come back in the end."""
    clock = ManualClock(monotonic=0.0)
    fleet = FleetState(FACTS, clock, uniform=Random(seed).random)
    everyone = (P0, P1, R0, R1, R2)
    running: list[Lease] = []
    for step, number in steps:
        now = clock.monotonic()
        if step == "lease":
            arm = (PLAIN, FAST)[number % 2]
            excluded = frozenset(
                r.replica_id for i, r in enumerate(everyone) if number >> 8 & 32 and number >> i & 1
            )
            placement = Placement(tuple(range(number % 7)), number)
            shown = {item.replica.replica_id: item for item in fleet.view()[arm]}
            could = fleet.available(arm)
            lease = fleet.lease(arm, placement, excluded, now=now)
            left = [k for k, item in shown.items() if not item.draining and k not in excluded]
            if lease is None:
                assert not left if arm == PLAIN else excluded or not could
            else:
                assert lease.replica.replica_id in left
                assert could or arm == PLAIN
                running.append(lease)
        elif step == "release" and running:
            running.pop(number % len(running)).release()
        else:
            happens(fleet, clock, step, number)
        assert sum(item.in_flight for v in fleet.view().values() for item in v) == len(running)
    for lease in running:
        lease.release()
    for replica in everyone:
        fleet.drain(replica.replica_id, draining=False)
        fleet.mark(replica, up=True, now=clock.monotonic())
    clock.advance(60.0)
    for arm in (PLAIN, FAST):
        for _ in everyone:
            lease = leased(fleet, arm, now=clock.monotonic())
            fleet.saw(lease.replica, Seen.ANSWERED, now=clock.monotonic())
            lease.release()
    clock.advance(60.0)
    assert {item.word for v in fleet.view().values() for item in v} == {"up"}


def test_what_a_request_would_meet_on_each_arm(fleet: FleetState) -> None:
    """The load of the server that would take it, itself included; nothing is placed by asking."""
    assert fleet.prospects((), 0.0) == (Prospect(1), Prospect(1))
    held = [leased(fleet, FAST) for _ in range(4)]
    assert [found.load for found in fleet.prospects((), 0.0)] == [1, 2]
    assert [found.load for found in fleet.prospects((), 0.0)] == [1, 2]
    for lease in held:
        lease.release()


def test_an_arm_without_a_server_offers_nothing(fleet: FleetState) -> None:
    """No load at all."""
    for replica in (R0, R1, R2):
        fleet.mark(replica, up=False, now=0.0)
    assert fleet.prospects((), 0.0)[1] == Prospect(0)


def test_a_prompt_that_a_server_has_seen_is_met_there(fleet: FleetState) -> None:
    """With how much of it that was; unless that server is too busy to be taken for it."""
    prefix = (11, 22)
    lease = fleet.lease(FAST, Placement(prefix, 4096), now=0.0)
    assert lease is not None
    assert fleet.prospects(prefix, 0.0)[1].cached == pytest.approx(1.0)
    assert fleet.prospects((11, 33), 0.0)[1].cached == pytest.approx(0.5)
    assert fleet.prospects((44,), 0.0)[1].cached == 0.0
    others = frozenset(r.replica_id for r in (R0, R1, R2) if r != lease.replica)
    for _ in range(20):
        leased(fleet, FAST, *others)
    assert fleet.prospects(prefix, 0.0)[1] == Prospect(1, 0.0)
