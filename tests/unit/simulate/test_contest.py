"""Contests: runs by world, seed and entrant, kept in a folder, laid out as tables and pictures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from policies.sim.compare import yardstick
from policies.types import ClassId
from router.simulate.contest import (
    LEAST_LOADED,
    Contest,
    Entrant,
    Job,
    Scores,
    expectations,
    prepared_world,
    scores,
)
from router.simulate.load import load_world
from router.simulate.picture import picture
from router.simulate.tables import grouped, report, share_of

CREATIVE = ClassId("creative")
ENTRANTS = ("net_gain", "net_gain-", "fixed", LEAST_LOADED)
JOB = Job("rtx5090", 0, ENTRANTS, requests=120, holdout=0.1)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Scores], Path]:
    """One short contest and the folder it was kept in."""
    folder = tmp_path_factory.mktemp("contest")
    return Contest([JOB], folder).results(1), folder


def test_every_entrant_has_scores(results: tuple[list[Scores], Path]) -> None:
    """Gains are of plain decoding's time, the oracle's the same for all but for what is held out."""
    found, _ = results
    assert sorted(item.entrant for item in found) == sorted(ENTRANTS)
    by_name = {item.entrant: item for item in found}
    assert by_name["net_gain"].held_out > 0
    assert by_name[LEAST_LOADED].held_out == 0
    assert all(item.gain < item.most + 0.05 for item in found)
    assert sum(by_name["fixed"].shares["chat"]) == pytest.approx(1.0)


def test_what_is_in_the_folder_is_not_run_again(results: tuple[list[Scores], Path]) -> None:
    """A second contest reads; another seed is run."""
    found, folder = results
    again = Contest([JOB], folder)
    assert again.runs == 0
    assert again.results(1) == found
    assert Contest([replace(JOB, seed=1)], folder).runs == len(ENTRANTS)


def test_plain_decoding_scores_nothing_and_the_oracle_all() -> None:
    """The yardstick measured with itself."""
    stick = yardstick(prepared_world(replace(JOB, requests=80)), 0)
    plain = scores(stick, "plain", stick.plain, frozenset(), None)
    oracle = scores(stick, "oracle", stick.oracle, frozenset(), None)
    assert plain.gain == pytest.approx(0.0)
    assert plain.tails == pytest.approx((1.0, 1.0, 1.0))
    assert share_of([oracle]) == pytest.approx(1.0)


def test_worlds_may_tell_their_policies_what_is_wrong() -> None:
    """Expectations are those of the world where it has its own."""
    wrong, right = (expectations(load_world(name)) for name in ("wrong-priors", "rtx5090"))
    assert (wrong.tau[CREATIVE] != right.tau[CREATIVE])[1:].any()


def test_tables_and_pictures_hold_every_entrant(results: tuple[list[Scores], Path]) -> None:
    """Both are well formed, and say which world it was."""
    found, _ = results
    text = report(found)
    drawn = picture("rtx5090", found, ["plain", "mtp", "dflash"])
    ET.fromstring(drawn)
    for name in ENTRANTS:
        assert name in text
        assert name in drawn
    assert found[0].digest[:12] in text
    assert list(grouped(found)) == ["rtx5090"]


@pytest.mark.parametrize("name", ["net_gian", "net_gain:altruism", ""])
def test_entrants_that_cannot_be_are_refused(name: str) -> None:
    """A misspelt policy, a parameter without a value."""
    with pytest.raises(ValueError, match=r"there is no policy|has no value"):
        Entrant.of(name)
