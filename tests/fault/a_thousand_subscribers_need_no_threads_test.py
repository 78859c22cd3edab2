"""Many subscribers, and many connections at once: the daemon makes no thread for each, all of them get their frames soon, and those beyond what
a principal may have are refused with a reason."""

import os
import socket
import statistics
import time
import unittest
from concurrent import futures

import grpc

from faults import LONG, FaultTest, Scraper, held_volume, page
from harness import octavo, until
from octavo.v1 import stream_pb2, stream_pb2_grpc
from raw_http2 import PREFACE

SUBSCRIBERS = 1000 if LONG else 200
FRAMES = 10


class Subscribers(FaultTest):
    def threads(self, daemon):
        return len(os.listdir(f"/proc/{daemon.process.pid}/task"))

    def scan(self, client):
        return client.submit_scan(octavo.simulated(2), octavo.raster(32, 8, volumes=0), samples=256, rate_hz=500,
                                  retention=dict(mode=octavo.v1.scan_pb2.RETENTION_MODE_LIVE, hold_slots=1)).name

    def subscribe(self, address, scan, count):
        """All at once, on a few connections: the status of each, its frames, and how old these were. Each has a thread here: the event loop of
        gRPC's own Python package can hang at its end where hundreds of calls have just been cancelled."""
        channels = [grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1), ("octavo-test", i)]) for i in range(16)]
        ages = []

        def one(i):
            frames = 0
            call = stream_pb2_grpc.StreamServiceStub(channels[i % len(channels)]).Subscribe(
                stream_pb2.SubscribeRequest(parent=scan, products=[stream_pb2.PRODUCT_MIP]), timeout=200)
            try:
                for answer in call:
                    if answer.HasField("frame"):
                        frames += 1
                        ages.append(time.time() - answer.frame.publish_time.ToNanoseconds() * 1e-9)
                        if frames == FRAMES:
                            break
                call.cancel()
                return "OK", frames
            except grpc.RpcError as error:
                return octavo.errors.from_rpc_error(error).reason or error.code().name, frames
        with futures.ThreadPoolExecutor(count) as pool:
            results = list(pool.map(one, range(count)))
        for channel in channels:
            channel.close()
        return results, ages

    def test_all_get_their_frames(self):
        daemon = self.start("--quota.watches", "0")
        with daemon.client() as client, Scraper(daemon):
            scan = self.scan(client)
            next(client.subscribe(scan))
            threads, most = self.threads(daemon), 0
            results, ages = self.subscribe(daemon.address, scan, SUBSCRIBERS)
            most = self.threads(daemon)
            self.assertEqual(results, [("OK", FRAMES)] * SUBSCRIBERS)
            self.assertLess(most - threads, 24)  # those that gRPC makes as it needs them
            ages.sort()
            print(f"{SUBSCRIBERS} subscribers: {most - threads} more threads, age of a frame: median {statistics.median(ages):.3f} s, "
                  f"99 % {ages[len(ages) * 99 // 100]:.3f} s", flush=True)
            self.assertLess(ages[len(ages) * 99 // 100], 15)  # also on a busy machine
            until(lambda: sum(value for name, value in page(daemon.metrics)[0].items() if name.startswith("octavo_subscribers{")) == 0)
            self.assertEqual(client.scan(scan).blocks_dropped, 0)
            client.cancel(scan)
        self.assertEqual(daemon.stop(), 0)

    def test_beyond_the_quota(self):
        daemon = self.start("--quota.watches", "50")
        with daemon.client() as client:
            scan = self.scan(client)
            results, _ = self.subscribe(daemon.address, scan, SUBSCRIBERS)
            kinds = {kind for kind, _ in results}
            self.assertEqual(kinds, {"OK", "QUOTA"})
            self.assertGreaterEqual(sum(kind == "OK" for kind, _ in results), 50)
            until(lambda: next(client.subscribe(scan)) is not None)  # their places are free again
            client.cancel(scan)
        self.assertEqual(daemon.stop(), 0)

    def test_a_storm_of_connections(self):
        daemon = self.start()
        with daemon.client() as client:
            held_volume(client)
            threads, descriptors = self.threads(daemon), len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
            host, port = daemon.address.rsplit(":", 1)
            for _ in range(10 if LONG else 3):
                peers = []
                for i in range(400):
                    peer = socket.socket(socket.AF_UNIX if i % 2 else socket.AF_INET)
                    peer.connect(daemon.ready["unix"] if i % 2 else (host, int(port)))
                    if self.random.random() < 0.7:
                        peer.sendall(PREFACE + b"\0\0\0\4\0\0\0\0\0")
                    peers.append(peer)
                held_volume(client)  # clients that are connected already work on
                with daemon.client() as late:
                    late.info()
                for peer in peers:
                    peer.close()
            until(lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd")) <= descriptors + 4)
            self.assertLess(self.threads(daemon) - threads, 24)
        self.assertEqual(daemon.stop(), 0)


if __name__ == "__main__":
    unittest.main()
