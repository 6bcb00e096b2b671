"""Settings for all tests."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

# The same examples on every run and machine: a red test stays red until its cause is gone.
# HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

# A shell without job control starts background jobs deaf to Ctrl-C, and so would be all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
