"""Recorded decisions, judged under another policy."""
