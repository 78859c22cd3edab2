"""Spectra and A-scans of single records while a scan runs: bits, saturation, rate, places, refusals."""

import os
import subprocess
import threading
import time
import unittest
import urllib.request

import numpy as np

from harness import BUILD, DaemonTest, octavo, until
from octavo.v1 import scan_pb2

SAMPLES = 128
ASCANS, BSCANS = 32, 8
VOLUME = ASCANS * BSCANS
PLAIN = dict(background="none", window="hann", value="magnitude", dtype="f32")


def records(first, count, dtype="<u2", top=4095):
    """Records that depend only on their number; those of column 5 are saturated at known samples."""
    number = np.arange(first, first + count)[:, None]
    j = np.arange(SAMPLES)[None, :]
    wave = np.round(top * (0.5 + 0.3 * np.cos(2 * np.pi * (3 + number * 7 % 40) * j / SAMPLES)) + number % 13 / 13 * top / 100)
    wave[(number[:, 0] % ASCANS) == 5, 100:103] = top
    return wave.astype(dtype)


def pack12(samples):
    """GenICam Mono12p of each row."""
    even, odd = samples[:, ::2].astype(np.uint16), samples[:, 1::2].astype(np.uint16)
    return np.stack([even & 0xFF, even >> 8 | (odd & 0xF) << 4, odd >> 4], axis=-1).astype(np.uint8).reshape(len(samples), -1)


class Spectrum(DaemonTest):
    def setUp(self):
        super().setUp()
        self.watched = []  # the frames of each subscription

    def watch(self, scan, **options):
        """Frames of a subscription in a thread of their own, from before the first record to the end."""
        got, ready = [], threading.Event()
        self.watched.append(got)

        def run():
            with self.daemon.client() as client:
                ready.set()
                for frame in client.subscribe(scan, **options):
                    got.append(frame)

        thread = threading.Thread(target=run)
        thread.start()
        ready.wait(10)
        name = options["products"][0]
        until(lambda: self.metric("octavo_subscribers", product=name) >= 1)
        return got, thread

    def metric(self, name, **labels):
        text = urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics", timeout=10).read().decode()
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                   if line.startswith(name + "{") and all(w in line for w in wanted))

    def scan(self, volumes=4, samples=SAMPLES, processing=None, **fields):
        return self.client.submit_scan(octavo.push(), octavo.raster(ASCANS, BSCANS, volumes=volumes), samples=samples,
                                       processing=octavo.processing(**{**PLAIN, **(processing or {})}), **fields).name

    def push(self, scan, volumes=4, made=records, pause=0.02, block=VOLUME // 4):
        def pieces():
            for first in range(0, volumes * VOLUME, block):
                if first == volumes * VOLUME // 2:  # what is looked at on a busy machine, too, before the rest comes
                    end = time.monotonic() + 5
                    while not all(self.watched) and time.monotonic() < end:
                        time.sleep(0.01)
                yield made(first, block)
                time.sleep(pause)  # so that several looks at the records fall into the scan

        result = self.client.push(scan, pieces())
        self.assertTrue(result.done)
        return self.client.wait(scan)

    def volumes(self, scan):
        return {v.index: self.client.read(v.name) for v in self.client.volumes(scan)}

    def check_ascans(self, scan, frames, **tolerance):
        volumes = self.volumes(scan)
        about = {v.index: v for v in self.client.volumes(scan)}
        self.assertGreater(len(frames), 1)
        for frame in frames:
            ascan = volumes[frame.volume_index][frame.record.row, frame.record.column]
            self.assertEqual(frame.axes, ("z",))
            if self.client.devices()[0].uuid.startswith("GPU-"):  # these are computed on the host, and round otherwise
                self.check_amplitudes(frame.array, ascan, about[frame.volume_index])
            elif tolerance:
                np.testing.assert_allclose(frame.array, ascan, **tolerance)
            else:
                np.testing.assert_array_equal(frame.array, ascan)

    def check_amplitudes(self, got, wanted, volume):
        """Where little is left of a sum its logarithm says nothing, so that amplitudes are compared, of integers with one step more."""
        step, lowest = 0.0, 0.0
        if wanted.dtype.kind in "iu":
            step, lowest = (volume.levels.hi - volume.levels.lo) / np.iinfo(wanted.dtype).max, volume.levels.lo
            got, wanted = lowest + got * step, lowest + wanted * step
        if volume.value == scan_pb2.VALUE_DB:
            got, wanted = 10 ** (got / 20), 10 ** (wanted / 20)
        np.testing.assert_allclose(got, wanted, rtol=10 ** (1.01 * step / 20) - 1 + 1e-3, atol=5e-5 * np.abs(wanted).max())

    def test_a_spectrum_is_the_pushed_record_of_every_type(self):
        for raw_type, dtype, top, made in (("u16", "<u2", 65535, None), ("u8", "u1", 255, None), ("i16", "<i2", 32767, None),
                                           ("f32", "<f4", 4095, None), ("u12p", "<u2", 4095, pack12)):
            with self.subTest(raw_type):
                scan = self.scan(raw_type=raw_type)
                frames, thread = self.watch(scan, products=["spectrum"])
                ascans, other = self.watch(scan, products=["ascan"], index=5)
                self.push(scan, made=lambda first, count: (made or (lambda r: r))(records(first, count, dtype, top)))
                thread.join(30)
                other.join(30)
                self.assertGreater(len(frames), 1)
                for frame in frames:
                    record = records(frame.record.record, 1, dtype, top)[0]
                    np.testing.assert_array_equal(frame.array, record)
                    self.assertEqual(frame.array.dtype, np.dtype(dtype))
                    self.assertEqual((frame.record.minimum, frame.record.maximum), (record.min(), record.max()))
                    where = np.flatnonzero(record == top) if raw_type != "f32" else []
                    self.assertEqual((list(frame.record.saturated_samples), frame.record.saturated_count), (list(where), len(where)))
                self.check_ascans(scan, ascans)
                self.assertEqual({frame.record.column for frame in ascans}, {5})
                self.client.discard([v.name for v in self.client.volumes(scan)][0])

    def test_channels_and_averaged_records(self):
        """As stored: all channels, all records of the mean; corrected and ASCAN: the channel that is processed."""
        def source(first, count):
            one = records(first, count)
            return np.stack([one, one // 2], axis=-1).reshape(count, -1)

        scan = self.scan(acquisition=dict(channels=2, channel=1, record_average=2, adc_bits=12))
        frames, thread = self.watch(scan, products=["spectrum"], index=2)
        ascans, other = self.watch(scan, products=["ascan"])
        self.push(scan, volumes=8, made=source)
        thread.join(30)
        other.join(30)
        self.assertGreater(len(frames), 1)
        for frame in frames:
            self.assertEqual((frame.axes, frame.shape), (("record", "sample", "channel"), (2, SAMPLES, 2)))
            pair = source(2 * frame.record.record, 2).reshape(2, SAMPLES, 2)
            np.testing.assert_array_equal(frame.array, pair)
            self.assertEqual(list(frame.record.saturated_samples), list(np.flatnonzero(pair.reshape(-1) == 4095)))
        self.assertTrue(any(frame.record.saturated_count for frame in frames))
        self.check_ascans(scan, ascans)

    def test_saturation_is_found_where_it_is(self):
        scan = self.scan(acquisition=dict(adc_bits=12))
        frames, thread = self.watch(scan, products=["spectrum"], index=5)
        self.push(scan)
        thread.join(30)
        self.assertGreater(len(frames), 1)
        for frame in frames:
            self.assertEqual(list(frame.record.saturated_samples), [100, 101, 102])
            self.assertEqual((frame.record.saturation_high, frame.record.column, frame.record.maximum), (4095, 5, 4095))

    def test_ascans_are_those_of_the_volume(self):
        """Bit for bit, whatever the records around contribute."""
        chains = {"none": {}, "db": dict(value="db", dtype="u16"), "dispersion": dict(a2=2e-4, dtype="u8", value="db"),
                  "bscan": dict(background="bscan"), "rolling": dict(background="rolling"),
                  "window": dict(background="rolling", group_records=50, window_records=330),
                  "fixed pattern": dict(background="none", fixed_pattern_noise="mean"),
                  "complex": dict(value="complex", dtype="c64")}
        for name, processing in chains.items():
            for index in (None, 7):
                with self.subTest(name, index=index):
                    scan = self.scan(volumes=6, processing=processing)
                    frames, thread = self.watch(scan, products=["ascan"], index=index)
                    self.push(scan, volumes=6)
                    thread.join(30)
                    self.check_ascans(scan, frames)
                    for volume in self.client.volumes(scan):
                        self.client.discard(volume.name)

    def test_ascans_of_averaged_repeats(self):
        pattern = octavo.repeated_raster(ASCANS, BSCANS // 2, repeats=2, period=2, average=True, volumes=6)
        scan = self.client.submit_scan(octavo.push(), pattern, samples=SAMPLES, processing=octavo.processing(**{**PLAIN, "value": "db"})).name
        frames, thread = self.watch(scan, products=["ascan"])
        self.push(scan, volumes=6)
        thread.join(30)
        self.check_ascans(scan, frames)

    def test_corrected_spectra_transform_into_the_ascan(self):
        scan = self.scan(volumes=6, processing=dict(background="bscan"))
        frames, thread = self.watch(scan, products=["spectrum"], spectrum="corrected")
        self.push(scan, volumes=6)
        thread.join(30)
        volumes = self.volumes(scan)
        about = {v.index: v for v in self.client.volumes(scan)}
        self.assertGreater(len(frames), 1)
        for frame in frames:
            self.assertTrue(frame.record.corrected)
            self.assertEqual(frame.array.dtype, np.float32)
            depth = volumes[frame.volume_index].shape[2]
            ascan = np.abs(np.fft.ifft(frame.array.astype(float)))[:depth]
            np.testing.assert_allclose(volumes[frame.volume_index][frame.record.row, frame.record.column], ascan, rtol=0, atol=1e-2)
            self.assertAlmostEqual(frame.record.minimum, float(frame.array.min()), 3)

    def test_two_subscribers_share_and_nobody_makes_nothing(self):
        before = self.metric("octavo_frames_published_total", product="spectrum")
        silent = self.scan()
        self.push(silent)
        self.assertEqual(self.metric("octavo_frames_published_total", product="spectrum"), before)
        scan = self.scan()
        one, first = self.watch(scan, products=["spectrum"], delivery="drop_oldest", queue_length=1024)
        two, second = self.watch(scan, products=["spectrum"], delivery="drop_oldest", queue_length=1024)
        until(lambda: self.metric("octavo_subscribers", product="spectrum") >= 2)
        self.push(scan)
        first.join(30)
        second.join(30)
        self.assertEqual([f.sequence for f in one], [f.sequence for f in two])
        self.assertEqual(self.metric("octavo_frames_published_total", product="spectrum") - before, len(one))

    def test_rate_late_subscriber_and_cancel(self):
        scan = self.client.submit_scan(octavo.simulated(5), octavo.raster(64, 16, volumes=0), samples=256, rate_hz=20000,
                                       retention=dict(disposition=scan_pb2.DISPOSITION_AUTO_DISCARD))
        until(lambda: self.client.scan(scan.name).volumes_done > 2, 30)
        frames, thread = self.watch(scan.name, products=["spectrum", "ascan"], delivery="drop_oldest", queue_length=1024)
        until(lambda: all(sum(f.product == product for f in frames) > 20 for product in ("spectrum", "ascan")))
        self.client.cancel(scan.name)
        thread.join(30)
        self.assertFalse(thread.is_alive())
        for product in ("spectrum", "ascan"):
            times = [f.published_ns for f in frames if f.product == product]
            self.assertGreater(len(times), 5)
            # A frame may be made a little earlier after its look than the one before.
            self.assertLessEqual(len(times), 25 * ((times[-1] - times[0]) * 1e-9 + 0.1) + 1)
        # The newest one stays for those who come later.
        late = list(self.client.subscribe(scan.name, ["spectrum"]))
        self.assertEqual(len(late), 1)
        np.testing.assert_array_equal(late[0].array, [f for f in frames if f.product == "spectrum"][-1].array)

    def test_an_ascan_of_a_held_volume(self):
        scan = self.scan(volumes=1)
        self.push(scan, volumes=1)
        volume = self.volumes(scan)[0]
        for index, column in ((None, ASCANS // 2), (3, 3)):
            (frame,) = self.client.subscribe(scan, ["ascan"], index=index)
            np.testing.assert_array_equal(frame.array, volume[BSCANS // 2, column])
            self.assertEqual((frame.record.row, frame.record.column), (BSCANS // 2, column))
        with self.assertRaises(octavo.OctavoError) as caught:
            list(self.client.subscribe(scan, ["spectrum"]))
        self.assertEqual(caught.exception.reason, "NOTHING_KEPT")

    def test_refusals_name_the_field(self):
        scan = self.scan()
        for options, reason, words in ((dict(index=ASCANS), "BAD_RANGE", "index"), (dict(encoding="png"), "BAD_FIELD", "encoding"),
                                       (dict(delivery="lossless"), "BAD_FIELD", "delivery"), (dict(spectrum="corrected"), "BAD_FIELD", "spectrum")):
            with self.subTest(words):
                with self.assertRaises(octavo.OctavoError) as caught:
                    list(self.client.subscribe(scan, ["ascan"], **options))
                self.assertEqual(caught.exception.reason, reason)
                self.assertIn(words, str(caught.exception))
        self.client.cancel(scan)

    def test_the_command_line_writes_lines_and_arrays(self):
        scan = self.scan(acquisition=dict(adc_bits=12))
        folder = os.path.join(self.daemon.root, "arrays")
        watch = subprocess.Popen([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, "watch", "--parent", scan, "--product", "spectrum",
                                  "--index", "5", "--npy-dir", folder], stdout=subprocess.PIPE, text=True)
        until(lambda: self.metric("octavo_subscribers", product="spectrum") >= 1)
        self.push(scan)
        out, _ = watch.communicate(timeout=30)
        self.assertEqual(watch.returncode, 0)
        self.assertIn("maximum 4095  saturated 3 (at 100 101 102)", out)
        name = sorted(os.listdir(folder))[0]
        array = np.load(os.path.join(folder, name))
        self.assertEqual((array.shape, array.dtype, array.max()), ((SAMPLES,), np.dtype("<u2"), 4095))


if __name__ == "__main__":
    unittest.main()
