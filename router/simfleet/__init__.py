"""Simulated engines over HTTP: a step machine of `policies.sim` behind each engine's wire format."""
