"""One scan from its source to held volumes: ground truth, geometry, retention, admission, updates, errors."""

import threading
import unittest

import numpy as np

from harness import DaemonTest, octavo, until
from octavo.v1 import reason_pb2, scan_pb2, types_pb2

DONE, FAILED, CANCELLED = types_pb2.SCAN_STATE_DONE, types_pb2.SCAN_STATE_FAILED, types_pb2.SCAN_STATE_CANCELLED
LIVE = dict(mode=scan_pb2.RETENTION_MODE_LIVE)


def simulated(**fields):
    return octavo.simulated(3, fast=True, **fields)


class GroundTruth(DaemonTest):
    LAYERS = [dict(depth_um=300, reflectivity=0.02), dict(depth_um=620, reflectivity=0.015, tilt_um_per_mm=400),
              dict(depth_um=1100, reflectivity=0.01, waviness_um=30)]

    def acquire(self, bidirectional=False, flyback=0, **chain):
        source = simulated(layers=self.LAYERS, nonlinearity=0.02, dispersion_a2=6e-5, dispersion_a3=1e-8)
        scan = self.client.submit_scan(source, octavo.raster(40, 6, volumes=1, bidirectional=bidirectional, flyback_records=flyback),
                                       processing=octavo.processing(value="magnitude", dtype="f32", background="none", **chain))  # flat layers are background
        self.assertEqual(self.client.wait(scan.name).state, DONE)
        volume = self.client.volumes(scan.name)[0]
        return self.client.read(volume.name), volume

    def expected(self, x, y, spacing):
        u, v = (x + 0.5) / 40, (y + 0.5) / 6
        depths = [300, 620 + 0.4 * (x + 0.5 - 20), 1100 + 30 * np.sin(2 * np.pi * (u + 0.5 * v))]
        return np.array(depths) / spacing

    def widths(self, array):
        """Mean full width at half maximum, in bins, of the deepest layer's peak."""
        result = []
        for ascan in array.reshape(-1, array.shape[2])[::7]:
            peak = 200 + int(np.argmax(ascan[200:400]))
            half = ascan[peak] / 2
            left = next(i for i in range(peak, 0, -1) if ascan[i] < half)
            right = next(i for i in range(peak, len(ascan)) if ascan[i] < half)
            result.append(right - left)
        return float(np.mean(result))

    def test_layers_lie_where_they_are(self):
        for options in (dict(), dict(bidirectional=True, flyback=7)):
            array, volume = self.acquire(a2=6e-5, a3=1e-8, **options)
            self.assertEqual(array.shape, (6, 40, 512))
            self.assertTrue(volume.complete)
            for y in range(6):
                for x in range(40):
                    for depth in self.expected(x, y, volume.spacing_um[2]):
                        near = int(round(depth))
                        window = array[y, x, near - 6:near + 7]
                        self.assertLessEqual(abs(near - 6 + int(np.argmax(window)) - depth), 1.0, (y, x, depth, options))

    def test_without_corrections_peaks_are_broader(self):
        sharp = self.widths(self.acquire(a2=6e-5, a3=1e-8)[0])
        no_dispersion = self.widths(self.acquire()[0])
        no_k = self.widths(self.acquire(a2=6e-5, a3=1e-8, k="none")[0])
        self.assertLess(sharp, 5)
        self.assertGreater(no_dispersion, 1.5 * sharp)
        self.assertGreater(no_k, 1.5 * sharp)


class Retention(DaemonTest):
    def test_capture_stops_when_full(self):
        scan = self.client.submit_scan(simulated(), octavo.raster(64, 8, volumes=5), samples=256, retention=dict(hold_slots=2))
        end = self.client.wait(scan.name)
        self.assertEqual((end.state, end.reason_code, end.volumes_done), (DONE, reason_pb2.REASON_HOLD_SLOTS_FULL, 2))
        self.assertEqual([v.index for v in self.client.volumes(scan.name)], [0, 1])

    def test_capture_can_drop(self):
        scan = self.client.submit_scan(simulated(), octavo.raster(64, 8, volumes=5), samples=256,
                                       retention=dict(hold_slots=2, on_full=scan_pb2.ON_FULL_DROP_NEW))
        end = self.client.wait(scan.name)
        self.assertEqual((end.state, end.volumes_done, end.volumes_dropped), (DONE, 2, 3))
        self.assertEqual([e.volume_index for e in end.events if e.kind == "VOLUME_DROPPED"], [2, 3, 4])

    def test_live_overwrites_all_but_the_kept(self):
        volumes = 45
        scan = self.client.submit_scan(octavo.push(), octavo.raster(64, 8, volumes=volumes), samples=256, retention=dict(hold_slots=1, **LIVE))
        raw = np.random.default_rng(3).integers(1000, 3000, (64 * 8, 256)).astype("<u2")
        kept = []

        # The next volume arrives after the test has finished with the one before, which cannot be
        # overwritten meanwhile.
        def blocks():
            for index in range(volumes):
                yield raw
                until(lambda: self.client.scan(scan.name).volumes_done == index + 1)
                newest = self.client.volumes(scan.name)[-1]
                self.assertEqual(newest.index, index)
                if index == 2:
                    kept.append(self.client.hold(newest.name).name)
                    kept.append(self.client.read(kept[0]))
                elif index == 3:
                    with self.assertRaises(octavo.OctavoError) as caught:
                        self.client.hold(newest.name)
                    self.assertEqual(caught.exception.reason, "HOLD_SLOTS_FULL")

        self.client.push(scan.name, blocks())
        np.testing.assert_array_equal(self.client.read(kept[0]), kept[1])
        end = self.client.wait(scan.name)
        self.assertEqual((end.reason_code, end.volumes_done, end.volumes_dropped), (reason_pb2.REASON_COMPLETED, volumes, 0))
        # The held volume, and the volumes in the ring when the scan ended.
        held = [v.index for v in self.client.volumes(scan.name) if v.state == 2]
        self.assertEqual(end.volumes_overwritten, volumes - len(held))
        self.assertEqual(held, [2] + list(range(volumes - len(held) + 1, volumes)))
        self.assertIn(len(held), (2, 3, 4))
        self.assertEqual(self.reasons_of_gone(scan), {"OVERWRITTEN"})

    def reasons_of_gone(self, scan):
        return {str(v.reason_code) for v in self.client.volumes(filter=f'parent = "{scan.name}" AND state = DISCARDED')}

    def test_auto_dispositions(self):
        scan = self.client.submit_scan(simulated(), octavo.raster(64, 8, volumes=7), samples=256,
                                       retention=dict(disposition=scan_pb2.DISPOSITION_AUTO_DISCARD))
        end = self.client.wait(scan.name)
        self.assertEqual((end.volumes_done, end.volumes_held, end.volumes_discarded), (7, 0, 7))
        self.assertEqual(self.reasons_of_gone(scan), {"AUTO_DISCARDED"})
        scan = self.client.submit_scan(simulated(), octavo.raster(64, 8, volumes=7), samples=256, title="auto", retention=dict(
            disposition=scan_pb2.DISPOSITION_AUTO_COMMIT, auto_commit=scan_pb2.CommitOptions(destination="{title}/{index:03}")))
        end = self.client.wait(scan.name)
        self.assertEqual((end.state, end.volumes_done), (DONE, 7))
        until(lambda: self.client.scan(scan.name).volumes_committed == 7)  # the last commits end after the scan

    def test_tombstone_tells_what_became_of_a_volume(self):
        scan = self.client.submit_scan(simulated(), octavo.raster(64, 8, volumes=2), samples=256)
        self.client.wait(scan.name)
        name, committed = (volume.name for volume in self.client.volumes(scan.name))
        self.client.discard(name)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.read(name)
        self.assertEqual(caught.exception.code.name, "NOT_FOUND")
        self.assertIn("DISCARDED", caught.exception.message)
        # A client that lost the answer repeats the call.
        before = self.client.scan(scan.name).volumes_discarded
        self.assertEqual(self.client.discard(name).state, types_pb2.VOLUME_STATE_DISCARDED)
        self.assertEqual(self.client.scan(scan.name).volumes_discarded, before)
        self.client.commit(committed, "kept", "npy")
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.discard(committed)
        self.assertEqual((caught.exception.code.name, caught.exception.reason), ("FAILED_PRECONDITION", "VOLUME_STATE"))

    def stopped(self, rate_hz, records_per_block, before):
        """A scan of volumes of 256 records that is stopped once `before` allows it: as the stop answered, and when it has ended."""
        scan = self.client.submit_scan(octavo.simulated(3), octavo.raster(16, 16, volumes=0), samples=256, rate_hz=rate_hz, acquisition=dict(records_per_block=records_per_block),
                                       retention=dict(hold_slots=8, mode=scan_pb2.RETENTION_MODE_CAPTURE, on_full=scan_pb2.ON_FULL_DROP_NEW)).name
        until(lambda: before(self.client.scan(scan)))
        return self.client.stop(scan), self.client.wait(scan)

    def test_a_stop_finishes_the_volume_whose_first_block_has_not_come_yet(self):
        # A block a second, two of them a volume: the next volume has begun when the first is done.
        for _ in range(5):
            at_stop, scan = self.stopped(128, 128, lambda now: now.volumes_done >= 1)
            if scan.volumes_done > at_stop.volumes_done:
                break  # else the source, held up by other programs, did not even wait for that block
        self.assertEqual((scan.state, scan.reason_code, scan.volumes_done, scan.missing_ascans), (DONE, reason_pb2.REASON_STOPPED, at_stop.volumes_done + 1, 0))

    def test_a_stop_begins_no_further_volume(self):
        at_stop, scan = self.stopped(128, 64, lambda now: now.records > 0)  # a volume takes two seconds
        self.assertEqual((scan.state, scan.missing_ascans), (DONE, 0))
        # The volume that the records of that moment belong to; two blocks, of half a second each, may have been on their way.
        self.assertIn(scan.volumes_done, (-(-at_stop.records // 256), -(-(at_stop.records + 129) // 256)))

    def test_cancel_keeps_what_is_complete(self):
        scan = self.client.submit_scan(octavo.simulated(3, fast=True), octavo.raster(64, 8, volumes=1000), samples=256, retention=dict(hold_slots=900))
        for frame in self.client.subscribe(scan.name, preview=False):
            if frame.sequence >= 2:
                break
        self.client.cancel(scan.name)
        end = self.client.wait(scan.name)
        self.assertEqual((end.state, end.reason_code), (CANCELLED, reason_pb2.REASON_CANCELLED))
        self.assertGreaterEqual(end.volumes_held, 3)


class Admission(DaemonTest):
    flags = ("--device.memory_bytes", str(64 << 20))

    def plan(self, volumes):
        return self.client.plan_scan(simulated(), octavo.raster(64, 16, volumes=volumes), samples=256)

    def largest(self):
        """The largest number of volumes that still fit."""
        low, high = 1, 4096
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.plan(middle).report.admitted else (low, middle)
        return low

    def test_exactly_the_budget(self):
        fits = self.largest()
        report = self.plan(fits + 1).report
        self.assertFalse(report.admitted)
        self.assertEqual(report.budget_bytes, 64 << 20)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_scan(simulated(), octavo.raster(64, 16, volumes=fits + 1), samples=256)
        error = caught.exception
        self.assertEqual((error.code.name, error.reason), ("RESOURCE_EXHAUSTED", "EXCEEDS_BUDGET"))
        self.assertEqual(int(error.numbers["wanted"]), report.wanted_bytes)
        self.assertEqual(error.report.wanted_bytes, report.wanted_bytes)
        device = self.client.devices()[0]
        self.assertEqual((device.reserved_bytes, device.held_bytes), (0, 0))  # nothing changed

    def test_of_two_racing_scans_one_wins_and_the_other_fits_later(self):
        volumes = self.largest() * 2 // 3
        results = []

        def submit():
            try:
                results.append(self.client.submit_scan(simulated(), octavo.raster(64, 16, volumes=volumes), samples=256, device="devices/0"))
            except octavo.OctavoError as error:
                results.append(error)

        threads = [threading.Thread(target=submit) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        won = [r for r in results if not isinstance(r, Exception)]
        lost = [r for r in results if isinstance(r, Exception)]
        self.assertEqual((len(won), len(lost)), (1, 1))
        self.assertEqual(lost[0].reason, "DEVICE_FULL")
        self.assertEqual(lost[0].report.holders[0].name.split("/")[0] in ("scans", "volumes"), True)
        self.client.wait(won[0].name)
        with self.assertRaises(octavo.OctavoError):  # held volumes still fill the device
            self.client.submit_scan(simulated(), octavo.raster(64, 16, volumes=volumes), samples=256, device="devices/0")
        for volume in self.client.volumes(won[0].name):
            self.client.discard(volume.name)
        again = self.client.submit_scan(simulated(), octavo.raster(64, 16, volumes=volumes), samples=256, device="devices/0")
        self.assertEqual(self.client.wait(again.name).state, DONE)

    def test_memory_comes_back(self):
        for _ in range(3):
            scan = self.client.submit_scan(simulated(), octavo.raster(64, 16, volumes=3), samples=256)
            self.client.wait(scan.name)
            for volume in self.client.volumes(scan.name):
                self.client.discard(volume.name)
        device = self.client.devices()[0]
        self.assertEqual((device.reserved_bytes, device.held_bytes, device.running_scans), (0, 0, 0))


class Requests(DaemonTest):
    def test_request_id(self):
        spec = octavo.scan_spec(simulated(), octavo.raster(64, 8, volumes=1), samples=256)
        first = self.client.submit_scan(spec, request_id="r1")
        self.assertEqual(self.client.submit_scan(spec, request_id="r1").name, first.name)
        self.assertNotEqual(self.client.submit_scan(spec, request_id="r2").name, first.name)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_scan(spec, request_id="x" * 129)
        self.assertEqual((caught.exception.code.name, caught.exception.field), ("INVALID_ARGUMENT", "request_id"))
        spec.title = "other"
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_scan(spec, request_id="r1")
        self.assertEqual((caught.exception.code.name, caught.exception.reason), ("ALREADY_EXISTS", "IDEMPOTENCY_MISMATCH"))

    def test_bad_specs_name_the_field_and_change_nothing(self):
        nan = float("nan")
        good = lambda: octavo.scan_spec(simulated(), octavo.raster(64, 8, volumes=1), samples=256)  # noqa: E731
        processing = lambda spec: spec.processing  # noqa: E731
        bad = [
            ("source", lambda s: s.ClearField("simulated")),
            ("pattern", lambda s: s.ClearField("pattern")),
            ("pattern.raster.ascans_per_bscan", lambda s: setattr(s.pattern.raster, "ascans_per_bscan", 0)),
            ("pattern.raster.bscans_per_volume", lambda s: setattr(s.pattern.raster, "bscans_per_volume", 1 << 30)),
            ("pattern.raster.flyback_records", lambda s: setattr(s.pattern.raster, "flyback_records", 1 << 30)),
            ("pattern.raster.extent_x_mm", lambda s: setattr(s.pattern.raster, "extent_x_mm", nan)),
            ("acquisition.samples_per_record", lambda s: setattr(s.acquisition, "samples_per_record", 3)),
            ("acquisition.record_rate_hz", lambda s: setattr(s.acquisition, "record_rate_hz", -1)),
            ("acquisition.ring_blocks", lambda s: setattr(s.acquisition, "ring_blocks", 2)),
            ("acquisition.records_per_block", lambda s: setattr(s.acquisition, "records_per_block", 1 << 31)),
            ("simulated.bandwidth_nm", lambda s: setattr(s.simulated, "bandwidth_nm", 5000)),
            ("simulated.nonlinearity", lambda s: setattr(s.simulated, "nonlinearity", 0.5)),
            ("simulated.adc_bits", lambda s: setattr(s.simulated, "adc_bits", 24)),
            ("processing.fft_length", lambda s: setattr(processing(s), "fft_length", 131073)),
            ("processing.fft_length", lambda s: setattr(processing(s), "fft_length", 128)),
            ("processing.first_bin", lambda s: setattr(processing(s), "first_bin", 256)),
            ("processing.depth", lambda s: setattr(processing(s), "depth", 300)),
            ("processing.dtype", lambda s: setattr(processing(s), "dtype", types_pb2.DTYPE_F64)),
            ("processing.levels", lambda s: processing(s).levels.CopyFrom(types_pb2.Levels(lo=3, hi=3))),
            ("processing.levels.lo", lambda s: processing(s).levels.CopyFrom(types_pb2.Levels(lo=nan, hi=3))),
            ("processing.window_values", lambda s: processing(s).window_values.extend([1.0] * 5)),
            ("processing.dispersion.phase", lambda s: processing(s).dispersion.phase.extend([1.0] * 5)),
            ("processing.background.spectrum", lambda s: setattr(processing(s).background, "mode", 2)),
            ("processing.background.window_records", lambda s: setattr(processing(s).background, "window_records", 1 << 21)),
            ("processing.k_linearisation.index", lambda s: processing(s).k_linearisation.index.values.extend([5.0] * 100 + [4.0] * 156)),
            ("processing.k_linearisation.polynomial", lambda s: processing(s).k_linearisation.polynomial.values.extend([0, 2.0])),
            ("processing.k_linearisation.wavelength_nm", lambda s: processing(s).k_linearisation.wavelength_nm.values.extend([800.0] * 256)),
            ("processing.k_linearisation.wavelength_nm", lambda s: processing(s).k_linearisation.wavelength_nm.values.extend([800.0])),
            ("processing.refractive_index", lambda s: setattr(processing(s), "refractive_index", 0.5)),
            ("products.slab_end_um", lambda s: (setattr(s.products, "slab_begin_um", 500), setattr(s.products, "slab_end_um", 400))),
            ("retention.hold_slots", lambda s: setattr(s.retention, "hold_slots", 1 << 30)),
            ("retention.auto_commit.destination", lambda s: setattr(s.retention, "disposition", scan_pb2.DISPOSITION_AUTO_COMMIT)),
            ("device", lambda s: setattr(s, "device", "devices/7")),
            ("title", lambda s: setattr(s, "title", "x" * 300)),
            ("labels", lambda s: s.labels.update({"Bad Key": "x"})),
            ("subject.note", lambda s: setattr(s.subject, "note", "x" * 5000)),
        ]
        for field, change in bad:
            with self.subTest(field=field):
                spec = good()
                change(spec)
                for call in (self.client.submit_scan, self.client.plan_scan):
                    with self.assertRaises(octavo.OctavoError) as caught:
                        call(spec)
                    self.assertEqual(caught.exception.code.name, "INVALID_ARGUMENT")
                    self.assertTrue(caught.exception.field.startswith(field), caught.exception.field)
                    self.assertIn(field, caught.exception.message)
        self.assertEqual(self.client.scans(), [])
        self.assertEqual(self.client.devices()[0].reserved_bytes, 0)

    def test_update_at_a_volume_boundary(self):
        scan = self.client.submit_scan(octavo.push(), octavo.raster(64, 16, volumes=4), samples=256, retention=dict(hold_slots=4),
                                       processing=octavo.processing(value="magnitude", levels=(0, 100), dtype="u8"))
        raw = np.random.default_rng(3).integers(1000, 3000, (64 * 16, 256)).astype("<u2")

        def blocks():
            yield raw
            until(lambda: self.client.scan(scan.name).volumes_done == 1)
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.update_scan(scan.name, octavo.processing(depth=17))
            self.assertEqual(caught.exception.field, "processing.depth")
            yield raw[:300]  # the second volume has begun
            until(lambda: self.client.scan(scan.name).current_volume == 1)
            self.client.update_scan(scan.name, octavo.processing(value="magnitude", levels=(0, 1e9), dtype="u8"))
            yield raw[300:]
            yield raw
            yield raw

        self.client.push(scan.name, blocks())
        end = self.client.wait(scan.name)
        self.assertEqual((end.reason_code, end.blocks_dropped, end.missing_ascans), (reason_pb2.REASON_COMPLETED, 0, 0))
        # From the next volume on, all voxels are black; no volume is mixed.
        arrays = [self.client.read(volume.name) for volume in self.client.volumes(scan.name)]
        self.assertEqual([array.max() > 0 for array in arrays], [True, True, False, False])
        for array in arrays[:2]:
            self.assertGreater(array.max(axis=2).min(), 0)


if __name__ == "__main__":
    unittest.main()
