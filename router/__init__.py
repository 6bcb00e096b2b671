"""The running program: intake, classification, selection, relay, estimates and surfaces."""

__version__ = "0.1.0"
