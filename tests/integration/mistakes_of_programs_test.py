"""The table of mistakes with the programs octavo and octavod: none is silent, and the answer says what would be right."""

import os
import unittest

import numpy as np

from harness import DaemonTest, octavo
from mistakes import Mistakes, row

GEOMETRY = "--ascans 16 --bscans 8 --volumes 1"
SIMULATED = f"scan submit --source simulated --fast {GEOMETRY} --samples 256"

SOURCES = [
    row(f"scan submit {GEOMETRY}", "--source: is not given; allowed simulated, replay, push, camera, ring", "--path FILE, which means replay"),
    row(f"scan plan {GEOMETRY}", "--source: is not given"),
    row(f"scan submit --fast {GEOMETRY}", "--source: is not given", "--fast is for --source simulated"),
    row(f"scan submit --camera x {GEOMETRY}", "--source: is not given", "--camera is for --source camera"),
    row(f"scan submit --source simulator {GEOMETRY}", "--source: is 'simulator'; allowed simulated, replay, push, camera, ring; did you mean simulated?"),
    row(f"scan submit --source simulated --path {{raw}} --samples 256 {GEOMETRY}", "--path: is for replay; the source is simulated (--source)"),
    row(f"scan submit --path {{raw}} --samples 256 --fast {GEOMETRY}", "--fast: is for simulated; the source is replay (--path)"),
    row(f"scan submit --path {{raw}} --samples 256 --seed 3 {GEOMETRY}", "--seed: is for simulated; the source is replay (--path)"),
    row(f"scan submit --source simulated --loops 3 {GEOMETRY}", "--loops: is for replay; the source is simulated (--source)"),
    row(f"scan submit --source push --samples 256 --exposure 3 {GEOMETRY}", "--exposure: is for camera; the source is push (--source)"),
    row(f"scan submit --source replay --samples 256 {GEOMETRY}", "--path: is not given; the source replay needs a file"),
    row(f"scan submit --path {{raw}} {GEOMETRY}", "--samples: is not given; a raw file does not say how long its records are", "16 to 65536"),
    row(f"scan submit --source push {GEOMETRY}", "--samples: is not given; the source push needs it"),
    row(f"scan submit --source ring {GEOMETRY}", "--samples: is not given; the source ring needs it"),
    row(f"scan submit --json-spec {{spec}} --loops 2 {GEOMETRY}", "--loops: is for replay; the source is simulated (--json-spec)"),
    row("scan submit --json-spec {raw}", "--json-spec: {raw} is no ScanSpec"),
    row("scan submit --json-spec {none}", "--json-spec: cannot read {none}"),
]

SCANS = [
    row(f"{SIMULATED} --dtype float", "--dtype: is 'float'; allowed u8, i8, u16, f16, f32, c64"),
    row(f"{SIMULATED} --dtype uint8", "--dtype: is 'uint8'; allowed u8"),
    row(f"{SIMULATED} --window hanning", "--window: is 'hanning'; allowed rect, hann, hamming, gauss, blackman, flat-top; did you mean hann?"),
    row(f"{SIMULATED} --value dB", "--value: is 'dB'; allowed db, magnitude, power, real, complex"),
    row(f"{SIMULATED} --interp spline", "--interp: is 'spline'; allowed linear, cubic, lanczos"),
    row(f"{SIMULATED} --background static", "--background: is 'static'; allowed none, rolling, bscan"),
    row(f"{SIMULATED} --raw-type uint16", "--raw-type: is 'uint16'; allowed u8, u16, i16, f32, u12p, u12-packed"),
    row(f"{SIMULATED} --mode continuous", "--mode: is 'continuous'; allowed live, capture"),
    row(f"{SIMULATED} --on-full spill", "--on-full: is 'spill'; allowed stop-at-volume, drop-new, spill-host, spill-disk; did you mean spill-host?"),
    row(f"{SIMULATED} --disposition commit", "--disposition: is 'commit'; allowed ask, auto-commit, auto-discard"),
    row(f"{SIMULATED} --format dicom", "--format: is 'dicom'; allowed bin, hdf5, mat, nifti, npy, nrrd, tiff, zarr"),
    row(f"{SIMULATED} --format npy", "--format: is for --disposition auto-commit"),
    row(f"{SIMULATED} --destination a", "--destination: is for --disposition auto-commit"),
    row(f"{SIMULATED} --on-tier-full drop-new", "--on-tier-full: is for --on-full spill-host, spill-disk"),
    row(f"{SIMULATED} --poly 1,2", "--poly: and --k poly go together"),
    row(f"{SIMULATED} --k poly", "--poly: and --k poly go together"),
    row(f"{SIMULATED} --k none --interp cubic", "--interp: is of the k-linearisation; --k none says that there is none"),
    row(f"{SIMULATED} --k polynomial", "--k: is 'polynomial', no file that can be read; allowed none, source, poly"),
    row(f"{SIMULATED} --k {{words}}", "--k: {words} holds something that is no number behind 2 numbers"),
    row(f"{SIMULATED} --background none --window-records 64", "--window-records: is for --background rolling"),
    row(f"{SIMULATED} --label mouse", "--label: 'mouse' is not key=value"),
    row(f"{SIMULATED} --pattern rasta", "--pattern: is 'rasta'; allowed raster, repeated-raster", "did you mean raster?"),
    row(f"{SIMULATED} --cycles 7,5", "--cycles: is for lissajous; the pattern is raster"),
    row(f"{SIMULATED} --repeats 3", "--repeats: is for repeated-raster, repeated-radial; the pattern is raster"),
    row(f"{SIMULATED} --pattern spiral --flyback 3", "--flyback: is for raster, repeated-raster, radial, repeated-radial, freeform; the pattern is spiral"),
    row(f"{SIMULATED} --radius 1,2", "--radius: is for radial, repeated-radial, spiral; the pattern is raster"),
    row(f"{SIMULATED} --warp-factor 3", "--warp-factor: is for --warp angular"),
    row("scan submit --source simulated --pattern freeform", "--points: is not given; the pattern freeform needs a file"),
    row("scan submit --source simulated --ascans 100000 --bscans 100000", "pattern.raster.bscans_per_volume", "allowed", code=1),
    row(f"{SIMULATED} --levels=5,5", "processing.levels", code=1),
    row(f"{SIMULATED} --rate nan", "acquisition.record_rate_hz", code=1),
    row(f"{SIMULATED} --queue 'No Queue'", "queue.name: is 'No Queue'; allowed are 1 to 63 of a-z 0-9 _ . -", code=1),
    row(f"{SIMULATED} --keep-last 3", "retention.keep_last: is for LIVE scans", code=1),
    row(f"{SIMULATED} --device devices/7", "devices/7", code=1),
]

ROOTS = "the replay roots {root} (storage.replay_roots of the server's configuration)"
FILES = [
    row(f"scan submit --path none.u16 --samples 256 {GEOMETRY}", f"replay.path: no file 'none.u16' under {ROOTS}", code=1),
    row(f"scan submit --path {{outside}}/none.u16 --samples 256 {GEOMETRY}", f"replay.path: '{{outside}}/none.u16' lies outside {ROOTS}", code=1),
    row(f"scan submit --path {{outside}}/odd.u16 --samples 256 {GEOMETRY}", f"'{{outside}}/odd.u16' lies outside {ROOTS}",
        "nor can it be pushed: replay.path: '{outside}/odd.u16' holds 1001 bytes, no whole number of records of 512", code=1),
    row(f"scan submit --path {{outside}}/short.npy {GEOMETRY}", "nor can it be pushed", "its header says", code=1),
    row(f"scan submit --path {{outside}}/odd.npy {GEOMETRY}", "nor can it be pushed", "is no .npy file that can be replayed: no NumPy magic", code=1),
    row(f"scan submit --path {{outside}} --samples 256 {GEOMETRY}", "nor can it be pushed", "is no regular file", code=1),
    row(f"scan plan --path {{outside}}/none.u16 --samples 256 {GEOMETRY}", f"lies outside {ROOTS}", code=1),
    row("recon {outside}/odd.u16 --png {outside}/x.png", f"tomography.file.path: '{{outside}}/odd.u16' lies outside {ROOTS}", code=1),
    row("recon none.h5 --png {outside}/x.png", f"tomography.file.path: no file 'none.h5' under {ROOTS}", code=1),
]


class Programs(DaemonTest, Mistakes):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.names = {name: os.path.join(cls.daemon.root, f"{name}.txt") for name in ("raw", "spec", "words", "none")}
        cls.names["root"] = cls.daemon.root
        cls.names["outside"] = outside = os.path.join(cls.daemon.directory, "outside")
        os.mkdir(outside)
        for name in ("odd.u16", "odd.npy"):
            with open(os.path.join(outside, name), "wb") as file:
                file.write(bytes(1001))
        np.save(os.path.join(outside, "short.npy"), np.zeros((128, 256), np.uint16))
        os.truncate(os.path.join(outside, "short.npy"), 4096)
        np.arange(256 * 256, dtype="<u2").tofile(cls.names["raw"])
        with open(cls.names["spec"], "w") as file:
            file.write('{"simulated": {"seed": 1}, "acquisition": {"samples_per_record": 256}}')
        with open(cls.names["words"], "w") as file:
            file.write("840\n841\nnm\n")

    def octavo(self, rows):
        words = [r.__class__(r.call, tuple(w.format(**self.names) for w in r.words), r.code) for r in rows]
        self.program("octavo", words, self.names, before=["--address", self.daemon.address])
        self.assertEqual((len(self.client.scans()), len(self.client.jobs()), len(self.client.volumes())), (0, 0, 0))

    def test_sources(self):
        self.octavo(SOURCES)

    def test_scans(self):
        self.octavo(SCANS)

    def test_files(self):
        self.octavo(FILES)


if __name__ == "__main__":
    unittest.main()
