"""Several devices of one daemon (three host devices, or those of OCTAVO_DEVICE_BACKEND): placement
by load, scans across devices, and their reports. Needs two devices."""

import os
import unittest
import urllib.request

import numpy as np

from harness import DaemonTest, octavo
from octavo.v1 import scan_pb2, types_pb2

ASCANS, BSCANS = 48, 20
BACKEND = os.environ.get("OCTAVO_DEVICE_BACKEND", "host")


class SeveralDevices(DaemonTest):
    flags = ("--device.backend", BACKEND, *(("--device.host_devices", "3") if BACKEND == "host" else ()), "--device.memory_bytes", str(256 << 20), "--device.frame_pool_bytes", str(16 << 20),
             "--spill.host_bytes", str(64 << 20))

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.names = [d.name for d in cls.client.devices()]
        if len(cls.names) < 2:
            cls.tearDownClass()
            raise unittest.SkipTest(f"{len(cls.names)} device of the backend {BACKEND}; several are needed")
        cls.none = [0] * len(cls.names)
        cls.spread = min(3, len(cls.names))  # number of devices that a scan is spread over

    def submit(self, volumes=1, fast=True, seed=1, **fields):
        fields.setdefault("processing", octavo.processing(dtype="u8"))  # the memory check counts bytes
        return self.client.submit_scan(octavo.simulated(seed, fast=fast), octavo.raster(ASCANS, BSCANS, volumes=volumes), samples=128, **fields)

    def test_each_device_is_listed_and_has_a_health_of_its_own(self):
        devices = self.client.devices()
        self.assertEqual([d.name for d in devices], [f"devices/{n}" for n in range(len(devices))])
        self.assertEqual(len({d.uuid for d in devices}), len(devices))
        self.assertTrue(all(d.healthy for d in devices))
        check = self.client.channel.unary_unary("/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes)
        for name in (b"devices/0", self.names[-1].encode()):
            self.assertEqual(check(bytes([0x0A, len(name)]) + name, timeout=10), b"\x08\x01")
        page = urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics", timeout=10).read().decode()
        for name in self.names:
            self.assertRegex(page, f'octavo_device_healthy{{device="{name}",backend="[a-z]+"}} 1\n')

    def test_scans_go_where_least_is_done(self):
        endless = dict(volumes=0, fast=False, rate_hz=2000, retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE))
        running = [self.submit(**endless) for _ in self.names]
        self.assertEqual(sorted(s.device for s in running), sorted(self.names))
        self.assertEqual([d.running_scans for d in self.client.devices()], [1 for _ in self.names])
        self.client.cancel(running[1].name)
        self.client.wait(running[1].name)
        self.assertEqual(self.submit(**endless).device, running[1].device)

    def test_a_spread_scan_makes_the_same_volumes(self):
        processing = octavo.processing(background="bscan")
        alone = self.client.wait(self.submit(volumes=2, device="devices/0", processing=processing).name)
        spread = self.client.wait(self.submit(volumes=2, device="devices/1", spread=scan_pb2.Spread(count=self.spread), processing=processing).name)
        self.assertEqual((spread.state, spread.device), (types_pb2.SCAN_STATE_DONE, "devices/1"))
        self.assertEqual(spread.spread_devices[0], "devices/1")
        self.assertEqual(len(set(spread.spread_devices)), self.spread)
        self.assertLessEqual(set(spread.spread_devices), set(self.names))
        self.assertEqual(list(alone.spread_devices), [])
        for a, b in zip(self.client.volumes(alone.name), self.client.volumes(spread.name)):
            self.assertEqual(a.digest, b.digest)
            self.assertEqual((b.device, list(b.spread_devices)), ("devices/1", list(spread.spread_devices)))
            np.testing.assert_array_equal(self.client.read(a.name), self.client.read(b.name))
        # Every device frees all of the scan's memory except the volumes.
        self.assertEqual([d.reserved_bytes for d in self.client.devices()], self.none)

    def test_striped_volumes_stay_where_they_were_made(self):
        def discard_all():
            for volume in self.client.volumes():
                if volume.state == types_pb2.VOLUME_STATE_HELD:
                    self.client.discard(volume.name)

        processing = octavo.processing(background="bscan")
        discard_all()
        self.assertEqual([d.held_bytes for d in self.client.devices()], self.none)
        alone = self.client.wait(self.submit(volumes=3, device="devices/0", processing=processing).name)
        truth = [self.client.read(v.name) for v in self.client.volumes(alone.name)]
        digests = [v.digest for v in self.client.volumes(alone.name)]
        discard_all()
        striped = self.client.wait(self.submit(volumes=3, device="devices/1", spread=scan_pb2.Spread(striped=True, count=self.spread), processing=processing).name)
        self.assertEqual((striped.state, striped.device, striped.spec.spread.striped), (types_pb2.SCAN_STATE_DONE, "devices/1", True))
        volumes = self.client.volumes(striped.name)
        self.assertEqual([v.digest for v in volumes], digests)
        bytes_of = [d.held_bytes for d in self.client.devices()]
        share = 3 * volumes[0].bytes // self.spread
        for held in (d.held_bytes for d in self.client.devices() if d.name in striped.spread_devices):  # its share; home also has the whole projections
            self.assertGreater(held, share // 2)
            self.assertLess(held, share * 2)
        for volume, array in zip(volumes, truth):
            self.assertGreater(volume.stripe_bscans, 0)
            self.assertEqual((volume.spread_devices[0], len(volume.spread_devices)), ("devices/1", self.spread))
            np.testing.assert_array_equal(self.client.read(volume.name), array)
            np.testing.assert_array_equal(self.client.read(volume.name, (3, 5, 7), (14, 30, 20)), array[3:17, 5:35, 7:27])
        # B-scans of the ended scan, along its devices and across them.
        for axis, cut in (("y", lambda a: a[7]), ("x", lambda a: a[:, 7]), ("z", lambda a: a[:, :, 7])):
            frames = list(self.client.subscribe(striped.name, "bscan", axis=axis, index=7, delivery="lossless"))
            self.assertEqual([(f.volume, f.dropped_before) for f in frames], [(v.name, 0) for v in volumes])
            for frame, array in zip(frames, truth):
                np.testing.assert_array_equal(frame.array, cut(array))
            with self.assertRaises(octavo.OctavoError) as caught:
                next(iter(self.client.subscribe(striped.name, "bscan", axis=axis, index=100)))
            self.assertEqual((caught.exception.reason, caught.exception.field), ("BAD_RANGE", "index"))
        # Calls that need the volume on one device say so and change nothing.
        for call in (lambda: self.client.derive(volumes[0].name, {"mip": {"axis": 2}}), lambda: self.client.buffers.read(volumes[0].name),
                     lambda: self.client.buffers.apply(volumes[0].name, {"mip": {"axis": 2}})):
            with self.assertRaises(octavo.OctavoError) as caught:
                call()
            self.assertEqual(caught.exception.reason, "STRIPED", caught.exception)
        self.assertEqual([d.held_bytes for d in self.client.devices()], bytes_of)
        # The commit streams it to storage stripe by stripe.
        result = self.client.commit(volumes[2].name, "striped_{index}", "npy")
        np.testing.assert_array_equal(np.load(result.path), truth[2])
        # A move through another tier joins it on its home device.
        self.client.spill(volumes[0].name, "host")
        np.testing.assert_array_equal(self.client.read(volumes[0].name), truth[0])
        restored = self.client.restore(volumes[0].name)
        self.assertEqual((restored.device, restored.stripe_bscans, restored.digest), ("devices/1", 0, digests[0]))
        mip = self.client.derive(volumes[0].name, {"mip": {"axis": 2}})
        np.testing.assert_array_equal(self.client.read(mip.name), truth[0].max(2, keepdims=True))
        discard_all()
        self.assertEqual([d.held_bytes + d.reserved_bytes for d in self.client.devices()], self.none)

    def test_striped_scans_refuse_what_crosses_devices(self):
        for fields, field in ((dict(chains={"mip": [{"mip": {"axis": 2}}]}), "spread.striped"), (dict(retention=dict(hold_raw=True)), "retention.hold_raw")):
            with self.assertRaises(octavo.OctavoError) as caught:
                self.submit(spread=scan_pb2.Spread(striped=True), **fields)
            self.assertEqual(caught.exception.field, field)
        running = self.submit(volumes=0, fast=False, rate_hz=20000, spread=scan_pb2.Spread(striped=True), retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE))
        for products, axis in ((["bscan"], "x"), (["mip"], "y")):
            with self.assertRaises(octavo.OctavoError) as caught:
                next(iter(self.client.subscribe(running.name, products, axis=axis)))
            self.assertEqual(caught.exception.reason, "STRIPED")
        for frame in self.client.subscribe(running.name, ["mip", "bscan"], axis=""):
            if frame.complete:
                break
        self.client.cancel(running.name)
        self.client.wait(running.name)
        self.assertEqual([d.reserved_bytes for d in self.client.devices()], self.none)

    def test_a_spread_scan_is_refused_as_a_whole(self):
        for spread, field in ((dict(count=len(self.names) + 1), "spread.count"), (dict(devices=["devices/0", "devices/0"]), "spread.devices"),
                              (dict(devices=["devices/99"]), "spread.devices"), (dict(count=2, devices=["devices/0"]), "spread.count")):
            with self.assertRaises(octavo.OctavoError) as caught:
                self.submit(spread=scan_pb2.Spread(**spread))
            self.assertEqual(caught.exception.field, field)
        full = self.submit(volumes=0, fast=False, rate_hz=2000, device=self.names[-1], retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, hold_slots=3500))
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_scan(octavo.simulated(fast=True), octavo.raster(512, 512, volumes=1), samples=512, spread=scan_pb2.Spread(count=len(self.names)))
        self.assertEqual(caught.exception.reason, "DEVICE_FULL")
        self.assertIn(self.names[-1], str(caught.exception))
        self.client.cancel(full.name)
        self.client.wait(full.name)
        self.assertEqual([d.reserved_bytes for d in self.client.devices()], self.none)


if __name__ == "__main__":
    unittest.main()
