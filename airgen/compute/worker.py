"""A worker process: `python -m airgen.compute.worker` answers calls on standard input until that ends.

It ends with the process that started it, however that ends. What libraries print goes to standard error.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys

from airgen.compute.calls import answer


def main() -> None:
    """Answer calls (make, batch) until the end of the input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides what Ctrl-C ends
    with os.fdopen(os.dup(0), "rb") as calls, os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        try:
            pickle.dump("ready", answers)
            answers.flush()
            while True:
                make, batch = pickle.load(calls)
                answers.write(pickle.dumps(answer(make, batch), protocol=5))
                answers.flush()
        except (EOFError, BrokenPipeError):
            return


if __name__ == "__main__":
    main()
