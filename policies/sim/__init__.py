"""Worlds to try policies in: engines that step, requests that come, nothing that waits."""
