"""Tells requests apart by what their answers will be like; never decides where they go."""
