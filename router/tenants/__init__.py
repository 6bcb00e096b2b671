"""Whose request it is, and what its tenant is entitled to."""
