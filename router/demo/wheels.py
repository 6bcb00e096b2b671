from collections.abc import Callable


class DemoError(Exception):
    pass


Progress = Callable[[str], None]


def ignore_progress(message: str) -> None: ...
