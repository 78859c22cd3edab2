#!/usr/bin/env python3
"""What small calls cost: a look (GetInfo), a change (CreateBuffer, DestroyBuffer) and a refusal (of a viewer), with and without the audit log, and with the
audit log on a disk that must have each line. Each result is checked. One JSON object a line; the daemon's processor time per call says more than the rate,
which is that of Python's clients.
  OCTAVO_BUILD_DIR=build/default tests/bench/bench_calls.py [--seconds 5] [--clients 4]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration"))

import grpc  # noqa: E402
from harness import BUILD, Daemon, octavo  # noqa: E402
from octavo.v1 import buffer_pb2, buffer_pb2_grpc, system_pb2, system_pb2_grpc, types_pb2  # noqa: E402

WAYS = (("without an audit log", ("--audit.dir", "none")), ("with it, without fsync", ("--audit.fsync", "false")), ("with it", ()))


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def look(channel, metadata):
    stub = system_pb2_grpc.SystemServiceStub(channel)

    def call():
        assert stub.GetInfo(system_pb2.GetInfoRequest(), metadata=metadata, timeout=30).version
        return 1
    return call


def change(channel, metadata):
    stub = buffer_pb2_grpc.BufferServiceStub(channel)
    create = buffer_pb2.CreateBufferRequest(type=types_pb2.ElementType(dtype=types_pb2.DTYPE_U8), shape=[8])

    def call():
        name = stub.CreateBuffer(create, metadata=metadata, timeout=30).buffer.name
        stub.DestroyBuffer(buffer_pb2.DestroyBufferRequest(name=name), metadata=metadata, timeout=30)
        return 2
    return call


def refusal(channel, metadata):
    stub = buffer_pb2_grpc.BufferServiceStub(channel)

    def call():
        try:
            stub.DestroyBuffer(buffer_pb2.DestroyBufferRequest(name="buffers/x"), metadata=metadata, timeout=30)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.PERMISSION_DENIED, error
            return 1
        raise AssertionError("a viewer has destroyed something")
    return call


KINDS = {"look": (look, "operator"), "change": (change, "operator"), "refusal": (refusal, "viewer")}


def client(address, secret, kind, seconds):
    """A process of its own: Python's threads share one lock."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel, os.fdopen(write, "w") as told:
            call = KINDS[kind][0](channel, (("authorization", "Bearer " + secret),))
            call()
            times, calls, end = [], 0, time.perf_counter() + seconds
            while (begun := time.perf_counter()) < end:
                calls += call()
                times.append(time.perf_counter() - begun)
            times.sort()
            json.dump(dict(calls=calls, p50=times[len(times) // 2], p99=times[int(len(times) * 0.99)]), told)
        os._exit(0)
    os.close(write)
    return pid, read


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--clients", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="octavo-calls-") as folder:
        tokens, secrets = os.path.join(folder, "tokens"), {}
        for role in ("operator", "viewer"):
            path = os.path.join(folder, role)
            subprocess.run([os.path.join(BUILD, "bin", "octavo"), "token", "add", "--file", tokens, "--name", role, "--role", role, "--secret-file", path], check=True,
                           capture_output=True, timeout=60)
            with open(path) as file:
                secrets[role] = file.read().strip()
        for way, flags in WAYS:
            daemon = Daemon("--security.tokens", tokens, *flags)
            try:
                for kind, (_, role) in KINDS.items():
                    cpu = cpu_seconds(daemon.process.pid)
                    begun = time.perf_counter()
                    running = [client(daemon.address, secrets[role], kind, arguments.seconds) for _ in range(arguments.clients)]
                    results = []
                    for pid, read in running:
                        with os.fdopen(read) as told:
                            results.append(json.load(told))
                        assert os.waitpid(pid, 0)[1] == 0
                    took, spent = time.perf_counter() - begun, cpu_seconds(daemon.process.pid) - cpu
                    calls = sum(result["calls"] for result in results)
                    print(json.dumps(dict(name=kind, way=way, clients=arguments.clients, calls_per_second=round(calls / took), daemon_us_per_call=round(spent / calls * 1e6, 1),
                                          p50_ms=round(sorted(r["p50"] for r in results)[len(results) // 2] * 1e3, 3), p99_ms=round(max(r["p99"] for r in results) * 1e3, 3))), flush=True)
                if "--audit.dir" not in flags:
                    assert os.path.getsize(os.path.join(daemon.directory, "state", "audit", "audit.jsonl")) > 0
                assert daemon.stop() == 0, daemon.text()
            finally:
                daemon.remove()


if __name__ == "__main__":
    main()
