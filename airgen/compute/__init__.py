"""Where heavy work runs: this process, processes of this machine, or a Ray cluster, with the same results.

    with computing(ComputeSettings(kind="local", workers=8)):
        for key, vectors in current().map(work, shards):     # `shards` are (key, item); see `airgen.compute.base`
            ...

`base` has the one way to say what is to be done, `pool` what happens where a worker is lost, and processes of this
machine; `ray` carries items to a cluster. Rows in DuckDB stay the only checkpoint, and the driver alone
writes them.
"""

from airgen.compute.base import Compute, Here, Work
from airgen.compute.current import computing, current

__all__ = ["Compute", "Here", "Work", "computing", "current"]
