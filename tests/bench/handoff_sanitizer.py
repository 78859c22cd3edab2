#!/usr/bin/env python3
"""Checks compute-sanitizer's reports about memory imported from another process. Run it under
compute-sanitizer, one case per run:

    compute-sanitizer --tool memcheck python3 handoff_sanitizer.py HANDOFF_SERVER read | past |
write | unmapped
"""

import importlib.util
import os
import sys

spec = importlib.util.spec_from_file_location("handoff_check", os.path.join(os.path.dirname(os.path.abspath(__file__)), "handoff_check.py"))
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)

import cupy  # noqa: E402

KERNEL = cupy.RawKernel("""extern "C" __global__ void touch(unsigned char* data, long long at, int write, unsigned* out) {
  if (write) data[at] = 1; else *out = data[at];
}""", "touch")

case = sys.argv[2]
server = check.Server(sys.argv[1], "cuda")
server.pool(1, 4)
volume = server.scan(1)[0]
ticket = server.ask("export " + volume["name"])
connection = check.mapping.Connection(ticket["socket_path"])
mapped = connection.present(ticket["nonce"])
out = cupy.zeros(1, cupy.uint32)
at = {"read": 12345, "past": 4 << 20, "write": 12345, "unmapped": 12345}[case]
pointer = mapped.pointer
if case == "unmapped":
    mapped.release()
    del mapped
    connection.forget()
try:
    KERNEL((1,), (1,), (cupy.uint64(pointer), cupy.int64(at), cupy.int32(case == "write"), out))
    print(case, "ends with", int(out[0]))
except Exception as error:
    print(case, "ends with", type(error).__name__, str(error)[:120])
sys.stdout.flush()
server.kill()
os._exit(0)  # after a fault the context cannot be cleaned up
