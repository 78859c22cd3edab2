"""The daemon's resources that clients can exhaust: descriptors, memory, connections. It refuses or
waits, and recovers when the clients release them."""

import os
import random
import resource
import socket
import time
import unittest

import grpc

from harness import DaemonTest, octavo, until
from octavo.v1 import scan_pb2
from raw_http2 import PREFACE, RawPeer

SEED = int(os.environ.get("OCTAVO_TEST_SEED", random.randrange(1 << 32)))


def small_scan(volumes=1, fast=True, acquisition_samples=64, **raster):
    return scan_pb2.ScanSpec(
        simulated=scan_pb2.Simulated(seed=5, as_fast_as_possible=fast),
        acquisition=scan_pb2.Acquisition(samples_per_record=acquisition_samples, record_rate_hz=0 if fast else 20000),
        pattern=scan_pb2.Pattern(raster=scan_pb2.Raster(**{"ascans_per_bscan": 32, "bscans_per_volume": 8, "volumes": volumes, **raster})))


class LimitsCase(DaemonTest):
    def setUp(self):
        self.random = random.Random(SEED)
        self.limits = resource.prlimit(self.daemon.process.pid, resource.RLIMIT_NOFILE)
        self.client.info()  # connected

    def tearDown(self):
        resource.prlimit(self.daemon.process.pid, resource.RLIMIT_NOFILE, self.limits)
        super().tearDown()

    def id(self):
        return f"{super().id()} (OCTAVO_TEST_SEED={SEED})"

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))

    def lowest_free(self):
        numbers = {int(name) for name in os.listdir(f"/proc/{self.daemon.process.pid}/fd")}
        return next(n for n in range(len(numbers) + 1) if n not in numbers)

    def limit(self, most):
        resource.prlimit(self.daemon.process.pid, resource.RLIMIT_NOFILE, (most, self.limits[1]))

    def memory(self):
        with open(f"/proc/{self.daemon.process.pid}/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))

    def held_volume(self):
        scan = self.client.submit_scan(small_scan())
        self.assertEqual(self.client.wait(scan.name).volumes_held, 1)
        return self.client.scan(scan.name).volume_names[0]

    def connect(self, address):
        if address.startswith("unix:"):
            peer = socket.socket(socket.AF_UNIX)
            peer.connect(address[5:])
            return peer
        host, port = address.rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=10)

    def addresses(self):
        return [self.daemon.address, "unix:" + self.daemon.ready["unix"]]

    def temporary_names(self):
        return [name for _, folders, files in os.walk(self.daemon.root) for name in folders + files if name.startswith(".octavo-") and name.endswith(".tmp")]


class DescriptorsTest(LimitsCase):
    def test_connections_leave_some_to_the_rest(self):
        volume = self.held_volume()
        before = self.descriptors()
        most = before + self.random.randrange(80, 160)
        spare = most // 4
        self.limit(most)
        time.sleep(4)  # the listener checks the limit ten times a second; only this test lowers it while the daemon runs
        crowd = [self.connect(self.random.choice(self.addresses())) for _ in range(200)]
        for peer in crowd:
            if self.random.random() < 0.5:
                peer.sendall(PREFACE)
        until(lambda: self.descriptors() > most - spare - 8)
        # Existing connections continue, and the daemon's own work finds descriptors.
        self.client.info()
        self.assertLess(self.descriptors(), most - spare // 2)
        self.assertTrue(self.client.commit(volume, f"crowded-{self.random.random()}").path)
        for peer in self.random.sample(crowd, len(crowd)):
            peer.close()
        with self.daemon.client() as late:
            late.info()
        until(lambda: self.descriptors() <= before)

    def test_none_at_all(self):
        volume = self.held_volume()
        for address in self.addresses():
            with self.subTest(address):
                before = self.descriptors()
                self.limit(self.lowest_free())  # not one more
                time.sleep(4)  # as above
                late = self.connect(address)  # waits in the kernel's queue
                for destination in ("flat", "deep/er/folder"):
                    with self.assertRaises(octavo.OctavoError) as caught:
                        self.client.commit(volume, destination)
                    self.assertEqual((caught.exception.code.name, caught.exception.reason), ("RESOURCE_EXHAUSTED", "NO_DESCRIPTORS"))
                self.client.info()
                self.limit(self.limits[0])
                late.sendall(PREFACE + b"\0\0\0\4\0\0\0\0\0")
                late.settimeout(10)
                self.assertTrue(late.recv(9))  # the server accepts it now
                late.close()
                with octavo.Client(address) as again:
                    again.info()
                until(lambda: self.descriptors() <= before)
                # The next commit, of any volume, removes the files that could not be removed
                # earlier.
                self.assertTrue(self.client.commit(self.held_volume(), f"other-{self.random.random()}").path)
                self.assertEqual(self.temporary_names(), [])
        self.assertTrue(self.client.commit(volume, "deep/er/folder").path)

    def test_garbage_keeps_nothing(self):
        before = self.descriptors()
        peers = []
        for i in range(120):
            peer = self.connect(self.addresses()[i % 2])
            size = self.random.choice([0, 1, 23, 24, 400, 20_000, 100_000])
            start = PREFACE if self.random.random() < 0.3 else b""
            peer.setblocking(False)
            try:
                peer.send(start + self.random.randbytes(size))
            except (BlockingIOError, ConnectionError):
                pass
            if self.random.random() < 0.8:
                peer.close()
            else:
                peers.append(peer)
        self.client.info()
        for peer in peers:
            peer.close()
        until(lambda: self.descriptors() <= before)
        self.client.info()


class SharedMemoryTest(LimitsCase):
    flags = ("--handoff.unix", "auto")  # each buffer has a descriptor then

    def test_buffers_leave_some_to_the_rest(self):
        volume = self.held_volume()
        most = self.descriptors() + 160
        self.limit(most)
        made = []
        with self.assertRaises(octavo.OctavoError) as caught:
            for _ in range(most):
                made.append(self.client.buffers.create([1], "u8").name)
        self.assertEqual(caught.exception.code.name, "RESOURCE_EXHAUSTED")
        self.assertIn("takes a descriptor", caught.exception.message)
        self.assertGreater(len(made), 50)
        self.assertLessEqual(self.descriptors(), most - most // 16)
        # The daemon's own work finds descriptors.
        self.assertTrue(self.client.commit(volume, f"beside-buffers-{self.random.random()}").path)
        for name in made:
            self.client.buffers.destroy(name)


class MemoryTest(LimitsCase):
    flags = ("--listen.memory_bytes", str(64 << 20))

    def test_halves_of_messages_do_not_add_up(self):
        before = self.memory()
        methods = ["/octavo.v1.ScanService/SubmitScan", "/octavo.v1.JobService/SubmitJob", "/octavo.v1.VolumeService/ReadVolume",
                   "/octavo.v1.StreamService/Subscribe"]
        peers, most = [], 0
        for i in range(60):
            try:  # its own connection may be the one that the server ends
                peer = RawPeer(self.addresses()[i % 2])
                peers.append(peer)
                stream = peer.begin(self.random.choice(methods))
                peer.begin_message(stream, 8 << 20)
                peer.send_data(stream, self.random.randrange(4 << 20, 8 << 20))
            except (ConnectionError, socket.timeout):
                pass
            most = max(most, self.memory())
            if i % 10 == 9:
                self.again(lambda: self.client.info())
        self.assertLess(most - before, 160 << 20)  # instead of 360 MiB
        for peer in peers:
            peer.close()
        self.again(lambda: self.client.info())

    def again(self, call):
        """Makes a call that may have to be repeated, because gRPC chooses which connection it ends
        to make room."""
        for attempt in range(5):
            try:
                return call()
            except octavo.OctavoError as error:
                if attempt == 4:
                    raise
                self.assertIn(error.code.name, ("UNAVAILABLE", "RESOURCE_EXHAUSTED"))

    def test_a_message_that_is_too_large(self):
        method = self.client.channel.unary_unary("/octavo.v1.ScanService/GetScan", request_serializer=lambda b: b, response_deserializer=bytes)

        def told(size):
            with self.assertRaises(grpc.RpcError) as caught:
                method(bytes(size), timeout=100)  # others may use this machine
            return caught.exception.code().name

        for size in (9 << 20, 50 << 20):
            for _ in range(5):  # gRPC may end this connection to make room, as in `again`
                if (code := told(size)) != "UNAVAILABLE":
                    break
            self.assertEqual(code, "RESOURCE_EXHAUSTED")
        self.again(lambda: self.client.info())


if __name__ == "__main__":
    unittest.main()
