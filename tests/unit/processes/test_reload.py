"""When the configuration is read again, and what is told of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from router.errors import ConfigError
from router.processes.reload import ConfigFile, Loaded, Reloader, Trigger
from tests.support.clock import ManualClock

GOOD = """
store: {url: "memory:"}
routes: [{model: m, baseline: a, pools: [{name: a, method: none, replicas: [{url: "http://h:1"}]}]}]
"""
OTHER = GOOD.replace("h:1", "h:2")


class World:
    """A file, and whoever serves by it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "c.yaml"
        self.path.write_text(GOOD)
        file = ConfigFile(self.path, environment={"PORT": "1"})
        self.applied: list[str] = []
        self.refuse: str | None = None
        self.flaw: Exception | None = None
        self.counted: list[str] = []
        self.clock = ManualClock()
        self.reloader = Reloader(
            file, file.parse(file.read()), self.apply, clock=self.clock, count=self.counted.append
        )

    async def apply(self, loaded: Loaded) -> None:
        """Serves by it, unless the test says otherwise."""
        if self.flaw is not None:
            raise self.flaw
        if self.refuse is not None:
            raise ConfigError(self.refuse)
        self.applied.append(loaded.text)

    @property
    def last(self) -> dict[str, Any]:
        """What came of the last reload."""
        last = self.reloader.state()["last_reload"]
        assert isinstance(last, dict)
        return last


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Nothing has happened yet."""
    return World(tmp_path)


async def test_applied(world: World) -> None:
    """It is handed over, shown, counted, and what is shown of it is its hash."""
    before = world.reloader.state()
    assert before["last_reload"] is None
    world.path.write_text(OTHER)
    await world.reloader.reload(Trigger.SIGNAL)
    after = world.reloader.state()
    assert world.applied == [OTHER]
    assert after["path"] == str(world.path)
    assert after["hash"] == world.last["hash"] != before["hash"]
    assert (world.last["result"], world.last["why"], world.last["trigger"]) == (
        "applied",
        None,
        "SIGHUP",
    )
    assert world.counted == ["applied"]


async def test_the_same_text_again(world: World) -> None:
    """Who asks for a reload gets one: files that the text names may have changed."""
    await world.reloader.reload(Trigger.ADMIN)
    assert world.applied == [GOOD]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("routes: [", "not valid YAML"),
        (
            GOOD + "listen: {port: 1, drain_s: 5}",
            "listen.port, listen.drain_s: cannot change while",
        ),
        (GOOD + "listen: {workers: 1, max_body_bytes: 2048}", "listen.max_body_bytes: cannot"),
        (GOOD + "admin: {port: 1}", "admin.port: cannot change"),
        (GOOD.replace("memory:", "redis://h/0"), "store.url: cannot change"),
        (GOOD + "reload: {poll_s: 0}", "reload.poll_s: cannot change"),
        (GOOD.replace("h:1", "${NOWHERE}"), "NOWHERE is not set"),
        (None, "no such file"),
    ],
)
async def test_refused(world: World, text: str | None, words: str) -> None:
    """What is no configuration, and what only a restart can change, is not handed over."""
    before = world.reloader.state()
    world.path.unlink()
    if text is not None:
        world.path.write_text(text)
    done = await world.reloader.asked()
    assert done == world.last
    assert words in world.last["why"]
    assert (world.last["result"], world.last["trigger"]) == ("refused", "admin port")
    assert (world.last["hash"] is None) == (text is None)
    assert world.reloader.state()["hash"] == before["hash"]
    assert (world.applied, world.counted) == ([], ["refused"])


@pytest.mark.parametrize(
    "more",
    [
        "listen: {drain_delay_s: 5, response_headers: false}",
        "classify: {sessions: 5}",
        "estimates: {window_s: 60}",
        "decision_log: {path: x}",
    ],
)
async def test_what_can_change(world: World, more: str) -> None:
    """Routes, and whatever else is built from the configuration alone."""
    world.path.write_text(GOOD + more)
    await world.reloader.reload(Trigger.SIGNAL)
    assert world.counted == ["applied"]


async def test_refused_by_whoever_serves(world: World) -> None:
    """Then the old one holds, and the reason is passed on."""
    world.refuse = "routes[0].policy: no"
    await world.reloader.reload(Trigger.SIGNAL)
    assert world.last["why"] == "routes[0].policy: no"
    assert world.reloader.loaded.text == GOOD


async def test_a_flaw_of_ours_is_a_refusal(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Told, counted and logged as any other, with where it was; the next one is tried again."""
    world.flaw = UnicodeError("label empty or too long")
    done = await world.reloader.asked()
    assert done == world.last
    assert (done["result"], world.counted) == ("refused", ["refused"])
    assert done["why"] == "it failed: UnicodeError: label empty or too long; the log says where"
    [line] = caplog.records
    assert line.getMessage() == "configuration refused; the old one serves on"
    assert line.exc_info is not None
    assert world.reloader.loaded.text == GOOD
    world.flaw = None
    await world.reloader.asked()
    assert world.counted == ["refused", "applied"]


async def test_looks(world: World) -> None:
    """A change is applied at the second look that sees it, once; the same text again is no change."""
    for _ in range(3):
        await world.reloader.look()
    assert world.counted == []
    world.path.write_text(OTHER)
    await world.reloader.look()
    assert world.applied == []
    for _ in range(3):
        await world.reloader.look()
    assert world.applied == [OTHER]
    assert world.last["trigger"] == "changed file"
    os.utime(world.path, (1, 1))
    for _ in range(3):
        await world.reloader.look()
    assert world.applied == [OTHER]


async def test_file_that_is_still_being_written(world: World) -> None:
    """Half a file that would do as one is left alone for as long as it grows."""
    await world.reloader.look()
    for text in (GOOD + "#", GOOD + "##", OTHER):
        world.path.write_text(text)
        await world.reloader.look()
    assert world.applied == []
    await world.reloader.look()
    assert world.applied == [OTHER]


async def test_refused_text_is_tried_once(world: World) -> None:
    """Until it changes; and a file that is gone for a moment is no change."""
    world.path.write_text("routes: [")
    for _ in range(4):
        await world.reloader.look()
    assert world.counted == ["refused"]
    world.path.unlink()
    for _ in range(3):
        await world.reloader.look()
    assert world.counted == ["refused"]
    world.path.write_text(GOOD)
    for _ in range(3):
        await world.reloader.look()
    assert world.counted == ["refused", "applied"]
