"""The files of the pages."""

from __future__ import annotations

import re

from router.dashboard.pages import POLICY, static_files


def test_the_policy_lets_nothing_in() -> None:
    """Only our own origin; nothing inline, nothing evaluated."""
    assert "default-src 'none'" in POLICY
    assert "unsafe" not in POLICY
    assert "http" not in POLICY


def test_no_file_asks_for_anything_elsewhere() -> None:
    """No page, script or style of ours names another origin, and pages hold no inline code."""
    for path, (body, kind) in static_files().items():
        if "/vendor/" in path or kind == "text/plain":
            continue
        text = body.decode().replace("http://www.w3.org/", "")
        assert not re.search(r"https?://", text), path
        if kind == "text/html":
            assert not re.search(r"\sstyle=|\son\w+=|<style|<script(?![^>]*\ssrc=)", text), path
        if kind == "text/javascript":
            assert "innerHTML" not in text, path
            assert "insertAdjacentHTML" not in text, path


def test_what_is_vendored_has_its_licence() -> None:
    """The charting library lies beside its licence."""
    paths = set(static_files())
    assert {"/vendor/uPlot.iife.min.js", "/vendor/uPlot.min.css", "/vendor/uPlot.LICENSE"} <= paths
