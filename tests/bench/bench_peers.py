#!/usr/bin/env python3
"""What a crowd costs a scan: its rate, its drops, the daemon's memory and the delay of frames, first with ten viewers, then with a crowd as well: viewers that read,
viewers that read a frame a second, viewers that have stopped reading, and connections that say half a sentence; half of each over TCP, half over the Unix socket.
Delays are from the server's publication of a projection to its arrival in a client on the same host, of those that read. One JSON object a line; the exit status is 1
if the scan lost more than 1 % of its rate or a block, if a live viewer was cut off, or if the memory grew while the crowd stayed.
  OCTAVO_BUILD_DIR=build/default tests/bench/bench_peers.py [--live 1000] [--slow 50] [--stuck 100] [--half-open 100] [--seconds 30] [--rate 200000] [--backend cuda]
"""

import argparse
import json
import multiprocessing
import os
import sys
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration"))

import grpc  # noqa: E402
from harness import Daemon, octavo  # noqa: E402
from octavo.v1 import scan_pb2, stream_pb2, stream_pb2_grpc  # noqa: E402
from raw_http2 import HEADERS, RawPeer, frame, headers  # noqa: E402

SUBSCRIBE = "/octavo.v1.StreamService/Subscribe"
PER_PROCESS = 64  # viewers of one process: Python's threads share one lock


def viewer(address, scan, pause, delays, ended, over):
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = stream_pb2_grpc.StreamServiceStub(channel).Subscribe(stream_pb2.SubscribeRequest(parent=scan, products=[stream_pb2.PRODUCT_MIP], delivery=stream_pb2.DELIVERY_LATEST))
        try:
            for response in call:
                if response.HasField("frame"):
                    delays.append((time.monotonic_ns(), response.frame.publish_monotonic_ns, response.frame.dropped_before))
                if over.is_set():
                    call.cancel()
                    return
                if pause:
                    time.sleep(pause)
        except grpc.RpcError as error:
            if not over.is_set():
                ended.append(f"{error.code().name}: {error.details()}")


def viewers(addresses, scan, pause, pipe):
    """A process of viewers. It tells when all have got a frame, reads until it is asked to end, and sends what they saw."""
    over, ended, delays = threading.Event(), [], [[] for _ in addresses]
    threads = [threading.Thread(target=viewer, args=(address, scan, pause, mine, ended, over), daemon=True) for address, mine in zip(addresses, delays)]
    for one in threads:
        one.start()
    end = time.monotonic() + 120
    while not all(delays) and not ended and time.monotonic() < end:
        time.sleep(0.02)
    pipe.send(sum(1 for mine in delays if mine))
    pipe.recv()
    over.set()
    for one in threads:
        one.join(5)
    pipe.send((delays, ended))
    pipe.close()
    os._exit(0)


class Crowd:
    """Viewers in processes of their own."""

    def __init__(self, addresses, scan, pause=0.0):
        self.pipes, self.processes, self.count = [], [], len(addresses)
        for at in range(0, len(addresses), PER_PROCESS):
            here, there = multiprocessing.Pipe()
            self.processes.append(multiprocessing.get_context("spawn").Process(target=viewers, args=(addresses[at:at + PER_PROCESS], scan, pause, there), daemon=True))
            self.processes[-1].start()
            there.close()
            self.pipes.append(here)
        self.ready = 0

    def wait(self):
        self.ready = sum(pipe.recv() for pipe in self.pipes)

    def end(self):
        """The delays of all frames as (arrival, delay), in ns; how many frames were left out; why viewers ended early."""
        for pipe in self.pipes:
            pipe.send("end")
        frames, dropped, ended = [], 0, []
        for pipe, process in zip(self.pipes, self.processes):
            delays, early = pipe.recv()
            frames += [(arrived, arrived - published) for mine in delays for arrived, published, _ in mine[1:]]
            dropped += sum(left_out for mine in delays for _, _, left_out in mine[1:])
            ended += early
            process.join()
        return frames, dropped, ended


def half_open(address):
    """A connection that begins a call and never goes on."""
    peer = RawPeer(address)
    block = headers(SUBSCRIBE)
    peer.socket.sendall(frame(HEADERS, 0, 1, block[:len(block) // 2]))  # without END_HEADERS: more was to come
    return peer


def stuck(address, scan):
    peer = RawPeer(address, window=0)
    peer.call(SUBSCRIBE, stream_pb2.SubscribeRequest(parent=scan, products=[stream_pb2.PRODUCT_MIP, stream_pb2.PRODUCT_BSCAN], delivery=stream_pb2.DELIVERY_LATEST).SerializeToString())
    return peer


def resident_mib(daemon):
    with open(f"/proc/{daemon.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def measure(client, daemon, scan, seconds):
    """The scan's rate over so many seconds, and the memory in the middle and at the end."""
    first, begun = client.scan(scan), time.monotonic()
    time.sleep(seconds / 2)
    middle = resident_mib(daemon)
    time.sleep(max(0.0, begun + seconds - time.monotonic()))
    last, took = client.scan(scan), time.monotonic() - begun
    return dict(records_per_second=round((last.records - first.records) / took), blocks_dropped=last.blocks_dropped - first.blocks_dropped, middle_mib=round(middle, 1),
                end_mib=round(resident_mib(daemon), 1)), begun, begun + took


def delays_of(frames, begun, end):
    times = sorted(delay for arrived, delay in frames if begun * 1e9 <= arrived <= end * 1e9)
    if not times:
        return dict(frames=0)
    return dict(frames=len(times), p50_ms=round(times[len(times) // 2] / 1e6, 2), p99_ms=round(times[int(len(times) * 0.99)] / 1e6, 2), most_ms=round(times[-1] / 1e6, 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live", type=int, default=1000)
    parser.add_argument("--slow", type=int, default=50)
    parser.add_argument("--stuck", type=int, default=100)
    parser.add_argument("--half-open", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rate", type=float, default=200000, help="A-scans a second")
    parser.add_argument("--backend", default="auto")
    arguments = parser.parse_args()
    daemon = Daemon("--device.backend", arguments.backend, "--quota.watches", "0", "--listen.stalled_seconds", "3600")
    try:
        both = [daemon.address, "unix:" + daemon.ready["unix"]]

        def spread(count):
            return [both[i % 2] for i in range(count)]
        with daemon.client() as client:
            scan = client.submit_scan(octavo.simulated(3, repeat_block=True), octavo.raster(256, 64, volumes=0), samples=512, rate_hz=arguments.rate,
                                      retention=dict(mode="live", disposition=scan_pb2.DISPOSITION_AUTO_DISCARD)).name
            few = Crowd(spread(10), scan)
            few.wait()
            alone, begun, end = measure(client, daemon, scan, arguments.seconds)
            frames, _, early = few.end()
            print(json.dumps(dict(name="ten viewers", rate=arguments.rate, **alone, **delays_of(frames, begun, end), ended_early=early[:3])), flush=True)

            slow, live = Crowd(spread(arguments.slow), scan, pause=1.0), Crowd(spread(arguments.live), scan)
            bad = [stuck(address, scan) for address in spread(arguments.stuck)] + [half_open(address) for address in spread(arguments.half_open)]
            slow.wait()
            live.wait()
            beside, begun, end = measure(client, daemon, scan, arguments.seconds)
            frames, dropped, early = live.end()
            slow_frames, slow_dropped, slow_early = slow.end()
            for peer in bad:
                peer.close()
            print(json.dumps(dict(name="a crowd", rate=arguments.rate, live=live.ready, of_live=arguments.live, slow=slow.ready, stuck=arguments.stuck, half_open=arguments.half_open, **beside,
                                  **delays_of(frames, begun, end), frames_left_out=dropped, slow_frames=len(slow_frames), slow_left_out=slow_dropped, ended_early=len(early) + len(slow_early),
                                  because=(early + slow_early)[:3])), flush=True)
            client.cancel(scan)
        kept = beside["records_per_second"] / max(alone["records_per_second"], 1)
        grew = beside["end_mib"] - beside["middle_mib"]
        good = kept >= 0.99 and beside["blocks_dropped"] == 0 and live.ready == arguments.live and not early and not slow_early and grew < 8
        with urllib.request.urlopen(f"http://{daemon.metrics}/metrics", timeout=30) as page:
            threads = next(float(line.split()[1]) for line in page.read().decode().splitlines() if line.startswith("process_threads "))
        print(json.dumps(dict(name="result", rate_kept=round(kept, 4), memory_growth_mib=round(grew, 1), threads_of_daemon=threads, good=good)), flush=True)
        assert daemon.stop(60) == 0, daemon.text()[-2000:]
        return 0 if good else 1
    finally:
        daemon.remove()


if __name__ == "__main__":
    sys.exit(main())
