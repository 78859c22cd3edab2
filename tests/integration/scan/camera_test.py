"""Cameras: Aravis' fake camera within the daemon, and a GigE Vision camera in a separate process
that loses packets and disappears."""

import json
import os
import subprocess
import unittest

import grpc
import numpy as np

from harness import BUILD, Daemon, DaemonTest, octavo, until
from octavo.v1 import reason_pb2, scan_pb2, types_pb2

FAKE_CAMERA = os.path.join(BUILD, "bin", "fake_camera")
WIDTH, HEIGHT, ASCANS, BSCANS = 128, 16, 32, 8
VOLUME = ASCANS * BSCANS
PROCESSING = octavo.processing(background="none", window="rect", value="magnitude", dtype="f32")


class FakeCamera:
    """A GigE Vision camera on 127.0.0.1 in a separate process."""

    def __init__(self, serial, lost=0):
        self.id = f"Aravis-Fake-{serial}"
        self.process = subprocess.Popen([FAKE_CAMERA, serial, str(lost)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self.process.stdout.readline() != b"listening\n":
            self.process.wait()
            raise RuntimeError("fake_camera cannot listen (is another camera on 127.0.0.1?)")

    def end(self, kill=False):
        if kill:
            self.process.kill()
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@unittest.skipUnless(os.path.exists(FAKE_CAMERA), "built without Aravis")
class Cameras(DaemonTest):
    flags = ("--camera.interfaces", "GigEVision,Fake")

    def camera(self, serial, lost=0):
        """A camera that answers: a discovery takes one second, and a busy machine lets it miss that."""
        camera = FakeCamera(serial, lost)
        until(lambda: camera.id in [c.id for c in self.client.cameras()])
        return camera

    def submit(self, camera, volumes=2, width=WIDTH, height=HEIGHT, pixel_format="Mono16", **fields):
        spec = dict(frame_rate_hz=100, exposure_us=10000)
        spec.update({k: fields.pop(k) for k in list(fields) if k in ("frame_rate_hz", "exposure_us", "gain", "trigger_source", "buffers", "frame_timeout", "offset_x",
                                                                     "offset_y")})
        fields.setdefault("processing", PROCESSING)
        source = octavo.camera(camera, width=width, height=height, pixel_format=pixel_format, **spec)
        return self.client.submit_scan(source, octavo.raster(ASCANS, BSCANS, volumes=volumes), **fields).name

    def decoded(self, scan, scale=1.0):
        """For each A-scan of the scan, in the order of records: frame id mod 1000 (-1 if missing),
        the line's k, amplitude."""
        volumes = self.client.volumes(scan)
        out = [np.full((VOLUME, 3), -1.0) for _ in range(volumes[-1].index + 1)]  # also for volumes that were lost completely
        for volume in volumes:
            array = self.client.read(volume.name).reshape(VOLUME, -1).astype(np.float64) * scale
            missing = np.isnan(array).any(axis=1)
            self.assertEqual(np.isnan(array).all(axis=1).tolist(), missing.tolist())  # an A-scan is whole or missing
            self.assertEqual(int(missing.sum()), volume.missing_ascans)
            array[missing] = 0
            frames = np.where(missing, -1, np.round(array[:, 0] - 1000))
            out[volume.index] = np.stack([frames, np.argmax(array[:, 1:], axis=1) + 1, array[:, 1:].max(axis=1) * 2], axis=1)
        return np.concatenate(out)

    def check(self, decoded, amplitude=200.0, rtol=0.02, frame_atol=1.0):
        """Every record comes from the line and the frame given by its
        number."""
        there = decoded[:, 0] >= 0
        number = np.arange(len(decoded))
        np.testing.assert_array_equal(decoded[there, 1], 2 + (number % HEIGHT % 30)[there])
        np.testing.assert_allclose(decoded[there, 2], amplitude, rtol=rtol)
        # Frame ids have 16 bits and wrap; the first one seen gives their offset.
        first = decoded[there, 0][0]
        begins = [i for i in range(65536) if abs(i % 1000 - first) <= frame_atol]
        frame = number // HEIGHT - number[there][0] // HEIGHT
        fits = [b for b in begins if np.all(np.abs((b + frame[there]) % 65536 % 1000 - decoded[there, 0]) <= frame_atol)]
        self.assertTrue(fits, f"no run of frame ids from {first}: {[(int(f), int(d)) for f, d in zip(frame[there], decoded[there, 0])][::HEIGHT]}")

    def test_discovery(self):
        camera = self.camera("DISC")
        try:
            found = {}
            until(lambda: found.update({c.id: c for c in self.client.cameras()}) or {"Fake_1", camera.id} <= set(found))
            self.assertEqual(found["Fake_1"].protocol, "Fake")
            self.assertEqual((found[camera.id].protocol, found[camera.id].serial, found[camera.id].address), ("GigEVision", "DISC", "127.0.0.1"))
            self.assertFalse(found[camera.id].in_use)

            def listed():
                made = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--json", "--address", self.daemon.address, "camera", "list"], capture_output=True,
                                      text=True, check=True)
                return {json.loads(line)["id"] for line in made.stdout.splitlines()}
            until(lambda: listed() == set(found))
        finally:
            camera.end()
        self.assertNotIn(camera.id, [c.id for c in self.client.cameras()])
        source = {s.name: s for s in self.client.info().sources}
        self.assertTrue(source["camera"].available)
        self.assertIn("Aravis", source["camera"].reason)

    def test_pixel_formats(self):
        camera = self.camera("FORM")
        try:
            for name, raw_type, scale, tolerance in (("Mono8", scan_pb2.RAW_TYPE_U8, 16, 16), ("Mono12", scan_pb2.RAW_TYPE_U16, 1, 1), ("Mono16", scan_pb2.RAW_TYPE_U16, 1, 1),
                                                     ("Mono12Packed", scan_pb2.RAW_TYPE_U16, 1, 1), ("Mono12p", scan_pb2.RAW_TYPE_U16, 1, 1)):
                with self.subTest(name):
                    # A busy machine may break a frame. It is counted here; another test checks it.
                    for _ in range(5):
                        scan = self.submit(camera.id, pixel_format=name)
                        end = self.client.wait(scan)
                        if end.source.frames_broken == 0:
                            break
                    self.assertEqual((end.reason_code, end.reason), (reason_pb2.REASON_COMPLETED, "all 2 volumes acquired"))
                    self.assertEqual((end.spec.acquisition.raw_type, end.spec.acquisition.samples_per_record), (raw_type, WIDTH))
                    self.assertEqual(end.source.frames_broken, 0)
                    self.check(self.decoded(scan, scale), rtol=0.02 if scale == 1 else 0.1, frame_atol=tolerance)
                    for volume in self.client.volumes(scan):
                        self.client.discard(volume.name)
        finally:
            camera.end()

    def test_frame_ids_wrap(self):
        camera = self.camera("WRAP")
        try:
            # The fake camera begins about a hundred frames before its 16-bit ids wrap.
            scan = self.submit(camera.id, volumes=20, acquisition=dict(ring_blocks=20))
            end = self.client.wait(scan)
            self.assertEqual(end.reason_code, reason_pb2.REASON_COMPLETED)
            self.assertEqual(end.missing_ascans, end.source.lost_records)
            self.check(self.decoded(scan))
        finally:
            camera.end()

    def test_region_exposure_and_what_was_asked_before(self):
        camera = self.camera("EXPO")
        try:
            for exposure in (5000, 20000):
                scan = self.submit(camera.id, exposure_us=exposure, offset_x=64, offset_y=8)
                self.assertEqual(self.client.wait(scan).reason_code, reason_pb2.REASON_COMPLETED)
                self.check(self.decoded(scan), amplitude=exposure / 50)
                for volume in self.client.volumes(scan):
                    self.client.discard(volume.name)
            # Where a scan gives no offset, the camera keeps its own; 0 is an offset, too.
            for offsets in (dict(), dict(offset_x=0, offset_y=0)):
                if not offsets:
                    with self.assertRaises(octavo.OctavoError) as caught:
                        self.submit(camera.id, width=2048)
                    self.assertEqual((caught.exception.code, caught.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, "camera.offset_x"))
                    self.assertIn("the camera is set to 64; this size allows 0 to 0", str(caught.exception))
                scan = self.submit(camera.id, **offsets)
                self.assertEqual(self.client.wait(scan).reason_code, reason_pb2.REASON_COMPLETED)
                for volume in self.client.volumes(scan):
                    self.client.discard(volume.name)
            self.client.cancel(self.submit(camera.id, width=2048))
        finally:
            camera.end()

    def test_a_triggered_camera(self):
        # The daemon triggers its fake camera 25 times a second, whatever the camera's frame rate.
        scan = self.submit("Fake_1", trigger_source="Line0", pixel_format="Mono8")
        end = self.client.wait(scan)
        self.assertEqual((end.reason_code, end.source.frames_lost, end.spec.acquisition.record_rate_hz), (reason_pb2.REASON_COMPLETED, 0, 0))
        self.assertLess(end.records_per_second, 50 * HEIGHT)
        camera = self.camera("TRIG")
        try:
            # This camera gets no trigger, which is an error only if the scan requests one.
            scan = self.submit(camera.id, trigger_source="Software", frame_timeout=0.5)
            end = self.client.wait(scan)
            self.assertEqual((end.state, end.reason_code), (types_pb2.SCAN_STATE_FAILED, reason_pb2.REASON_SOURCE_STALLED))
        finally:
            camera.end()

    def test_lost_packets_are_missing_ascans_and_nothing_is_shifted(self):
        camera = self.camera("LOST", lost=20)
        try:
            scan = self.submit(camera.id, volumes=6, frame_rate_hz=50, buffers=64)
            end = self.client.wait(scan)
            self.assertEqual(end.reason_code, reason_pb2.REASON_COMPLETED)
            source = end.source
            self.assertGreater(source.frames_broken + source.frames_lost, 0)
            self.assertGreater(end.missing_ascans, 0)
            self.assertEqual(end.missing_ascans % HEIGHT, 0)
            self.assertEqual([e.count % HEIGHT for e in end.events if e.kind == "GAP"], [0] * sum(e.kind == "GAP" for e in end.events))
            self.check(self.decoded(scan))
        finally:
            camera.end()

    def test_a_camera_that_disappears_and_comes_back(self):
        camera = self.camera("GONE")
        scan = self.submit(camera.id, volumes=0, retention=dict(mode=scan_pb2.RETENTION_MODE_CAPTURE, hold_slots=4, on_full=scan_pb2.ON_FULL_DROP_NEW), frame_timeout=-1,
                           overrun=scan_pb2.OVERRUN_DROP_BLOCK)
        for status in self.client.watch(scan):
            if status.volumes_done >= 2:
                break
        until(lambda: any(c.id == camera.id and c.in_use for c in self.client.cameras()))
        camera.end(kill=True)
        end = self.client.wait(scan)
        self.assertEqual((end.state, end.reason_code), (types_pb2.SCAN_STATE_FAILED, reason_pb2.REASON_SOURCE_LOST))
        self.assertIn("has gone away", end.reason)
        self.check(self.decoded(scan)[:2 * VOLUME])  # complete volumes stay held
        camera = self.camera("GONE")
        try:
            again = self.submit(camera.id)
            self.assertEqual(self.client.wait(again).reason_code, reason_pb2.REASON_COMPLETED)
            self.check(self.decoded(again))
        finally:
            camera.end()

    def test_a_camera_that_stalls(self):
        camera = self.camera("STAL")
        scan = self.submit(camera.id, volumes=0, frame_timeout=0.5)
        for status in self.client.watch(scan):
            if status.source.frames > 4:
                break
        camera.end(kill=True)
        self.assertEqual(self.client.wait(scan).reason_code, reason_pb2.REASON_SOURCE_STALLED)

    def test_two_scans_want_one_camera(self):
        first = self.submit("Fake_1", volumes=0, pixel_format="Mono8", queue="bench")
        for status in self.client.watch(first):
            if status.source.frames > 0:
                break
        with self.assertRaises(octavo.OctavoError) as caught:
            self.submit("Fake_1", pixel_format="Mono8")
        self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.FAILED_PRECONDITION, "CAMERA_BUSY"))
        second = self.submit("Fake_1", pixel_format="Mono8", queue="bench")
        self.assertEqual(self.client.scan(second).state, types_pb2.SCAN_STATE_QUEUED)
        self.client.stop(first)
        self.assertEqual(self.client.wait(first).reason_code, reason_pb2.REASON_STOPPED)
        end = self.client.wait(second)
        self.assertEqual((end.reason_code, end.source.frames_lost, end.missing_ascans), (reason_pb2.REASON_COMPLETED, 0, 0))

    def test_bad_requests_name_the_field_and_touch_nothing(self):
        cases = [(dict(camera="none"), "camera.id", grpc.StatusCode.NOT_FOUND), (dict(pixel_format="RGB8"), "camera.pixel_format", None),
                 (dict(pixel_format="Mono12p"), "camera.pixel_format", None), (dict(width=5000), "camera.width", None), (dict(height=4000), "camera.height", None),
                 (dict(offset_x=2000), "camera.offset_x", None), (dict(offset_y=2048), "camera.offset_y", None), (dict(exposure_us=1e12), "camera.exposure_us", None),
                 (dict(exposure_us=-1), "camera.exposure_us", None), (dict(gain=1e6), "camera.gain", None), (dict(frame_rate_hz=1e9), "camera.frame_rate_hz", None),
                 (dict(frame_rate_hz=float("inf")), "camera.frame_rate_hz", None), (dict(trigger_source="Line99"), "camera.trigger_source", None),
                 (dict(buffers=1), "camera.buffers", None), (dict(buffers=5000), "camera.buffers", None), (dict(samples=64), "camera.width", None),
                 (dict(raw_type="f32"), "acquisition.raw_type", None)]
        before = self.client.devices()[0].reserved_bytes
        for fields, field, code in cases:
            with self.subTest(field):
                with self.assertRaises(octavo.OctavoError) as caught:
                    self.submit(**{"camera": "Fake_1", "pixel_format": "Mono8", **fields})
                self.assertEqual((caught.exception.code, caught.exception.field), (code or grpc.StatusCode.INVALID_ARGUMENT, field), caught.exception)
        self.assertEqual(self.client.devices()[0].reserved_bytes, before)
        self.assertFalse(any(c.in_use for c in self.client.cameras()))

    def test_full_slots_drop_volumes_and_the_camera_runs_on(self):
        scan = self.submit("Fake_1", volumes=4, pixel_format="Mono8", frame_rate_hz=200, retention=dict(mode=scan_pb2.RETENTION_MODE_CAPTURE, hold_slots=1,
                                                                                                     on_full=scan_pb2.ON_FULL_DROP_NEW))
        end = self.client.wait(scan)
        self.assertEqual((end.reason_code, end.volumes_done, end.volumes_dropped), (reason_pb2.REASON_COMPLETED, 1, 3))


class WithoutInterface(unittest.TestCase):
    def test_no_interface_no_camera(self):
        daemon = Daemon("--camera.interfaces", "USB3Vision")
        with daemon.client() as client:
            if client.info().sources[-1].available:
                self.assertNotIn("Fake_1", [c.id for c in client.cameras()])
            else:
                with self.assertRaises(octavo.OctavoError) as caught:
                    client.cameras()
                self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.UNIMPLEMENTED, "NO_CAMERA_SUPPORT"))
        self.assertEqual(daemon.stop(), 0)
        daemon.remove()
        with self.assertRaises(RuntimeError) as caught:
            Daemon("--camera.interfaces", "Parallel")
        self.assertIn("camera.interfaces", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
