"""Where commands print: results on standard output, errors on standard error."""

from __future__ import annotations

import sys

from rich.console import Console

_PIPE_WIDTH = 110
"""Width of tables where standard output is no terminal that has one."""

# Names of models may hold brackets and colons, which are no markup and no emoji here.
out = Console(
    markup=False,
    emoji=False,
    highlight=False,
    width=None if sys.stdout.isatty() else _PIPE_WIDTH,
)
err = Console(stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False)
