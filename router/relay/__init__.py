"""Carries bytes between client and engine, and measures on the side."""
