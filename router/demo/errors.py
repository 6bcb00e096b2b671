"""What stops a demo, said in one sentence with the remedy."""

__all__ = ["DemoError", "UnsupportedPlatform"]


class DemoError(Exception):
    """The demo cannot go on; the message is one sentence for the user, with the remedy."""


class UnsupportedPlatform(DemoError):  # noqa: N818 - a condition of the machine, not a fault
    """The prebuilt engine cannot run on this machine."""
