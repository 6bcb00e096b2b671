"""Simulated engines over HTTP: step machines of `policies.sim` behind engines' wire formats."""
