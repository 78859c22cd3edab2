#!/usr/bin/env python3
"""Throughput of the daemon as clients see it: ReadVolume and Subscribe over TCP and the Unix
socket, compared with a raw socket; commits, compared with fio (or a plain write) on the same
directory; and a scrape. One JSON object a line; every result is checked.
  OCTAVO_BUILD_DIR=build/default tests/bench/bench_service.py [read | subscribe | commit | scrape ...] [--mib 64] [--rounds 5]
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration"))

import numpy as np  # noqa: E402
from harness import Daemon, octavo  # noqa: E402
from octavo.frames import NUMPY  # noqa: E402
from octavo.v1 import scan_pb2, stream_pb2, volume_pb2  # noqa: E402

MIB = 1 << 20


def line(name, **values):
    print(json.dumps({"name": name, **values}), flush=True)


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def raw_socket(family, bytes_total=512 * MIB):
    """GB/s of a plain socket between two threads: the ceiling of this run."""
    listener = socket.socket(family, socket.SOCK_STREAM)
    path = f"/tmp/octavo-bench-{os.getpid()}.sock"
    listener.bind(path if family == socket.AF_UNIX else ("127.0.0.1", 0))
    listener.listen(1)
    address = path if family == socket.AF_UNIX else listener.getsockname()
    child = os.fork()
    if child == 0:
        out = socket.socket(family, socket.SOCK_STREAM)
        out.connect(address)
        chunk = bytes(2 * MIB)
        for _ in range(bytes_total // len(chunk)):
            out.sendall(chunk)
        os._exit(0)
    connection, _ = listener.accept()
    buffer = bytearray(2 * MIB)
    got, began = 0, time.perf_counter()
    while got < bytes_total:
        n = connection.recv_into(buffer)
        if n == 0:
            break
        got += n
    seconds = time.perf_counter() - began
    os.waitpid(child, 0)
    connection.close()
    listener.close()
    if family == socket.AF_UNIX:
        os.unlink(path)
    return got / seconds * 1e-9


def volume_of(client, bscans=256):
    scan = client.submit_scan(octavo.simulated(3, fast=True), octavo.raster(512, bscans, volumes=1),
                              processing=octavo.processing(dtype="u8", levels=(-15, 37)))
    client.wait(scan.name)
    return client.volumes(scan.name)[0]


def through_protobuf(client, name):
    """A read as the client made it before: one connection, each message decoded by protobuf and then copied."""
    array = flat = None
    for part in client._volumes.ReadVolume(volume_pb2.ReadVolumeRequest(name=name)):
        if array is None:
            array = np.empty(tuple(part.shape), NUMPY[part.dtype])
            flat = memoryview(array).cast("B")
        flat[part.offset:part.offset + len(part.data)] = part.data
    return array


def read_rates(daemon, client, mib, rounds):
    """All ways take turns, so that what else the machine does meets them alike."""
    volume = volume_of(client, bscans=mib * 4)
    wanted = through_protobuf(client, volume.name)
    program = os.path.join(os.environ["OCTAVO_BUILD_DIR"], "bin", "bench_read")
    for kind, address, family in (("tcp", daemon.address, socket.AF_INET), ("unix", "unix:" + daemon.ready["unix"], socket.AF_UNIX)):
        with octavo.Client(address) as other:
            # The same without assembling the array: the rate of the server and the connection.
            method = other.channel.unary_stream("/octavo.v1.VolumeService/ReadVolume", request_serializer=volume_pb2.ReadVolumeRequest.SerializeToString,
                                                response_deserializer=lambda b: len(b))
            out = np.zeros_like(wanted)
            ways = {"undecoded": lambda: sum(method(volume_pb2.ReadVolumeRequest(name=volume.name))),
                    "numpy_through_protobuf": lambda: through_protobuf(other, volume.name)}
            for connections in (1, 2, 4, 8, 0):
                ways[f"numpy_{connections or 'default'}"] = lambda connections=connections: other.read(volume.name, connections=connections)
                ways[f"numpy_out_{connections or 'default'}"] = lambda connections=connections: other.read(volume.name, connections=connections, out=out)
            rates, used, ceilings = {way: [] for way in ways}, {way: [] for way in ways}, []
            for turn in range(rounds + 1):
                ceilings.append(raw_socket(family))
                for way, read in ways.items():
                    before, began = cpu_seconds(daemon.process.pid), time.perf_counter()
                    got = read()
                    seconds = time.perf_counter() - began
                    if turn == 0:  # connections and memory are made
                        if isinstance(got, np.ndarray):
                            np.testing.assert_array_equal(got, wanted)
                        continue
                    rates[way].append(volume.bytes / seconds * 1e-9)
                    used[way].append((cpu_seconds(daemon.process.pid) - before) / (volume.bytes * 1e-9))
            ceiling, undecoded = statistics.median(ceilings), statistics.median(rates["undecoded"])
            for way in ways:
                rate = statistics.median(rates[way])
                line("read_volume", socket=kind, way=way, bytes=volume.bytes, gb_per_s=round(rate, 3), of_undecoded=round(rate / undecoded, 3),
                     of_ceiling=round(rate / ceiling, 3), raw_socket_gb_per_s=round(ceiling, 3), server_cpu_s_per_gb=round(statistics.median(used[way]), 3))
        if os.path.exists(program):
            # Its lines go on to standard output. It ends with an error if a voxel differs.
            print(json.dumps({"name": "read_volume_cpp follows", "socket": kind}), flush=True)
            subprocess.run([program, "--address", address, "--volume", volume.name, "--seconds", str(0.1 * rounds)], check=True)
    client.discard(volume.name)


def subscribe_rate(daemon, client):
    """Volumes of a scan whose work is small compared with its output: 64 samples in, 32 bins of f32
    out. The client does not decode the frames, so that the measurement excludes its Python; it
    counts the bytes that a full queue drops."""
    for kind, address in (("tcp", daemon.address), ("unix", "unix:" + daemon.ready["unix"])):
        with octavo.Client(address) as other:
            scan = other.submit_scan(octavo.simulated(3, fast=True), octavo.raster(1024, 256, volumes=60), samples=64,
                                     processing=octavo.processing(value="magnitude", dtype="f32"), retention=dict(disposition=scan_pb2.DISPOSITION_AUTO_DISCARD),
                                     products=dict(preview_rate_hz=-1))
            method = other.channel.unary_stream("/octavo.v1.StreamService/Subscribe", request_serializer=stream_pb2.SubscribeRequest.SerializeToString,
                                                response_deserializer=lambda b: len(b))
            before, received, began = cpu_seconds(daemon.process.pid), 0, time.perf_counter()
            for size in method(stream_pb2.SubscribeRequest(parent=scan.name, products=[stream_pb2.PRODUCT_VOLUME], delivery=stream_pb2.DELIVERY_DROP_OLDEST, queue_length=4)):
                received += size
            seconds = time.perf_counter() - began
            made = other.wait(scan.name).volumes_done * 1024 * 256 * 32 * 4
        line("subscribe_volumes", socket=kind, gb_per_s=round(received / seconds * 1e-9, 3), made_gb_per_s=round(made / seconds * 1e-9, 3),
             of_what_was_made=round(received / made, 3), server_cpu_s=round(cpu_seconds(daemon.process.pid) - before, 2), seconds=round(seconds, 2))


def subscriber_rates(daemon, client, mib, rounds):
    """Volumes as a subscriber of the client library gets them, arrays and all, through the stream and by read: those of a scan that has
    ended, so that the scan takes no processor from them. All ways take turns with a plain socket. Each array is compared with the volume."""
    scan = client.submit_scan(octavo.simulated(3), octavo.raster(512, mib * 2, volumes=4), samples=1024, rate_hz=512 * mib * 2,
                              processing=octavo.processing(dtype="u16"), products=dict(preview_rate_hz=-1))
    first = [f.sequence for f in client.subscribe(scan, "volume", queue_length=64)][0]
    client.wait(scan)
    wanted = {v.name: client.read(v) for v in client.volumes(scan)}
    program = os.path.join(os.environ["OCTAVO_BUILD_DIR"], "bin", "bench_subscribe")
    for kind, address, family in (("tcp", daemon.address, socket.AF_INET), ("unix", "unix:" + daemon.ready["unix"], socket.AF_UNIX)):
        with octavo.Client(address) as other:
            rates, used, ceilings = {}, {}, []
            for turn in range(rounds + 1):
                ceilings.append(raw_socket(family))
                for way, by_read in (("stream", False), ("by_read", True)):
                    before, began, count, size = cpu_seconds(daemon.process.pid), time.perf_counter(), 0, 0
                    for frame in other.subscribe(scan.name, "volume", from_sequence=first, volumes_by_read=by_read):
                        count, size = count + 1, size + frame.array.nbytes
                        if turn == 0:  # connections and memory are made
                            np.testing.assert_array_equal(frame.array, wanted[frame.volume])
                    seconds = time.perf_counter() - began
                    if turn > 0:
                        rates.setdefault(way, []).append((size / seconds * 1e-9, count / seconds))
                        used.setdefault(way, []).append((cpu_seconds(daemon.process.pid) - before) / (size * 1e-9))
            ceiling = statistics.median(ceilings)
            for way, measured in rates.items():
                rate, volumes = statistics.median(measured)
                line("subscriber_python", socket=kind, way=way, bytes=size // count, gb_per_s=round(rate, 3), volumes_per_s=round(volumes, 2),
                     of_ceiling=round(rate / ceiling, 3), raw_socket_gb_per_s=round(ceiling, 3), server_cpu_s_per_gb=round(statistics.median(used[way]), 3))
        if os.path.exists(program):
            # Its lines go on to standard output. It ends with an error if a voxel differs.
            subprocess.run([program, "--address", address, "--scan", scan.name, "--from", str(first), "--seconds", str(0.2 * rounds)], check=True)
    for name in wanted:
        client.discard(name)


def commit_rates(daemon, client):
    for name, options in (("npy", dict(format="npy")), ("zarr raw", dict(codec="none")), ("zarr zstd 1", {}), ("zarr zstd 1, shards", dict(chunk=[64, 128, 128], shard=[64, 512, 512]))):
        rates, sizes = [], 0
        for i in range(3):
            volume = volume_of(client)
            began = time.perf_counter()
            result = client.commit(volume.name, f"bench/{name.replace(' ', '_').replace(',', '')}_{i}", **options)
            rates.append(volume.bytes / (time.perf_counter() - began) * 1e-6)
            sizes = result.bytes
        line("commit", format=name, volume_bytes=volume.bytes, disk_bytes=sizes, mb_per_s=round(statistics.median(rates), 1))
    directory = os.path.join(daemon.root, "fio")
    os.makedirs(directory)
    if shutil.which("fio"):
        out = subprocess.run(["fio", "--name=w", f"--directory={directory}", "--rw=write", "--bs=1M", "--size=64M", "--numjobs=1", "--ioengine=psync", "--end_fsync=1",
                              "--output-format=json"], capture_output=True, text=True, check=True)
        rate = json.loads(out.stdout)["jobs"][0]["write"]["bw_bytes"]
        line("fio", what="1 MiB blocks, 64 MiB, buffered, fsync at the end: what a commit does", mb_per_s=round(rate * 1e-6, 1))
        out = subprocess.run(["fio", "--name=d", f"--directory={directory}", "--rw=write", "--bs=1M", "--size=256M", "--direct=1", "--ioengine=psync", "--output-format=json"],
                             capture_output=True, text=True, check=True)
        line("fio", what="1 MiB blocks, 256 MiB, direct", mb_per_s=round(json.loads(out.stdout)["jobs"][0]["write"]["bw_bytes"] * 1e-6, 1))
    data = os.urandom(64 * MIB)
    began = time.perf_counter()
    with open(os.path.join(directory, "plain"), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    line("plain_write", what="64 MiB write and fsync", mb_per_s=round(len(data) / (time.perf_counter() - began) * 1e-6, 1))


def scrape(daemon):
    times = []
    for _ in range(20):
        began = time.perf_counter()
        size = len(urllib.request.urlopen(f"http://{daemon.metrics}/metrics").read())
        times.append(time.perf_counter() - began)
    line("scrape", ms=round(statistics.median(times) * 1e3, 2), bytes=size)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=[[], "read", "subscribe", "commit", "scrape"], help="default: all")
    parser.add_argument("--mib", type=int, default=64, help="read, subscribe: of the volume")
    parser.add_argument("--rounds", type=int, default=5, help="read: of each way")
    options = parser.parse_args()
    what = options.what or ["read", "subscribe", "commit", "scrape"]
    daemon = Daemon()
    try:
        with daemon.client() as client:
            if "read" in what:
                read_rates(daemon, client, options.mib, options.rounds)
            if "subscribe" in what:
                subscribe_rate(daemon, client)
                subscriber_rates(daemon, client, options.mib, options.rounds)
            if "commit" in what:
                commit_rates(daemon, client)
            if "scrape" in what:
                scrape(daemon)
    finally:
        daemon.remove()


if __name__ == "__main__":
    main()
