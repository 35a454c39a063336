"""One end of a transfer by Mooncake's engine over TCP: PORT BYTES. It takes a line of JSON and answers with one."""
import ctypes
import json
import mmap
import os
import sys
import time

from mooncake.engine import TransferEngine

port, size = sys.argv[1], int(sys.argv[2])
engine = TransferEngine()
if engine.initialize("127.0.0.1:" + port, "P2PHANDSHAKE", "tcp", "") != 0:
    sys.exit("the engine does not start")
memory = mmap.mmap(-1, size)
piece = b"\1" * (1 << 20)
for _ in range(size // len(piece)):
    memory.write(piece)
base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
if engine.register_memory(base, size) != 0:
    sys.exit("the memory cannot be registered")
print("ready", flush=True)


def cpu():
    t = os.times()
    return t.user + t.system


for line in sys.stdin:
    order = json.loads(line)
    answer = {}
    if order["do"] == "where":
        answer = {"Peer": "127.0.0.1:%d" % engine.get_rpc_port(), "Addr": base}
    elif order["do"] == "cpu":
        answer = {"CPU": cpu()}
    elif order["do"] == "write":
        used, start, left = cpu(), time.monotonic(), order["bytes"]
        while left > 0:
            n = min(left, size)
            if engine.transfer_sync_write(order["to"], base, order["addr"], n) != 0:
                sys.exit("the transfer failed")
            left -= n
        answer = {"Seconds": time.monotonic() - start, "CPU": cpu() - used}
    print(json.dumps(answer), flush=True)
