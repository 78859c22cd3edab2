"""Frames of a subscription in shared memory (client.subscribe(..., same_host=True), StreamService.OpenFrames)."""

import contextlib
import gc
import mmap
import os
import signal
import subprocess
import sys
import threading
import urllib.request
import unittest

import numpy as np

import harness
from handing import HandoffCase
from harness import Daemon, subscribers, until
import octavo
from octavo import wire
from octavo.v1 import stream_pb2

m = wire.messages
SUBSCRIBER = """
import sys
sys.path.insert(0, sys.argv[1])
import octavo
kept = []
for frame in octavo.Client(sys.argv[2]).subscribe("", same_host=True):
    kept.append(frame)
    print(frame.volume_index, flush=True)
"""


class Raw:
    """A client that says what the test says."""

    def __init__(self, path, ticket, purpose=m.PURPOSE_FRAMES):
        self.socket = wire.connect(path, purpose, 20)
        self.socket.settimeout(20)
        wire.send(self.socket, m.ClientMessage(request=1, present=m.Present(ticket=ticket)))
        self.memory, self.grant = {}, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def next(self):
        answer, descriptors = wire.receive(self.socket)
        assert answer is not None, "the connection has ended"
        self.grant = answer.grant or self.grant
        if answer.HasField("frame_ready"):
            if descriptors:
                with self.raises_unless_sealed():
                    mmap.mmap(descriptors[0], answer.frame_ready.mapped_bytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
                self.memory[answer.frame_ready.slot] = mmap.mmap(descriptors[0], answer.frame_ready.mapped_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
        else:
            assert not descriptors
        wire.close(descriptors)
        return answer

    def raises_unless_sealed(self):
        return unittest.TestCase().assertRaises(PermissionError)

    def about(self, ready):
        return stream_pb2.Frame.FromString(self.memory[ready.slot][ready.frame_offset:ready.frame_offset + ready.frame_bytes])

    def data(self, ready):
        return self.memory[ready.slot][:ready.byte_size]

    def say(self, **fields):
        wire.send(self.socket, m.ClientMessage(grant=self.grant, **fields))


class FramesTest(HandoffCase):
    def opened(self, slots=0, **subscription):
        ticket = self.client._call(self.client._streams.OpenFrames,
                                   stream_pb2.OpenFramesRequest(subscription=stream_pb2.SubscribeRequest(**subscription), slots=slots))
        return Raw(ticket.socket_path, ticket.ticket)

    def pushed(self, volumes, **fields):
        """A scan whose volumes come as the test pushes them."""
        return self.client.submit_scan(octavo.push(), octavo.raster(32, 16, volumes=volumes), samples=256,
                                       processing=octavo.processing(dtype="u8"), **fields)

    def records(self, volumes, seed=0):
        return np.random.default_rng(seed).integers(0, 4096, (volumes * 32 * 16, 256), np.uint16)

    def pushing(self, scan, volumes, read):
        """What `read` returns, while volumes are pushed that come after its subscription."""
        def push():
            until(lambda: self.metric("octavo_frame_feeds") == 1)
            self.client.push(scan.name, self.records(volumes))

        pusher = threading.Thread(target=push)
        pusher.start()
        try:
            return read()
        finally:
            pusher.join()

    def described(self, frame):
        return {name: value for name, value in vars(frame).items() if name not in ("array", "stages", "event", "record")}

    def frame_after(self, raw, scan, records):
        self.client.push(scan.name, records, end=False)
        return raw.next().frame_ready

    def answer_of(self, raw):
        """The next answer. What the server says unasked may come before it."""
        said = raw.next()
        while not said.request:
            said = raw.next()
        return said

    def test_frames_are_those_of_grpc(self):
        for options in (dict(products=["mip", "bscan"], delivery="lossless"), dict(products=["mip"], axis="y", delivery="lossless"),
                        dict(products=["mip", "event", "volume"], delivery="lossless", queue_length=64),
                        dict(products=["bscan"], encoding="png", image=dict(colour_map="viridis", depth_down=True), delivery="lossless")):
            with self.subTest(options=options):
                scan = self.pushed(volumes=5)
                results = {}

                def read(same_host):
                    results[same_host] = list(self.client.subscribe(scan.name, preview=False, same_host=same_host, timeout=60, **options))

                count = len(options["products"])
                until(lambda: subscribers(self.daemon) == 0)  # those before may be about to go
                threads = [threading.Thread(target=read, args=(same_host,)) for same_host in (False, True)]
                for thread in threads:
                    thread.start()
                until(lambda: subscribers(self.daemon) == 2 * count)
                self.client.push(scan.name, self.records(5))
                for thread in threads:
                    thread.join(60)
                by_grpc, by_memory = results[False], results[True]
                self.assertEqual(len(by_grpc), len(by_memory))
                self.assertGreaterEqual(len(by_memory), 5)
                for one, other in zip(by_grpc, by_memory):
                    self.assertEqual(self.described(one), self.described(other))
                    self.assertEqual((one.array is None, one.event is None), (other.array is None, other.event is None))
                    if one.array is not None:
                        self.assertEqual((one.array.dtype, one.array.shape), (other.array.dtype, other.array.shape))
                        np.testing.assert_array_equal(one.array, other.array)
                    if one.event is not None:
                        self.assertEqual(one.event.text, other.event.text)
                    if one.stages is not None:
                        self.assertGreater(other.stages.sent_ns, 0)

    def test_a_caller_that_keeps_all_frames_gets_all(self):
        scan = self.pushed(volumes=12)
        frames = self.client.subscribe(scan.name, delivery="lossless", preview=False, same_host=True, timeout=60)
        kept = self.pushing(scan, 12, lambda: list(frames))  # many more than there are slots
        self.assertEqual([frame.volume_index for frame in kept], list(range(12)))
        self.assertIn(False, [frame.array.flags.writeable for frame in kept])  # views
        self.assertIn(True, [frame.array.flags.writeable for frame in kept])   # copies
        for frame in kept:
            np.testing.assert_array_equal(frame.array, self.client.read(frame.volume).max(axis=2))
        with self.assertRaises(ValueError):
            next(frame for frame in kept if not frame.array.flags.writeable).array[0, 0] = 1

    def test_views_outlive_the_subscription_and_the_server_gets_its_memory_back(self):
        scan = self.pushed(volumes=2)
        frames = self.client.subscribe(scan.name, delivery="lossless", preview=False, same_host=True, timeout=60)
        frame = self.pushing(scan, 2, lambda: next(frames))
        view = frame.array[3:, ::2].T
        self.assertGreater(self.metric("octavo_frame_feed_memory_bytes"), 0)
        self.assertEqual(self.metric("octavo_frame_feeds"), 1)
        frames.close()
        until(lambda: (self.metric("octavo_frame_feeds"), self.metric("octavo_frame_feed_memory_bytes")) == (0, 0))
        expected = self.client.read(frame.volume).max(axis=2)[3:, ::2].T
        del frame, frames
        gc.collect()
        np.testing.assert_array_equal(view, expected)

    def test_a_client_that_has_all_slots_misses_what_its_delivery_says(self):
        for delivery, ends in ((stream_pb2.DELIVERY_LATEST, ""), (stream_pb2.DELIVERY_DROP_OLDEST, ""), (stream_pb2.DELIVERY_LOSSLESS, "SLOW_SUBSCRIBER")):
            with self.subTest(delivery=delivery):
                scan = self.pushed(volumes=9)
                with self.opened(slots=2, parent=scan.name, delivery=delivery, queue_length=2, preview=False, products=[stream_pb2.PRODUCT_MIP]) as raw:
                    self.assertEqual(raw.next().frames_opened.slots, 2)
                    records = self.records(9).reshape(9, -1, 256)
                    first, second = (self.frame_after(raw, scan, records[at]) for at in range(2))  # each before the next one, which might replace it
                    self.client.push(scan.name, records[2:].reshape(-1, 256))
                    self.client.wait(scan.name)
                    self.assertEqual({first.slot, second.slot}, {0, 1})
                    seen = [raw.about(first).sequence, raw.about(second).sequence]
                    before = raw.data(first)
                    missed = raw.about(first).dropped_before + raw.about(second).dropped_before
                    while True:
                        raw.say(done=m.Done(slot=second.slot))
                        answer = raw.next()
                        if answer.HasField("frames_ended"):
                            break
                        second = answer.frame_ready
                        seen.append(raw.about(second).sequence)
                        missed += raw.about(second).dropped_before
                    self.assertEqual(raw.data(first), before)  # the slot that it kept
                    self.assertEqual(answer.frames_ended.why.reason, ends, answer)
                    self.assertEqual(seen, sorted(set(seen)))
                    if ends:
                        (resume,) = [v.value for v in answer.frames_ended.why.values if v.name == "resume_from"]
                        self.assertEqual(seen, list(range(int(resume))))
                    else:
                        self.assertEqual(len(seen) + missed, 9)
                        self.assertEqual(seen[-1], 8)

    def test_memory_grows_with_the_frames_and_is_used_again(self):
        with self.opened(slots=1, products=[stream_pb2.PRODUCT_VOLUME], delivery=stream_pb2.DELIVERY_LOSSLESS, queue_length=16) as raw:
            self.assertTrue(raw.next().HasField("frames_opened"))
            sizes, numbers = [], []
            for ascans in (8, 64, 128, 32):  # 32 KiB to 512 KiB a volume
                scan = self.client.submit_scan(octavo.simulated(seed=ascans, fast=True), octavo.raster(ascans, 32, volumes=3), samples=256,
                                               processing=octavo.processing(dtype="u8"))
                for _ in range(3):
                    ready = raw.next().frame_ready
                    about = raw.about(ready)
                    self.assertEqual((about.parent, ready.slot), (scan.name, 0))
                    np.testing.assert_array_equal(np.frombuffer(raw.data(ready), np.uint8).reshape(about.shape), self.client.read(about.volume))
                    sizes.append(ready.mapped_bytes)
                    numbers.append(ready.memory)
                    raw.say(done=m.Done(slot=ready.slot))
            self.assertEqual(sizes, sorted(sizes))
            self.assertEqual(numbers, [1] * 3 + [2] * 3 + [3] * 6)
            self.assertEqual(self.metric("octavo_frame_feed_memory_bytes"), sizes[-1])

    def test_wrong_requests_are_refused(self):
        call, scan = self.client._streams.OpenFrames, self.pushed(volumes=1)
        of = lambda **fields: stream_pb2.OpenFramesRequest(subscription=stream_pb2.SubscribeRequest(parent=scan.name, **fields))
        for reason, code, request in (("BAD_FIELD", "INVALID_ARGUMENT", stream_pb2.OpenFramesRequest(slots=2)),
                                      ("BAD_FIELD", "INVALID_ARGUMENT", of(chunk_bytes=1 << 20)),
                                      ("NO_SCAN", "NOT_FOUND", stream_pb2.OpenFramesRequest(subscription=dict(parent="scans/none-1"))),
                                      ("BAD_RANGE", "OUT_OF_RANGE", of(products=["PRODUCT_BSCAN"], index=10**6))):
            error = self.refused(reason, code, lambda: self.client._call(call, request))
            self.assertTrue(error.field or reason.startswith("NO_"), error)
        request = of()
        request.slots = 65
        error = self.refused("BAD_FIELD", "INVALID_ARGUMENT", lambda: self.client._call(call, request))
        self.assertEqual(error.field, "slots")
        self.assertEqual(self.metric("octavo_frame_feeds"), 0)
        with self.opened(parent=scan.name, slots=2) as raw:
            self.assertTrue(raw.next().HasField("frames_opened"))
            for message, reason, field in ((dict(done=m.Done(slot=0)), "BAD_FIELD", "slot"), (dict(done=m.Done(slot=2**32 - 1)), "BAD_FIELD", "slot"),
                                           (dict(take=m.Take(volume="volumes/x")), "PROTOCOL", ""), (dict(release=m.Release(name="x")), "PROTOCOL", "")):
                raw.say(request=7, **message)
                answer = raw.next()
                self.assertEqual((answer.request, answer.refused.reason, answer.refused.field), (7, reason, field))
            self.client.push(scan.name, self.records(1))  # all is as before
            until(lambda: raw.next().HasField("frame_ready"))
            raw.say(request=8, done=m.Done(slot=0))
            self.assertTrue(self.answer_of(raw).HasField("noted"))
        ticket = self.client._call(call, of(from_sequence=0))
        with Raw(ticket.socket_path, ticket.ticket, m.PURPOSE_MEMORY) as raw:
            self.assertEqual(raw.next().refused.reason, "TICKET_KIND")
        with Raw(ticket.socket_path, ticket.ticket) as raw:
            self.assertEqual(self.answer_of(raw).WhichOneof("body"), "frames_opened")
        with Raw(ticket.socket_path, ticket.ticket) as raw:
            self.assertEqual(raw.next().refused.reason, "TICKET_USED")

    def test_a_server_that_hands_nothing_over_says_so(self):
        daemon = Daemon()
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            with self.assertRaises(octavo.OctavoError) as caught:
                next(client.subscribe("", same_host=True))
            self.assertEqual(caught.exception.reason, "EXPORT_DISABLED")

    def test_a_client_that_dies_leaves_nothing(self):
        scan = self.submit(volumes=0, fast=False, rate_hz=30000, retention=dict(disposition="auto_discard"))
        process = subprocess.Popen([sys.executable, "-c", SUBSCRIBER, os.path.join(harness.BUILD, "python"), self.daemon.address], stdout=subprocess.PIPE, text=True)
        with process.stdout:
            for _ in range(10):  # although it keeps all
                self.assertTrue(process.stdout.readline())
            self.assertEqual(self.metric("octavo_frame_feeds"), 1)
            process.send_signal(signal.SIGKILL)
            process.wait()
        until(lambda: (self.metric("octavo_frame_feeds"), self.metric("octavo_frame_feed_memory_bytes")) == (0, 0))
        self.assertEqual(self.client.scan(scan.name).state, "RUNNING")

    def test_a_ticket_that_nobody_presents_ends_its_subscription(self):
        until(lambda: subscribers(self.daemon) == 0)  # those before may be about to go
        ticket = self.client._call(self.client._streams.OpenFrames, stream_pb2.OpenFramesRequest(subscription=dict(labels={"a": "b"})))
        self.assertEqual((subscribers(self.daemon), self.metric("octavo_frame_feeds")), (1, 1))
        self.assertRegex(ticket.ticket, "^[0-9a-f]{32}$")
        until(lambda: (subscribers(self.daemon), self.metric("octavo_frame_feeds")) == (0, 0), 60)

    def test_the_end_of_the_server_is_an_error(self):
        daemon = Daemon("--handoff.unix", "auto")
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            scan = client.submit_scan(octavo.push(), octavo.raster(32, 16, volumes=2), samples=256)
            frames = client.subscribe(scan.name, same_host=True)
            told = []

            def read():
                try:
                    told.append(list(frames))
                except octavo.OctavoError as error:
                    told.append(error)

            thread = threading.Thread(target=read)
            thread.start()
            until(lambda: 'octavo_frame_feeds 1' in self.page_of(daemon))
            daemon.process.kill()
            daemon.process.wait()
            thread.join(30)
            self.assertEqual((told[0].code.name, told[0].reason), ("UNAVAILABLE", "SERVER_GONE"))

    def page_of(self, daemon):
        return urllib.request.urlopen(f"http://{daemon.metrics}/metrics", timeout=10).read().decode()

    def test_the_end_is_told_while_the_client_has_all_slots(self):
        scan = self.pushed(volumes=1)
        self.client.push(scan.name, self.records(1))
        self.client.wait(scan.name)
        with self.opened(slots=1, parent=scan.name, from_sequence=0, products=[stream_pb2.PRODUCT_MIP]) as raw:
            said = [raw.next() for _ in range(3)]
            unasked = [answer.WhichOneof("body") for answer in said if not answer.request]  # the answer comes between, at any place
            self.assertEqual(unasked, ["frame_ready", "frames_ended"])
            self.assertEqual([answer.WhichOneof("body") for answer in said if answer.request], ["frames_opened"])

    def test_a_fault_in_a_wake_up_holds_up_no_scan(self):
        for fault in ("task_posted:throw=bad_alloc:2", "task_posted:throw=bad_alloc:3", "task_posted:throw=bad_alloc:5",
                      "OpenFramesRequest.message:throw=bad_alloc:3", "OpenFramesRequest.message:throw=bad_alloc:5", "frame_feed_send:throw=bad_alloc:2"):
            with self.subTest(fault=fault):
                daemon = Daemon("--handoff.unix", "auto", environment={"OCTAVO_FAILPOINT": fault})
                self.addCleanup(daemon.remove)
                with daemon.client() as client:
                    frames = client.subscribe("", same_host=True, timeout=20)

                    def read():
                        with contextlib.suppress(octavo.OctavoError):
                            list(frames)

                    reader = threading.Thread(target=read)
                    reader.start()
                    until(lambda: "octavo_frame_feeds 1" in self.page_of(daemon))
                    with contextlib.suppress(octavo.OctavoError):  # the fault may hit this call
                        scan = client.submit_scan(octavo.simulated(fast=True), octavo.raster(32, 16, volumes=3), samples=256)
                        self.assertEqual(client.wait(scan.name, timeout=30).state, "DONE")
                    self.assertEqual(daemon.stop(), 0)
                    reader.join(30)
                    self.assertFalse(reader.is_alive())

    def test_a_timeout_is_one(self):
        scan = self.pushed(volumes=1)
        for timeout in (0.3, 1e-6, 0):
            with self.assertRaises(octavo.OctavoTimeout):
                list(self.client.subscribe(scan.name, same_host=True, timeout=timeout))
        self.client.cancel(scan.name)
        for wrong in ("no", 2, None):
            with self.assertRaisesRegex(ValueError, "same_host is .*; expected True or False"):
                self.client.subscribe(scan.name, same_host=wrong)

    def forget_in_a_fork(self, kept):
        """A child that drops what it has inherited, as multiprocessing's do at their end."""
        child = os.fork()
        if child == 0:
            kept.clear()
            gc.collect()
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_a_forked_process_gives_nothing_back(self):
        scan = self.submit(volumes=0, fast=False, rate_hz=30000, retention=dict(disposition="auto_discard"))
        frames = self.client.subscribe(scan.name, preview=False, same_host=True, timeout=60)
        kept = [next(frames).array for _ in range(3)]
        self.assertFalse(any(array.flags.writeable for array in kept))
        before = [array.copy() for array in kept]
        self.forget_in_a_fork(kept)
        for _ in range(12):
            next(frames)
        for array, was in zip(kept, before):
            np.testing.assert_array_equal(array, was)
        frames.close()
        # The same of mapped volumes.
        scan = self.client.wait(self.submit(volumes=1).name)
        volume = self.client.volumes(parent=scan.name)[0].name
        mapped = [self.client.map(volume)]
        self.forget_in_a_fork(mapped)
        self.refused("EXPORTED", "FAILED_PRECONDITION", lambda: self.client.discard(volume))
        mapped.clear()
        gc.collect()
        until(lambda: not self.client.exports())
        self.client.discard(volume)


if __name__ == "__main__":
    unittest.main()
