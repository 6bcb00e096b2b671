"""The command `specroute`."""
