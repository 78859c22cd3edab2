"""Subscribers of volumes that read them: the same frames and bytes as through the stream; what went before its turn is counted, or told."""

import contextlib
import threading
import unittest
from unittest import mock

import grpc
import numpy as np

from harness import DaemonTest, octavo, until, waits_for_subscribers
from google.rpc import error_details_pb2, status_pb2
from octavo import announced
from octavo.v1 import stream_pb2, volume_pb2

SHAPE = (64, 128, 512)  # 16 MiB of f32: just large enough to be read
RATE = 20000            # a volume in 0.4 s: a busy machine keeps up


class VolumesByRead(DaemonTest):
    flags = ("--handoff.unix", "auto")

    def scan(self, volumes=3, rate_hz=RATE, dtype="f32", bscans=64, watchers=1, **options):
        """A scan that begins when so many products are subscribed to. The ring has room for all of a scan that ends: nothing overruns it."""
        if watchers:
            options.update(waits_for_subscribers(self, watchers))
        options["acquisition"] = dict(ring_blocks=max(8, -(-bscans // 16) * max(volumes, 4)))
        return self.client.submit_scan(octavo.simulated(5), octavo.raster(128, bscans, volumes=volumes), samples=1024, rate_hz=rate_hz,
                                       processing=octavo.processing(dtype=dtype), **options)

    def raw(self, scan, **fields):
        """The messages of a subscription that asks for volumes by read."""
        request = dict(parent=scan.name, products=[stream_pb2.PRODUCT_VOLUME], volumes_by_read=True)
        return list(self.client._streams.Subscribe(stream_pb2.SubscribeRequest(**{**request, **fields}), timeout=60))

    @contextlib.contextmanager
    def reads(self):
        """The names of the volumes that the client reads in the block."""
        names, reader = [], self.client._reader
        read = reader.read
        with mock.patch.object(reader, "read", lambda request, *more: names.append(request.name) or read(request, *more)):
            yield names

    def test_the_same_frames_both_ways(self):
        for dtype, bscans in (("f32", 64), ("u16", 128), ("u8", 257)):
            with self.subTest(dtype=dtype), self.reads() as names:
                scan = self.scan(dtype=dtype, bscans=bscans)
                live = list(self.client.subscribe(scan, "volume", queue_length=8))
                self.assertEqual(len(live), 3)
                self.assertEqual(names, [f.volume for f in live])
                first = live[0].sequence
                by_read = list(self.client.subscribe(scan, "volume", from_sequence=first))
                self.assertEqual(len(names), 2 * len(live))
                through_stream = list(self.client.subscribe(scan, "volume", from_sequence=first, volumes_by_read=False))
                self.assertEqual(len(names), 2 * len(live))
                for other in (by_read, through_stream):
                    self.assertEqual(len(other), len(live))
                    for one, two in zip(live, other):
                        np.testing.assert_array_equal(one.array, two.array)
                        for name in ("parent", "volume", "volume_index", "product", "axis", "sequence", "dropped_before", "complete", "data", "spacing_um",
                                     "display", "acquired_ns", "shape", "axes", "unit", "value_offset", "value_step"):
                            self.assertEqual(getattr(one, name), getattr(two, name), name)
                        self.assertTrue(two.array.flags.writeable)
                for frame in live:
                    np.testing.assert_array_equal(frame.array, self.client.read(frame.volume))
                self.tearDown()

    def test_the_stream_carries_no_data(self):
        scan = self.scan(2)
        messages = self.raw(scan)
        self.assertEqual(len(messages), 2)
        for message in messages:
            self.assertTrue(message.HasField("frame"))
            self.assertEqual((message.total_bytes, message.crc32c, message.data, message.offset), (0, 0, b"", 0))
            self.assertEqual((tuple(message.frame.shape), list(message.frame.axes), message.frame.dropped_before), (SHAPE, ["y", "x", "z"], 0))
            self.assertLess(len(message.SerializeToString()), 1000)
        self.assertEqual([m.frame.sequence for m in messages], list(range(messages[0].frame.sequence, messages[-1].frame.sequence + 1)))
        # Kept frames come without data, too; beside them a subscriber who did not ask gets his.
        self.assertEqual([m.total_bytes for m in self.raw(scan, from_sequence=messages[0].frame.sequence)], [0] * len(messages))
        data = self.raw(scan, from_sequence=messages[0].frame.sequence, volumes_by_read=False)
        self.assertEqual(sum(len(m.data) for m in data), len(messages) * (16 << 20))

    def test_both_kinds_of_subscribers_at_once(self):
        scan = self.scan(4, watchers=2)
        got = {}

        def collect(by_read):
            with self.daemon.client() as client:
                got[by_read] = [(f.sequence, f.volume, f.dropped_before, f.array.sum(dtype=np.float64))
                                for f in client.subscribe(scan.name, "volume", delivery="lossless", queue_length=8, volumes_by_read=by_read)]

        threads = [threading.Thread(target=collect, args=(by_read,)) for by_read in (True, False)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        common = set(f[0] for f in got[True]) & set(f[0] for f in got[False])
        self.assertEqual(len(common), 4)
        self.assertEqual([f for f in got[True] if f[0] in common], [f for f in got[False] if f[0] in common])

    def test_latest_counts_what_it_drops(self):
        scan = self.scan(9)
        frames = self.client.subscribe(scan, "volume", delivery="latest")
        first = next(frames)
        self.client.wait(scan)
        rest = list(frames)
        last = self.client.volumes(scan)[-1]
        self.assertEqual([f.volume for f in rest], [last.name])
        self.assertEqual(rest[0].dropped_before, rest[0].sequence - first.sequence - 1)
        self.assertGreaterEqual(rest[0].dropped_before, 2)
        np.testing.assert_array_equal(rest[0].array, self.client.read(last.name))

    def test_drop_oldest_keeps_its_queue(self):
        scan = self.scan(9)
        frames = self.client.subscribe(scan, "volume", delivery="drop_oldest", queue_length=2)
        first = next(frames)
        self.client.wait(scan)
        rest = list(frames)
        self.assertEqual([f.volume for f in rest], [v.name for v in self.client.volumes(scan)[-2:]])
        self.assertEqual([f.dropped_before for f in rest], [rest[0].sequence - first.sequence - 1, 0])

    def test_a_volume_that_has_gone_counts_as_dropped(self):
        for leave in (self.client.discard, lambda name: self.client.commit(name, "gone/" + name.split("/")[1], format="npy")):
            scan = self.scan(6, rate_hz=RATE / 4)  # all of them, whatever else the machine does
            frames = self.client.subscribe(scan, "volume", delivery="drop_oldest", queue_length=16)
            first = next(frames)
            self.client.wait(scan)
            volumes = self.client.volumes(scan)
            for volume in volumes[first.volume_index + 1:first.volume_index + 3]:
                leave(volume.name)
            rest = list(frames)
            self.assertEqual([f.volume_index for f in rest], [v.index for v in volumes[first.volume_index + 3:]])
            self.assertEqual([f.dropped_before for f in rest], [2] + [0] * (len(rest) - 1))
            self.tearDown()

    def test_lossless_loses_nothing_in_silence(self):
        scan = self.scan(5)
        frames = self.client.subscribe(scan, "volume")
        first = next(frames)
        self.client.wait(scan)
        volumes = self.client.volumes(scan)
        gone = volumes[first.volume_index + 2]
        self.client.discard(gone)
        self.assertEqual(next(frames).volume_index, first.volume_index + 1)
        with self.assertRaises(octavo.OctavoError) as caught:
            next(frames)
        error = caught.exception
        self.assertEqual((error.code, error.reason), (grpc.StatusCode.NOT_FOUND, "VOLUME_GONE"))
        self.assertIn(f"{gone.name} (frame {first.sequence + 2} of {scan.name}) could not be read, and delivery is lossless", error.message)
        self.assertIn("volumes_by_read=False", error.message)
        self.assertEqual(int(error.numbers["resume_from"]), first.sequence + 3)
        rest = list(self.client.subscribe(scan, "volume", from_sequence=int(error.numbers["resume_from"])))
        self.assertEqual([f.volume_index for f in rest], [v.index for v in volumes[first.volume_index + 3:]])

    def test_what_will_not_stay_comes_with_its_data(self):
        for delivery, retention, wanted in (("lossless", dict(disposition="auto_discard"), True), ("latest", dict(disposition="auto_discard"), True),
                                            ("lossless", dict(mode="live", hold_slots=4), True), ("drop_oldest", dict(mode="live", hold_slots=4), False),
                                            ("lossless", dict(disposition="auto_commit", auto_commit=dict(destination="stay/{scan}-{index}", format="npy")), True)):
            with self.subTest(delivery=delivery, retention=retention), self.reads() as names:
                frames = list(self.client.subscribe(self.scan(3, retention=retention), "volume", delivery=delivery, queue_length=8))
                self.assertGreaterEqual(len(frames), 1)
                self.assertEqual({f.array.shape for f in frames}, {SHAPE})
                self.assertEqual(not names, wanted, names)

    def test_small_volumes_stay_in_the_stream(self):
        scan = self.scan(3, bscans=63)
        with self.reads() as names:
            frames = list(self.client.subscribe(scan, "volume", queue_length=8))
        self.assertEqual(names, [])
        np.testing.assert_array_equal(frames[-1].array, self.client.read(frames[-1].volume))

    def test_beside_other_products(self):
        scan = self.scan(4, watchers=3)
        frames = list(self.client.subscribe(scan, ["event", "mip", "volume"], preview=False, delivery="lossless", queue_length=64))
        for product in ("mip", "volume"):
            of_it = [f for f in frames if f.product == product]
            self.assertEqual(len(of_it), 4)
            self.assertEqual([f.sequence for f in of_it], list(range(of_it[0].sequence, of_it[0].sequence + len(of_it))))
            self.assertTrue(all(f.dropped_before == 0 for f in of_it))
        mips = {f.volume: f.array for f in frames if f.product == "mip"}
        for frame in frames:
            if frame.product == "volume":
                np.testing.assert_array_equal(mips[frame.volume], frame.array.max(axis=2))
        self.assertEqual(frames[-1].event.kind, "FINISHED")

    def test_an_old_server_sends_the_data(self):
        class Old:
            """The stub of a server that does not know the field."""

            def __init__(self, stub):
                self.stub, self.asked = stub, []

            def Subscribe(self, request, **options):
                self.asked.append(request.volumes_by_read)
                request = stream_pb2.SubscribeRequest.FromString(request.SerializeToString())
                request.ClearField("volumes_by_read")
                return self.stub.Subscribe(request, **options)

        old = Old(self.client._streams)
        with mock.patch.object(self.client, "_streams", old), self.reads() as names:
            scan = self.scan(4)
            frames = list(self.client.subscribe(scan, "volume", delivery="lossless", queue_length=8))
        self.assertEqual((old.asked, names), ([True], []))
        self.assertEqual(len(frames), 4)
        for frame in frames:
            np.testing.assert_array_equal(frame.array, self.client.read(frame.volume))

    def test_the_frames_of_the_same_host(self):
        for by_read, read in ((None, False), (True, True)):
            with self.subTest(by_read=by_read), self.reads() as names:
                scan = self.scan(3)
                frames = list(self.client.subscribe(scan, "volume", delivery="lossless", queue_length=8, same_host=True, volumes_by_read=by_read))
                self.assertEqual(len(frames), 3)
                self.assertEqual(names, [f.volume for f in frames] if read else [])
                for frame in frames:
                    np.testing.assert_array_equal(frame.array, self.client.read(frame.volume))
                del frame, frames

    def test_wrong_use(self):
        scan = self.scan(1, watchers=0)
        for products in ("mip", ["event", "bscan"]):
            with self.assertRaises(octavo.OctavoError) as caught:
                list(self.client.subscribe(scan, products, volumes_by_read=True))
            self.assertEqual((caught.exception.code, caught.exception.reason, caught.exception.field),
                             (grpc.StatusCode.INVALID_ARGUMENT, "BAD_FIELD", "volumes_by_read"))
        for value in ("yes", 1, 0.5):
            with self.assertRaisesRegex(ValueError, "volumes_by_read is .*; expected True or False"):
                self.client.subscribe(scan, "volume", volumes_by_read=value)
        with self.assertRaises(octavo.OctavoError) as caught:
            list(self.client.subscribe(scan, "volume", from_sequence=99))
        self.assertEqual(caught.exception.reason, "SEQUENCE_GONE")
        with self.assertRaises(octavo.OctavoError) as caught:
            list(self.client.subscribe("scans/none", "volume"))
        self.assertEqual(caught.exception.reason, "NO_SCAN")

    def test_a_read_that_fails_otherwise_is_an_error(self):
        class Refused(grpc.RpcError):
            code, details, trailing_metadata = lambda _: grpc.StatusCode.RESOURCE_EXHAUSTED, lambda _: "256 streams", lambda _: ()

        scan = self.scan(4)
        with mock.patch.object(self.client._reader, "read", mock.Mock(side_effect=Refused())), self.assertRaises(octavo.OctavoError) as caught:
            list(self.client.subscribe(scan, "volume", delivery="latest"))
        self.assertEqual(caught.exception.code, grpc.StatusCode.RESOURCE_EXHAUSTED)

    def test_lossless_waits_for_memory_that_others_have(self):
        class Short(grpc.RpcError):
            """As a server that has no page-locked memory now."""

            def __init__(self):
                status = status_pb2.Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], message="others have it")
                status.details.add().Pack(error_details_pb2.ErrorInfo(reason="NO_STAGING", domain="octavo", metadata={"retryable": "true"}))
                self.trailing = (("grpc-status-details-bin", status.SerializeToString()),)

            code, details, trailing_metadata = lambda _: grpc.StatusCode.RESOURCE_EXHAUSTED, lambda _: "others have it", lambda self: self.trailing

        scan = self.scan(3)
        self.assertEqual(len(list(self.client.subscribe(scan, "volume", queue_length=8))), 3)
        read, refused = self.client._reader.read, []

        def refusing(*args, **kwargs):
            if len(refused) % 4 < 3:  # three times for each volume
                refused.append(args)
                raise Short()
            refused.append(None)
            return read(*args, **kwargs)

        with mock.patch.object(self.client._reader, "read", refusing):
            self.assertEqual(len(list(self.client.subscribe(scan, "volume", from_sequence=0))), 3)
        self.assertEqual(len(refused), 12)
        with mock.patch.object(self.client._reader, "read", mock.Mock(side_effect=Short())):
            with mock.patch.object(announced, "_PATIENCE", 0.3), self.assertRaises(octavo.OctavoError) as caught:
                list(self.client.subscribe(scan, "volume", from_sequence=0))
            self.assertEqual(caught.exception.reason, "NO_STAGING")
            with self.assertRaises(octavo.OctavoTimeout):  # before the patience ends
                list(self.client.subscribe(scan, "volume", from_sequence=0, timeout=1))

    def test_ends_and_limits(self):
        def threads():
            return [thread for thread in threading.enumerate() if thread.name == "octavo-frames"]

        scan = self.scan(0, retention=dict(mode="live", hold_slots=4))
        frames = self.client.subscribe(scan, "volume", delivery="latest")
        next(frames)
        self.assertEqual(len(threads()), 1)
        frames.close()
        until(lambda: not threads())
        abandoned = self.client.subscribe(scan, "volume", delivery="latest")
        next(abandoned)
        del abandoned
        until(lambda: not threads())
        with self.assertRaises(octavo.OctavoTimeout) as caught:
            for _ in self.client.subscribe(scan, "volume", delivery="latest", timeout=1):
                pass
        self.assertIn("which are over after", caught.exception.message)
        until(lambda: not threads())
        self.client.stop(scan)
        self.client.wait(scan)
        # The deadline is over while many volumes wait: it is told at once.
        capture = self.scan(5)
        frames = self.client.subscribe(capture, "volume", timeout=15)
        next(frames)
        self.client.wait(capture)
        until(lambda: not threads())
        with contextlib.suppress(octavo.OctavoTimeout):
            list(frames)


if __name__ == "__main__":
    unittest.main()
