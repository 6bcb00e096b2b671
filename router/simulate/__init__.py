"""Worlds that ship with the package: their files, and how they are read."""
