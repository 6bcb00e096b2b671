"""Engines and fleets as a model: what a world of published numbers would do with requests."""
