"""Estimates from sums: each file one kind, all pure, none of them keeps state."""
