"""The process that runs llama.cpp, which `airgen.llms.embedded` starts and talks to over HTTP.

It is a separate process because OpenMP reads from the environment how threads wait (`OMP_WAIT_POLICY`) when it is
loaded. The environment of the user's process thus stays unchanged, and a crash in llama.cpp does not end the job. The
first line of standard input is JSON: {"path", "context", "slots", "block", "threads", "key", "states"}. The response is
a line of JSON, {"address", "build"} or {"error"}. The process ends when its standard input is closed, so it cannot
outlive its parent. It does not import airgen.
"""

import importlib.metadata
import json
import os
import signal
import sys
from typing import Any


def main() -> None:
    """Load the model, report the address, and serve until standard input is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which lets the call in flight finish
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what llama.cpp prints is not an answer
    try:
        import xllamacpp  # type: ignore[import-untyped]

        server = _start(xllamacpp, json.loads(sys.stdin.readline()))
        build = f"{importlib.metadata.version('xllamacpp')} {xllamacpp.get_system_info()}"
        answer = {"address": server.listening_address, "build": build}
    except (ImportError, RuntimeError, ValueError) as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), file=report, flush=True)
    sys.stdin.read()
    os._exit(0)  # a call in flight must not keep the process alive


def _start(xllamacpp: Any, wanted: dict[str, Any]) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = wanted["path"]
    params.n_ctx = wanted["context"] * wanted["slots"]
    params.n_parallel = wanted["slots"]
    params.n_batch = params.n_ubatch = wanted["block"]  # each block is computed separately, wherever a prompt starts
    params.kv_unified = False
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED  # sums depend on threads
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = wanted["threads"]
    params.cache_ram_mib = 0  # the server's own cache of old prompts is reused at any token, not at a block boundary
    params.n_ctx_checkpoints = 0
    params.slot_save_path = wanted["states"]
    params.verbosity = -1
    params.endpoint_slots = params.ui = False
    params.api_keys = [wanted["key"]]
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
