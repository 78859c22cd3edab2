"""Wrong uses that would give data without an error: the server refuses requests that cannot be
intended, and warns of possible mistakes."""

import itertools
import os
import unittest
import warnings

import grpc
import h5py
import numpy as np

from harness import DaemonTest, octavo, until
from octavo.v1 import array_operation_pb2, job_pb2, reason_pb2, types_pb2

SAMPLES, ASCANS, BSCANS = 256, 16, 8
VOLUME = ASCANS * BSCANS


def spectra(records, samples=SAMPLES, full=4095, seed=1):
    """The signal of a line camera: an envelope, moving fringes, noise."""
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
        """Warnings of a scan: those in the answer, Python's, and those in the log."""
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
        self.assertIn(f"the file's data repeats every {2 * SAMPLES} samples", self.told(octavo.replay(name))[0])

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
        # A .npy file says its type and the length of its records, but not what the samples are.
        for name, samples, fields, words in (("bits.npy", spectra(2 * VOLUME), dict(adc_bits=8), "adc_bits is 8"),
                                             ("zeros.npy", np.zeros((2 * VOLUME, SAMPLES)), {}, "are all 0")):
            np.save(os.path.join(self.daemon.root, name), samples.astype("<u2"))
            self.assertIn(words, self.told(octavo.replay(name), **fields)[0])
        np.save(os.path.join(self.daemon.root, "fits.npy"), spectra(2 * VOLUME).astype("<u2"))
        self.assertEqual(self.told(octavo.replay("fits.npy"), adc_bits=12), [])

    def test_a_rate_that_nothing_keeps_to(self):
        (text,) = self.told(octavo.simulated(1, fast=True), rate_hz=200)
        self.assertIn("acquisition.record_rate_hz is 200, and simulated.as_fast_as_possible makes records as fast as the scan takes them", text)
        self.assertEqual(self.told(octavo.simulated(1, fast=True)), [])

    def test_lengths_where_nobody_gave_the_spacing(self):
        np.save(os.path.join(self.daemon.root, "unknown.npy"), spectra(2 * VOLUME).astype("<u2"))
        volume = self.client.wait(self.submit(octavo.replay("unknown.npy")).name).volumes()[0]
        self.refused(lambda: volume.derive({"slab": {"axis": "z", "begin_um": 4, "end_um": 8}}), "operations[0].slab.end_um",
                     "nobody gave the sample spacing along axis 2 (z); allowed are begin and end, in samples")
        self.refused(lambda: volume.derive({"gaussian": {"sigma_um": [0, 0, 4]}}), "operations[0].gaussian.sigma_um",
                     "nobody gave the sample spacing along axis 2 (z); allowed 0 there, or samples")
        self.refused(lambda: self.submit(octavo.replay("unknown.npy"), products=dict(slab_begin_um=4)), "products.slab_begin_um",
                     "nothing says how many um a depth sample is")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            picture = volume.render("max", "z", image=dict(square_pixels=True))
        self.assertEqual((picture.shape, picture.warnings), ((BSCANS, ASCANS), ("no square pixels: the sample spacing along y and x is unknown",)))

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
            self.assertIn(end.reason_code, (reason_pb2.REASON_COMPLETED, reason_pb2.REASON_SOURCE_ENDED))
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
        # The warning concerns only that commit: no file records that its data could not be
        # committed.
        self.client.commit(volume.name, "by_hand", format="npy")
        with open(os.path.join(self.daemon.root, "by_hand.npy.json")) as file:
            self.assertNotIn("committed automatically", file.read())

    def test_a_client_that_is_faster_than_an_automatic_commit(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for attempt in range(8):
                scan = self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(ASCANS, BSCANS, volumes=2), samples=SAMPLES,
                                               retention=dict(disposition=2, auto_commit=dict(destination=f"fast{attempt}_{{index}}", format="npy")))
                for frame in self.client.subscribe(scan.name, ["event"], from_sequence=0):
                    if frame.event.kind == "VOLUME_DONE":
                        try:
                            self.client.discard(frame.volume)
                        except octavo.OctavoError:
                            pass  # the commit was faster
                self.client.wait(scan.name)
                self.assertEqual([w for w in self.client.scan(scan.name).warnings if "automatically" in w], [])

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
            self.assertEqual((end.reason_code, end.source.records), (reason_pb2.REASON_COMPLETED, VOLUME))
            self.assertEqual(end.out_of_range_records, result.sent - VOLUME)
            for text in end.warnings:  # if some of them arrived before the server had enough
                self.assertIn(f"More records were pushed than the {VOLUME} that the scan takes", text)
            # The client is certain of it and warns once.
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
        # Only the other byte order gives the same numbers.
        self.client.push(scan.name, [raw.astype(">u2"), raw, raw[:0]], end=False)
        words, half = raw.astype("<i4")[:, :SAMPLES // 2], raw[:, :SAMPLES // 2]
        wrong = [raw.astype(np.float16), half.astype("<f4"), raw.view("u1"), raw.view("u1").astype(bool), raw.astype("<i2"), -raw.astype("<i2"), words,
                 raw[:, :SAMPLES // 4].astype(np.complex64), raw.view("S2"), half, raw[0], raw[None]]
        for array in wrong:
            with self.subTest(dtype=array.dtype, shape=array.shape), self.assertRaises(ValueError) as caught:
                self.client.push(scan.name, iter([array]))
            for said in (str(array.dtype), str(array.shape), f"records of {SAMPLES} samples, U16" if array.dtype.kind != "S" else "an array of records", f"uint16 [records, {SAMPLES}]"):
                self.assertIn(said, str(caught.exception))
        self.assertEqual(self.client.push(scan.name, [raw]).next_record, 3 * VOLUME)
        self.assertEqual(self.client.wait(scan.name).reason_code, reason_pb2.REASON_COMPLETED)
        first, *others = (self.client.read(v.name) for v in self.client.volumes(scan.name))
        for other in others:
            np.testing.assert_array_equal(first, other)

    def pushed(self, blocks, **fields):
        """Returns the warnings of a scan whose records are pushed."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            scan = self.submit(octavo.push(), octavo.raster(ASCANS, BSCANS, volumes=2), **fields)
            self.client.push(scan.name, blocks)
            end = self.client.wait(scan.name)
        self.assertEqual(end.reason_code, reason_pb2.REASON_COMPLETED)
        return list(end.warnings), [str(w.message) for w in caught]

    def test_pushed_records_of_another_type(self):
        right = spectra(2 * VOLUME).astype("<u2")
        wrong = spectra(2 * VOLUME, full=65535).astype("<u2").byteswap()
        for blocks in ([wrong], list(wrong.reshape(-1, 1, SAMPLES)), list(wrong.reshape(-1, 8, SAMPLES))):
            (text,), told = self.pushed(blocks)
            self.assertIn("acquisition.raw_type is u16, but the pushed records' samples look like big-endian u16, which no raw_type reads", text)
            self.assertEqual(len(told), 1, told)
            self.assertEqual(self.pushed([right[:100], right[100:]]), ([], []))
        texts, _ = self.pushed([spectra(2 * VOLUME).astype("<u2").view("u1")[:, :SAMPLES]], raw_type="u8")
        self.assertIn("look like u16", texts[0])
        longer = spectra(VOLUME, samples=2 * SAMPLES).astype("<u2").reshape(-1, SAMPLES)
        self.assertIn(f"the pushed records' data repeats every {2 * SAMPLES}", self.pushed([longer])[0][0])
        # The client reports its own findings once.
        texts, told = self.pushed([np.zeros_like(right)])
        self.assertIn("are all 0", texts[0])
        self.assertEqual(len(told), 1, told)
        texts, told = self.pushed([right], adc_bits=8)
        self.assertIn("acquisition.adc_bits is 8", texts[0])
        self.assertEqual(len(told), 1, told)

    def test_pushed_records_that_fit_are_not_doubted(self):
        for dtype, raw, full in (("<u2", "u16", 4095), ("<u2", "u16", 65535), ("u1", "u8", 255), ("<f4", "f32", 1.0), ("<i2", "i16", 30000)):
            for seed in range(3):
                records = spectra(2 * VOLUME, full=full, seed=seed).astype(dtype)
                for size in (1, 7, 2 * VOLUME):
                    with self.subTest(raw=raw, seed=seed, size=size):
                        self.assertEqual(self.pushed([records[i:i + size] for i in range(0, len(records), size)], raw_type=raw), ([], []))

    def test_records_that_come_too_late(self):
        raw = spectra(2 * VOLUME).astype("<u2")
        scan = self.submit(octavo.push(), octavo.raster(ASCANS, BSCANS, volumes=2))
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            self.client.push(scan.name, [(100, raw[100:150]), (0, raw[:50]), (60, raw[60:70]), (150, raw[150:])])
            end = self.client.wait(scan.name)
        self.assertEqual((end.source.late_records, end.source.duplicate_records, end.source.lost_records, end.missing_ascans), (60, 60, 100, 100))
        self.assertIn(f"Records came out of order: record 0 came when 149 was there already", end.warnings[0])
        self.assertIn(f"100 A-scans of the scan's volumes are missing: 60 records came too late, behind ones of higher numbers, and were left out of {2 * VOLUME - 40}",
                      end.warnings[1])

    def nothing_kept(self, scan, products, **options):
        refused = []

        def is_refused():
            try:
                self.assertEqual(list(self.client.subscribe(scan, products, **options)), [])
            except octavo.OctavoError as error:
                refused.append(error)
            return refused  # the server reports a scan's end shortly before it ends its streams

        until(is_refused)
        (error,) = refused
        self.assertEqual((error.code, error.reason), (grpc.StatusCode.FAILED_PRECONDITION, "NOTHING_KEPT"))
        self.assertIn(f"{scan} has ended", error.message)

    def test_a_scan_that_has_ended_has_nothing_to_subscribe_to(self):
        scan = self.client.wait(self.submit(octavo.simulated(1, fast=True), octavo.raster(ASCANS, BSCANS, volumes=1)).name)
        for products in (["volume"], ["event"], ["volume", "event"]):
            self.nothing_kept(scan.name, products)
        self.nothing_kept(scan.name, ["volume"], from_sequence=0)  # no client subscribed to it
        self.assertIn(types_pb2.ScanEvent.KIND_VOLUME_DONE, [f.event.kind for f in self.client.subscribe(scan.name, ["event"], from_sequence=0)])

    def test_the_ending_of_a_destination_decides(self):
        scan = self.client.wait(self.submit(octavo.simulated(1, fast=True), octavo.raster(ASCANS, BSCANS, volumes=6)).name)
        names = {"a.nii": "a.nii", "b.H5": "b.H5", "c.v2": "c.v2.ome.zarr", "run.2026-11-22": "run.2026-11-22.ome.zarr", "d": "d.ome.zarr", "e.NPY": "e.NPY"}
        for volume, (given, made) in zip(scan.volume_names, names.items()):
            self.assertEqual(os.path.basename(self.client.commit(volume, given).path), made)
            self.assertTrue(os.path.exists(os.path.join(self.daemon.root, made)))
        self.assertEqual(np.load(os.path.join(self.daemon.root, "e.NPY")).shape, (BSCANS, ASCANS, SAMPLES // 2))

    def test_axes_by_their_names(self):
        scan = self.client.wait(self.submit(octavo.simulated(1, fast=True), octavo.raster(ASCANS, BSCANS, volumes=1),
                                            chains={"front": [{"mip": {"axis": "z"}}]}).name)
        volume = next(v for v in self.client.volumes(scan.name) if not v.chain)
        array = self.client.read(volume.name)
        for axis, number in (("y", 0), ("x", 1), ("Z", 2)):
            np.testing.assert_array_equal(self.client.read(self.client.derive(volume, {"mip": {"axis": axis}})), array.max(axis=number, keepdims=True))
        turned = self.client.derive(volume, {"transpose": {"axes": [2, 0, 1]}}, {"mip": {"axis": "z"}})
        np.testing.assert_array_equal(self.client.read(turned), array.transpose(2, 0, 1).max(axis=0, keepdims=True))
        np.testing.assert_array_equal(self.client.read(self.client.derive(turned, {"flip": {"axes": ["x"]}})), self.client.read(turned)[:, :, ::-1])
        until(lambda: any(v.chain == "front" and v.state == volume.state for v in self.client.volumes(scan.name)))
        made = next(v for v in self.client.volumes(scan.name) if v.chain == "front")
        np.testing.assert_array_equal(self.client.read(made), array.max(axis=2, keepdims=True))

    def test_an_axis_that_there_is_not_is_called_as_it_was_asked_for(self):
        volume = self.client.wait(self.submit(octavo.simulated(1, fast=True), octavo.raster(ASCANS, BSCANS, volumes=1)).name).volume_names[0]
        for name in ("mip", "aip", "slab"):
            operation = array_operation_pb2.ArrayOperation()
            getattr(operation, name).axis = 3
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.derive(volume, operation)
            self.assertIn(f".{name}.axis", caught.exception.message)
            self.assertTrue(caught.exception.field.endswith(f".{name}.axis"), caught.exception.field)

    def test_volumes_of_a_scan_that_there_is_not(self):
        def missing(call):
            with self.assertRaises(octavo.OctavoError) as caught:
                call()
            self.assertEqual((caught.exception.code, caught.exception.reason, caught.exception.field), (grpc.StatusCode.NOT_FOUND, "NO_SCAN", "parent"))

        missing(lambda: self.client.volumes("scans/typo"))
        missing(lambda: self.client.volumes("scans/typo", states=["held", "discarded"]))
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.volumes("jobs/typo")
        self.assertEqual((caught.exception.code, caught.exception.reason, caught.exception.field), (grpc.StatusCode.NOT_FOUND, "NO_JOB", "parent"))
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.volumes("typo")
        self.assertEqual((caught.exception.code, caught.exception.reason, caught.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, "BAD_FIELD", "parent"))
        self.assertIn("parent is 'typo', which does not say its kind; expected a scan, scans/<id> or a job, jobs/<id>", caught.exception.message)
        for wrong in ("volumes/typo", "scan/typo"):
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.volumes(wrong)
            self.assertEqual((caught.exception.code, caught.exception.reason, caught.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, "BAD_FIELD", "parent"))
            self.assertIn(f"parent: is '{wrong}'; allowed are scans/<id>, jobs/<id>", caught.exception.message)
        result = self.command("volume", "list", "--parent", "scans/typo", check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("there is no scan scans/typo", result.stderr)
        waits = self.submit(octavo.push(), octavo.raster(ASCANS, BSCANS, volumes=1))
        self.assertEqual(self.client.volumes(waits.name), [])
        done = self.submit(octavo.simulated(1, fast=True), octavo.raster(ASCANS, BSCANS, volumes=1))
        self.client.wait(done.name)
        self.client.discard(self.client.volumes(done.name)[0].name)
        self.assertEqual(self.client.volumes(done.name), [], "it is known, and its volume is gone")

    def test_wavelengths_in_another_unit(self):
        lengths = np.linspace(0.80, 0.88, SAMPLES)
        self.refused(lambda: self.submit(octavo.simulated(1, fast=True), processing=octavo.processing(wavelength_nm=lengths)),
                     "processing.k_linearisation.wavelength_nm", "is 0.8 at index 0; allowed 100 to 20000 nanometres (0.84 um is 840)")
        self.refused(lambda: self.submit(octavo.simulated(1, fast=True), processing=octavo.processing(wavelength_nm=lengths * 1e-6)),
                     "processing.k_linearisation.wavelength_nm", "nanometres")

    def test_the_command_line_tells(self):
        name = self.save("cli.u16", spectra(3 * VOLUME).astype("<u2"))
        result = self.command("scan", "submit", "--source", "replay", "--path", name, "--samples", str(SAMPLES), "--ascans", str(ASCANS), "--bscans",
                              str(BSCANS), "--volumes", "2", "--watch")
        self.assertIn(f"warning: The file holds {3 * VOLUME} records", result.stdout + result.stderr)


def mirror(records, samples=SAMPLES, depth=60.3, seed=2, locked=True, contrast=0.8):
    """One reflector, a 12-bit camera; locked: the same phase in every record."""
    random = np.random.default_rng(seed)
    x = np.arange(samples) / samples
    phase = np.zeros((records, 1)) if locked else random.uniform(0, 6.28, (records, 1))
    light = np.exp(-((x - 0.5) / 0.3) ** 2) * (1 + contrast * np.cos(2 * np.pi * depth * x + phase))
    return np.clip(1500 * light + 100 + random.normal(0, 3, light.shape), 0, 4095).astype("<u2")


class Chains(DaemonTest):
    """Valid processings that cannot be intended."""

    def save(self, name, array):
        array.tofile(os.path.join(self.daemon.root, name))
        return octavo.replay(name)

    def made(self, source, pattern, quiet=False, **fields):
        """Returns the scan's end and its first volume."""
        with warnings.catch_warnings():
            warnings.simplefilter("error" if quiet else "ignore")
            end = self.client.wait(self.client.submit_scan(source, pattern, **{"samples": SAMPLES, **fields}).name)
        volumes = [v for v in self.client.volumes(end.name) if not v.raw]
        return end, self.client.read(volumes[0].name)

    def one(self, texts, words):
        self.assertEqual(len(texts), 1, texts)
        self.assertIn(words, texts[0])

    def refused(self, processing, field, words):
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=1), samples=SAMPLES, processing=processing)
        self.assertEqual((caught.exception.code, caught.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, field))
        self.assertIn(words, caught.exception.message)

    def planned(self, pattern=None, source=None, **processing):
        return self.client.plan_scan(source or octavo.simulated(1, fast=True), pattern or octavo.raster(16, 8, volumes=1), samples=SAMPLES,
                                     processing=octavo.processing(**processing))

    def test_few_ascans_a_bscan(self):
        source = self.save("few.u16", spectra(2 * 240).astype("<u2"))
        for ascans, group in ((1, 64), (3, 66), (7, 70), (8, 8), (16, 16)):
            pattern = octavo.raster(ascans, 240 // ascans, volumes=2 if ascans != 7 else 1)
            end, voxels = self.made(source, pattern)
            self.assertIn(f"of each group of {group} records the mean of the group", end.plan)
            self.assertEqual([w for w in end.warnings if "background" in w], [])
            self.assertGreater(voxels[:3].astype(float).std(), 100, f"{ascans} A-scans a B-scan")
        self.assertIn("of each group of 5 records", self.planned(octavo.raster(1, 5, volumes=1)).plan)
        self.one(self.planned(octavo.raster(1, 5, volumes=1)).warnings, "the mean of only 5 records")
        self.one(self.planned(octavo.raster(1, 1, volumes=1)).warnings, "so the background of a record is the record itself")
        self.one(self.planned(group_records=1).warnings, "so the background of a record is the record itself")
        self.one(self.planned(octavo.raster(4, 8, volumes=1), background="bscan").warnings, "the mean of only 4 records")
        self.assertEqual(list(self.planned(group_records=1, window_records=64).warnings), [])
        end, voxels = self.made(source, octavo.raster(1, 240, volumes=1), processing=octavo.processing(group_records=1))
        self.assertEqual((voxels.min(), voxels.max()), (voxels[0, 0, 0],) * 2)
        self.assertIn("Nothing is left of the spectra", end.warnings[1])

    def test_a_mirror_that_the_background_takes_away(self):
        pattern = octavo.raster(40, 4, volumes=2)
        source = self.save("mirror.u16", mirror(320))
        self.one(self.made(source, pattern)[0].warnings, "The fringes of the first 40 records are the same in all of them (a reflector at bin 60)")
        self.one(self.made(source, pattern, processing=octavo.processing(background="bscan"))[0].warnings, "give processing.background NONE, or STATIC")
        for background in ("none", np.full(SAMPLES, 100.0)):
            end, voxels = self.made(source, pattern, quiet=True, processing=octavo.processing(background=background))
            self.assertEqual((list(end.warnings), int(voxels[0, 0, 20:].argmax()) + 20), ([], 60))
        self.assertEqual(list(self.made(self.save("moves.u16", mirror(320, locked=False)), pattern, quiet=True)[0].warnings), [])
        same = np.broadcast_to(mirror(1), (320, SAMPLES))
        self.one(self.made(self.save("same.u16", same), pattern)[0].warnings, "The first 40 records are the same, sample for sample")
        # With moving fringes, a background rightly removes the constant part; and noise is no
        # sample.
        both = (mirror(320) + spectra(320) * 0.1).astype("<u2")
        self.assertEqual(list(self.made(self.save("both.u16", both), pattern, quiet=True)[0].warnings), [])
        dark = np.random.default_rng(3).normal(300, 4, (320, SAMPLES)).astype("<u2")
        self.assertEqual(list(self.made(self.save("dark.u16", dark), pattern, quiet=True)[0].warnings), [])
        for seed in range(3):
            self.assertEqual(list(self.made(octavo.simulated(seed, fast=True), pattern, quiet=True)[0].warnings), [])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scan = self.client.submit_scan(octavo.push(), octavo.raster(40, 4, volumes=1), samples=SAMPLES)
            for first in range(0, 160, 10):
                self.client.push(scan.name, [(first, mirror(160)[first:first + 10])], end=first == 150)
            self.one(self.client.wait(scan.name).warnings, "The fringes of the first 40 records are the same")

    def test_what_another_processing_leaves_out(self):
        lengths = np.linspace(800, 880, SAMPLES)
        had = octavo.processing(wavelength_nm=lengths, a2=2e-4, window="gauss", value="magnitude", background="none")
        raws = self.made(self.save("chain.u16", spectra(128).astype("<u2")), octavo.raster(16, 8, volumes=1), processing=had, retention=dict(hold_raw=True))[0]
        (raw,) = (v.name for v in self.client.volumes(raws.name) if v.raw)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            def job(work):
                done = self.client.wait_job(self.client.submit_job(work).name)
                self.assertEqual(list(self.client.plan_job(work).warnings), list(done.warnings)[:len(self.client.plan_job(work).warnings)])
                return done
            self.assertEqual(list(job(octavo.reprocess(raw, had)).warnings), [])
            self.one(job(octavo.reprocess(raw, octavo.processing(a2=1e-4, background="none", window="hann"))).warnings,
                     "leaves out: k-linearisation (now none), an axial spacing of 4.383 um (now not known)")
            self.one(job(octavo.reprocess(raw)).warnings, "dispersion a2 = 0.0002, a3 = 0 (now none), window GAUSS (now HANN), background NONE (now ROLLING)")
            self.assertEqual(list(job(octavo.reprocess(raw, octavo.processing(k="none", a2=1e-4, background="none", window="gauss",
                                                                              axial_spacing_um=4))).warnings), [])
            found = job(octavo.dispersion_autofocus(raw, only_a2=True))
            self.assertIn("processing: as that of the scan, less its dispersion", found.plan)
            self.assertFalse([w for w in found.warnings if "leaves out" in w])
            other = job(octavo.dispersion_autofocus(raw, octavo.processing(wavelength_nm=lengths, window="gauss", background="none"), only_a2=True))
            self.assertEqual(other.dispersion.a2, found.dispersion.a2)
            without = job(octavo.dispersion_autofocus(raw, octavo.processing(window="gauss", background="none"), only_a2=True))
            self.assertIn("k-linearisation (now none)", without.warnings[0])
            self.assertNotIn("dispersion", without.warnings[0])
            scan = self.client.submit_scan(octavo.push(), octavo.raster(16, 8, volumes=2), samples=SAMPLES, processing=had)
            updated = self.client.update_scan(scan.name, octavo.processing(a2=1e-5, value="magnitude"))
            self.assertIn("k-linearisation (now none)", updated.warnings[0])
            self.assertEqual(self.client.update_scan(scan.name, had).warnings, updated.warnings)
            self.client.cancel(scan.name)

    def test_a_search_that_ends_at_its_end(self):
        x = np.arange(SAMPLES)
        blurred = np.random.default_rng(1).uniform(0, 6.28, (128, 1)) + 2 * np.pi * 60.3 * x / SAMPLES + 5e-4 * (x - SAMPLES / 2) ** 2
        raw = (np.exp(-((x / SAMPLES - 0.5) / 0.3) ** 2) * (1000 + 500 * np.cos(blurred))).astype("<u2")
        end = self.made(self.save("blurred.u16", raw), octavo.raster(16, 8, volumes=1), retention=dict(hold_raw=True))[0]
        (held,) = (v.name for v in self.client.volumes(end.name) if v.raw)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wide = self.client.wait_job(self.client.submit_job(octavo.dispersion_autofocus(held, only_a2=True)).name)
            self.assertAlmostEqual(abs(wide.dispersion.a2), 5e-4, delta=2e-5)
            self.assertEqual(list(wide.warnings), [])
            sign = np.sign(wide.dispersion.a2)
            narrow = octavo.dispersion_autofocus(held, only_a2=True, a2=sorted((0, sign * 4e-4)))
            self.one(self.client.wait_job(self.client.submit_job(narrow).name).warnings, "The sharpest a2 lies at the end of the range")

    def test_dispersion_that_cannot_be_meant(self):
        for given, words in ((dict(a2=84), "processing.dispersion.a2 is 84 rad per sample^2"), (dict(a2=0.84), "a2 is 0.84"),
                             (dict(a3=5), "processing.dispersion.a3 is 5 rad per sample^3"),
                             (dict(phase=np.linspace(0, 1e6, SAMPLES)), "processing.dispersion.phase goes up to")):
            self.one(self.planned(**given).warnings, words)
        self.assertEqual(len(self.planned(a2=1, a3=1).warnings), 2)
        d = np.arange(SAMPLES) - SAMPLES / 2
        for given in (dict(a2=2e-3), dict(a3=1e-5), dict(phase=5e-3 * d ** 2), dict(phase=np.angle(np.exp(5e-3j * d ** 2)))):
            self.assertEqual(list(self.planned(**given).warnings), [])
        self.assertIn("with a dispersion phase of 0 to 32.8 rad, by at most 0.51 rad from one sample to the next", self.planned(a2=2e-3).plan)

    def test_windows_and_positions_of_nothing(self):
        self.refused(octavo.processing(window=np.zeros(SAMPLES)), "processing.window_values", "is 0 at all 256 samples")
        self.refused(octavo.processing(polynomial=[5.0]), "processing.k_linearisation.polynomial", "gives the position 5 for all 256 samples")
        self.refused(octavo.processing(k=np.full(SAMPLES, 7.0)), "processing.k_linearisation.index", "gives the position 7 for all")
        self.refused(octavo.processing(a2=float("inf")), "processing.dispersion.a2", "is inf")
        self.one(self.planned(window=-np.hanning(SAMPLES)).warnings, "values below 0; the lowest is -")
        flat_top = 0.2156 - 0.4166 * np.cos(np.linspace(0, 2 * np.pi, SAMPLES)) + 0.2773 * np.cos(np.linspace(0, 4 * np.pi, SAMPLES))
        self.assertEqual(list(self.planned(window=np.clip(flat_top, -0.001, 1)).warnings), [])

    def test_depths_beyond_half_of_the_transform(self):
        half = SAMPLES // 2
        for depth, first in ((half, 0), (half + 1, 0), (half, 1), (0, 0)):
            self.assertEqual(list(self.planned(depth=depth, first_bin=first).warnings), [], (depth, first))
        self.one(self.planned(depth=half + 40).warnings, f"processing.depth is {half + 40}, and fft_length is {SAMPLES}. The bins above {half} mirror the bins "
                                                         "below it: 39 samples of each A-scan show no new depth.")
        self.one(self.planned(depth=10, first_bin=half + 5).warnings, f"processing.depth is 10 from bin {half + 5}, and fft_length is {SAMPLES}. The bins above "
                                                                      f"{half} mirror the bins below it: 10 samples")
        self.assertEqual(list(self.planned(depth=SAMPLES, fft_length=2 * SAMPLES).warnings), [])

    def test_distances_of_metres(self):
        metres = octavo.raster(48, 20, volumes=1, extent_x_mm=0.0048, extent_y_mm=0.002)
        x, y = self.planned(metres).warnings
        self.assertIn("pattern.raster.extent_x_mm is 0.0048, 0.1 um from one place to the next. It is in mm: if metres are meant, give 4.8", x)
        self.assertIn("pattern.raster.extent_y_mm is 0.002", y)
        self.assertEqual(list(self.planned(octavo.raster(512, 512, volumes=1, extent_x_mm=0.15, extent_y_mm=0.15)).warnings), [])
        self.one(self.planned(axial_spacing_um=4e-6).warnings, "if you mean metres, give 4.")
        self.one(self.planned(axial_spacing_um=0.004).warnings, "If you mean millimetres, give 4;")
        self.assertEqual(list(self.planned(axial_spacing_um=0.04, fft_length=8 * SAMPLES).warnings), [])

    def test_what_was_assumed_is_not_told_as_given(self):
        first = self.made(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=1, extent_x_mm=2))[0]
        again = self.client.plan_scan(first.spec)
        for plan in (first.plan, again.plan):
            self.assertIn("spacing: y 1 um, x 125 um, z", plan)
            self.assertIn("(y: assumed, the request does not say the extent)", plan)
        for shape in (octavo.radial(16, 8, volumes=1), octavo.spiral(16, 8, volumes=1), octavo.lissajous(16, 8, volumes=1)):
            first = self.made(octavo.simulated(1, fast=True), shape)[0]
            self.assertIn("(y, x: assumed", first.plan)
            lines = [next(line for line in plan.splitlines() if line.startswith("spacing")) for plan in (first.plan, self.client.plan_scan(first.spec).plan)]
            self.assertEqual(*lines)

    def test_files_whose_shape_is_another(self):
        raw = spectra(2 * 20 * 48).astype("<u2")

        def told(shape, pattern, **fields):
            np.save(os.path.join(self.daemon.root, "shape.npy"), raw[:np.prod(shape)].reshape(*shape, SAMPLES))
            return self.client.plan_scan(octavo.replay("shape.npy"), pattern, **fields).warnings

        right, exchanged = octavo.raster(48, 20, volumes=2), octavo.raster(20, 48, volumes=2)
        for shape in ((2, 20, 48), (40, 48), (1920,)):
            self.assertEqual(list(told(shape, right)), [])
        self.one(told((2, 20, 48), exchanged), "2 x 20 x 48 records, B-scans of 48 A-scans; the pattern has 48 B-scans of 20 A-scans: are bscans_per_volume")
        self.one(told((20, 48), octavo.raster(20, 48, volumes=1)), "exchanged?")
        self.one(told((2, 20, 48), octavo.raster(24, 40, volumes=2)), "the pattern has 40 B-scans of 24 A-scans.")
        self.assertEqual(list(told((2, 20, 48), octavo.raster(46, 20, volumes=2, flyback_records=2))), [])

    def test_a_replay_that_ends_early_says_after_how_many_records(self):
        end = self.made(self.save("early.u16", spectra(200).astype("<u2")), octavo.raster(16, 8, volumes=2))[0]
        self.assertIn("56 A-scans of the scan's volumes are missing: the source ended, or lost records, after 200 records", end.warnings[-1])

    def test_headers_of_another_length(self):
        data = spectra(128).astype("<u2").tobytes()
        pattern = octavo.raster(16, 8, volumes=1)

        def plan(contents, header_bytes=0):
            with open(os.path.join(self.daemon.root, "header.raw"), "wb") as file:
                file.write(contents)
            return self.client.plan_scan(octavo.replay("header.raw", header_bytes=header_bytes), pattern, samples=SAMPLES).warnings

        for header, given, fits in ((0, 100, 0), (64, 100, 64), (64, 0, 64)):
            with self.assertRaises(octavo.OctavoError) as caught:
                plan(bytes(header) + data, given)
            self.assertIn(f"(replay.header_bytes = {fits})", caught.exception.message)
        for header in (bytes(2 * SAMPLES), (b"CAMERA 1 " * 60)[:2 * SAMPLES]):
            self.one(plan(header + data), f"if it is a header, give replay.header_bytes = {2 * SAMPLES}.")
            self.assertEqual(list(plan(header + data, 2 * SAMPLES)), [])
        self.one(plan(data + data[:2 * SAMPLES]), "1 is left out.")
        self.assertNotIn("header", plan(data + data[:2 * SAMPLES])[0])

    def test_fringes_of_whole_periods(self):
        for depth in (32, 50, 64, 100, 128):
            source = self.save("periods.u16", mirror(64, samples=1024, depth=depth, locked=False))
            self.assertEqual(list(self.client.plan_scan(source, octavo.raster(32, 2, volumes=1), samples=1024).warnings), [], depth)


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
        self.assertRegex("".join(job.warnings), r"opposite projections find it at 31\.[45]\d")

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
        self.assertEqual(len(end.volume_names), 1)
        self.assertTrue(any("flat fields of 100 in the mean, and dark fields of 40000" in text for text in end.warnings), end.warnings)

    def test_flats_without_darks(self):
        name = self.scan("no_darks.h5", np.arange(self.ANGLES) * 180 / self.ANGLES)
        with h5py.File(os.path.join(self.daemon.root, name), "a") as file:
            del file["exchange/data_dark"]
        self.job(name, ["flat fields but no dark ones"])
        self.job(name, ["whole numbers (u16), mostly counts of a detector"], prepare=octavo.preparation(ignore_fields=True, logarithm=False))
        self.job(self.scan("attenuation.h5", np.arange(self.ANGLES) * 180 / self.ANGLES, dtype=np.float32), prepare=octavo.preparation(already_sinograms=True))

    def test_projections_that_were_divided_by_their_flat_fields_already(self):
        degrees = np.arange(self.ANGLES) * 180 / self.ANGLES
        name = self.scan("divided.h5", degrees, dtype=np.float32)
        with h5py.File(os.path.join(self.daemon.root, name), "a") as file:
            counts = file["exchange/data"][:]
            del file["exchange/data"]
            file["exchange/data"] = counts / file["exchange/data_white"][:].mean()
        self.job(name, ["hardly any light passes"], extend_edges=True)
        self.job(name, prepare=octavo.preparation(ignore_fields=True))

    def test_a_selection_of_projections_that_leaves_a_wedge(self):
        name = self.scan("selected.h5", np.arange(self.ANGLES) * 180 / self.ANGLES)
        self.job(name, ["leave a gap of 10"], projections=(0, 26))
        self.job(name, projections=slice(None, None, 2))

    def test_axis_outside_of_the_chosen_columns(self):
        name = self.scan("chosen.h5", np.arange(self.ANGLES) * 180 / self.ANGLES)
        self.refused(name, "tomography.center.pixels", "allowed 39.5 to 59.5, the columns that are chosen (40 to 59)", columns=(40, 60), center=31.5)
        self.job(name, columns=(20, 60), center=31.5, extend_edges=True)
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
        lines = [line.text for line in job.log_lines]
        self.assertTrue(any("declares no unit; taken as radians, as the request says" in line for line in lines), lines)

    def pushed(self, angles):
        """The job of a pushed scan of counts without flat fields, ended."""
        frames = np.full((self.ANGLES, self.ROWS, self.COLUMNS), 1000, np.uint16)
        job = self.client.submit_job(octavo.tomography(octavo.PushedProjections(rows=self.ROWS, columns=self.COLUMNS, frames=self.ANGLES)))
        # projection_frames() refuses degrees itself.
        self.client.push_projections(job.name, [octavo.ProjectionFrame(i, frame, "projection", angle) for i, (frame, angle) in enumerate(zip(frames, angles))])
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            return self.client.wait_job(job.name, check=False)

    def test_pushed_frames_are_kept_and_doubted(self):
        """A pushed scan cannot be repeated, so problems that would refuse a file are only warnings; not so angles of another unit."""
        degrees = np.arange(self.ANGLES) * 180.0 / self.ANGLES
        end = self.pushed(np.deg2rad(degrees))
        self.assertEqual(len(end.warnings), 1)
        self.assertIn("without flat fields", end.warnings[0])
        self.assertEqual(len(end.volume_names), 1)
        end = self.pushed(degrees)
        self.assertEqual((end.state, end.volume_names), (job_pb2.JOB_STATE_FAILED, []))
        self.assertIn("tomography.push: makes the angles 0 to ", end.reason)
        self.assertIn("look like degrees", end.reason)


class Scans(DaemonTest):
    """Scans with counted light and a known axis."""
    COLUMNS, ROWS, ANGLES, AXIS = 160, 4, 180, 86.0

    def parts(self, seed=1, axis=AXIS, white=20000.0, size=1.0):
        """Returns projections, flats and darks as u16, and the angles in degrees; column = axis + x
        cos - y sin."""
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
                self.assertIn("(preparation.rings DEAD_STRIPE) mends them there", "".join(job.warnings))
        job = self.made(self.save("good.h5", *self.parts()[:4]), center="auto")
        self.assertEqual(list(job.warnings), [])
        self.assertAlmostEqual(job.tomography.centers[0], self.AXIS, delta=0.3)

    def test_an_axis_that_nobody_looks_for_is_checked(self):
        name = self.save("axis.h5", *self.parts()[:4])
        self.told(name, "The axis is taken in the middle, column 79.50; opposite projections find it at 86.0")
        self.told(name, "The axis is given as column 80.00; opposite projections find it at 86.0", center=80)
        for center in (85.5, 86, [86.0] * self.ROWS):
            self.assertEqual(list(self.made(name, center=center).warnings), [])
        # If the data do not determine the axis, there is no warning.
        self.assertEqual([t for t in self.made(name, projections=(0, 100)).warnings if "axis" in t], [])
        result = self.command("recon", name, "--center", "middle", "--png", os.path.join(self.daemon.root, "x.png"))
        self.assertIn(": center.search_method AUTO takes that. (--center auto)", result.stdout + result.stderr)
        # Other clients have no flags: the words are those of the request.
        self.assertNotIn("--", "".join(self.made(name, center=80).warnings))

    def test_what_is_of_a_search_is_refused_without_one(self):
        name = self.save("search.h5", *self.parts()[:4])
        self.refused(name, "tomography.center.on_doubt", "without a search", center_doubt="fail")
        self.refused(name, "tomography.center.on_doubt", "without a search", center_doubt="fail", center=86)
        self.refused(name, "tomography.center.search_begin", "without a search", search=(70, 90))
        stitch = octavo.preparation(stitching=dict(axis_right=True))
        self.refused(name, "tomography.center.pixels", "with stitching, where the overlap says", center=86, prepare=stitch)
        self.refused(name, "tomography.center.search_method", "with stitching", center="auto", prepare=stitch)
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
        # An object that reaches both ends leaves no air for the check.
        wide = self.parts(size=2.2)
        self.assertEqual([t for t in self.made(self.save("wide.h5", *wide[:4]), center=86).warnings if "beside" in t], [])
        flats[3] = 100
        name = self.save("one.h5", projections, flats, darks, degrees)
        self.told(name, "Flat field 3 of 5 is 100 in the mean", center=86)
        self.assertEqual(list(self.made(name, center=86, prepare=octavo.preparation(flat_median=True)).warnings), [])

    def test_flat_and_dark_fields_that_do_not_fit(self):
        projections, flats, darks, degrees, _ = self.parts()
        bad = flats.copy()
        bad[:3] = 0
        self.told(self.save("most_flats.h5", projections, bad, darks, degrees), "3 of the 5 flat fields that were looked at have hardly any light", center=86)
        bad = np.repeat(darks, 5, 0)
        bad[:5] = 5000
        name = self.save("half_darks.h5", projections, flats, bad, degrees)
        self.told(name, "The dark fields differ: 100 (dark field 5) to 5000 (dark field 4)", center=86)
        self.told(self.save("bright_darks.h5", projections, flats, darks + 9000, degrees), "of the projections that were looked at are darker", center=86)
        with h5py.File(os.path.join(self.daemon.root, "own.h5"), "w") as file:
            for key, value in (("data", projections), ("data_dark", darks), ("theta", degrees)):
                file[f"exchange/{key}"] = value
        result = self.command("recon", "own.h5", "--flats", "/exchange/data", "--center", "86", "--png", os.path.join(self.daemon.root, "own.png"))
        self.assertIn("The flat fields are the projections themselves", result.stdout + result.stderr)

    def test_projections_without_light(self):
        projections, flats, darks, degrees, _ = self.parts()
        for level in (0, 100):
            lost = projections.copy()
            lost[40:44] = level
            name = self.save("lost.h5", lost, flats, darks, degrees)
            self.told(name, "Projections 40, 41, 42, 43 of 180 have no light in nearly all pixels", center=86)
            self.told(name, "Projection 43 of 137 has no light", center=86, projections=(43, 180))
        frames = list(octavo.projection_frames(lost, np.deg2rad(degrees), flats=flats, darks=darks))
        job = self.client.submit_job(octavo.tomography(octavo.PushedProjections(rows=self.ROWS, columns=self.COLUMNS, frames=len(frames)), center=86))
        self.client.push_projections(job.name, frames)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            end = self.client.wait_job(job.name)
        self.assertEqual(sum("Projections 40, 41, 42, 43 of 180 have no light" in text for text in end.warnings), 1, end.warnings)

    def test_detectors_that_were_saturated(self):
        projections, flats, darks, degrees, _ = self.parts()
        for gain, most, words in ((4, 65535, "the largest value of u16"), (1, 12000, "the largest of both"), (1, 19990, "the largest of both")):
            clipped = [np.minimum(array.astype(int) * gain, most).astype("<u2") for array in (projections, flats, darks)]
            self.told(self.save("saturated.h5", *clipped, degrees), words, center=86)

    def test_a_beam_that_decays(self):
        projections, flats, darks, degrees, _ = self.parts()
        for last in (0.5, 0.7):
            faded = (100 + (projections - 100.0) * np.linspace(1, last, self.ANGLES)[:, None, None]).astype("<u2")
            name = self.save("decay.h5", faded, flats, darks, degrees)
            job = self.told(name, "the beam changed during the scan", center=86)
            self.assertIn("changes from 1", "".join(job.warnings))
            self.assertEqual(list(self.made(name, center=86, prepare=octavo.preparation(air_left=5, air_right=5)).warnings), [])
        result = self.command("recon", name, "--center", "86", "--png", os.path.join(self.daemon.root, "decay.png"))
        self.assertIn("--air", result.stdout + result.stderr)

    def test_transmissions_far_above_one(self):
        projections, flats, darks, degrees, _ = self.parts()
        for count in (1, 30):
            hot = projections.astype("<f4")
            hot.reshape(-1)[np.random.default_rng(count).choice(hot.size, count, replace=False)] = 1e30 if count == 1 else 3e6
            name = self.save("hot.h5", hot, flats, darks, degrees)
            self.told(name, f"{count} value{'s' if count > 1 else ''} of the projections", center=86)
            made = self.made(name, center=86, prepare=octavo.preparation(outliers=dict(window=3, difference=2000)))
            self.assertEqual(list(made.warnings), [])

    def test_ends_of_the_detector_that_tell_nothing(self):
        projections, flats, darks, degrees, lines = self.parts()
        for array in (projections, flats, darks):
            array[:, :, :12] = array[:, :, -12:] = 0  # slits: no light, and nothing of the dark fields
        self.assertEqual(self.made(self.save("slits.h5", projections, flats, darks, degrees), center=86).state, job_pb2.JOB_STATE_DONE)
        flats = flats.astype("<f4")
        flats[2, :, 40] = np.nan
        self.assertEqual(self.made(self.save("nan_flat.h5", projections, flats, darks, degrees), center=86).state, job_pb2.JOB_STATE_DONE)
        transmissions = np.exp(-lines).astype("<f4")
        transmissions[:, :, :9] = np.nan
        self.assertEqual(self.made(self.save("padded.h5", transmissions, degrees=degrees), center=86).state, job_pb2.JOB_STATE_DONE)

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
