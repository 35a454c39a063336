#!/usr/bin/env python3
"""Runs llama.cpp's own HTTP server, from the xllamacpp wheel, on 127.0.0.1 until SIGTERM or until its parent is gone.

The server itself is native code; this file only sets its parameters. When it listens it prints one line:

    ready http://127.0.0.1:PORT
"""

import argparse
import os
import signal
import threading
import time


def arguments():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--model", required=True, help="GGUF file")
    a.add_argument("--alias", default="", help="name that clients use; default: the file's path")
    a.add_argument("--port", type=int, required=True, help="0: any free one")
    a.add_argument("--context", type=int, default=4096, help="tokens of each slot")
    a.add_argument("--slots", type=int, default=4, help="requests at once")
    a.add_argument("--threads", type=int, default=1)
    a.add_argument("--batch", type=int, default=256, help="tokens of one step of a prefill: how soon it can be stopped")
    a.add_argument("--cache-mib", type=int, default=1024, help="host memory for what slots lose")
    a.add_argument("--slot-dir", default="", help="where /slots may save and restore; default: nowhere")
    a.add_argument("--parent", type=int, default=0, help="exit when this process is no longer the parent")
    return a.parse_args()


def watch(parent):
    """An engine whose shoal was killed must not stay behind. Asking works on every system and from every thread."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


def main():
    a = arguments()
    if a.parent:
        threading.Thread(target=watch, args=(a.parent,), daemon=True).start()
    # Without this the threads of several engines on few cores spin against each other. Set before the library loads.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import xllamacpp

    p = xllamacpp.CommonParams()
    p.model.path = a.model
    if a.alias:
        p.model_alias = {a.alias}
    p.hostnames = ["127.0.0.1"]
    p.port = a.port
    p.n_parallel = a.slots
    p.n_ctx = a.context * a.slots  # of all slots together
    p.n_batch = p.n_ubatch = a.batch
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = a.threads
    p.cache_prompt = True
    p.cache_ram_mib = a.cache_mib
    # The default, 0.1, gives a slot to almost any prompt, and the memory behind the slots is seldom looked into.
    p.slot_prompt_similarity = 0.9
    p.kv_unified = False
    p.endpoint_metrics = True
    p.endpoint_slots = True
    p.ui = False
    if a.slot_dir:
        p.slot_save_path = os.path.join(a.slot_dir, "")
    # Blocked before the server's threads start, so that only sigwait sees them.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    server = xllamacpp.Server(p)
    print("ready", server.listening_address, flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    os._exit(0)


if __name__ == "__main__":
    main()
