"""Pictures made by the server. A PNG decoded by this test equals NumPy's picture of the raw frame;
rates, sizes and refusals are right."""

import itertools
import unittest

import numpy as np

from harness import DaemonTest, octavo
from pictures import decode_png, grey, jpeg_size


class Images(DaemonTest):
    def scan(self, **processing):
        scan = self.client.submit_scan(octavo.simulated(5, fast=True), octavo.raster(64, 12, volumes=1, extent_x_mm=1.28, extent_y_mm=0.6), samples=256,
                                       processing=octavo.processing(axial_spacing_um=5, **processing))
        self.client.wait(scan.name)
        return scan.name

    def bscan(self, **options):
        """Returns a B-scan and its plane. A subscriber must request it before the volume is
        complete."""
        scan = self.client.submit_scan(octavo.simulated(5), octavo.raster(64, 12, volumes=3, extent_x_mm=1.28, extent_y_mm=0.6), samples=256, rate_hz=4000,
                                       processing=octavo.processing(axial_spacing_um=5))
        frame = self.frame(scan.name, ["bscan"], preview=False, **options)
        return frame, self.client.read(frame.volume)[6]

    def frame(self, *arguments, **options):
        return next(self.client.subscribe(*arguments, **options))

    def test_png_is_what_numpy_makes_of_the_raw_frame(self):
        for dtype in ("u8", "u16", "f32"):
            scan = self.scan(dtype=dtype)
            name = self.client.volumes(scan)[0].name
            raw = self.client.read(name).max(axis=2)
            plain = self.frame(scan, encoding="png", preview=False)
            # Pictures are stretched by percentiles by default, or by the scan's display levels,
            # which are the same for all its pictures.
            np.testing.assert_allclose(plain.display, np.percentile(raw, (1, 99.8)), rtol=1e-6)
            self.assertLessEqual(np.abs(decode_png(plain.data).astype(int) - grey(raw, *plain.display)).max(), 1)
            named = self.frame(scan, encoding="png", image=dict(display_levels=True))
            self.assertEqual(named.display, self.frame(scan).display)
            np.testing.assert_array_equal(decode_png(named.data), grey(raw, *named.display))
            lo, hi = (float(x) for x in np.percentile(raw, (20, 70)))
            values = tuple(plain.value_offset + plain.value_step * x for x in (lo, hi))  # levels are in dB
            self.assertEqual(plain.unit, "dB")
            fixed = self.frame(scan, encoding="png", image=dict(levels=values))
            np.testing.assert_allclose(fixed.display, (lo, hi), rtol=1e-4)
            self.assertLessEqual(np.abs(decode_png(fixed.data).astype(int) - grey(raw, lo, hi)).max(), 1)
            auto = self.frame(scan, encoding="png", image=dict(percentiles=(20, 70)))
            np.testing.assert_allclose(auto.display, (lo, hi), rtol=1e-6)
            self.assertLessEqual(np.abs(decode_png(auto.data).astype(int) - grey(raw, lo, hi)).max(), 1)
            inverted = self.frame(scan, encoding="png", image=dict(levels=values, colour_map="gray_inverted"))
            np.testing.assert_array_equal(decode_png(inverted.data), 255 - decode_png(fixed.data))
            half = self.frame(scan, encoding="png", image=dict(max_width=32, levels=values))
            mean = raw.astype(np.float64).reshape(6, 2, 32, 2).mean(axis=(1, 3))
            self.assertEqual(half.shape, (6, 32))
            np.testing.assert_allclose(half.spacing_um, [2 * s for s in plain.spacing_um])
            self.assertLessEqual(np.abs(decode_png(half.data).astype(int) - grey(mean, lo, hi)).max(), 1)

    def test_a_bscan_as_people_draw_it(self):
        # [x, z], 20 um by 5 um
        picture, raw = self.bscan(encoding="png", image=dict(depth_down=True, square_pixels=True, colour_map="viridis", scale_bar=True))
        self.assertEqual(picture.shape, (32, 64))
        np.testing.assert_allclose(picture.spacing_um, [20, 20])
        self.assertEqual(picture.scale_bar_um, 200)  # from 1280 um
        pixels = decode_png(picture.data)
        white = (pixels == 255).all(axis=2)
        runs = [max((len(list(group)) for value, group in itertools.groupby(row) if value), default=0) for row in white]
        self.assertEqual(max(runs), 10)  # pixels of 20 um
        self.assertGreater(runs.index(10), 20)
        # The picture above label and bar uses viridis: (r, g, b) of the mean of four depths.
        level = grey(raw.astype(np.float64).reshape(64, 32, 4).mean(axis=2).T, *picture.display)
        darkest, brightest = np.unravel_index(level[:8].argmin(), (8, 64)), np.unravel_index(level[:8].argmax(), (8, 64))
        self.assertLess(int(pixels[darkest][1]), int(pixels[brightest][1]))
        for row, column in ((0, 0), (3, 17), (7, 63)):
            same = np.argwhere(np.abs(level[:8].astype(int) - level[row, column]) == 0)
            for r, c in same:
                np.testing.assert_allclose(pixels[r, c].astype(int), pixels[row, column].astype(int), atol=3)

    def test_jpeg(self):
        scan = self.scan()
        small = self.frame(scan, encoding="jpeg", image=dict(quality=5))
        large = self.frame(scan, encoding="jpeg", image=dict(quality=100))
        self.assertEqual(jpeg_size(small.data), (12, 64, 1))
        self.assertLess(len(small.data), len(large.data))
        self.assertEqual(jpeg_size(self.frame(scan, encoding="jpeg", image=dict(colour_map="inferno")).data), (12, 64, 3))
        both, _ = self.bscan(encoding="jpeg", image=dict(max_width=40, max_height=9))
        self.assertEqual(jpeg_size(both.data)[:2], both.shape)
        self.assertEqual(both.shape[0], 9)

    def test_many_ways_at_once_and_the_raw_frame_beside_them(self):
        scan = self.scan()
        ways = [dict(), dict(encoding="png"), dict(encoding="jpeg"), dict(encoding="png", image=dict(colour_map="hot")),
                dict(encoding="png", image=dict(max_width=10)), dict(image=dict(max_width=32))]
        frames = [self.frame(scan, **way) for way in ways]
        self.assertEqual(len({f.sequence for f in frames}), 1)
        self.assertEqual([f.shape for f in frames], [(12, 64)] * 4 + [(2, 10), (6, 32)])
        mean = frames[0].array.astype(np.float64).reshape(6, 2, 32, 2).mean(axis=(1, 3))
        np.testing.assert_array_equal(frames[5].array, np.floor(mean + 0.5).astype(np.uint16))
        self.assertIsNone(frames[4].array)
        self.assertLessEqual(np.abs(decode_png(frames[1].data).astype(int) - grey(frames[0].array, *frames[1].display)).max(), 1)
        self.assertEqual(len({f.data for f in frames if f.data}), 4)

    def test_the_rate_is_kept_and_what_is_left_out_counted(self):
        scan = self.client.submit_scan(octavo.simulated(5), octavo.raster(32, 4, volumes=0), samples=256, rate_hz=20000, products=dict(preview_rate_hz=-1),
                                       retention=dict(disposition=3))
        got = []
        for frame in self.client.subscribe(scan.name, encoding="jpeg", max_rate_hz=5):
            got.append((frame.published_ns * 1e-9, frame.sequence, frame.dropped_before))
            if len(got) == 8:
                break
        self.client.cancel(scan.name)
        self.assertGreater(got[-1][0] - got[0][0], 7 / 5 * 0.7)
        for (_, before, _), (_, after, dropped) in zip(got, got[1:]):
            self.assertEqual(after - before - 1, dropped)
        self.assertGreater(sum(g[2] for g in got), 20)

    def test_refusals_name_the_field(self):
        cases = [(dict(levels=(3, 3)), "image.levels"), (dict(levels=(0, float("nan"))), "image.levels.hi"), (dict(percentiles=(5, 101)), "image.percentiles"),
                 (dict(levels=(0, 1), percentiles=(1, 2)), "image.levels"), (dict(max_width=70000), "image.max_width"),
                 (dict(max_height=70000), "image.max_height"), (dict(quality=101), "image.quality")]
        for image, field in cases:
            with self.subTest(image=image), self.assertRaises(octavo.OctavoError) as caught:
                self.frame(encoding="jpeg", image=image, timeout=60)
            self.assertEqual((caught.exception.code.name, caught.exception.field), ("INVALID_ARGUMENT", field))
        for options, field in ((dict(image=dict(colour_map="hot")), "image.colour_map"), (dict(products=["event"], image=dict(max_width=9)), "image"), (dict(encoding="png", products=["event"]), "encoding"),
                               (dict(encoding="png", delivery="lossless", max_rate_hz=2), "max_rate_hz"),
                               (dict(encoding="png", image=dict(quality=50)), "image.quality")):
            with self.subTest(options=options), self.assertRaises(octavo.OctavoError) as caught:
                self.frame(timeout=60, **options)
            self.assertEqual((caught.exception.code.name, caught.exception.field), ("INVALID_ARGUMENT", field))


if __name__ == "__main__":
    unittest.main()
