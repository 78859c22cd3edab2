"""Clients that request much and do not read, or that make long calls: no other client waits, memory
does not grow, and the server disconnects them."""

import threading
import time
import unittest
import urllib.request

import grpc
import numpy as np

from harness import octavo, until
from limits_test import LimitsCase, small_scan
from octavo.v1 import buffer_pb2, scan_pb2, stream_pb2, volume_pb2
from raw_http2 import RawPeer


class SlowPeersTest(LimitsCase):
    """Clients that send requests and do not read; their window or their socket is full."""

    flags = ("--listen.stalled_seconds", "6", "--device.frame_pool_bytes", str(32 << 20))

    def test_readers_that_stop(self):
        scan = self.client.submit_scan(small_scan(acquisition_samples=256, ascans_per_bscan=256, bscans_per_volume=256))
        self.assertEqual(self.client.wait(scan.name).volumes_held, 1)
        volume = self.client.scan(scan.name).volume_names[0]
        request = volume_pb2.ReadVolumeRequest(name=volume, chunk_bytes=4 << 20).SerializeToString()
        before, descriptors = self.memory(), self.descriptors()
        peers = []
        for i in range(40):
            peer = RawPeer(self.addresses()[i % 2], window=0 if i % 4 < 2 else 1 << 30)
            self.addCleanup(peer.close)
            peers.append((peer, peer.call("/octavo.v1.VolumeService/ReadVolume", request)))
        self.assertTrue(self.client.commit(volume, "beside-them").path)  # the peers hold all memory that readers may use
        until(lambda: self.cut() >= 2)  # the kernel may end stuck TCP connections first
        # The first of them had a reader each. The server disconnects them; one has a full Unix
        # socket and loses its connection.
        until(lambda: self.descriptors() <= descriptors + 2 * 39)
        for i, (peer, stream) in enumerate(peers):
            peer.wait_for_end(stream)
            if i < 4:
                self.assertLess(len(peer.received.get(stream, b"")), 8 << 20)
            peer.close()
        until(lambda: self.descriptors() <= descriptors)
        until(lambda: self.memory() - before < 128 << 20)  # what the heap keeps goes back now and then

    def cut(self, reason="stalled"):
        with urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics") as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.split()[1]) for line in lines if line.startswith(f'octavo_streams_cut_total{{reason="{reason}"}}'))

    def test_streams_without_a_first_message_end(self):
        """Also those that send half of one; a client that has named what it feeds may pause."""
        scan = self.client.submit_scan(octavo.push(), octavo.raster(8, 1, volumes=1), samples=64).name
        paths = [f"/octavo.v1.{name}" for name in ("IngestService/Push", "IngestService/PushProjections", "BufferService/WriteBuffer")]
        descriptors = self.descriptors()
        hold = threading.Event()
        self.addCleanup(hold.set)

        def silence():
            hold.wait()
            return
            yield
        calls = []
        for path in paths:
            make = self.client.channel.stream_unary if path.endswith("WriteBuffer") else self.client.channel.stream_stream
            method = make(path, request_serializer=lambda b: b, response_deserializer=lambda b: b)
            calls += [(path, method.future(silence(), timeout=60) if path.endswith("WriteBuffer") else method(silence(), timeout=60)) for _ in range(4)]
        half = RawPeer(self.addresses()[0])
        self.addCleanup(half.close)
        half_streams = [half.begin(path) for path in paths]
        for stream in half_streams:
            half.begin_message(stream, 1000)
        named = threading.Event()
        self.addCleanup(named.set)

        def blocks():
            named.wait()
            yield np.zeros((8, 64), "<u2")
        pushed = []
        pusher = threading.Thread(target=lambda: pushed.append(self.client.push(scan, blocks())))
        pusher.start()
        until(lambda: self.client.scan(scan).source.connected)
        for path, call in calls:
            with self.subTest(path), self.assertRaises(grpc.RpcError) as caught:
                call.result() if path.endswith("WriteBuffer") else list(call)
            told = octavo.errors.from_rpc_error(caught.exception)
            self.assertEqual((told.code.name, told.reason), ("DEADLINE_EXCEEDED", "PROTOCOL"))
            self.assertIn("first message", told.message)
            self.assertIn("6 s (listen.stalled_seconds)", told.message)
        for stream in half_streams:
            half.wait_for_end(stream)
        until(lambda: self.cut("no_first_message") == 4 * len(paths) + len(paths))
        hold.set()
        half.close()
        self.assertTrue(pusher.is_alive())  # it has been silent for as long, behind its first message
        named.set()
        pusher.join(30)
        self.assertTrue(pushed and pushed[0].done)
        self.client.wait(scan)
        until(lambda: self.descriptors() <= descriptors)
        # The server goes on to take such streams.
        buffer = self.client.buffers.create((16,), "u8")
        buffer.write(np.arange(16, dtype="u1"))
        self.assertEqual(buffer.read().tolist(), list(range(16)))

    def test_a_write_that_stops_keeps_the_buffer_from_nobody(self):
        """Behind its header, in the middle of its bytes, behind the last of them; a write whose messages come one by one lasts as long as it takes."""
        request, header = buffer_pb2.WriteBufferRequest, buffer_pb2.WriteBufferRequest.Header
        array, descriptors = np.arange(16, dtype="u1"), self.descriptors()
        hold = threading.Event()
        self.addCleanup(hold.set)

        def begun(name, size):
            yield request(header=header(name=name, total_bytes=16))
            if size:
                yield request(data=array.tobytes()[:size])
            hold.wait()
        calls = []
        for size in (0, 7, 16):
            buffer = self.client.buffers.create((16,), "u8")
            buffer.write(array[::-1].copy())
            calls.append((buffer, self.client.buffers._stub.WriteBuffer.future(begun(buffer.name, size), timeout=60)))
        for buffer, call in calls:
            with self.assertRaises(grpc.RpcError) as caught:
                call.result()
            told = octavo.errors.from_rpc_error(caught.exception)
            self.assertEqual((told.code.name, told.reason), ("DEADLINE_EXCEEDED", "PROTOCOL"))
            self.assertIn("the next message of the stream, or its end, did not come within 6 s (listen.stalled_seconds)", told.message)
            self.assertEqual(buffer.read().tolist(), array[::-1].tolist(), "it is as it was")
            buffer.write(array)  # nobody keeps it
            self.assertEqual(buffer.read().tolist(), array.tolist())
        until(lambda: self.cut("no_message") == 3)
        hold.set()

        def slow(name):
            yield request(header=header(name=name, total_bytes=16))
            for byte in array:
                time.sleep(0.4)
                yield request(data=bytes([byte]))
        buffer = self.client.buffers.create((16,), "u8")
        self.client.buffers._stub.WriteBuffer(slow(buffer.name), timeout=60)
        self.assertEqual(buffer.read().tolist(), array.tolist())
        self.assertEqual(self.cut("no_message"), 3)
        until(lambda: self.descriptors() <= descriptors)

    def test_subscribers_that_stop(self):
        scan = self.client.submit_scan(small_scan(volumes=0, fast=False, ascans_per_bscan=128, bscans_per_volume=128))
        request = stream_pb2.SubscribeRequest(parent=scan.name, products=[stream_pb2.PRODUCT_BSCAN, stream_pb2.PRODUCT_MIP, stream_pb2.PRODUCT_EVENT]).SerializeToString()
        peers = []
        for i in range(10):
            peer = RawPeer(self.addresses()[i % 2], window=[0, 3000][i % 2])
            peers.append((peer, peer.call("/octavo.v1.StreamService/Subscribe", request)))
        for peer, stream in peers:
            peer.wait_for_end(stream)
            peer.close()
        self.assertEqual(self.client.scan(scan.name).state, 2)


    def test_costly_pictures_hold_up_no_raw_viewer(self):
        """Subscribers that want exact pictures, each of another size, take turns with each other, not
        with one who wants raw frames."""
        scan = self.client.submit_scan(octavo.simulated(5), octavo.raster(256, 4, volumes=0), samples=2048, rate_hz=20000, retention=dict(disposition=3)).name
        costly, most, clients = [], 20, [self.daemon.client() for _ in range(20)]
        over = threading.Event()

        def watch(i):
            try:
                for frame in clients[i].subscribe(scan, products="bscan", encoding="webp", image=dict(quality=100, max_width=1000 - i)):
                    costly.append(frame.sequence)
                    if over.is_set():
                        return
            except octavo.OctavoError:
                pass  # the scan is cancelled at the end
        threads = [threading.Thread(target=watch, args=(i,)) for i in range(most)]
        for thread in threads:
            thread.start()
        try:
            until(lambda: len(costly) >= 3)
            before, raw = len(costly), 0
            for _ in self.client.subscribe(scan, products="bscan"):
                raw += 1
                if raw == 15:
                    break
            self.assertLess(len(costly) - before, 15 * most // 2)
        finally:
            over.set()
            self.client.cancel(scan)
            for thread in threads:
                thread.join()
            for client in clients:
                client.close()


class WatchersTest(LimitsCase):
    flags = ("--listen.stalled_seconds", "3600")

    def test_a_watcher_that_stops_gets_the_newest(self):
        buffer = self.client.buffers.create((16,), "u8")
        watchers = []
        for i in range(4):
            peer = RawPeer(self.addresses()[i % 2], window=0)
            watchers.append((peer, peer.call("/octavo.v1.BufferService/WatchBuffers")))
        before = self.memory()
        channel = self.client.channel.unary_unary("/octavo.v1.BufferService/UpdateBuffer", request_serializer=lambda m: m.SerializeToString(),
                                                  response_deserializer=buffer_pb2.UpdateBufferResponse.FromString)
        changes = 1500
        for i in range(changes):
            labels = {f"label.{j}": f"{i}-".ljust(250, "x") for j in range(60)}
            channel(buffer_pb2.UpdateBufferRequest(name=buffer.name, labels=labels, update_mask={"paths": ["labels"]}), timeout=30)
        self.assertLess(self.memory() - before, 40 << 20)  # and not 4 x 28 MiB
        for peer, stream in watchers:
            peer.open_window(stream, 32 << 20)
            events = []
            while not events or not events[-1].buffer.labels.get("label.7", "").startswith(f"{changes - 1}-"):
                self.assertTrue(peer.read_frame())
                events = [buffer_pb2.WatchBuffersResponse.FromString(m) for m in peer.messages(stream)]
            self.assertEqual(events[0].kind, buffer_pb2.WatchBuffersResponse.KIND_EXISTS)
            self.assertLess(len(events), changes / 4)  # the newest, and what the server told while the peer read: 256 changes may have waited to be told
            peer.close()


class AnswersTest(LimitsCase):
    """Clients that do not read the answers of unary calls."""

    flags = ("--listen.stalled_seconds", "3600")
    calls = 120

    def ask_for_much(self, address):
        """Requests about 1.4 MiB per answer."""
        peer = RawPeer(address, window=0)
        self.addCleanup(peer.close)
        return peer, [peer.call("/octavo.v1.BufferService/ListBuffers") for _ in range(self.calls)]

    def make_buffers(self):
        for i in range(100):
            self.client.buffers.create((16,), "u8", labels={f"label.{j}": f"{i}-".ljust(250, "x") for j in range(55)})

    def test_answers_that_nobody_takes_are_bounded(self):
        self.make_buffers()
        before = self.memory()
        for address in self.addresses():
            peer, streams = self.ask_for_much(address)
            # The first answers wait, 64 MiB. The server refuses the others; a refusal needs no
            # window.
            while len(peer.ended) < self.calls - 40:
                self.assertTrue(peer.read_frame())
            self.assertFalse(any(peer.received.get(stream) for stream in streams))
            self.assertEqual(len(self.client.buffers.list()), 100)  # a client that reads is served
            self.assertLess(self.memory() - before, 400 << 20)  # instead of some 700 MiB
            # Delayed answers arrive completely once the peer reads.
            waiting = next(stream for stream in streams if stream not in peer.ended)
            peer.open_window(waiting, 4 << 20)
            while waiting not in peer.ended:
                self.assertTrue(peer.read_frame())
            self.assertEqual(len(buffer_pb2.ListBuffersResponse.FromString(peer.messages(waiting)[0]).buffers), 100)
            peer.close()  # the server frees the waiting answers: the second peer uses no more


class StalledAnswersTest(AnswersTest):
    flags = ("--listen.stalled_seconds", "1")
    calls = 10

    def test_answers_that_nobody_takes_are_bounded(self):
        """The server disconnects the clients in time."""
        self.make_buffers()
        for address in self.addresses():
            peer, streams = self.ask_for_much(address)
            for stream in streams:
                peer.wait_for_end(stream)
            peer.close()


class PlansTest(LimitsCase):
    def test_large_plans_hold_up_nobody(self):
        request = scan_pb2.PlotWaveformRequest(spec=small_scan(ascans_per_bscan=2048, bscans_per_volume=2048))
        plan = self.client.channel.unary_unary("/octavo.v1.ScanService/PlotWaveform", request_serializer=lambda m: m.SerializeToString(),
                                               response_deserializer=lambda b: b)
        calls = [plan.future(request, timeout=120) for _ in range(40)]
        until(lambda: any(call.done() for call in calls))  # refused, or the first one has finished
        slowest = 0.0
        for _ in range(20):
            begun = time.monotonic()
            self.client.info()
            self.client.scans()
            slowest = max(slowest, time.monotonic() - begun)
        submitted = self.client.submit_scan(small_scan())
        self.client.wait(submitted.name)
        self.assertLess(slowest, 20)  # also on a busy machine
        refused = [call for call in calls if call.done() and call.code().name == "RESOURCE_EXHAUSTED"]
        self.assertGreater(len(refused), 0)
        for call in calls:
            call.cancel()


if __name__ == "__main__":
    unittest.main()
