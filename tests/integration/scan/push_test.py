"""Pushed sources: credit, gaps, invalid numbers, and clients that die, reconnect, stall, or send
too little or too much."""

import itertools
import os
import queue
import subprocess
import sys
import threading
import unittest
import urllib.request
import warnings

import grpc
import numpy as np

from harness import BUILD, DaemonTest, octavo, subscribers, until
from pushing import CuttingProxy, RawStream
from octavo.v1 import ingest_pb2, reason_pb2, scan_pb2, stream_pb2, types_pb2

push_module = sys.modules["octavo.push"]  # octavo.push is the function

SAMPLES = 128
ASCANS, BSCANS = 32, 8
VOLUME = ASCANS * BSCANS
F32 = dict(processing=octavo.processing(background="none", window="rect", value="magnitude", dtype="f32"))


def records(first, count, seed=0):
    """Raw records that depend only on their number within the scan."""
    number = np.arange(first, first + count)[:, None]
    j = np.arange(SAMPLES)[None, :]
    wave = np.cos(2 * np.pi * (3 + (number * 7 + seed) % 40) * j / SAMPLES)
    return np.round(2000 + 500 * wave + number % 13).astype("<u2")


def model(volume, **kwargs):
    """The expected volume of these records: [y, x, z]."""
    spectra = records(volume * VOLUME, VOLUME, **kwargs).astype(np.float64)
    return np.abs(np.fft.ifft(spectra, axis=1))[:, :SAMPLES // 2].reshape(BSCANS, ASCANS, SAMPLES // 2)


class RawPush(RawStream):
    """A client that can violate the protocol."""

    def __init__(self, address, scan, **hello):
        super().__init__(address, "Push", ingest_pb2.PushRequest(scan=scan, **hello))

    def send(self, first, count, **fields):
        fields.setdefault("data", records(first, count).tobytes())
        self.requests.put(ingest_pb2.PushRequest(first_record=first, records=count, **fields))


class Push(DaemonTest):
    def submit(self, volumes=2, push=None, **fields):
        fields = {**F32, **fields}
        return self.client.submit_scan(push or octavo.push(), octavo.raster(ASCANS, BSCANS, volumes=volumes), samples=SAMPLES, **fields).name

    def check(self, scan, index, missing=(), **kwargs):
        """Expects the model's volume, except for the A-scans `missing` (flat numbers), which hold
        NaN."""
        volume = [v for v in self.client.volumes(scan) if v.index == index][0]
        array = self.client.read(volume.name).reshape(VOLUME, -1)
        expected = model(index, **kwargs).reshape(VOLUME, -1).copy()
        expected[list(missing)] = np.nan
        np.testing.assert_allclose(array, expected, rtol=0, atol=5e-6 * 4000)
        self.assertEqual(volume.missing_ascans, len(missing))
        self.assertEqual(sorted(i for r in volume.missing for i in range(r.first, r.first + r.count)), sorted(missing))
        self.assertEqual(volume.complete, not missing)

    def metrics(self):
        return urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics", timeout=10).read().decode()

    def test_pushed_records_become_volumes(self):
        scan = self.submit(volumes=3)
        result = self.client.push(scan, (records(i, 48) for i in range(0, 3 * VOLUME, 48)))
        self.assertTrue(result.done)
        self.assertEqual((result.next_record, result.connections), (3 * VOLUME, 1))
        end = self.client.wait(scan)
        self.assertEqual((end.state, end.reason_code, end.missing_ascans), (types_pb2.SCAN_STATE_DONE, reason_pb2.REASON_COMPLETED, 0))
        self.assertEqual((end.source.records, end.source.gaps, end.source.duplicate_records), (3 * VOLUME, 0, 0))
        for index in range(3):
            self.check(scan, index)

    def test_blocks_of_any_size_and_one_large_array(self):
        def pieces(sizes):
            first = 0
            for count in itertools.cycle(sizes):
                if first == 2 * VOLUME:
                    return
                count = min(count, 2 * VOLUME - first)
                yield records(first, count)
                first += count

        for sizes in ([1], [7, 64, 1, 200], [2 * VOLUME]):
            scan = self.submit()
            result = self.client.push(scan, pieces(sizes))
            self.assertTrue(result.done)
            self.assertEqual(self.client.wait(scan).reason_code, reason_pb2.REASON_COMPLETED)
            self.check(scan, 0)
            self.check(scan, 1)
            for volume in self.client.volumes(scan):
                self.client.discard(volume.name)

    def test_how_a_client_cuts_the_stream_changes_no_bit(self):
        # The default background, a group of another length with a window across volumes, and a
        # replay of the same records.
        raw = records(0, 3 * VOLUME)
        np.save(os.path.join(self.daemon.root, "same.npy"), raw)
        seed = np.random.SeedSequence().entropy % 2 ** 32
        random = np.random.default_rng(seed)
        for processing in (octavo.processing(), octavo.processing(group_records=50, window_records=330)):
            def digests(scan, **_):
                end = self.client.wait(scan)
                self.assertEqual((end.reason_code, end.missing_ascans), (reason_pb2.REASON_COMPLETED, 0))
                made = [v.digest for v in sorted(self.client.volumes(scan), key=lambda v: v.index)]
                for volume in self.client.volumes(scan):
                    self.client.discard(volume.name)
                return made

            replayed = self.client.submit_scan(octavo.replay("same.npy"), octavo.raster(ASCANS, BSCANS, volumes=3), processing=processing).name
            wanted = digests(replayed)
            self.assertEqual(len(wanted), 3)
            for block in (0, 48, 100, 7, 256):
                most = int(random.integers(1, 3 * VOLUME))
                cuts = [0]
                while cuts[-1] < len(raw):
                    cuts.append(min(len(raw), cuts[-1] + int(random.integers(1, most + 1))))
                scan = self.submit(volumes=3, processing=processing, acquisition=dict(records_per_block=block))
                self.assertTrue(self.client.push(scan, [raw[a:b] for a, b in zip(cuts, cuts[1:])]).done)
                self.assertEqual(digests(scan), wanted, f"pieces of at most {most}, blocks of {block}, seed {seed}")

    def test_records_that_are_no_numbers_are_counted_and_touch_no_other(self):
        raw = records(0, 2 * VOLUME).astype("<f4")
        bad = {5: np.nan, 70: np.inf, VOLUME + 3: -np.inf, VOLUME + 3 + ASCANS: np.nan}
        clean = raw.copy()
        for record, value in bad.items():
            raw[record, record % SAMPLES] = value
        processing = octavo.processing(background="rolling", window_records=3 * ASCANS, value="magnitude", dtype="f32", window="rect")
        scan = self.submit(processing=processing, raw_type="f32")
        self.client.push(scan, [raw[:100], raw[100:]])
        end = self.client.wait(scan)
        self.assertEqual((end.reason_code, end.non_finite_records), (reason_pb2.REASON_COMPLETED, len(bad)))
        for index in range(2):
            volume = [v for v in self.client.volumes(scan) if v.index == index][0]
            array = self.client.read(volume.name).reshape(VOLUME, -1)
            for i in range(VOLUME):
                record = index * VOLUME + i
                if record in bad:
                    continue
                group_end = (record // ASCANS + 1) * ASCANS
                window = [r for r in range(max(0, group_end - 3 * ASCANS), group_end) if r not in bad]
                expected = np.abs(np.fft.ifft(clean[record].astype(np.float64) - clean[window].astype(np.float64).mean(axis=0)))[:SAMPLES // 2]
                np.testing.assert_allclose(array[i], expected, rtol=0, atol=5e-6 * 4000, err_msg=str(record))
        self.assertRegex(self.metrics(), r"octavo_records_not_finite_total [1-9]")

    def test_packed_records_channels_and_averages(self):
        raw = records(0, 2 * VOLUME)
        low, high = raw[:, 0::2], raw[:, 1::2]
        packed = np.stack([low & 255, low >> 8 | (high & 15) << 4, high >> 4], axis=2).reshape(len(raw), -1).astype(np.uint8)
        both = np.stack([records(0, 2 * VOLUME, seed=5), raw], axis=2).reshape(len(raw), -1)
        cases = [(packed, dict(raw_type="u12p")), (both, dict(acquisition=dict(channels=2, channel=1))),
                 (np.repeat(raw, 3, axis=0), dict(acquisition=dict(record_average=3))),
                 (np.repeat(raw, 3, axis=0), dict(acquisition=dict(record_average=3, records_per_block=16)))]
        for pushed, fields in cases:
            scan = self.submit(**fields)
            result = self.client.push(scan, [pushed[:333], pushed[333:]])
            self.assertTrue(result.done, fields)
            end = self.client.wait(scan)
            self.assertEqual((end.reason_code, end.missing_ascans, end.source.records), (reason_pb2.REASON_COMPLETED, 0, len(pushed)), fields)
            self.check(scan, 0)
            self.check(scan, 1)
            for volume in self.client.volumes(scan):
                self.client.discard(volume.name)

    def test_gaps_make_ascans_missing(self):
        scan = self.submit()
        self.client.push(scan, [(0, records(0, 40)), (45, records(45, VOLUME - 45)), records(VOLUME, VOLUME)])
        end = self.client.wait(scan)
        self.assertEqual((end.reason_code, end.missing_ascans), (reason_pb2.REASON_COMPLETED, 5))
        self.assertEqual((end.source.gaps, end.source.lost_records, end.source.records), (1, 5, 2 * VOLUME - 5))
        gaps = [e for e in end.events if e.kind == "GAP"]
        self.assertEqual([(e.record, e.count, e.volume_index) for e in gaps], [(45, 5, 0)])
        self.check(scan, 0, missing=range(40, 45))
        self.check(scan, 1)

    def test_whole_volumes_in_a_gap(self):
        scan = self.submit(volumes=4)
        self.client.push(scan, [(0, records(0, VOLUME)), (3 * VOLUME + 8, records(3 * VOLUME + 8, VOLUME - 8))])
        end = self.client.wait(scan)
        self.assertEqual((end.volumes_done, end.volumes_dropped, end.missing_ascans), (2, 2, 2 * VOLUME + 8))
        self.check(scan, 3, missing=range(8))

    def test_duplicates_and_numbers_out_of_range_change_nothing(self):
        scan = self.submit()
        push = RawPush(self.daemon.address, scan)
        push.until(lambda a: a.credit > 0)
        push.send(0, 100)
        push.send(20, 50, data=records(20, 50, seed=9).tobytes())  # received before, with other data
        push.send(90, 30, data=np.concatenate([records(90, 10, seed=9), records(100, 20)]).tobytes())  # received before in part
        push.until(lambda a: a.received == 3 and a.credit > 3)
        push.send(2 * VOLUME, 10, data=records(0, 10, seed=9).tobytes())     # past the end
        push.send(2 ** 63 + 5, 10, data=records(0, 10, seed=9).tobytes())  # the number of no record
        answer = push.until(lambda a: a.received == 5)
        self.assertEqual(answer.next_record, 120)
        push.close()
        # The last block reaches over the end of the scan.
        result = self.client.push(scan, lambda first: [records(first, 2 * VOLUME - first + 5)])
        self.assertTrue(result.done)
        end = self.client.wait(scan)
        self.assertEqual((end.reason_code, end.missing_ascans), (reason_pb2.REASON_COMPLETED, 0))
        self.assertEqual((end.source.duplicate_records, end.source.gaps), (60, 0))
        self.assertEqual(end.source.out_of_range_records, 25)
        self.assertEqual((end.duplicate_records, end.out_of_range_records), (60, 25))
        self.check(scan, 0)
        self.check(scan, 1)

    def test_an_implausible_jump_is_not_followed(self):
        scan = self.submit(volumes=0, retention=dict(hold_slots=4, mode=scan_pb2.RETENTION_MODE_CAPTURE))
        result = self.client.push(scan, [(0, records(0, 40)), (2 ** 50, records(0, 40)), (40, records(40, VOLUME - 40))])
        end = self.client.wait(scan)
        self.assertEqual((end.reason_code, end.source.out_of_range_records, end.volumes_done), (reason_pb2.REASON_SOURCE_ENDED, 40, 1))
        self.assertEqual(result.next_record, VOLUME)
        self.check(scan, 0)

    def test_no_credit_while_the_scan_waits(self):
        # A scan that waits in a queue takes only as many records from its client as fit into its
        # ring.
        first = self.submit(queue="instrument", push=octavo.push(idle_timeout=-1))
        second = self.submit(queue="instrument", push=octavo.push(credit_blocks=3), acquisition=dict(records_per_block=16))
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.client.push(second, (records(i, 16) for i in range(0, 2 * VOLUME, 16)))))
        thread.start()
        push = RawPush(self.daemon.address, first)
        for scan in self.client.watch(second):
            if scan.source.connected and scan.source.connections == 1:
                break
        thread.join(1)  # time for an error to occur
        self.assertEqual(answers, [])
        scan = self.client.scan(second)
        self.assertEqual((scan.state, scan.queue_position, scan.source.records), (types_pb2.SCAN_STATE_QUEUED, 1, 0))
        push.close()
        self.client.cancel(first)  # the next scan begins
        thread.join(30)
        self.assertTrue(answers[0].done)
        self.assertEqual(self.client.wait(second).reason_code, reason_pb2.REASON_COMPLETED)
        self.check(second, 0)
        self.check(second, 1)

    def test_more_than_the_credit_ends_the_connection_not_the_scan(self):
        first = self.submit(queue="instrument", push=octavo.push(idle_timeout=-1))
        second = self.submit(queue="instrument", push=octavo.push(credit_blocks=2), acquisition=dict(records_per_block=16))
        push = RawPush(self.daemon.address, second)
        self.assertEqual(push.until(lambda a: True).credit, 2)
        for i in range(4):
            push.send(16 * i, 16)
        error = push.error()
        self.assertEqual((error.code, error.reason), (grpc.StatusCode.RESOURCE_EXHAUSTED, "CREDIT_EXCEEDED"))
        self.assertEqual((error.numbers["next_record"], error.numbers["credit"]), ("32", "2"))
        push.close()
        self.client.cancel(first)
        self.client.push(second, lambda at: (records(i, 16) for i in range(at, 2 * VOLUME, 16)))
        self.assertEqual(self.client.wait(second).missing_ascans, 0)
        self.check(second, 1)

    def test_errors_name_the_field(self):
        scan = self.submit(volumes=1, acquisition=dict(records_per_block=64))
        simulated = self.client.submit_scan(octavo.simulated(1), octavo.raster(64, 64, volumes=0), samples=256).name
        cases = [
            (dict(scan="scans/none"), None, grpc.StatusCode.NOT_FOUND, "NO_SCAN", "name"),
            (dict(scan=simulated), None, grpc.StatusCode.FAILED_PRECONDITION, "NOT_PUSH", "scan"),
            (dict(scan=""), None, grpc.StatusCode.INVALID_ARGUMENT, "BAD_FIELD", "scan"),
            (dict(scan=scan, samples_per_record=64), None, grpc.StatusCode.INVALID_ARGUMENT, "BAD_FIELD", "samples_per_record"),
            (dict(scan=scan, raw_type=scan_pb2.RAW_TYPE_F32), None, grpc.StatusCode.INVALID_ARGUMENT, "BAD_FIELD", "raw_type"),
            (dict(scan=scan, records=1, data=b"xx"), None, grpc.StatusCode.INVALID_ARGUMENT, "BAD_FIELD", "data"),
            (dict(scan=scan), dict(first_record=0, records=65, data=bytes(65 * 256)), grpc.StatusCode.INVALID_ARGUMENT, "BAD_FIELD", "records"),
            (dict(scan=scan), dict(first_record=0, records=0, data=b"xx"), grpc.StatusCode.INVALID_ARGUMENT, "BAD_FIELD", "records"),
            (dict(scan=scan), dict(first_record=0, records=4, data=bytes(1023)), grpc.StatusCode.INVALID_ARGUMENT, "BAD_FIELD", "data"),
            (dict(scan=scan), dict(first_record=0, records=4), grpc.StatusCode.INVALID_ARGUMENT, "BAD_FIELD", "data"),
            (dict(scan=scan), dict(scan=scan), grpc.StatusCode.INVALID_ARGUMENT, "BAD_FIELD", "scan"),
            (dict(scan=scan), dict(first_record=0, records=4, data=bytes(1024), markers=[ingest_pb2.PushMarker(record=1)]),
             grpc.StatusCode.INVALID_ARGUMENT, "BAD_FIELD", "markers.name"),
        ]
        for hello, block, code, reason, field in cases:
            push = RawPush(self.daemon.address, **hello)
            if block is not None:
                push.until(lambda a: a.credit > 0)
                push.requests.put(ingest_pb2.PushRequest(**block))
            error = push.error()
            push.close()
            self.assertEqual((error.code, error.reason, error.field), (code, reason, field), (hello, block, error))
        # None of it counts, and the scan is unchanged.
        self.assertEqual(self.client.scan(scan).source.records, 0)
        self.client.push(scan, [records(0, VOLUME)])
        self.assertEqual(self.client.wait(scan).reason_code, reason_pb2.REASON_COMPLETED)
        self.check(scan, 0)

    def test_bytes_that_are_no_message(self):
        channel = grpc.insecure_channel(self.daemon.address)
        method = channel.stream_stream("/octavo.v1.IngestService/Push", request_serializer=lambda b: b, response_deserializer=bytes)
        for garbage in (b"\xff", b"\x0a\x05ab", b"\x42\x05ab", b"\x42\x01a\x08\x01", b"\x0b", b"\x08" + b"\xff" * 11, b"\x0d\x00\x00"):
            with self.assertRaises(grpc.RpcError) as caught:
                list(method(iter([garbage])))
            self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT, garbage)
        channel.close()

    def test_bad_specs(self):
        cases = [(dict(push=octavo.push(credit_blocks=65)), "push.credit_blocks"), (dict(push=octavo.push(idle_timeout=2e9)), "push.idle_timeout"),
                 (dict(queue="Nice Queue"), "queue.name"), (dict(markers=[octavo.marker("", "bscan")]), "markers[0].name"),
                 (dict(markers=[octavo.marker("x", "record", every=10)]), "markers[0].every"),
                 (dict(markers=[octavo.marker("x", "volume", offset=2)]), "markers[0].offset"),
                 (dict(markers=[octavo.marker("x", "bscan", offset=2 * BSCANS)]), "markers[0].offset"),
                 (dict(markers=[octavo.marker("x", "record", offset=2 * VOLUME)]), "markers[0].offset"), (dict(markers=[scan_pb2.Marker(name="x")]), "markers[0].at")]
        for fields, field in cases:
            with self.assertRaises(octavo.OctavoError) as caught:
                self.submit(**fields)
            self.assertEqual((caught.exception.code, caught.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, field))
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_scan(octavo.push(), octavo.raster(8, 8, volumes=1))
        self.assertEqual(caught.exception.field, "acquisition.samples_per_record")

    def test_a_client_that_is_killed_and_another_that_goes_on(self):
        scan = self.submit(volumes=4, acquisition=dict(records_per_block=16))
        code = ("import sys; sys.path[:0] = %r; from push_test import *\n"
                "def blocks():\n"
                "    for i in range(0, 700, 16):\n"
                "        yield records(i, 16)\n"
                "    print('here', flush=True)\n"
                "    sys.stdin.read()\n"  # the test kills it during its push
                "octavo.Client(%r).push(%r, blocks())\n") % ([os.path.dirname(os.path.abspath(__file__))], self.daemon.address, scan)
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   env={**os.environ, "OCTAVO_BUILD_DIR": BUILD})
        self.assertEqual(process.stdout.readline(), b"here\n")
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        for status in self.client.watch(scan):
            if not status.source.connected:
                break
        self.assertEqual(self.client.scan(scan).state, types_pb2.SCAN_STATE_RUNNING)
        began = []

        def rest(first):
            began.append(first)
            return (records(i, min(16, 4 * VOLUME - i)) for i in range(first, 4 * VOLUME, 16))

        self.assertTrue(self.client.push(scan, rest).done)
        self.assertTrue(0 < began[0] <= 704)
        end = self.client.wait(scan)
        self.assertEqual((end.reason_code, end.missing_ascans, end.source.gaps, end.source.connections), (reason_pb2.REASON_COMPLETED, 0, 0, 2))
        self.assertEqual([e.text for e in end.events if e.kind == "SOURCE"][:3], ["client 1 connected", "client 1 gone", "client 2 connected"])
        for index in range(4):
            self.check(scan, index)

    def test_broken_connections_lose_nothing(self):
        scan = self.submit(volumes=6, acquisition=dict(records_per_block=16))
        proxy = CuttingProxy(self.daemon.address)
        cuts = iter((100, 400, 900, 1300))
        self.cut_at = next(cuts)

        def blocks():
            for i in range(0, 6 * VOLUME, 16):
                if self.cut_at is not None and i >= self.cut_at:
                    proxy.cut()
                    self.cut_at = next(cuts, None)
                yield records(i, 16)

        with octavo.Client(proxy.address) as client:
            result = client.push(scan, blocks())
        proxy.close()
        self.assertTrue(result.done)
        self.assertGreaterEqual(result.connections, 3)
        end = self.client.wait(scan)
        self.assertEqual((end.reason_code, end.missing_ascans, end.source.gaps), (reason_pb2.REASON_COMPLETED, 0, 0))
        for index in range(6):
            self.check(scan, index)

    def test_the_newest_connection_wins(self):
        scan = self.submit()
        old = RawPush(self.daemon.address, scan)
        old.until(lambda a: a.credit > 0)
        self.client.push(scan, [records(0, 2 * VOLUME)])
        error = old.error()
        self.assertEqual((error.code, error.reason), (grpc.StatusCode.ABORTED, "REPLACED"))
        old.close()
        self.assertEqual(self.client.wait(scan).reason_code, reason_pb2.REASON_COMPLETED)

    def test_a_source_that_stalls(self):
        scan = self.submit(push=octavo.push(idle_timeout=3))
        push = RawPush(self.daemon.address, scan)
        push.until(lambda a: a.credit > 0)
        push.send(0, VOLUME)
        push.send(VOLUME, 50)
        end = self.client.wait(scan)
        self.assertEqual((end.state, end.reason_code), (types_pb2.SCAN_STATE_FAILED, reason_pb2.REASON_SOURCE_STALLED))
        self.assertIn(f"record {VOLUME + 50}", end.reason)
        push.until(lambda a: a.done)
        push.close()
        self.check(scan, 0)  # complete volumes stay held
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.push(scan, [records(0, 16)])
        self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.FAILED_PRECONDITION, "SCAN_STATE"))

    def test_nobody_ever_comes(self):
        scan = self.submit(push=octavo.push(idle_timeout=0.2))
        end = self.client.wait(scan)
        self.assertEqual((end.reason_code, end.volumes_done), (reason_pb2.REASON_SOURCE_STALLED, 0))
        self.assertIn("no client ever connected", end.reason)

    def test_runs_short(self):
        scan = self.submit()
        self.client.push(scan, [records(0, VOLUME + 70)])
        end = self.client.wait(scan)
        self.assertEqual((end.state, end.reason_code, end.missing_ascans), (types_pb2.SCAN_STATE_DONE, reason_pb2.REASON_SOURCE_ENDED, VOLUME - 70))
        self.check(scan, 0)
        self.check(scan, 1, missing=range(70, VOLUME))

    def pushing(self, volumes):
        """A scan whose volumes come one by one: the function that pushes the next and waits for it; without more, the scan ends."""
        scan, turns = self.submit(volumes=volumes + 1), queue.Queue()

        def blocks():
            for index in iter(lambda: turns.get(timeout=60), None):
                yield records(index * VOLUME, VOLUME)
        push = threading.Thread(target=lambda: self.client.push(scan, blocks()))
        push.start()

        def to(index):
            turns.put(index)
            if index is None:
                push.join()
                self.assertEqual(self.client.wait(scan).volumes_done, volumes)
            else:
                until(lambda: [v.state for v in self.client.volumes(scan)].count("HELD") > index)
        return scan, to

    def begun(self, scan, **fields):
        """A subscription of B-scans that has begun; that of the client's method begins with its first frame."""
        request = stream_pb2.SubscribeRequest(parent=scan, products=[stream_pb2.PRODUCT_BSCAN], **fields)
        call = self.client.channel.unary_stream("/octavo.v1.StreamService/Subscribe", request_serializer=stream_pb2.SubscribeRequest.SerializeToString,
                                                response_deserializer=stream_pb2.SubscribeResponse.FromString)(request, timeout=60)
        call.initial_metadata()
        return call

    def test_who_subscribes_behind_the_last_volume_sees_it(self):
        """No picture is made any more; at the end of the scan comes that of its held volume."""
        scan, push = self.pushing(1)
        push(0)
        newest = self.client.subscribe(scan, ["mip", "bscan"], timeout=60)
        self.assertEqual(next(newest).product, "mip")  # that is there
        of_new_ones = self.begun(scan, delivery=stream_pb2.DELIVERY_DROP_OLDEST)
        push(None)
        (frame,) = newest
        self.assertEqual((frame.product, frame.complete, frame.dropped_before), ("bscan", True, 0))
        np.testing.assert_array_equal(frame.array, self.client.read(self.client.volumes(scan)[0])[BSCANS // 2])
        self.assertEqual(list(of_new_ones), [])

    def test_an_older_picture_is_not_the_last_one(self):
        """Nobody looks while the second volume is made."""
        scan, push = self.pushing(2)
        earlier = self.begun(scan)
        push(0)
        self.assertEqual(next(earlier).frame.volume_index, 0)
        earlier.cancel()
        until(lambda: subscribers(self.daemon) == 0)
        push(1)
        newest = self.client.subscribe(scan, "bscan", timeout=60)
        shown = [next(newest).volume_index]
        push(None)
        self.assertEqual(shown + [frame.volume_index for frame in newest], [0, 1])

    def test_runs_long(self):
        scan = self.submit(volumes=1)
        result = self.client.push(scan, (records(i, 16) for i in itertools.count(0, 16)))
        self.assertTrue(result.done)
        self.assertEqual(result.next_record, VOLUME)
        end = self.client.wait(scan)
        self.assertEqual((end.reason_code, end.source.records), (reason_pb2.REASON_COMPLETED, VOLUME))
        self.check(scan, 0)

    def told(self, scan, blocks, **options):
        """Returns the client's warnings of a push, the scan's end, and the result."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = self.client.push(scan, blocks, **options)
        for warning in caught:
            self.assertEqual((warning.category, warning.filename), (octavo.OctavoWarning, __file__))
        return [str(warning.message) for warning in caught], result

    def test_fewer_records_than_the_scan_takes_are_told(self):
        for blocks, reached in ([records(0, VOLUME)], VOLUME), ([], 0), (iter(()), 0), (lambda first: [records(first, 40)], 40), ([(100, records(100, 60))], 160):
            scan = self.submit()
            said, result = self.told(scan, blocks)
            self.assertTrue(result.done)
            self.assertEqual(len([text for text in said if f"{scan}: the records that were given end at {reached} of the {2 * VOLUME}" in text]), 1, said)
            self.client.wait(scan)
            for volume in self.client.volumes(scan):
                self.client.discard(volume.name)
        # There is no warning if another call continues, if the scan takes any number, or if it has
        # all records.
        scan = self.submit()
        self.assertEqual(self.told(scan, [records(0, 40)], end=False)[0], [])
        self.assertEqual(self.told(scan, [records(40, 2 * VOLUME - 40)])[0], [])
        endless = self.submit(volumes=0)
        self.assertEqual([text for text in self.told(endless, [records(0, VOLUME + 7)])[0] if "takes" in text], [])
        self.client.wait(endless)

    def test_a_first_block_that_cannot_be_meant_is_told(self):
        raw = records(0, VOLUME)
        for block, fields, words in ((raw, dict(adc_bits=10), ["adc_bits is 10, which are samples of 0 to 1023", "all 16"]),
                                     (raw.astype("<i2") - 9000, dict(adc_bits=12, raw_type="i16"), ["-4096 to 4095", "up to -"]),
                                     (raw * 0, {}, ["first 256 records are all 0"]), (raw * 0, dict(adc_bits=12), ["are all 0"])):
            scan = self.submit(volumes=1, **fields)
            said, result = self.told(scan, block)
            self.assertTrue(result.done)
            self.assertEqual(len(said), 1, said)
            for word in words:
                self.assertIn(word, said[0])
        raw[5, 7] = 60000  # a broken sample
        for block, fields in ((raw, dict(adc_bits=12)), (raw, {}), (np.where(raw > 2500, raw, 0), dict(adc_bits=12)), (raw.astype("<f4"), dict(raw_type="f32"))):
            self.assertEqual(self.told(self.submit(volumes=1, **fields), block)[0], [])

    def test_an_iterator_that_has_nothing_more_for_ever(self):
        """Once all records are sent, the push waits only briefly for a sign of surplus records."""
        scan = self.submit(volumes=1)
        never = threading.Event()

        def blocks():
            yield records(0, VOLUME)
            never.wait()

        looked, push_module.LOOK_SECONDS = push_module.LOOK_SECONDS, 0.1
        try:
            said, result = self.told(scan, blocks())
        finally:
            push_module.LOOK_SECONDS = looked
            never.set()
        self.assertEqual((said, result.done, result.next_record), ([], True, VOLUME))

    def test_the_callers_own_error_comes_back_to_him(self):
        scan = self.submit()

        def blocks():
            yield records(0, 16)
            raise ZeroDivisionError("mine")

        with self.assertRaisesRegex(ZeroDivisionError, "mine"):
            self.client.push(scan, blocks())
        with self.assertRaisesRegex(ValueError, r"uint16 \(4, 64\); the scan takes records of 128 samples, U16: expected uint16 \[records, 128\]"):
            self.client.push(scan, [np.zeros((4, 64), np.uint16)])
        status = self.client.scan(scan)
        self.assertEqual((status.state, status.reason_code), (types_pb2.SCAN_STATE_RUNNING, reason_pb2.REASON_UNSPECIFIED))

    def test_markers_come_with_their_records(self):
        scan = self.submit()
        with self.daemon.client() as other:
            events = other.subscribe(scan, ["event"], from_sequence=0)
            self.client.push(scan, [(0, records(0, 100), [("flash", 17)]), (100, records(100, 2 * VOLUME - 100), [("flash", 300), ("stage", 301)])])
            marks = [(f.event.marker, f.event.record, f.event.volume_index) for f in events if f.event.kind == "MARKER"]
        self.assertEqual(marks, [("flash", 17, 0), ("flash", 300, 1), ("stage", 301, 1)])

    def test_a_marker_of_any_record_in_any_block(self):
        """Blocks of several messages bring markers of records before, inside and behind them."""
        scan = self.submit()
        with self.daemon.client() as other:
            events = other.subscribe(scan, ["event"], from_sequence=0)
            big = 16384  # records of a message of 2 MiB: the first block takes several messages
            self.client.push(scan, [(0, records(0, 100), [("behind", 150), ("late", 383), ("own", 99)]),
                                    (100, records(100, 2 * VOLUME - 100 + 2 * big), [("before", 40), ("own", 101)])])
            marks = [(f.event.marker, f.event.record) for f in events if f.event.kind == "MARKER"]
        self.assertEqual(sorted(marks), [("before", 40), ("behind", 150), ("late", 383), ("own", 99), ("own", 101)])
        end = self.client.wait(scan)
        self.assertEqual(end.source.ignored_markers, 0)
        self.assertEqual(end.out_of_range_records, end.source.out_of_range_records)
        scan = self.submit()
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.push(scan, [(0, records(0, 10), [("flash", 2 * VOLUME)])])
        self.assertEqual((caught.exception.code, caught.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, "markers.record"))
        self.assertIn(f"allowed 0 to {2 * VOLUME - 1}", str(caught.exception))
        self.client.cancel(scan)

    def test_markers_in_messages_without_records(self):
        """In the first message, between blocks, and beside `end`: none is lost, and none needs credit."""
        scan = self.submit()

        def marks(*which):
            return [ingest_pb2.PushMarker(name=name, record=record) for name, record in which]

        with self.daemon.client() as other:
            events = other.subscribe(scan, ["event"], from_sequence=0)
            push = RawPush(self.daemon.address, scan, markers=marks(("hello", 3)))
            self.assertEqual(push.until(lambda answer: answer.credit > 0).received, 0)
            push.send(0, 200)
            push.requests.put(ingest_pb2.PushRequest(markers=marks(("between", 300), ("past", 10))))
            push.send(200, 200)
            push.send(400, 2 * VOLUME - 401)
            push.until(lambda answer: answer.received == 3)
            push.requests.put(ingest_pb2.PushRequest(markers=marks(("bye", 2 * VOLUME - 2)), end=True))
            found = [(f.event.marker, f.event.record) for f in events if f.event.kind == "MARKER"]
            push.close()
        self.assertEqual({name for name, _ in found} - {"bye"}, {"hello", "between", "past"})
        end = self.client.wait(scan)
        self.assertEqual(len(found) + end.source.ignored_markers, 4)  # "bye" may come when its record has been processed
        scan = self.submit()
        push = RawPush(self.daemon.address, scan, markers=marks(("hello", 2 * VOLUME)))
        error = push.error()
        self.assertEqual((error.code, error.field), (grpc.StatusCode.INVALID_ARGUMENT, "markers.record"))
        push.close()
        # `end` in the first message: no record will come.
        push = RawPush(self.daemon.address, scan, end=True)
        self.assertEqual(self.client.wait(scan).reason_code, reason_pb2.REASON_SOURCE_ENDED)
        push.close()

    def test_cancel_tells_the_client(self):
        scan = self.submit(volumes=0)
        results = []
        thread = threading.Thread(target=lambda: results.append(self.client.push(scan, (records(i, 64) for i in itertools.count(0, 64)))))
        thread.start()
        for status in self.client.watch(scan):
            if status.volumes_done > 2:
                break
        self.client.cancel(scan)
        thread.join(20)
        self.assertTrue(results[0].done)
        self.assertEqual(self.client.wait(scan).state, types_pb2.SCAN_STATE_CANCELLED)


if __name__ == "__main__":
    unittest.main()
