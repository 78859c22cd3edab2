#!/usr/bin/env python3
"""Tests and measures the hand-over of memory between processes, without a daemon (handoff_server).
Covers both backends, CuPy and PyTorch if installed, either side killed, altered memory, revocation,
and a thousand hand-overs. Prints a line of JSON for each; ends with 1 if one fails.

    OCTAVO_BUILD_DIR=build/default handoff_check.py HANDOFF_SERVER host|cuda [--bscans N]      N B-scans of 1024 A-scans of 1024
depths: N MiB; default 1024 (1 GiB)
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
# The copy with the generated messages beside it, of a build or of deploy/bundle.
PACKAGE = os.path.join(os.environ["OCTAVO_BUILD_DIR"], "python", "octavo", "mapping.py")
spec = importlib.util.spec_from_file_location("mapping", PACKAGE)
mapping = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mapping)

failed = 0


def tell(what, fine, **figures):
    global failed
    failed += not fine
    print(json.dumps({"check": what, "fine": bool(fine), **figures}), flush=True)


class Server:
    def __init__(self, program, backend, grace=0.3):
        self.folder = tempfile.mkdtemp(prefix="octavo-handoff-")
        os.mkdir(os.path.join(self.folder, "data"))
        self.process = subprocess.Popen([program, backend, self.folder, str(grace)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ready = json.loads(self.process.stdout.readline())

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def pool(self, slots, bscans):
        answer = self.ask(f"pool {slots} {bscans} 1024 1024")
        assert not answer, answer

    def scan(self, volumes):
        answer = self.ask(f"scan {volumes}")
        assert "volumes" in answer, answer
        return answer["volumes"]

    def until(self, done, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if done(self.ask("memory")):
                return True
            time.sleep(0.01)
        return False

    def kill(self):
        self.process.kill()
        self.process.wait()


def to_host(mapped):
    if mapped.device[0] == 1:
        return np.asarray(mapped)
    import cupy
    return cupy.asnumpy(cupy.asarray(mapped))


def digest(array):
    """sum64 (gpu/device/digest.h) of an array's bytes."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    words = np.zeros(-(-data.size // 8) * 8, np.uint8)
    words[:data.size] = data
    words = words.view("<u8")
    with np.errstate(over="ignore"):
        x = words + (np.arange(1, words.size + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
        return f"sum64:{int(x.sum(dtype=np.uint64)):016x}"


# A separate client that the test kills: it maps, reports it, and reads again on request.
CHILD = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("mapping", sys.argv[1])
mapping = importlib.util.module_from_spec(spec); spec.loader.exec_module(mapping)
import numpy as np
mapped = mapping.Connection(sys.argv[2]).present(sys.argv[3])
if mapped.device[0] == 2:
    import cupy
    look = lambda: int(cupy.asarray(mapped).sum(dtype=cupy.int64))
else:
    look = lambda: int(np.asarray(mapped).sum(dtype=np.int64))
print(look(), flush=True)
for line in sys.stdin:
    print(look(), flush=True)
"""


def child(ticket):
    process = subprocess.Popen([sys.executable, "-c", CHILD, PACKAGE, ticket["socket_path"], ticket["nonce"]], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    return process, int(process.stdout.readline())


def again(process):
    process.stdin.write("\n")
    process.stdin.flush()
    return int(process.stdout.readline())


def timed(call):
    begin = time.perf_counter()
    result = call()
    return result, (time.perf_counter() - begin) * 1e6


def hand_overs(server, bscans):
    server.pool(2, bscans)
    volumes = server.scan(2)
    first = server.ask("export " + volumes[0]["name"])
    connection = mapping.Connection(first["socket_path"])
    if server.ready["ready"] == "cuda":  # a program that uses the GPU has a context
        import cupy
        cupy.zeros(1).sum()
        cuda = mapping._cuda()
        cuda.enter(0)
        cuda.leave()
    mapped, first_us = timed(lambda: connection.present(first["nonce"]))
    tell("first use of a slot", mapped.of == volumes[0]["name"], bytes=int(np.prod(mapped.shape)) * mapped.dtype.itemsize, microseconds=round(first_us, 1),
         target_microseconds=1000, note="ticket in hand: connect was before; present, import, map")
    second, second_us = timed(lambda: connection.take(volumes[1]["name"]))
    tell("first use of another slot", second.memory != mapped.memory, microseconds=round(second_us, 1))
    slots = {mapped.memory: mapped.generation, second.memory: second.generation}
    mapped.release()
    second.release()
    later, awake, fresh = [], [], []
    for turn in range(12):
        for volume in volumes:
            if not server.until(lambda m: m["exports"] == 0):
                tell("given back", False)
            answer = server.ask("discard " + volume["name"])
            if answer:
                tell("discard", False, answer=answer)
        volumes = server.scan(2)
        for volume in volumes:
            if turn % 2:  # both sides are awake, as after a message about the volume
                try:
                    connection.take("volumes/none")
                except mapping.HandoffError:
                    pass
            mapped, us = timed(lambda: connection.take(volume["name"]))
            if mapped.memory in slots:
                fresh.append(mapped.generation > slots[mapped.memory])
                slots[mapped.memory] = mapped.generation
                (awake if turn % 2 else later).append(us)
            if int(to_host(mapped).sum(dtype=np.int64)) == 0:
                tell("bytes", False)
            mapped.release()
    tell("later volumes in mapped slots", len(awake) >= 8 and all(fresh), count=len(awake), median_microseconds=round(statistics.median(awake), 1),
         worst_microseconds=round(max(awake), 1), target_microseconds=100)
    tell("the same after tenths of a second of sleep", len(later) >= 8, count=len(later), median_microseconds=round(statistics.median(later), 1),
         worst_microseconds=round(max(later), 1))
    # A new connection for each: the cost for a client that keeps nothing.
    ours = []
    for _ in range(10):
        ticket = server.ask("export " + volumes[0]["name"])
        with mapping.Connection(ticket["socket_path"]) as other:
            one, us = timed(lambda: other.present(ticket["nonce"]))
            ours.append(us)
            one.release()
            del one
    tell("present with nothing cached", True, median_microseconds=round(statistics.median(ours), 1), best_microseconds=round(min(ours), 1))
    server.until(lambda m: m["exports"] == 0)
    before = server.ask("memory")["descriptors"]
    mine = len(os.listdir("/proc/self/fd"))
    us = []
    for i in range(1000):
        one, t = timed(lambda: connection.take(volumes[i % 2]["name"]))
        us.append(t)
        one.release()
    server.until(lambda m: m["exports"] == 0)
    after = server.ask("memory")["descriptors"]
    tell("a thousand hand-overs", after == before and len(os.listdir("/proc/self/fd")) == mine, descriptors=[before, after],
         median_microseconds=round(statistics.median(us), 1), p99_microseconds=round(sorted(us)[989], 1))
    for volume in volumes:
        server.ask("discard " + volume["name"])
    connection.close()


def told_or_asked(server, bscans, turns=40):
    """Measures the time from the completion of a volume in a mapped slot to a usable object; both
    processes sleep before. Asking: the client waits for a line on a pipe, then requests the volume.
    Told: the server announces the volume (mapping.Volumes)."""
    server.pool(2, bscans)
    connection, asked, told, right = None, [], [], True

    def done(mapped, volume):
        same = (mapped.of, mapped.digest) == (volume["name"], volume["digest"])
        mapped.release()
        return same and server.until(lambda m: m["exports"] == 0) and not server.ask("discard " + volume["name"])

    for turn in range(turns + 2):  # the first ones map the slots
        volume, = server.scan("1 20")
        if connection is None:
            ticket = server.ask("export " + volume["name"])
            connection = mapping.Connection(ticket["socket_path"])
            mapped = connection.present(ticket["nonce"])
        else:
            mapped = connection.take(volume["name"])
        asked.append((time.monotonic_ns() - volume["sealed_ns"]) * 1e-3)
        right = done(mapped, volume) and right
    ticket = server.ask("feed")
    volumes = mapping.Volumes(ticket["socket_path"], ticket["nonce"], most=2, timeout=20)
    for turn in range(turns + 2):
        server.process.stdin.write("scan 1 20\n")
        server.process.stdin.flush()
        mapped = next(volumes)
        told.append((time.monotonic_ns() - mapped.sealed_ns) * 1e-3)
        volume, = json.loads(server.process.stdout.readline())["volumes"]
        right = done(mapped, volume) and right
    del mapped, asked[:2], told[:2]
    server.ask("end")
    ended = next(volumes, None) is None
    tell("told without asking, against asking", right and ended and volumes.skipped == 0, turns=turns,
         asked_median_microseconds=round(statistics.median(asked), 1), told_median_microseconds=round(statistics.median(told), 1),
         ratio=round(statistics.median(told) / statistics.median(asked), 2))
    connection.close()
    volumes.close()


def frameworks(server):
    server.pool(2, 16)
    volume = server.scan(1)[0]
    ticket = server.ask("export " + volume["name"])
    connection = mapping.Connection(ticket["socket_path"])
    mapped = connection.present(ticket["nonce"])
    host = np.array(to_host(mapped))
    tell("the bytes are the volume's", digest(host) == volume["digest"] == mapped.digest and host.any(), digest=volume["digest"])
    if mapped.device[0] == 1:
        if hasattr(np, "from_dlpack"):
            try:
                tell("numpy.from_dlpack", np.array_equal(np.from_dlpack(mapped), host), numpy=np.__version__)
            except (BufferError, TypeError, ValueError) as error:
                tell("numpy.from_dlpack", True, numpy=np.__version__, refuses=str(error))
    else:
        import cupy
        array = cupy.asarray(mapped)
        tell("cupy.asarray", array.data.ptr == mapped.pointer and np.array_equal(cupy.asnumpy(array), host), cupy=cupy.__version__)
        try:
            array = cupy.from_dlpack(mapped)
            tell("cupy.from_dlpack", array.data.ptr == mapped.pointer and np.array_equal(cupy.asnumpy(array), host))
        except Exception as error:
            tell("cupy.from_dlpack", False, error=repr(error))
        del array
    try:
        import torch
    except ImportError:
        torch = None
    if torch is not None and (mapped.device[0] == 1 or torch.cuda.is_available()):
        tensor = torch.from_dlpack(mapped)
        tell("torch.from_dlpack", tensor.data_ptr() == mapped.pointer and np.array_equal(tensor.cpu().numpy(), host), torch=torch.__version__,
             device=str(tensor.device))
        if mapped.device[0] == 2:
            try:
                torch.as_tensor(mapped, device="cuda")
                tell("torch.as_tensor, read-only", True, refuses="nothing")
            except Exception as error:
                tell("torch.as_tensor, read-only", True, refuses=str(error)[:80])
            told = connection.take(volume["name"], writable=True)
            other = torch.as_tensor(told, device="cuda")
            tell("torch.as_tensor, writable", other.data_ptr() == told.pointer and bool((other == tensor).all()))
            del other, told
        right = True
        for _ in range(300):  # the last reference is dropped while an exception propagates
            try:
                torch.from_dlpack(mapped) + undefined_name  # noqa: F821
            except NameError:
                continue
            right = False
        tell("an exception passes a tensor by", right)
        name = mapped.name
        del mapped
        kept = server.until(lambda m: m["exports"] == 1)  # a message returns the other one
        del tensor
        gone = server.until(lambda m: m["exports"] == 0)
        tell("the tensor keeps it", kept and gone, export=name, kept=kept, gone=gone)
    connection.close()
    server.until(lambda m: m["exports"] == 0)
    server.ask("discard " + volume["name"])


def killed_client(server):
    volume = server.scan(1)[0]
    process, total = child(server.ask("export " + volume["name"]))
    refused = server.ask("discard " + volume["name"])
    server.ask(f"discard {volume['name']} detach")
    detached = server.ask("memory")["detached"]
    others = server.scan(1)  # in the other slot; there is no third
    none = server.ask("scan 1").get("code") == "RESOURCE_EXHAUSTED"
    same = again(process) == total
    process.kill()
    process.wait()
    back = server.until(lambda m: m["detached"] == 0 and m["exports"] == 0)
    tell("SIGKILL of the client", refused.get("reason") == "EXPORTED" and detached > 0 and same and none and back and server.ask("memory")["slots"] == 1, detached_bytes=detached)
    server.ask("discard " + others[0]["name"])


def altered(server, backend):
    volume = server.scan(1)[0]
    ticket = server.ask("export " + volume["name"])
    if backend == "cuda":
        # Read-only access is an agreement: a process that imports the memory may map it for
        # writing.
        keep = mapping._CudaMemory
        mapping._CudaMemory = lambda descriptor, about: keep(descriptor, about, access=3)
        connection = mapping.Connection(ticket["socket_path"])
        mapped = connection.present(ticket["nonce"], writable=True)
        mapping._CudaMemory = keep
        import cupy
        view = cupy.asarray(mapped)
        view[3, 4, 5] ^= 1
        cupy.cuda.Device().synchronize()
        del view
        mapped.release()
        connection.close()
    else:
        maps = open(f"/proc/{server.process.pid}/maps").read()
        starts = [int(line.split("-")[0], 16) for line in maps.splitlines() if "memfd:octavo" in line]
        mapping.Connection(ticket["socket_path"]).present(ticket["nonce"]).release()
        with open(f"/proc/{server.process.pid}/mem", "r+b", buffering=0) as memory:  # its own mapping; a client cannot do this
            for start in starts:
                memory.seek(start)
                byte = memory.read(1)[0]
                memory.seek(start)
                memory.write(bytes([byte ^ 1]))
    server.until(lambda m: m["exports"] == 0)
    answer = server.ask(f"commit {volume['name']} altered")
    tell("altered memory is told by the commit", answer.get("code") == "DATA_LOSS" and answer.get("reason") == "DIGEST", answer=answer.get("code"))
    server.ask("discard " + volume["name"])


def revoked(server):
    volume = server.scan(1)[0]
    ticket = server.ask("export " + volume["name"])
    connection = mapping.Connection(ticket["socket_path"])
    mapped = connection.present(ticket["nonce"])
    server.ask("revoke " + mapped.name)
    time.sleep(0.05)
    reason = ""
    try:
        mapped.check()
    except mapping.HandoffError as error:
        reason = error.reason
    time.sleep(0.5)
    refused = server.ask("export " + volume["name"]).get("reason")
    mapped.release()
    server.until(lambda m: m["exports"] == 0)
    fine = "nonce" in server.ask("export " + volume["name"])
    tell("revocation", reason == "EXPORT_REVOKED" and refused == "EXPORT_REFUSED" and fine)
    connection.close()


def killed_server(program, backend, bscans):
    server = Server(program, backend)
    server.pool(1, bscans)
    volume = server.scan(1)[0]
    ticket = server.ask("export " + volume["name"])
    connection = mapping.Connection(ticket["socket_path"])
    mapped = connection.present(ticket["nonce"])
    process, total = child(server.ask("export " + volume["name"]))
    before = np.array(to_host(mapped))
    server.kill()
    reason = ""
    try:
        mapped.check()
    except mapping.HandoffError as error:
        reason = error.reason
    if backend == "cuda":
        import cupy
        held = cupy.cuda.runtime.memGetInfo()[0]
        interface = cupy.ndarray(mapped.shape, mapped.dtype, cupy.cuda.MemoryPointer(
            cupy.cuda.UnownedMemory(mapped.pointer, before.nbytes, mapped, mapped.device[1]), 0))
        same = np.array_equal(cupy.asnumpy(interface), before)
        del interface
    else:
        same = int(before.sum(dtype=np.int64)) == total
        held = 0
    process.stdin.close()
    process.wait()
    second = Server(program, backend)  # chooses its size by the free memory
    ready = second.ask("pool 1 16 1024 1024") == {}
    second.ask("memory")
    second.kill()
    del mapped
    connection.forget()
    connection.close()
    back = 0
    if backend == "cuda":
        import gc
        gc.collect()
        import cupy
        for _ in range(200):
            back = cupy.cuda.runtime.memGetInfo()[0] - held
            if back >= before.nbytes:
                break
            time.sleep(0.02)
    tell("SIGKILL of the server", reason == "SERVER_GONE" and same and ready and (backend == "host" or back >= before.nbytes),
         bytes=before.nbytes, memory_that_came_back=back)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("backend", choices=["host", "cuda"])
    parser.add_argument("--bscans", type=int, default=1024)
    arguments = parser.parse_args()
    server = Server(arguments.program, arguments.backend)
    tell("server", server.ready["ready"] == arguments.backend, **server.ready)
    hand_overs(server, arguments.bscans)
    told_or_asked(server, min(arguments.bscans, 64))
    frameworks(server)
    killed_client(server)
    altered(server, arguments.backend)
    revoked(server)
    server.process.stdin.write("quit\n")
    server.process.stdin.flush()
    tell("the server ends", server.process.wait(60) == 0)
    killed_server(arguments.program, arguments.backend, min(arguments.bscans, 256))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
