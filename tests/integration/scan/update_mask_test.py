"""UpdateScan with an update_mask: the fields that it names change, the others stay as they were requested, and the defaults
are derived anew, as for a new scan."""

import unittest

import grpc
import numpy as np

from harness import DaemonTest, octavo
from octavo.v1 import reason_pb2, scan_pb2

SAMPLES, ASCANS, BSCANS = 128, 32, 8
FIELDS = [field.name for field in scan_pb2.Processing.DESCRIPTOR.fields]


class UpdateMask(DaemonTest):
    def setUp(self):
        super().setUp()
        # It runs until it is stopped: the scans behind it wait, and each of their volumes is made with the last update.
        self.blocker = self.submit({}, volumes=0)

    def tearDown(self):
        self.client.cancel(self.blocker)
        super().tearDown()

    def submit(self, processing, volumes=1, queue="q", **fields):
        return self.client.submit_scan(octavo.simulated(7, fast=volumes > 0), octavo.raster(ASCANS, BSCANS, volumes=volumes), samples=SAMPLES,
                                       retention=dict(mode="capture", on_full="drop_new", hold_slots=2), queue=queue,
                                       processing=octavo.processing(**processing), **({} if volumes > 0 else {"rate_hz": 4000}), **fields).name

    def made(self, scan):
        """The one volume of a scan: what describes it, and its voxels."""
        end = self.client.wait(scan)
        self.assertEqual(end.reason_code, reason_pb2.REASON_COMPLETED, end.reason)
        volume, = self.client.volumes(scan)
        told = (list(volume.spacing_um), volume.levels, volume.value, volume.dtype, list(volume.shape), volume.digest)
        return end.spec.processing, told, self.client.read(volume.name)

    def check(self, requested, updates, merged, **fields):
        """A scan submitted with `requested` and updated is the same as a fresh scan of `merged`, bit for bit, and is told alike."""
        scan = self.submit(requested, **fields)
        for names, changed in updates:
            self.client.update_scan(scan, octavo.processing(**changed), fields=names)
        self.client.cancel(self.blocker)
        processing, told, voxels = self.made(scan)
        fresh = self.submit(merged, queue=None, **fields)
        wanted, same, expected = self.made(fresh)
        np.testing.assert_array_equal(voxels, expected)
        self.assertEqual(told, same)
        self.assertEqual(processing, wanted)
        return told, voxels

    def test_the_other_fields_stay_as_they_were_requested(self):
        had = dict(window="blackman", a2=3e-4, background="bscan", value="magnitude", levels=(0, 4e4), dtype="u16", interpolation="linear")
        told, _ = self.check(had, [("window", dict(window="rect"))], {**had, "window": "rect"})
        self.assertEqual(told[1].hi, 4e4)

    def test_each_update_builds_on_the_one_before(self):
        had = dict(window="blackman", a2=3e-4, background="bscan", dtype="f32", value="magnitude")
        self.check(had, [("dispersion", dict(a2=-2e-4)), (["window", "background"], dict(window="gauss", background="none")), ("fixed_pattern_noise", {}),
                         ("dispersion", dict(a2=1e-4, a3=1e-6))],
                   dict(window="gauss", a2=1e-4, a3=1e-6, background="none", dtype="f32", value="magnitude"))

    def test_defaults_that_follow_from_another_field_are_derived_anew(self):
        # The levels of u8 follow from the value, the axial spacing from the refractive index.
        told, _ = self.check(dict(dtype="u8"), [("value", dict(value="magnitude")), ("refractive_index", dict(refractive_index=1.4))],
                             dict(dtype="u8", value="magnitude", refractive_index=1.4))
        plain = self.made(self.submit(dict(dtype="u8"), queue=None))[1]
        self.assertNotEqual(told[1:3], plain[1:3])
        self.assertAlmostEqual(told[0][2] * 1.4, plain[0][2], places=9)

    def test_a_field_that_is_named_and_not_given_gets_its_default(self):
        had = dict(window="blackman", a2=3e-4, dtype="f32", value="magnitude")
        scan = self.submit(had)
        self.assertEqual(list(self.client.update_scan(scan, octavo.processing(), fields="dispersion").warnings), [])
        self.assertEqual(self.client.scan(scan).spec.processing.dispersion.a2, 0)
        # As a whole, what is left out might be a mistake.
        self.assertIn("window BLACKMAN (now HANN)", self.client.update_scan(scan, octavo.processing(dtype="f32", value="magnitude"), fields="*").warnings[0])
        self.client.cancel(scan)

    def test_what_the_mask_does_not_name_is_ignored(self):
        had = dict(window="blackman", dtype="f32", value="magnitude")
        self.check(had, [("window", dict(window="rect", a2=1e-3, dtype="u8", depth=5))], {**had, "window": "rect"})

    def test_a_scan_that_runs(self):
        """The dtype that the scan keeps was not requested: a mask that names others does not make it so."""
        scan = self.client.submit_scan(octavo.simulated(7), octavo.raster(ASCANS, BSCANS, volumes=0), samples=SAMPLES, rate_hz=40000,
                                       retention=dict(mode="live"), processing=octavo.processing(window="blackman", a2=3e-4)).name
        for names, changed, wanted in (("window", dict(window="rect"), (scan_pb2.WINDOW_KIND_RECT, 3e-4)),
                                       ("dispersion", dict(a2=5e-4), (scan_pb2.WINDOW_KIND_RECT, 5e-4))):
            now = self.client.update_scan(scan, octavo.processing(**changed), fields=names).spec.processing
            self.assertEqual((now.window, now.dispersion.a2), wanted)
        self.client.cancel(scan)

    def test_unknown_and_missing_paths_are_refused(self):
        scan = self.submit(dict(window="blackman"))
        before = self.client.scan(scan)
        for names, why in ((["windo"], "has the path 'windo'"), ([], "is empty"), (["background.mode"], "has the path 'background.mode'"), ([""], "has the path ''"),
                           (["window", "*"], "has the path '*'"), (["Window"], "has the path 'Window'"), (["processing.window"], "has the path 'processing.window'")):
            with self.subTest(names=names), self.assertRaises(octavo.OctavoError) as caught:
                self.client.update_scan(scan, octavo.processing(window="rect"), fields=names)
            self.assertEqual((caught.exception.code, caught.exception.reason, caught.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, "BAD_FIELD", "update_mask"))
            self.assertIn(f"update_mask: {why}", caught.exception.message)
            self.assertIn(f"{', '.join(FIELDS)}, or *", caught.exception.message)
        # A refused value changes nothing either, and the next update builds on what was there before it.
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.update_scan(scan, octavo.processing(window=[1.0]), fields="window_values")
        self.assertEqual(caught.exception.field, "processing.window_values")
        self.assertEqual(self.client.scan(scan).message, before.message)
        now = self.client.update_scan(scan, octavo.processing(a2=1e-4), fields="dispersion").spec.processing
        self.assertEqual((now.window, now.dispersion.a2, list(now.window_values)), (scan_pb2.WINDOW_KIND_BLACKMAN, 1e-4, []))
        self.client.cancel(scan)


if __name__ == "__main__":
    unittest.main(verbosity=2)
