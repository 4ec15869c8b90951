"""A stage whose module kills whoever imports it."""

from __future__ import annotations

import os
import signal

os.kill(os.getpid(), signal.SIGKILL)
