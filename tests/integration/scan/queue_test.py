"""Scans of one queue, interruption, events, markers, and changes of the processing while a scan
runs."""

import os
import subprocess
import threading
import unittest

import grpc
import numpy as np

from harness import BUILD, Daemon, DaemonTest, held_bytes, octavo
from octavo.v1 import reason_pb2, scan_pb2, types_pb2

E = types_pb2.ScanEvent
SAMPLES, ASCANS, BSCANS = 128, 32, 8
VOLUME = ASCANS * BSCANS


def kinds(events):
    return [str(e.kind) for e in events]


def scan_state(event):
    """"RUNNING"; "" of an event that is not about the state of the scan."""
    return types_pb2.ScanState.Name(event.scan_state).removeprefix("SCAN_STATE_") if event.scan_state else ""


class Queue(DaemonTest):
    def submit(self, volumes=2, rate_hz=4000, seed=1, **fields):
        fields.setdefault("acquisition", dict(ring_blocks=128))  # eight seconds: others may use this machine
        return self.client.submit_scan(octavo.simulated(seed), octavo.raster(ASCANS, BSCANS, volumes=volumes), samples=SAMPLES, rate_hz=rate_hz,
                                       retention=dict(hold_slots=4, mode=scan_pb2.RETENTION_MODE_CAPTURE, on_full=scan_pb2.ON_FULL_DROP_NEW), **fields).name

    def until(self, scan, wanted):
        for status in self.client.watch(scan):
            if wanted(status):
                return status
        raise AssertionError(f"{scan} ended: {status.reason_code}")

    def test_one_after_another_the_next_while_the_last_drains(self):
        first = self.submit(queue="q", volumes=0)  # runs until it is stopped: the others wait
        names = [self.submit(queue="q") for _ in range(4)]
        positions = [self.client.scan(n).queue_position for n in [first, *names]]
        self.assertEqual(positions, [0, 1, 2, 3, 4])
        self.client.stop(first)
        names.append(self.submit(queue="q"))  # queued while the first one runs
        scans = [self.client.wait(n) for n in names]
        for scan in scans:
            self.assertEqual((scan.state, scan.reason_code, scan.volumes_done, scan.missing_ascans, scan.queue_position), (types_pb2.SCAN_STATE_DONE, reason_pb2.REASON_COMPLETED, 2, 0, 0))
        for before, after in zip(scans, scans[1:]):
            last = [v for v in self.client.volumes(before.name)][-1]
            self.assertGreaterEqual(after.start_time, last.acquire_end_time)  # not before its last record
            self.assertLessEqual(after.start_time, before.end_time)          # while it drains

    def test_queues_are_independent_and_scans_without_one_start_at_once(self):
        a, b = self.submit(queue="a", volumes=0), self.submit(queue="b", volumes=0)
        c, d = self.submit(volumes=0), self.submit(queue="a", volumes=0)
        self.assertEqual([self.client.scan(n).state for n in (a, b, c, d)], [types_pb2.SCAN_STATE_RUNNING] * 3 + [types_pb2.SCAN_STATE_QUEUED])
        self.assertEqual(sum(device.running_scans for device in self.client.devices()), 3)  # without the queued one
        self.client.cancel(a)
        self.until(d, lambda s: s.state == types_pb2.SCAN_STATE_RUNNING)

    def test_a_waiting_scan_can_be_stopped_cancelled_and_updated(self):
        running = self.submit(queue="q", volumes=0)
        waiting = [self.submit(queue="q") for _ in range(3)]
        self.client.update_scan(waiting[2], octavo.processing(window="rect"))
        self.client.cancel(waiting[0])
        end = self.client.wait(waiting[0])
        self.assertEqual((end.state, end.reason_code, end.records, end.volumes_done), (types_pb2.SCAN_STATE_CANCELLED, reason_pb2.REASON_CANCELLED, 0, 0))
        self.client.stop(waiting[1])
        end = self.client.wait(waiting[1])
        self.assertEqual((end.state, end.reason_code, end.records), (types_pb2.SCAN_STATE_DONE, reason_pb2.REASON_STOPPED, 0))
        self.assertEqual(self.client.scan(waiting[2]).queue_position, 1)
        self.assertEqual(self.client.scan(running).state, types_pb2.SCAN_STATE_RUNNING)
        self.client.stop(running)
        end = self.client.wait(waiting[2])
        self.assertEqual((end.reason_code, end.spec.processing.window), (reason_pb2.REASON_COMPLETED, scan_pb2.WINDOW_KIND_RECT))
        self.assertEqual([e.volume_index for e in end.events if e.kind == "PROCESSING"], [0])

    def test_interrupts(self):
        for insert, state in (("interrupt_at_volume", types_pb2.SCAN_STATE_DONE), ("interrupt_now", types_pb2.SCAN_STATE_CANCELLED)):
            running = self.submit(queue="q", volumes=0, rate_hz=1000)
            waiting = self.submit(queue="q", volumes=1)
            self.until(running, lambda s: s.current_volume >= 0)
            urgent = self.submit(queue="q", volumes=1, insert=insert)
            end = self.client.wait(running)
            self.assertEqual((end.state, end.reason_code), (state, reason_pb2.REASON_INTERRUPTED))
            self.assertIn(urgent, end.reason)
            self.assertEqual([e.text for e in end.events if e.kind == "INTERRUPTED"], [end.reason])
            if state == types_pb2.SCAN_STATE_DONE:
                self.assertEqual(end.missing_ascans, 0)
                self.assertGreaterEqual(end.volumes_done, 1)
            first, second = self.client.wait(urgent), self.client.wait(waiting)
            self.assertEqual((first.reason_code, second.reason_code), (reason_pb2.REASON_COMPLETED, reason_pb2.REASON_COMPLETED))
            self.assertLess(first.start_time, second.start_time)
            self.tearDown()

    def test_an_interrupt_of_an_empty_queue_just_starts(self):
        self.assertEqual(self.client.wait(self.submit(queue="empty", insert="interrupt_now")).reason_code, reason_pb2.REASON_COMPLETED)

    def test_memory_is_granted_when_a_scan_is_appended(self):
        running = self.submit(queue="q", volumes=0)

        def granted():
            return held_bytes(self.client)

        before = granted()
        waiting = self.submit(queue="q")
        self.assertGreater(granted(), before)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_scan(octavo.simulated(1), octavo.raster(1000, 1000, volumes=1000), samples=4096, queue="q")
        self.assertEqual(caught.exception.code, grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.client.cancel(waiting)
        self.client.wait(waiting)
        self.assertEqual(granted(), before)
        self.client.cancel(running)

    def test_events(self):
        blocker = self.submit(queue="q", volumes=0)
        scan = self.submit(queue="q", volumes=3)
        frames = []
        with self.daemon.client() as other:
            call = other.subscribe(scan, ["event"], from_sequence=0)
            thread = threading.Thread(target=lambda: frames.extend(call))
            thread.start()
            self.client.stop(blocker)
            told, seen = [], set()
            for status in self.client.watch(scan):
                for event in status.events:
                    if event.number not in seen:
                        seen.add(event.number)
                        told.append(event)
            thread.join(20)
        self.assertEqual([e.number for e in told], list(range(len(told))))
        self.assertEqual([k for k in kinds(told) if not k.startswith("VOLUME")], ["STATE", "STARTED", "STATE", "FINISHED"])
        for kind in (E.KIND_VOLUME_STARTED, E.KIND_VOLUME_DONE):
            self.assertEqual([e.volume_index for e in told if e.kind == kind], [0, 1, 2])
        self.assertEqual([e.record for e in told if e.kind == "VOLUME_STARTED"], [0, VOLUME, 2 * VOLUME])
        self.assertEqual((told[0].text, told[1].text, told[-1].text), ("scan QUEUED", "scan RUNNING", "scan DONE"))
        self.assertEqual([scan_state(e) for e in told if scan_state(e)], ["QUEUED", "RUNNING", "DRAINING", "DONE"])
        self.assertEqual({str(e.volume_state) for e in told if e.kind == E.KIND_VOLUME_DONE}, {"HELD"})
        # The EVENT topic has the same events, from RUNNING on.
        self.assertEqual([f.event.kind for f in frames if not f.volume and f.event.kind in (E.KIND_STATE, E.KIND_STARTED, E.KIND_FINISHED)],
                         [E.KIND_STARTED, E.KIND_STATE, E.KIND_FINISHED])
        self.assertEqual([f.event.volume_index for f in frames if f.event.kind == "VOLUME_DONE"], [0, 1, 2])
        self.assertEqual([f.sequence for f in frames], list(range(len(frames))))
        self.assertEqual(len([s for s in self.client.scans() if s.events]), 0)  # lists leave events out

    def test_markers(self):
        rules = [octavo.marker("line", "bscan", every=2, offset=1), octavo.marker("volume", "volume"), octavo.marker("laser", "record", every=100, offset=7)]
        # Flyback counts: a line is 32 + 3 records, a volume 8 lines and 5 records more.
        scan = self.client.submit_scan(octavo.simulated(1), octavo.raster(ASCANS, BSCANS, volumes=3, flyback_records=3, volume_flyback_records=5),
                                       samples=SAMPLES, rate_hz=1000, markers=rules, acquisition=dict(records_per_block=50, ring_blocks=32), queue="markers").name
        frames = list(self.client.subscribe(scan, ["event"], from_sequence=0))
        marks = [f.event for f in frames if f.event.kind == "MARKER"]
        at = {name: [m.record for m in marks if m.marker == name] for name in ("line", "volume", "laser")}
        volume = BSCANS * 35 + 5
        self.assertEqual(at["volume"], [0, volume, 2 * volume])
        self.assertEqual(at["line"], [v * volume + y * 35 for v in range(3) for y in range(1, 8, 2)])
        # The last A-scan ends the scan. How much of the following flyback is read is undefined.
        last = 3 * volume - 5 - 3
        self.assertEqual([r for r in at["laser"] if r < last], list(range(7, last, 100)))
        # Their times are those of the records: at equal distances, for any blocks.
        times = np.array([m.monotonic_ns for m in marks if m.marker == "laser"])
        records = np.array(at["laser"])
        period = np.median(np.diff(times) / np.diff(records))  # a block may be taken late
        self.assertLess(abs(period - 1e9 / 1000), 0.1 * 1e9 / 1000)
        self.assertEqual([m.number for m in marks], [None] * len(marks))  # they are not in the list

    def test_a_client_marks(self):
        scan = self.submit(volumes=0)
        self.until(scan, lambda s: s.records > 0)
        event = self.client.mark(scan, "stimulus on")
        self.assertEqual((event.marker, event.kind), ("stimulus on", E.KIND_MARKER))
        self.assertGreater(event.record, 0)
        self.assertEqual(event.volume_index, event.record // VOLUME)
        self.assertIn(("stimulus on", event.record), [(e.marker, e.record) for e in self.client.scan(scan).events])
        for marker in ("", "x" * 64):
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.mark(scan, marker)
            self.assertEqual((caught.exception.code, caught.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, "marker"))
        self.client.cancel(scan)
        self.client.wait(scan)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.mark(scan, "late")
        self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.FAILED_PRECONDITION, "SCAN_STATE"))


class CommandLine(DaemonTest):
    def octavo(self, *arguments):
        result = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, *arguments], capture_output=True, text=True)
        return result.returncode, result.stdout.strip(), result.stderr

    def test_queues_and_marks(self):
        geometry = ("--source", "simulated", "--samples", str(SAMPLES), "--ascans", str(ASCANS), "--bscans", str(BSCANS), "--rate", "4000", "--hold-slots", "2")
        code, running, _ = self.octavo("scan", "submit", *geometry, "--volumes", "0", "--queue", "q")
        self.assertEqual(code, 0)
        code, waiting, _ = self.octavo("scan", "submit", *geometry, "--volumes", "1", "--queue", "q")
        self.assertIn(f"{waiting}  QUEUED", self.octavo("scan", "list")[1])
        self.assertIn("1. in queue q", self.octavo("scan", "list")[1])
        for status in self.client.watch(running):
            if status.records > 0:
                break
        code, text, _ = self.octavo("scan", "mark", running, "stimulus")
        self.assertEqual(code, 0)
        self.assertRegex(text, r"^marked record \d+ of volume \d+$")
        code, urgent, _ = self.octavo("scan", "submit", *geometry, "--volumes", "1", "--queue", "q", "--insert", "interrupt-now", "--watch")
        self.assertEqual(code, 0)
        self.assertEqual(self.client.scan(running).reason_code, reason_pb2.REASON_INTERRUPTED)
        self.assertEqual(self.client.wait(waiting).reason_code, reason_pb2.REASON_COMPLETED)
        self.assertEqual(self.octavo("scan", "submit", *geometry, "--insert", "sometimes")[0], 2)
        code, _, error = self.octavo("scan", "submit", *geometry, "--queue", "No Queue")
        self.assertEqual(code, 1)
        self.assertIn("queue.name", error)


class Update(DaemonTest):
    def test_processing_changes_at_a_volume_without_a_dropped_block(self):
        # Blocks of 48 records do not end with volumes of 256, so every change happens in the middle
        # of a block. The raw data of all volumes are equal, so each volume shows which processing
        # made it.
        j = np.arange(SAMPLES)
        raw = np.round(2000 + 500 * np.cos(2 * np.pi * (5 + np.arange(VOLUME)[:, None] % 30) * j / SAMPLES)).astype("<u2")
        spectrum = np.abs(np.fft.ifft(raw.astype(np.float64), axis=1))[:, :SAMPLES // 2].reshape(BSCANS, ASCANS, -1)
        mean = np.abs(np.fft.ifft(raw - raw.mean(axis=0), axis=1))  # the rolling background of a whole volume
        models = {"magnitude": spectrum, "power": spectrum ** 2}
        self.assertGreater(abs(mean[0, 0] - spectrum[0, 0, 0]), 100)
        volumes = 24

        def processing(value):
            return octavo.processing(background="none", window="rect", value=value, dtype="f32")

        scan = self.client.submit_scan(octavo.push(), octavo.raster(ASCANS, BSCANS, volumes=volumes), samples=SAMPLES, processing=processing("magnitude"),
                                       acquisition=dict(records_per_block=48)).name
        stream = np.concatenate([raw] * volumes)
        updates = []

        def blocks():
            for first in range(0, len(stream), 48):
                # During the stream, while the server processes it.
                if first > 0 and first % (48 * 16) == 0:
                    value = ("power", "magnitude")[len(updates) % 2]
                    self.client.update_scan(scan, processing(value))
                    updates.append(value)
                yield stream[first:first + 48]

        self.client.push(scan, blocks())
        end = self.client.wait(scan)
        self.assertEqual((end.reason_code, end.volumes_done, end.missing_ascans, end.blocks_dropped), (reason_pb2.REASON_COMPLETED, volumes, 0, 0))
        changes = [e.volume_index for e in end.events if e.kind == "PROCESSING"]
        self.assertGreaterEqual(len(changes), 3)
        made = []
        for volume in self.client.volumes(scan):
            self.assertTrue(volume.complete)
            array = self.client.read(volume.name)
            fits = [value for value, model in models.items() if np.allclose(array, model, rtol=1e-4, atol=0.05)]
            self.assertEqual(len(fits), 1, f"volume {volume.index} is a mixture")
            self.assertEqual(volume.value, {"magnitude": scan_pb2.VALUE_MAGNITUDE, "power": scan_pb2.VALUE_POWER}[fits[0]])
            made.append(fits[0])
        for index in range(1, volumes):
            if made[index] != made[index - 1]:
                self.assertIn(index, changes)
        self.assertGreaterEqual(sum(a != b for a, b in zip(made, made[1:])), 2)

    def test_a_rolling_background_is_there_from_the_change_on(self):
        # The first volume after a change already has a background: a constant spectrum leaves
        # nothing.
        flat = np.full((VOLUME, SAMPLES), 3000, "<u2")
        scan = self.client.submit_scan(octavo.push(), octavo.raster(ASCANS, BSCANS, volumes=4), samples=SAMPLES, acquisition=dict(records_per_block=VOLUME),
                                       processing=octavo.processing(value="magnitude", dtype="f32", window="hann")).name

        def blocks():
            yield flat
            for status in self.client.watch(scan):
                if status.volumes_done == 1:
                    break
            self.client.update_scan(scan, octavo.processing(value="power", dtype="f32", window="hamming"))
            yield from (flat, flat, flat)

        self.client.push(scan, blocks())
        end = self.client.wait(scan)
        self.assertEqual([e.volume_index for e in end.events if e.kind == "PROCESSING"], [1])
        for volume in self.client.volumes(scan):
            self.assertLess(np.abs(self.client.read(volume.name)).max(), 1e-3, volume.index)

    def test_paced_acquisition_does_not_notice_and_memory_does_not_grow(self):
        scan = self.client.submit_scan(octavo.simulated(3), octavo.raster(ASCANS, BSCANS, volumes=0), samples=SAMPLES, rate_hz=20000,
                                       retention=dict(disposition=scan_pb2.DISPOSITION_AUTO_DISCARD), overrun=scan_pb2.OVERRUN_DROP_BLOCK,
                                       acquisition=dict(ring_blocks=512)).name  # six seconds: others may use this machine
        for status in self.client.watch(scan):
            if status.volumes_done > 2:
                break
        before = self.client.devices()[0].reserved_bytes
        for i in range(120):
            self.client.update_scan(scan, octavo.processing(window=("rect", "hann", "blackman")[i % 3], a2=1e-6 * i))
        begun = self.client.scan(scan).volumes_done
        for status in self.client.watch(scan):
            if status.volumes_done > begun + 10:
                break
        # The processor in use came with an update; the scan began with another one.
        workspace = [n for n in self.client.plan_scan(status.spec).report.needs if n.kind == n.KIND_CHAIN_WORKSPACE][0].bytes
        self.assertLessEqual(self.client.devices()[0].reserved_bytes, before + 2 * workspace)
        self.client.stop(scan)
        end = self.client.wait(scan)
        self.assertEqual((end.blocks_dropped, end.missing_ascans), (0, 0))
        self.assertEqual(end.spec.processing.window, scan_pb2.WINDOW_KIND_BLACKMAN)

    def test_what_cannot_change(self):
        scan = self.client.submit_scan(octavo.simulated(3), octavo.raster(ASCANS, BSCANS, volumes=0), samples=SAMPLES, rate_hz=4000).name
        for processing, field in ((octavo.processing(dtype="f32"), "processing.dtype"), (octavo.processing(depth=10), "processing.depth"),
                                  (octavo.processing(levels=(2, 1)), "processing.levels")):
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.update_scan(scan, processing)
            self.assertEqual((caught.exception.code, caught.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, field))
        self.client.cancel(scan)
        self.client.wait(scan)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.update_scan(scan, octavo.processing())
        self.assertEqual(caught.exception.reason, "SCAN_STATE")


class Draining(unittest.TestCase):
    def test_waiting_scans_end_with_the_server(self):
        daemon = Daemon()
        with daemon.client() as client:
            for volumes in (0, 0, 5):
                client.submit_scan(octavo.simulated(1), octavo.raster(ASCANS, BSCANS, volumes=volumes), samples=SAMPLES, rate_hz=4000, queue="q")
        self.assertEqual(daemon.stop(), 0)
        text = daemon.text()
        daemon.remove()
        self.assertEqual(text.count("DRAINED"), 3)


if __name__ == "__main__":
    unittest.main()
