"""The metadata of a volume in files: known or assumed spacing, warnings, missing data. The volumes
come from scans, jobs, derived volumes, moves to disk and restarts."""

import json
import os
import shutil
import tempfile
import unittest
import warnings

import numpy as np

import ome_rules
from harness import Daemon, DaemonTest, octavo, until
from readers import READERS, read_tiff_stack

M, N, SAMPLES = 6, 10, 128
ANGLES = np.arange(12) * np.pi / 12
READY = octavo.preparation(already_sinograms=True)


def about(path):
    """All metadata of an OME-Zarr, and the units of its axes."""
    attributes = json.load(open(os.path.join(path, "zarr.json")))["attributes"]
    axes = attributes["ome"]["multiscales"][0]["axes"]
    return attributes["octavo"], {axis["name"]: axis.get("unit") for axis in axes}


class Provenance(DaemonTest):
    def setUp(self):
        super().setUp()
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("ignore", octavo.OctavoWarning)

    def raw_file(self, volumes=1, records=M * N):
        """Spectra of unknown wavelengths."""
        random = np.random.default_rng(7)
        random.integers(1000, 3000, volumes * records * SAMPLES).astype("<u2").tofile(os.path.join(self.daemon.root, "spectra.u16"))
        return octavo.replay("spectra.u16")

    def scanned(self, source, axial=0.0, client=None, **extents):
        client = client or self.client
        retention = extents.pop("retention", {})
        scan = client.wait(client.submit_scan(source, octavo.raster(N, M, volumes=1, **extents), samples=SAMPLES, retention=retention,
                                              processing=octavo.processing(axial_spacing_um=axial)).name)
        return scan, next(iter(scan.volume_names), None)  # None: it was committed and has left memory

    def told(self, name, client=None):
        """The axes that a file marks as assumed. They must be those without a unit."""
        path = (client or self.client).commit(name, f"told/{name.split('/')[1]}").path
        meta, units = about(path)
        self.assertEqual(ome_rules.problems(path), [])
        self.assertEqual(sorted(meta.get("spacing_assumed", [])), sorted(axis for axis, unit in units.items() if unit is None))
        self.assertEqual({unit for unit in units.values() if unit is not None} - {"micrometer"}, set())
        return "".join(sorted(meta.get("spacing_assumed", [])))

    def test_spacing_of_scans_in_every_format(self):
        known = octavo.simulated(4, fast=True)
        for source, fields, assumed in ((known, dict(), "xy"), (known, dict(extent_x_mm=3, extent_y_mm=3), ""), (known, dict(extent_x_mm=3), "y"),
                                        (self.raw_file(), dict(), "xyz"), (self.raw_file(), dict(axial=2.5), "xy"),
                                        (self.raw_file(), dict(extent_x_mm=3, extent_y_mm=3), "z")):
            for format, read in {**READERS, "tiff-stack": read_tiff_stack}.items():
                with self.subTest(assumed=assumed, format=format):
                    _, name = self.scanned(source, **fields)
                    volume = self.client.volume(name)
                    array = self.client.read(name)
                    options = dict(format="tiff", tiff_stack=True) if format == "tiff-stack" else dict(format=format)
                    stored = read(self.client.commit(name, f"{format}_{assumed}_{len(fields)}", **options).path)
                    np.testing.assert_array_equal(stored.array, array)
                    self.assertEqual(stored.assumed, assumed)
                    if stored.spacing_um is not None:
                        np.testing.assert_allclose(stored.spacing_um, volume.spacing_um, rtol=1e-6)
                    if stored.meta is not None:
                        self.assertEqual("".join(sorted(stored.meta.get("spacing_assumed", []))), assumed)

    def test_spacing_of_what_is_derived(self):
        for fields, operations, assumed in ((dict(extent_x_mm=3), [{"transpose": {"axes": [2, 0, 1]}}], "y"),
                                            (dict(extent_y_mm=3), [{"transpose": {"axes": [1, 2, 0]}}, {"crop": {"start": [1, 0, 0], "count": [4, 0, 0]}}], "x"),
                                            (dict(), [{"resize": {"shape": [3, 5, 0]}}], "xy"), (dict(), [{"mip": {"axis": 2}}], "xy"),
                                            (dict(extent_x_mm=3, extent_y_mm=3), [{"mip": {"axis": 0}}], "")):
            with self.subTest(operations=operations):
                _, name = self.scanned(octavo.simulated(4, fast=True), **fields)
                self.assertEqual(self.told(self.client.derive(name, *operations).name), assumed)
        radial = lambda **fields: octavo.radial(N, M, 1, **fields)  # noqa: E731
        for pattern, grid, assumed in ((radial(), {}, "xy"), (radial(), {"extent_x_mm": 2, "extent_y_mm": 2}, "xy"), (radial(radius=(-1, 1)), {}, "")):
            with self.subTest(pattern=pattern, grid=grid):
                scan = self.client.wait(self.client.submit_scan(octavo.simulated(4, fast=True), pattern, samples=SAMPLES, rate_hz=20000).name)
                self.assertEqual(self.told(self.client.derive(scan.volume_names[0], {"cartesian": grid}).name), assumed)

    def test_spacing_of_raw_spectra_and_what_they_become(self):
        scan, _ = self.scanned(octavo.simulated(4, fast=True), extent_x_mm=3, retention=dict(hold_raw=True))
        (raw,) = (v.name for v in self.client.volumes(scan.name) if v.raw)
        again = self.client.wait_job(self.client.submit_job(octavo.reprocess(raw, octavo.processing(axial_spacing_um=2))).name).volume_names[0]
        self.assertEqual((self.told(again), self.told(raw)), ("y", "yz"))
        scan, _ = self.scanned(self.raw_file(), retention=dict(hold_raw=True))
        (raw,) = (v.name for v in self.client.volumes(scan.name) if v.raw)
        for axial, assumed in ((0, "xyz"), (2, "xy")):
            job = self.client.submit_job(octavo.reprocess(raw, octavo.processing(axial_spacing_um=axial)))
            self.assertEqual(self.told(self.client.wait_job(job.name).volume_names[0]), assumed)

    def tomogram(self, client, **fields):
        input = octavo.ProjectionArrays(projections=client.buffers.put(np.random.default_rng(2).random((12, 5, 16), np.float32)))
        job = client.wait_job(client.submit_job(octavo.tomography(input, angles=ANGLES, prepare=READY, **fields)).name)
        return job, job.volume_names[0]

    def test_spacing_of_tomograms(self):
        for fields, assumed in ((dict(), "xyz"), (dict(pixel_size_um=2.5), ""), (dict(place="disk"), "xyz"), (dict(place="disk", pixel_size_um=2.5), ""),
                                (dict(pixel_size_um=2.5, try_centers=(6, 9, 1)), "z"), (dict(try_centers=(6, 9, 1)), "xyz")):
            with self.subTest(**fields):
                self.assertEqual(self.told(self.tomogram(self.client, **fields)[1]), assumed)

    def test_after_a_restart(self):
        directory = tempfile.mkdtemp(prefix="octavo-provenance-")
        self.addCleanup(shutil.rmtree, directory, True)
        daemon = Daemon(directory=directory)
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            np.random.default_rng(1).integers(1000, 3000, (3 * M * N + 5) * SAMPLES).astype("<u2").tofile(os.path.join(daemon.root, "more.u16"))
            scan, one = self.scanned(octavo.replay("more.u16"), client=client, extent_x_mm=3)
            job, other = self.tomogram(client)
            doubts = {one: list(scan.warnings), other: list(job.warnings)}
            self.assertIn("are left out", doubts[one][0])
            for name in (one, other):
                client.spill(name)
        self.assertEqual(daemon.stop(), 0)
        daemon = Daemon(directory=directory)
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            for name, assumed in ((one, "yz"), (other, "xyz")):
                made = client.derive(name, {"mip": {"axis": 0}}).name
                for volume in (name, made):
                    self.assertTrue(client.volume(name).recovered)
                    meta, _ = about(client.commit(volume, f"again/{volume.split('/')[1]}").path)
                    self.assertEqual("".join(sorted(meta.get("spacing_assumed", []))), assumed)
                    self.assertEqual(meta.get("warnings", []), doubts[name])

    # -- warnings

    def test_warnings_are_in_the_files(self):
        """The warnings of the scan up to the commit, in every format; none if there are none."""
        doubted = self.raw_file(records=M * N + 5)
        for format, read in {**READERS, "tiff-stack": read_tiff_stack}.items():
            with self.subTest(format=format):
                scan, name = self.scanned(doubted, extent_x_mm=3000)
                self.assertEqual(len(scan.warnings), 2, scan.warnings)
                options = dict(format="tiff", tiff_stack=True) if format == "tiff-stack" else dict(format=format)
                uri = self.client.commit(name, f"doubts/{format}", **options).path
                stored = read(uri)
                meta = stored.meta or json.load(open(uri + ".json"))
                self.assertEqual(meta["warnings"], list(scan.warnings))
        scan, name = self.scanned(octavo.simulated(1, fast=True))
        self.assertEqual(list(scan.warnings), [])
        self.assertNotIn("warnings", about(self.client.commit(name, "no_doubts").path)[0])

    def test_warnings_of_automatic_commits_derived_volumes_and_reprocessed_ones(self):
        retention = dict(disposition=2, auto_commit=octavo.commit_options("auto", "npy"))
        scan, _ = self.scanned(self.raw_file(records=M * N + 5), retention=retention)
        until(lambda: self.client.scan(scan.name).volumes_committed == 1)  # the last commits end after the scan
        self.assertEqual(json.load(open(os.path.join(self.daemon.root, "auto.npy.json")))["warnings"], list(scan.warnings))
        scan, name = self.scanned(self.raw_file(records=M * N + 5), retention=dict(hold_raw=True))
        made = self.client.derive(name, {"mip": {"axis": 2}}).name
        (raw,) = (v.name for v in self.client.volumes(scan.name) if v.raw)
        again = self.client.wait_job(self.client.submit_job(octavo.reprocess(raw)).name).volume_names[0]
        for volume in (made, again, raw):
            self.assertEqual(about(self.client.commit(volume, volume.split("/")[1]).path)[0]["warnings"], list(scan.warnings))

    def test_warnings_and_missing_frames_of_jobs(self):
        for place in ("device", "disk"):
            name = self.client.submit_job(octavo.tomography(octavo.PushedProjections(rows=5, columns=16, frames=20, dtype="f32"), place=place)).name
            frames = list(octavo.projection_frames(np.ones((20, 5, 16), np.float32), np.arange(20) * np.pi / 20))
            self.client.push_projections(name, frames[:3] + frames[5:12])
            job = self.client.wait_job(name)
            self.assertTrue(any("10 of 20 frames never came" in text for text in job.warnings), job.warnings)
            self.assertTrue(any("flat fields" in text for text in job.warnings), job.warnings)
            made = self.client.derive(job.volume_names[0], {"mip": {"axis": 0}}).name
            for volume in (job.volume_names[0], made):
                meta, _ = about(self.client.commit(volume, volume.split("/")[1]).path)
                self.assertEqual(meta["warnings"], list(job.warnings))
                self.assertEqual((meta["complete"], meta["missing_frames"], meta["expected_frames"]), (False, 10, 20))


if __name__ == "__main__":
    unittest.main()
