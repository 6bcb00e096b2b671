"""Watches whether speculation damages answers, and takes away from it the classes where it does."""
