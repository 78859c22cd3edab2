"""Levels against the daemon: defaults that clip almost nothing, exact counts, and a warning for
levels that clip."""

import json
import os
import unittest
import urllib.request

import numpy as np

from harness import DATA, DaemonTest, octavo
from octavo.v1 import reason_pb2, scan_pb2, types_pb2

MIRROR = os.path.join(DATA, "oct", "mirror31")


def stored(values, levels, bottom, top):
    return bottom + (values.astype(np.float64) - levels[0]) / (levels[1] - levels[0]) * (top - bottom)


class Levels(DaemonTest):
    def scan(self, source=None, pattern=None, **fields):
        processing = octavo.processing(**fields.pop("processing", {}))
        scan = self.client.submit_scan(source or octavo.simulated(seed=5, fast=True), pattern or octavo.raster(48, 10, volumes=2),
                                       samples=fields.pop("samples", 512), processing=processing, **fields)
        end = self.client.wait(scan.name)
        self.assertEqual(end.reason_code, reason_pb2.REASON_COMPLETED, end.reason)
        return end, [v for v in self.client.volumes(scan.name) if not v.raw]

    def metrics(self):
        page = urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics", timeout=10).read().decode()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith("octavo_voxels")}

    def twelve_bits(self, records, samples=512):
        """Writes a file as a 12-bit camera does: fringes of tissue over a source spectrum, in words
        of 16 bits."""
        random = np.random.default_rng(4)
        j = np.arange(samples)
        source = np.exp(-((j - samples / 2) / (samples / 3)) ** 2) * 1500
        x = np.zeros((records, samples))
        for depth, amplitude in ((40, 0.3), (60, 0.02), (61, 0.01), (90, 0.01), (150, 0.003)):
            x += amplitude * np.cos(2 * np.pi * (depth + random.uniform(-1, 1, (records, 1))) * j / samples)
        raw = np.clip(np.round(source * (1 + x) + random.normal(0, 3, x.shape)), 0, 4095).astype("<u2")
        path = os.path.join(self.daemon.root, "camera.npy")
        np.save(path, raw)
        return raw, path

    def test_defaults_of_a_twelve_bit_file_and_of_the_simulator(self):
        raw, path = self.twelve_bits(48 * 10 * 2)
        for source in (octavo.replay(path), octavo.simulated(seed=8, fast=True)):
            for adc_bits in (0, 12):
                scan, volumes = self.scan(source, adc_bits=adc_bits)
                self.assertEqual((scan.spec.processing.dtype, volumes[0].dtype), (types_pb2.DTYPE_U16, types_pb2.DTYPE_U16))
                self.assertLessEqual((volumes[0].levels.hi - volumes[0].levels.lo) / 65535, 0.01)
                self.assertEqual((scan.clipped_below, scan.clipped_above, list(scan.warnings)), (0, 0, []))
                self.assertIn("memory: 2 bytes a voxel", scan.plan)
                for dtype in ("u8", "i8"):
                    scan, volumes = self.scan(source, processing=dict(dtype=dtype), adc_bits=adc_bits)
                    self.assertEqual(scan.voxels, 2 * 48 * 10 * 256)
                    self.assertLess(scan.clipped_below + scan.clipped_above, 0.01 * scan.voxels)
                    self.assertEqual(list(scan.warnings), [])
                    self.assertGreater(len(np.unique(self.client.read(volumes[0].name))), 60, "it is an image")
        self.assertEqual(scan.spec.acquisition.adc_bits, 12)

    @unittest.skipUnless(os.path.isdir(MIRROR), f"no data in {MIRROR}")
    def test_defaults_of_real_spectra(self):
        name = next(n for n in sorted(os.listdir(MIRROR)) if n.endswith(".npy") and np.load(os.path.join(MIRROR, n), mmap_mode="r").ndim >= 2)
        spectra = np.ascontiguousarray(np.load(os.path.join(MIRROR, name)))
        spectra = spectra.reshape(-1, spectra.shape[-1])
        if spectra.dtype.kind != "u":
            spectra = np.clip(np.round(spectra), 0, 65535).astype("<u2")
        path = os.path.join(self.daemon.root, "mirror.npy")
        np.save(path, spectra)
        for background in ("none", "bscan"):
            for dtype in (None, "u8"):
                scan, _ = self.scan(octavo.replay(path), octavo.raster(len(spectra), 1, volumes=1), samples=0,
                                    processing=dict(background=background, **({"dtype": dtype} if dtype else {})))
                self.assertLess(scan.clipped_below + scan.clipped_above, 0.01 * scan.voxels)

    def test_counts_are_exact_wherever_they_are_made(self):
        before = self.metrics()
        below = above = voxels = 0
        pattern = octavo.raster(40, 12, volumes=2, flyback_records=5, bidirectional=True)
        for dtype, bottom, top, value, levels in (("u8", 0, 255, "db", (-5, 20)), ("i8", -128, 127, "real", (-3, 4)), ("u16", 0, 65535, "magnitude", (1, 5)),
                                                  ("u8", 0, 255, "power", (1, 50))):
            with self.subTest(dtype=dtype, value=value):
                _, values = self.scan(pattern=pattern, processing=dict(value=value, dtype="f32"))
                processing = dict(value=value, dtype=dtype, levels=levels)
                scan, volumes = self.scan(pattern=pattern, processing=processing, retention=dict(hold_raw=True))
                raws = [v for v in self.client.volumes(scan.name) if v.raw]
                for volume, exact, raw in zip(volumes, values, raws):
                    x = stored(self.client.read(exact.name), levels, bottom, top)
                    doubt = np.sum(np.minimum(np.abs(x - bottom + 0.5), np.abs(x - top - 0.5)) < 1e-4 * (top - bottom))
                    self.assertLessEqual(abs(volume.clipped_below - np.sum(x <= bottom - 0.5)), doubt)
                    self.assertLessEqual(abs(volume.clipped_above - np.sum(x >= top + 0.5)), doubt)
                    self.assertGreater(min(volume.clipped_below, volume.clipped_above), 0)
                    again = self.client.volume(self.client.wait_job(self.client.submit_job(octavo.reprocess(raw.name, octavo.processing(**processing))).name).volume_names[0])
                    self.assertEqual((again.digest, again.clipped_below, again.clipped_above), (volume.digest, volume.clipped_below, volume.clipped_above))
                    cropped = self.client.derive(volume.name, {"flip": {"axes": [2]}})
                    self.assertEqual((cropped.clipped_below, cropped.clipped_above), (0, 0))
                    below += volume.clipped_below
                    above += volume.clipped_above
                    voxels += 40 * 12 * 256
                voxels += 2 * 40 * 12 * 256  # voxels with values
                self.assertEqual((scan.clipped_below, scan.clipped_above), (sum(v.clipped_below for v in volumes), sum(v.clipped_above for v in volumes)))
        after = self.metrics()
        self.assertEqual(after['octavo_voxels_clipped_total{kind="below"}'] - before['octavo_voxels_clipped_total{kind="below"}'], below)
        self.assertEqual(after['octavo_voxels_clipped_total{kind="above"}'] - before['octavo_voxels_clipped_total{kind="above"}'], above)
        self.assertEqual(after["octavo_voxels_total"] - before["octavo_voxels_total"], voxels)

    def test_who_chose_levels_that_clip_is_told(self):
        scan, volumes = self.scan(processing=dict(dtype="u8", levels=(0, 5)))
        self.assertEqual(len(scan.warnings), 1)
        self.assertIn("processing.levels 0 to 5 clip", scan.warnings[0])
        self.assertIn("scan warning", self.daemon.text())
        shown = self.command("scan", "show", scan.name).stdout
        self.assertIn("warning: processing.levels 0 to 5 clip", shown)
        self.assertRegex(shown, r"\d % clipped")
        self.assertIn("% clipped", self.command("volume", "show", volumes[0].name).stdout)
        self.assertIn("% clipped", self.command("volume", "list", "--parent", scan.name).stdout)
        watched = self.command("scan", "submit", "--source", "simulated", "--fast", "--ascans", "32", "--bscans", "4", "--volumes", "1", "--dtype", "u8", "--levels=0,5", "--watch").stdout
        self.assertIn("warning: processing.levels 0 to 5 clip", watched)
        # The warning names levels that do not clip.
        words = scan.warnings[0].split("Levels ")[1].split()
        wide = (float(words[0]), float(words[2]))
        scan, _ = self.scan(processing=dict(dtype="u8", levels=wide))
        self.assertEqual((scan.clipped_below + scan.clipped_above, list(scan.warnings)), (0, []))
        quiet = self.command("scan", "show", scan.name).stdout
        self.assertNotIn("warning", quiet)
        self.assertNotIn("clipped", quiet)

    def test_an_update_is_told_anew(self):
        clip = octavo.processing(dtype="u8", levels=(0, 5))
        scan = self.client.submit_scan(octavo.simulated(2), octavo.raster(32, 4, volumes=0), samples=256, rate_hz=4000, processing=clip,
                                       retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, keep_last=2))
        for seen in self.client.watch(scan.name):
            if seen.warnings:
                break
        self.client.update_scan(scan.name, octavo.processing(levels=(1, 6)))  # u8, unchanged
        for seen in self.client.watch(scan.name):
            if len(seen.warnings) == 2:
                break
        self.assertIn("levels 1 to 6", seen.warnings[1])
        self.client.stop(scan.name)
        end = self.client.wait(scan.name)
        self.assertEqual(len(end.warnings), 2)
        self.assertGreaterEqual(end.volumes_done, 2)
        for volume in self.client.volumes(scan.name):  # each volume has its own records, although slots were reused
            self.assertLessEqual(volume.clipped_below + volume.clipped_above, 32 * 4 * 128)

    def test_pictures_are_stretched(self):
        scan, volumes = self.scan()
        path = os.path.join(self.daemon.root, "bscan.png")
        image = self.client.read(volumes[0].name)[5]
        octavo.write_png(path, image.T)
        from pictures import decode_png, grey  # all tests use the same PNG reader
        with open(path, "rb") as file:
            pixels = decode_png(file.read())
        np.testing.assert_array_equal(pixels, grey(image.T, *np.percentile(image, (1, 99.8))))
        octavo.write_png(path, image, 100, 60000)
        with open(path, "rb") as file:
            np.testing.assert_array_equal(decode_png(file.read()), grey(image, 100, 60000))
        text = self.command("watch", "--parent", scan.name, "--count", "1").stdout.splitlines()[:-1]
        self.assertGreater(len(set("".join(text))), 4, "the terminal shows more than one shade")

    def test_adc_bits_name_the_field(self):
        for fields in (dict(raw_type="u8", adc_bits=9), dict(adc_bits=17), dict(adc_bits=11)):
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.submit_scan(octavo.simulated(2), octavo.raster(32, 4, volumes=1), **fields)
            self.assertEqual((caught.exception.code.name, caught.exception.field), ("INVALID_ARGUMENT", "acquisition.adc_bits"))


if __name__ == "__main__":
    unittest.main()
