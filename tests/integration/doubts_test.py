"""Wrong uses that would give data without an error: what cannot be meant is refused, what might be a mistake is a warning."""

import itertools
import os
import unittest
import warnings

import grpc
import h5py
import numpy as np

from harness import DaemonTest, octavo, until

SAMPLES, ASCANS, BSCANS = 256, 16, 8
VOLUME = ASCANS * BSCANS


def spectra(records, samples=SAMPLES, full=4095, seed=1):
    """What a line camera sees: an envelope, fringes that move, noise."""
    random = np.random.default_rng(seed)
    x = np.arange(samples) / samples
    cycles, phase = random.uniform(5, 25, records)[:, None], random.uniform(0, 6.28, records)[:, None]
    light = np.exp(-((x - 0.5) / 0.22) ** 2) * (1 + 0.15 * np.cos(2 * np.pi * cycles * x + phase))
    return np.clip(full * (0.02 + 0.7 * light) + random.normal(0, 0.004 * full, light.shape), 0, full)


class Doubts(DaemonTest):
    def save(self, name, array):
        array.tofile(os.path.join(self.daemon.root, name))
        return name

    def submit(self, source, pattern=None, **fields):
        return self.client.submit_scan(source, pattern or octavo.raster(ASCANS, BSCANS, volumes=2), **{"samples": SAMPLES, **fields})

    def told(self, source, **fields):
        """Warnings of a scan: of the answer, of Python's, of the log."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            scan = self.submit(source, **fields)
        texts = list(scan.warnings)
        self.assertEqual([f"{scan.name}: {text}" for text in texts], [str(w.message) for w in caught if w.category is octavo.OctavoWarning])
        for text in texts:
            self.assertIn(text.split(";")[0], self.daemon.text())
        planned = self.client.plan_scan(source, octavo.raster(ASCANS, BSCANS, volumes=2), **{"samples": SAMPLES, **fields})
        self.assertEqual(list(planned.warnings)[:len(texts)], texts)
        return texts

    def refused(self, call, field, words):
        with self.assertRaises(octavo.OctavoError) as caught:
            call()
        self.assertEqual((caught.exception.code, caught.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, field))
        self.assertIn(words, caught.exception.message)

    def test_a_file_that_fits_is_not_doubted(self):
        for dtype, raw, full in (("<u2", "u16", 4095), ("u1", "u8", 255), ("<f4", "f32", 1.0)):
            name = self.save(f"fits.{raw}", spectra(2 * VOLUME, full=full).astype(dtype))
            self.assertEqual(self.told(octavo.replay(name), raw_type=raw), [])
            self.client.wait(self.client.scans()[0].name)

    def test_what_a_file_holds_beyond_the_scan(self):
        name = self.save("more.u16", spectra(3 * VOLUME + 5).astype("<u2"))
        self.assertEqual(self.told(octavo.replay(name)),
                         [f"The file holds {3 * VOLUME + 5} records; the scan takes {2 * VOLUME} of them: {VOLUME + 5} are left out."])
        plan = self.client.plan_scan(octavo.replay(name), octavo.raster(ASCANS, BSCANS, volumes=2), samples=SAMPLES).plan
        self.assertIn(f"holds {3 * VOLUME + 5} records of {SAMPLES} samples (u16); the scan takes {2 * VOLUME}", plan)
        name = self.save("less.u16", spectra(VOLUME + 3).astype("<u2"))
        self.assertIn("read again from its beginning", self.told(octavo.replay(name, loops=0))[0])
        self.assertIn("it ends early", self.told(octavo.replay(name, loops=1))[0])

    def test_a_length_that_divides_the_file(self):
        name = self.save("length.u16", spectra(4 * VOLUME, samples=2 * SAMPLES).astype("<u2"))
        self.assertIn(f"the file repeats every {2 * SAMPLES} samples", self.told(octavo.replay(name))[0])

    def test_another_type(self):
        name = self.save("type.u16", spectra(2 * VOLUME).astype("<u2"))
        self.assertIn("raw_type is u8, but the file's samples look like u16", self.told(octavo.replay(name), raw_type="u8")[0])
        self.assertIn("adc_bits is 8", self.told(octavo.replay(name), adc_bits=8)[0])
        name = self.save("type.big", spectra(2 * VOLUME, full=65535).astype(">u2"))
        self.assertIn("look like big-endian u16, which no raw_type reads", self.told(octavo.replay(name))[0])
        name = self.save("type.f32", spectra(3 * VOLUME).astype("<f4"))
        for raw in ("u8", "u16", "i16", "u12p", "u12_packed"):
            with self.subTest(raw):
                self.assertIn("look like f32", self.told(octavo.replay(name), raw_type=raw)[0])
        name = self.save("type.f64", spectra(2 * VOLUME).astype("<f8"))
        self.assertIn("look like f64", self.told(octavo.replay(name))[0])
        name = self.save("zeros.u16", np.zeros((2 * VOLUME, SAMPLES), "<u2"))
        self.assertIn("are all 0", self.told(octavo.replay(name))[0])

    def test_packed_samples_of_the_other_order(self):
        counts = spectra(2 * VOLUME).astype(np.uint16).reshape(-1, 2)
        low = np.stack([counts[:, 0], counts[:, 0] >> 8 | counts[:, 1] << 4 & 0xF0, counts[:, 1] >> 4], 1).astype("u1")
        high = np.stack([counts[:, 0] >> 4, counts[:, 0] & 0xF | counts[:, 1] << 4 & 0xF0, counts[:, 1] >> 4], 1).astype("u1")
        for right, other, packed in (("u12p", "u12_packed", low), ("u12_packed", "u12p", high)):
            name = self.save(f"packed.{right}", packed)
            self.assertEqual(self.told(octavo.replay(name), raw_type=right), [])
            self.assertIn(f"look like {right.replace('_', '-')}", self.told(octavo.replay(name), raw_type=other)[0])

    def test_a_header_and_a_file_that_was_cut_off(self):
        data = spectra(2 * VOLUME).astype("<u2").tobytes()
        for name, contents in (("header.raw", b"CAMERA 1".ljust(64, b"\0") + data), ("cut.raw", data[:-100]), ("plain.raw", data)):
            with open(os.path.join(self.daemon.root, name), "wb") as file:
                file.write(contents)
        self.refused(lambda: self.submit(octavo.replay("header.raw")), "replay.path", "64 bytes more")
        self.refused(lambda: self.submit(octavo.replay("header.raw")), "replay.path", "replay.header_bytes = 64")
        self.assertEqual(self.told(octavo.replay("header.raw", header_bytes=64)), [])
        self.assertEqual(self.client.scans()[0].spec.replay.header_bytes, 64)
        self.refused(lambda: self.submit(octavo.replay("cut.raw")), "replay.path", "replay.allow_partial leaves the last record out")
        told = self.told(octavo.replay("cut.raw", allow_partial=True))
        self.assertEqual(told[0], f"The file's last record is not whole: {2 * SAMPLES - 100} bytes of {2 * SAMPLES} are left out.")
        self.assertIn("it ends early", told[1])
        made = []
        for source in (octavo.replay("header.raw", header_bytes=64), octavo.replay("plain.raw")):
            scan = self.client.wait(self.submit(source).name)
            made.append([self.client.read(v.name) for v in self.client.volumes(scan.name)])
        np.testing.assert_array_equal(*made)
        size = ["--samples", str(SAMPLES), "--ascans", str(ASCANS), "--bscans", str(BSCANS), "--volumes", "2"]
        result = self.command("scan", "plan", "--path", "header.raw", "--header-bytes", "64", *size)
        self.assertNotIn("warning", result.stdout + result.stderr)
        result = self.command("scan", "plan", "--path", "cut.raw", "--allow-partial", *size)
        self.assertIn("warning: The file's last record is not whole", result.stdout + result.stderr)

    def test_records_that_never_come(self):
        raw = spectra(VOLUME).astype("<u2")
        for records in (1, VOLUME // 2 + 3, VOLUME - 1):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scan = self.submit(octavo.push(), octavo.raster(ASCANS, BSCANS, volumes=1))
                self.client.push(scan.name, raw[:records])
                end = self.client.wait(scan.name)
            self.assertIn(end.reason_code, ("COMPLETED", "SOURCE_ENDED"))
            self.assertEqual(len(end.warnings), 1, end.warnings)
            self.assertIn(f"{end.missing_ascans} A-scans of the scan's volumes are missing", end.warnings[0])
            self.assertGreater(end.missing_ascans, 0)

    def test_an_automatic_commit_that_fails(self):
        open(os.path.join(self.daemon.root, "taken.npy"), "w").close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scan = self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(ASCANS, BSCANS, volumes=1), samples=SAMPLES,
                                           retention=dict(disposition=2, auto_commit=dict(destination="taken", format="npy")))  # AUTO_COMMIT
            self.client.wait(scan.name)
        until(lambda: self.client.scan(scan.name).warnings)
        (volume,) = self.client.volumes(scan.name)
        (warning,) = self.client.scan(scan.name).warnings
        self.assertIn(f"{volume.name} could not be committed automatically and stays held: ", warning)
        self.assertIn("taken.npy", warning)

    def test_extents_of_metres(self):
        source, fine = octavo.simulated(1, fast=True), octavo.raster(ASCANS, BSCANS, volumes=1, extent_x_mm=3, extent_y_mm=3)
        wide = octavo.raster(ASCANS, BSCANS, volumes=1, extent_x_mm=3, extent_y_mm=3000)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            scan = self.submit(source, wide)
            self.assertEqual(list(self.submit(source, fine).warnings), [])
        self.assertEqual(len(caught), 1)
        self.assertIn("pattern.raster.extent_y_mm is 3000, 3 m", str(caught[0].message))
        self.assertIn("extent_y_mm is 3000", self.client.plan_scan(source, wide, samples=SAMPLES).warnings[0])
        self.assertIn("spacing: y 3.75e+05 um, x 187.5 um", self.client.scan(scan.name).plan)
        self.assertNotIn("assumed", self.client.plan_scan(source, fine, samples=SAMPLES).plan)
        unsaid = self.client.plan_scan(source, octavo.raster(ASCANS, BSCANS, volumes=1), samples=SAMPLES).plan
        self.assertIn("(y, x: assumed, the request does not say the extent)", unsaid)

    def test_records_beyond_the_end_of_a_pushed_scan(self):
        raw = spectra(VOLUME).astype("<u2")
        beyond = [([raw, raw, raw], f"{2 * VOLUME} records more"), ([raw[:100]] * 7, f"{700 - VOLUME} records more"),
                  (raw[np.arange(VOLUME + 5) % VOLUME], "5 records more"), (iter([raw, raw]), "more records"),
                  ((block for block in (raw[:-1], raw[:2])), "more records"), (lambda first: [raw[first:], raw[:7]], "7 records more"),
                  ([raw, (2 ** 50, raw[:3])], "3 records more"), (itertools.chain([raw], itertools.repeat(raw[:10])), "more records")]
        for blocks, surplus in beyond:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                scan = self.submit(octavo.push(), octavo.raster(ASCANS, BSCANS, volumes=1))
                result = self.client.push(scan.name, blocks)
                end = self.client.wait(scan.name)
            self.assertEqual((end.reason_code, end.source.records), ("COMPLETED", VOLUME))
            self.assertEqual(end.out_of_range_records, result.sent - VOLUME)
            for text in end.warnings:  # where some of them came before the server had enough
                self.assertIn(f"More records were pushed than the {VOLUME} that the scan takes", text)
            # The client is sure of it, and says it once.
            self.assertEqual(len(caught), 1, [str(w.message) for w in caught])
            self.assertIn(f"{scan.name}: {surplus} were given than the {VOLUME} that the scan takes", str(caught[0].message))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            scan = self.submit(octavo.push(), octavo.raster(ASCANS, BSCANS, volumes=1))
            self.client.push(scan.name, [raw])
            end = self.client.wait(scan.name)
        self.assertEqual((list(end.warnings), end.out_of_range_records, caught), ([], 0, []))

    def test_arrays_of_another_type_are_not_pushed(self):
        raw = spectra(VOLUME).astype("<u2")
        scan = self.submit(octavo.push(), octavo.raster(ASCANS, BSCANS, volumes=3))
        # Only another order of bytes is the same numbers.
        self.client.push(scan.name, [raw.astype(">u2"), raw, raw[:0]], end=False)
        words, half = raw.astype("<i4")[:, :SAMPLES // 2], raw[:, :SAMPLES // 2]
        wrong = [raw.astype(np.float16), half.astype("<f4"), raw.view("u1"), raw.view("u1").astype(bool), raw.astype("<i2"), -raw.astype("<i2"), words,
                 raw[:, :SAMPLES // 4].astype(np.complex64), raw.view("S2"), half, raw[0], raw[None]]
        for array in wrong:
            with self.subTest(dtype=array.dtype, shape=array.shape), self.assertRaises(ValueError) as caught:
                self.client.push(scan.name, iter([array]))
            for said in (str(array.dtype), str(array.shape), f"records of {SAMPLES} samples, RAW_U16", f"uint16 [records, {SAMPLES}]"):
                self.assertIn(said, str(caught.exception))
        self.assertEqual(self.client.push(scan.name, [raw]).next_record, 3 * VOLUME)
        self.assertEqual(self.client.wait(scan.name).reason_code, "COMPLETED")
        first, *others = (self.client.read(v.name) for v in self.client.volumes(scan.name))
        for other in others:
            np.testing.assert_array_equal(first, other)

    def test_volumes_of_a_scan_that_there_is_not(self):
        def missing(call):
            with self.assertRaises(octavo.OctavoError) as caught:
                call()
            self.assertEqual((caught.exception.code, caught.exception.reason, caught.exception.field), (grpc.StatusCode.NOT_FOUND, "NO_SCAN", "scan"))

        missing(lambda: self.client.volumes("scans/typo"))
        missing(lambda: self.client.volumes("typo", states=["held", "discarded"]))
        result = self.command("volume", "list", "--scan", "scans/typo", check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("no scan or job scans/typo", result.stderr)
        waits = self.submit(octavo.push(), octavo.raster(ASCANS, BSCANS, volumes=1))
        self.assertEqual(self.client.volumes(waits.name), [])
        done = self.submit(octavo.simulated(1, fast=True), octavo.raster(ASCANS, BSCANS, volumes=1))
        self.client.wait(done.name)
        self.client.discard(self.client.volumes(done.name)[0].name)
        self.assertEqual(self.client.volumes(done.name), [], "it is known, and its volume is gone")

    def test_wavelengths_in_another_unit(self):
        lengths = np.linspace(0.80, 0.88, SAMPLES)
        self.refused(lambda: self.submit(octavo.simulated(1, fast=True), processing=octavo.processing(wavelength_nm=lengths)),
                     "processing.k_linearisation.wavelength_nm", "is 0.8 at 0; allowed 100 to 20000 (nanometres: 0.84 um is 840)")
        self.refused(lambda: self.submit(octavo.simulated(1, fast=True), processing=octavo.processing(wavelength_nm=lengths * 1e-6)),
                     "processing.k_linearisation.wavelength_nm", "nanometres")

    def test_the_command_line_tells(self):
        name = self.save("cli.u16", spectra(3 * VOLUME).astype("<u2"))
        result = self.command("scan", "submit", "--source", "replay", "--path", name, "--samples", str(SAMPLES), "--ascans", str(ASCANS), "--bscans",
                              str(BSCANS), "--volumes", "2", "--watch")
        self.assertIn(f"warning: The file holds {3 * VOLUME} records", result.stdout + result.stderr)


class Tomograms(DaemonTest):
    COLUMNS, ROWS, ANGLES = 64, 2, 60

    def scan(self, name, theta, unit=None, flats=2, dtype=np.uint16, white=40000, rows=ROWS):
        with h5py.File(os.path.join(self.daemon.root, name), "w") as file:
            shape = (self.ANGLES, rows, self.COLUMNS)
            x = np.arange(self.COLUMNS) - 31.5
            shade = np.exp(-0.02 * 2 * np.sqrt(np.maximum(20.0 ** 2 - x ** 2, 0)))
            file["exchange/data"] = np.broadcast_to(white * shade, shape).astype(dtype)
            if flats:
                file["exchange/data_white"] = np.full((flats, rows, self.COLUMNS), white).astype(dtype)
                file["exchange/data_dark"] = np.zeros((1, rows, self.COLUMNS), dtype)
            file["exchange/theta"] = theta
            if unit:
                file["exchange/theta"].attrs["units"] = unit
        return name

    def job(self, name, expect=(), **fields):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            job = self.client.wait_job(self.client.submit_job(octavo.tomography(name, **fields)).name)
        said = [str(w.message) for w in caught if w.category is octavo.OctavoWarning]
        self.assertEqual(said, [f"{job.name}: {text}" for text in job.warnings])
        self.assertEqual(len(said), len(expect), said)
        for text, words in zip(said, expect):
            self.assertIn(words, text)
        planned = self.client.plan_job(octavo.tomography(name, **fields))
        self.assertEqual(list(planned.warnings), list(job.warnings))
        return job

    def refused(self, name, field, words, **fields):
        jobs = len(self.client.jobs())
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_job(octavo.tomography(name, **fields))
        self.assertEqual((caught.exception.code, caught.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, field))
        self.assertIn(words, caught.exception.message)
        self.assertEqual(len(self.client.jobs()), jobs)

    def test_units_of_angles(self):
        degrees = np.arange(self.ANGLES) * 180 / self.ANGLES
        self.job(self.scan("degrees.h5", degrees, "deg"))
        self.job(self.scan("said_nothing.h5", degrees))
        self.job(self.scan("radians.h5", np.deg2rad(degrees), "rad"))
        self.refused("degrees.h5", "tomography.angles_rad", "look like degrees", angles=degrees)
        self.refused(self.scan("wrong.h5", degrees, "rad"), "tomography.file.angle_unit", "look like degrees")
        self.refused(self.scan("unsaid.h5", np.deg2rad(degrees)), "tomography.file.angle_unit", "look like radians")
        self.job(self.scan("degrees_of_radians.h5", np.deg2rad(degrees), "deg"), ["these look like radians"])
        self.job(self.scan("wedge.h5", degrees * 0.6), ["leave a gap of 7"])

    def test_axis_beside_the_detector(self):
        name = self.scan("axis.h5", np.arange(self.ANGLES) * 180 / self.ANGLES)
        for center in (self.COLUMNS, 500, -0.75, [31.5, 99.0]):
            self.refused(name, "tomography.center.pixels", f"allowed -0.5 to {self.COLUMNS - 0.5}", center=center)
        self.refused(name, "tomography.try_centers.end", "the columns of the detector", try_centers=(30, 500, 100))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            job = self.client.wait_job(self.client.submit_job(octavo.tomography(name, center=0)).name)
        self.assertIn("opposite projections find it at 31.50", "".join(job.warnings))

    def test_counts_without_flat_fields(self):
        degrees = np.arange(self.ANGLES) * 180 / self.ANGLES
        name = self.scan("counts.h5", degrees, flats=0)
        self.refused(name, "tomography.preparation.ignore_fields", "without flat fields")
        self.job(name, ["taken as transmissions, which are 0 to 1"], prepare=octavo.preparation(ignore_fields=True))
        self.job(name, ["whole numbers (u16), mostly counts of a detector"], prepare=octavo.preparation(already_sinograms=True))
        name = self.scan("transmissions.h5", degrees, flats=0, dtype=np.float32, white=1)
        self.job(name, ["has no flat fields"])
        result = self.command("recon", name, "-o", "no_flats.npy")
        self.assertIn("warning: The input has no flat fields", result.stdout + result.stderr)

    def test_flats_and_darks_exchanged(self):
        degrees = np.arange(self.ANGLES) * 180 / self.ANGLES
        name = self.scan("exchanged.h5", degrees)
        with h5py.File(os.path.join(self.daemon.root, name), "a") as file:
            file["exchange"].move("data_white", "kept")
            file["exchange"].move("data_dark", "data_white")
            file["exchange"].move("kept", "data_dark")
        self.refused(name, "tomography.file.flats", "flat fields of 0 in the mean, and dark fields of 40000")
        frames = np.full((self.ANGLES, self.ROWS, self.COLUMNS), 1000, np.uint16)
        job = self.client.submit_job(octavo.tomography(octavo.PushedProjections(rows=self.ROWS, columns=self.COLUMNS, frames=self.ANGLES + 3)))
        self.client.push_projections(job.name, octavo.projection_frames(frames, np.deg2rad(degrees), flats=frames[:2] // 10, darks=frames[:1] * 40))
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            end = self.client.wait_job(job.name)
        self.assertEqual(len(end.volumes), 1)
        self.assertTrue(any("flat fields of 100 in the mean, and dark fields of 40000" in text for text in end.warnings), end.warnings)

    def test_flats_without_darks(self):
        name = self.scan("no_darks.h5", np.arange(self.ANGLES) * 180 / self.ANGLES)
        with h5py.File(os.path.join(self.daemon.root, name), "a") as file:
            del file["exchange/data_dark"]
        self.job(name, ["flat fields but no dark ones"])
        self.job(name, ["whole numbers (u16), mostly counts of a detector"], prepare=octavo.preparation(ignore_fields=True, no_logarithm=True))
        self.job(self.scan("attenuation.h5", np.arange(self.ANGLES) * 180 / self.ANGLES, dtype=np.float32), prepare=octavo.preparation(already_sinograms=True))

    def test_projections_that_were_divided_by_their_flat_fields_already(self):
        degrees = np.arange(self.ANGLES) * 180 / self.ANGLES
        name = self.scan("divided.h5", degrees, dtype=np.float32)
        with h5py.File(os.path.join(self.daemon.root, name), "a") as file:
            counts = file["exchange/data"][:]
            del file["exchange/data"]
            file["exchange/data"] = counts / file["exchange/data_white"][:].mean()
        self.job(name, ["hardly any light passes"])
        self.job(name, prepare=octavo.preparation(ignore_fields=True))

    def test_a_selection_of_projections_that_leaves_a_wedge(self):
        name = self.scan("selected.h5", np.arange(self.ANGLES) * 180 / self.ANGLES)
        self.job(name, ["leave a gap of 10"], projections=(0, 26))
        self.job(name, projections=slice(None, None, 2))

    def test_axis_outside_of_the_chosen_columns(self):
        name = self.scan("chosen.h5", np.arange(self.ANGLES) * 180 / self.ANGLES)
        self.refused(name, "tomography.center.pixels", "allowed 39.5 to 59.5, the columns that are chosen (40 to 59)", columns=(40, 60), center=31.5)
        self.job(name, columns=(20, 60), center=31.5)
        result = self.command("recon", name, "--columns", "40:60", "--center", "31", "-o", "chosen.npy", check=False)
        self.assertIn("on the whole detector, 0 to 63", result.stderr)

    def test_phase_retrieval_in_other_units(self):
        name = self.scan("phase.h5", np.arange(self.ANGLES) * 180 / self.ANGLES)
        for field, value, allowed in (("energy_kev", 20000, "1 to 1000 (keV: 20000 eV is 20)"), ("delta_beta", -5, "0.01 to 1e+06"),
                                      ("distance_mm", 1e9, "millimetres"), ("pixel_size_um", 1.3e-6, "micrometres")):
            phase = {**dict(pixel_size_um=1, distance_mm=100, energy_kev=20, delta_beta=100), field: value}
            self.refused(name, f"tomography.preparation.phase.{field}", allowed, prepare=octavo.preparation(phase=phase))
        result = self.command("recon", name, "--phase", "1,100,20,-5", "-o", "phase.npy", check=False)
        self.assertIn("tomography.preparation.phase.delta_beta: is -5", result.stderr)

    def test_values_that_are_not_finite(self):
        x = np.linspace(-1, 1, self.COLUMNS, dtype=np.float32)
        tomo = np.broadcast_to(np.sqrt(np.maximum(0, 0.8 - x ** 2)), (self.ANGLES, self.ROWS, self.COLUMNS)).copy()
        theta = np.arange(self.ANGLES) * np.pi / self.ANGLES
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            octavo.recon(tomo, theta, client=self.client)
        self.assertEqual(caught, [])
        tomo[3, 0, :5], tomo[7, 1, 9] = np.nan, np.inf
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            octavo.recon(tomo, theta, client=self.client)
        self.assertEqual([w.category for w in caught], [octavo.OctavoWarning])
        self.assertIn("6 values of the input were not finite", str(caught[0].message))
        self.assertEqual(caught[0].filename, __file__)

    def test_counts_given_to_recon(self):
        tomo = np.full((self.ANGLES, self.ROWS, self.COLUMNS), 1000, np.uint16)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            octavo.recon(tomo, np.arange(self.ANGLES) * np.pi / self.ANGLES, client=self.client)
        self.assertEqual([w.category for w in caught], [octavo.OctavoWarning])
        self.assertIn("tomo is uint16: whole numbers, which are mostly counts", str(caught[0].message))
        self.assertEqual(caught[0].filename, __file__)

    def test_the_unit_that_is_used_is_told(self):
        radians = np.arange(self.ANGLES) * np.pi / self.ANGLES
        name = self.scan("unit.h5", radians)
        job = self.client.wait_job(self.client.submit_job(octavo.tomography(dict(path=name, angle_unit="radians"))).name)
        lines = [line.text for line in job.log]
        self.assertTrue(any("declares no unit; taken as radians, as the request says" in line for line in lines), lines)

    def test_pushed_frames_are_kept_and_doubted(self):
        """A scan cannot be taken again: what would refuse a file is a warning here."""
        degrees = np.arange(self.ANGLES) * 180.0 / self.ANGLES
        frames = np.full((self.ANGLES, self.ROWS, self.COLUMNS), 1000, np.uint16)
        job = self.client.submit_job(octavo.tomography(octavo.PushedProjections(rows=self.ROWS, columns=self.COLUMNS, frames=self.ANGLES)))
        self.client.push_projections(job.name, octavo.projection_frames(frames, degrees))
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            end = self.client.wait_job(job.name)
        self.assertEqual(len(end.warnings), 2)
        self.assertIn("look like degrees", end.warnings[0])
        self.assertIn("without flat fields", end.warnings[1])
        self.assertEqual(len(end.volumes), 1)


class Scans(DaemonTest):
    """Scans with light that is counted, and an axis that is known."""
    COLUMNS, ROWS, ANGLES, AXIS = 160, 4, 180, 86.0

    def parts(self, seed=1, axis=AXIS, white=20000.0, size=1.0):
        """projections, flats, darks as u16, and the angles in degrees; column = axis + x cos - y sin."""
        random = np.random.default_rng(seed)
        degrees = np.arange(self.ANGLES) * 180.0 / self.ANGLES
        rad = np.deg2rad(degrees)[:, None]
        lines = np.zeros((self.ANGLES, self.ROWS, self.COLUMNS))
        for row in range(self.ROWS):
            for x, y, radius, mu in ((0, 0, 48, 0.012), (12, 20, 10, 0.02), (-25, 5, 7, 0.03), (5, -30, 5, 0.04), (row * 8 - 10, -8, 4, 0.05)):
                off = np.arange(self.COLUMNS)[None, :] - axis - size * (x * np.cos(rad) - y * np.sin(rad))
                lines[:, row] += 2 * mu / size * np.sqrt(np.maximum((size * radius) ** 2 - off ** 2, 0))
        counts = random.poisson(white * np.exp(-lines)) + 100
        flats = random.poisson(np.full((5, self.ROWS, self.COLUMNS), white)) + 100
        darks = np.full((2, self.ROWS, self.COLUMNS), 100)
        return counts.astype("<u2"), flats.astype("<u2"), darks.astype("<u2"), degrees, lines.astype("<f4")

    def save(self, name, projections, flats=None, darks=None, degrees=None):
        with h5py.File(os.path.join(self.daemon.root, name), "w") as file:
            for key, value in (("data", projections), ("data_white", flats), ("data_dark", darks), ("theta", degrees)):
                if value is not None:
                    file[f"exchange/{key}"] = value
            if degrees is not None:
                file["exchange/theta"].attrs["units"] = "degrees"
        return name

    def made(self, name, **fields):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.client.wait_job(self.client.submit_job(octavo.tomography(name, **fields)).name)

    def told(self, name, words, **fields):
        job = self.made(name, **fields)
        self.assertEqual(sum(words in text for text in job.warnings), 1, job.warnings)
        return job

    def refused(self, name, field, words, **fields):
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_job(octavo.tomography(name, **fields))
        self.assertEqual((caught.exception.code, caught.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, field))
        self.assertIn(words, caught.exception.message)

    def test_dead_columns_do_not_draw_the_axis(self):
        for dead in (30, 118):
            projections, flats, darks, degrees, _ = self.parts(seed=dead)
            for only_projections in (False, True):
                for array in (projections,) if only_projections else (projections, flats, darks):
                    array[:, :, dead] = 0
                name = self.save("dead.h5", projections, flats if not only_projections else self.parts()[1], self.parts()[2] if only_projections else darks, degrees)
                job = self.told(name, "1 column is dead in the rows that say where the axis is", center="auto")
                self.assertAlmostEqual(job.tomography.centers[0], self.AXIS, delta=0.3)
                self.assertIn(f"the first is column {dead}.", "".join(job.warnings))
        job = self.made(self.save("good.h5", *self.parts()[:4]), center="auto")
        self.assertEqual(list(job.warnings), [])
        self.assertAlmostEqual(job.tomography.centers[0], self.AXIS, delta=0.3)

    def test_an_axis_that_nobody_looks_for_is_checked(self):
        name = self.save("axis.h5", *self.parts()[:4])
        self.told(name, "The axis is taken in the middle, column 79.50; opposite projections find it at 86.0")
        self.told(name, "The axis is given as column 80.00; opposite projections find it at 86.0", center=80)
        for center in (85.5, 86, [86.0] * self.ROWS):
            self.assertEqual(list(self.made(name, center=center).warnings), [])
        # Where nobody can say where it is, nothing is said.
        self.assertEqual([t for t in self.made(name, projections=(0, 100)).warnings if "axis" in t], [])
        result = self.command("recon", name, "--png", os.path.join(self.daemon.root, "x.png"))
        self.assertIn("--center auto", result.stdout + result.stderr)

    def test_what_is_of_a_search_is_refused_without_one(self):
        name = self.save("search.h5", *self.parts()[:4])
        self.refused(name, "tomography.center.on_doubt", "without a search", center_doubt="fail")
        self.refused(name, "tomography.center.on_doubt", "without a search", center_doubt="fail", center=86)
        self.refused(name, "tomography.center.search_begin", "without a search", search=(70, 90))
        stitch = octavo.preparation(stitching=dict(axis_right=True))
        self.refused(name, "tomography.center.pixels", "with stitching, where the overlap says", center=86, prepare=stitch)
        self.refused(name, "tomography.center.method", "with stitching", center="auto", prepare=stitch)
        self.refused(name, "tomography.center.search_begin", "with stitching", search=(70, 90), prepare=stitch)

    def test_iterations_that_nobody_gave_are_the_usual_ones(self):
        name = self.save("usual.h5", *self.parts()[:4])
        for algorithm, usual in (("sirt", 100), ("mlem", 100), ("cgls", 20)):
            self.assertIn(f"{usual} iterations", self.client.plan_job(octavo.tomography(name, algorithm=algorithm, center=86)).plan)
            result = self.command("recon", name, "--algorithm", algorithm, "--plan")
            self.assertIn(f"--iterations is not given: {usual}, as is usual with {algorithm}", result.stderr)
            self.assertIn(f"{usual} iterations", result.stdout)
        self.assertIn("1 iterations", self.client.plan_job(octavo.tomography(name, algorithm="sirt", iterations=1)).plan)

    def test_logarithms_of_what_is_no_transmission(self):
        projections, flats, darks, degrees, lines = self.parts()
        counts = self.save("counts.h5", projections, flats, darks, degrees)
        self.told(counts, "taken as transmissions, which are 0 to 1, and they are", center=86, prepare=octavo.preparation(ignore_fields=True))
        noise = np.random.default_rng(3).normal(0, 0.01, lines.shape).astype("<f4")
        job = self.told(self.save("lines.h5", lines + noise, degrees=degrees), "they look like line integrals", center=86)
        self.assertTrue(any("lie below log_floor" in text for text in job.warnings), job.warnings)
        self.assertEqual(list(self.made("lines.h5", center=86, prepare=octavo.preparation(already_sinograms=True)).warnings), [])

    def test_flat_fields_of_another_exposure(self):
        projections, flats, darks, degrees, _ = self.parts()
        twice = ((flats.astype(float) - 100) * 2 + 100).astype("<u2")
        self.told(self.save("exposure.h5", projections, twice, darks, degrees), "The transmissions beside the object are 0.5, not 1", center=86)
        # An object that reaches both ends leaves nothing to tell it by.
        wide = self.parts(size=2.2)
        self.assertEqual([t for t in self.made(self.save("wide.h5", *wide[:4]), center=86).warnings if "beside" in t], [])
        flats[3] = 100
        name = self.save("one.h5", projections, flats, darks, degrees)
        self.told(name, "Flat field 3 of 5 is 100 in the mean", center=86)
        self.assertEqual(list(self.made(name, center=86, prepare=octavo.preparation(flat_median=True)).warnings), [])

    def test_few_projections_and_pixels_in_metres(self):
        name = self.save("few.h5", *self.parts()[:4])
        self.told(name, "There are only 3 projections: too few", projections=(0, 180, 60), center=86)
        self.told(name, "hardly the size of a pixel", pixel_size_um=2.5e6, center=86)
        self.assertEqual(list(self.made(name, pixel_size_um=2.5, center=86).warnings), [])

    def test_a_destination_that_is_there_is_told_before_the_work(self):
        name = self.save("there.h5", *self.parts()[:4])
        jobs = len(self.client.jobs())
        with open(os.path.join(self.daemon.root, "there.npy"), "w"):
            pass
        for destination, words in (("there.npy", "exists"), ("../x.npy", "holds '..'"), ("/nowhere/x.npy", "lies outside the storage roots")):
            result = self.command("recon", name, "-o", destination, "--center", "86", check=False)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(words, result.stdout + result.stderr)
        self.assertEqual(len(self.client.jobs()), jobs)


if __name__ == "__main__":
    unittest.main()
