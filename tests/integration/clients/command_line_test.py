"""The octavo command line against a real daemon: output for people and programs, exit codes."""

import datetime
import json
import os
import re
import resource
import signal
import subprocess
import time
import unittest

import numpy as np
import scipy.io

from harness import BUILD, DaemonTest, octavo, until
from readers import READERS
from octavo.v1 import reason_pb2


class CommandLine(DaemonTest):
    def octavo(self, *arguments, address=None):
        done = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--address", address or self.daemon.address, *arguments], capture_output=True,
                              text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def fine(self, *arguments):
        code, out, error = self.octavo(*arguments)
        self.assertEqual(code, 0, error)
        return out

    def test_a_whole_day(self):
        self.assertEqual(self.fine("health"), "SERVING\n")
        self.assertIn("backend host", self.fine("info"))
        self.assertIn("budget", self.fine("devices"))
        plan = self.fine("scan", "plan", "--source", "simulated", "--fast", "--ascans", "64", "--bscans", "8", "--volumes", "2", "--samples", "256")
        self.assertIn("fits devices/0", plan)
        self.assertIn("inverse DFT of 256", plan)
        out = self.fine("scan", "submit", "--source", "simulated", "--fast", "--ascans", "64", "--bscans", "8", "--volumes", "3", "--samples", "256", "--title", "day", "--watch")
        scan = out.splitlines()[0]
        self.assertTrue(scan.startswith("scans/"))
        self.assertIn("DONE", out)
        self.assertIn(scan, self.fine("scan", "list"))
        volumes = [json.loads(line) for line in self.fine("--json", "volume", "list", "--parent", scan).splitlines()]
        self.assertEqual([v["state"] for v in volumes], ["VOLUME_STATE_HELD"] * 3)
        target = os.path.join(self.daemon.directory, "v.npy")
        self.fine("volume", "read", volumes[0]["name"], "-o", target)
        np.testing.assert_array_equal(np.load(target), self.client.read(volumes[0]["name"]))
        self.fine("volume", "read", volumes[0]["name"], "-o", target, "--box", "1,2,3,4,5,6")
        np.testing.assert_array_equal(np.load(target), self.client.read(volumes[0]["name"])[1:5, 2:7, 3:9])
        shown = self.fine("volume", "show", volumes[0]["name"])
        for words in ("  held ", f"  of {scan}\n", "  spacing y unknown, x unknown, z ", " um\n", "  levels ", "  digest "):
            self.assertIn(words, shown)
        self.assertIn("day_00000.ome.zarr", self.fine("volume", "commit", volumes[0]["name"]))
        self.assertNotIn("  held ", self.fine("volume", "show", volumes[0]["name"]))
        for _ in range(2):  # scans without a title do not meet in one name
            other = self.fine("scan", "submit", *self.SMALL, "--volumes", "1", "--hold-raw", "--watch").splitlines()[0]
            raw, made = sorted(self.client.volumes(other), key=lambda volume: not volume.raw)
            self.assertIn("  raw spectra  ", self.fine("volume", "show", raw.name))
            self.assertNotIn("raw spectra", self.fine("volume", "show", made.name))
            self.assertIn(f"{other.split('/')[1]}_00000", self.fine("volume", "commit", made.name))
            self.assertIn("a reprocess job makes a volume of them, which can be rendered (octavo job reprocess)", self.octavo("volume", "png", raw.name)[2].replace(" [BAD_FIELD]", ""))
            raw.discard()
        array = self.client.read(volumes[2]["name"])
        uri = self.fine("volume", "commit", volumes[2]["name"], "cli", "--format", "zarr", "--pyramid", "3", "--codec", "blosc-zstd", "--shuffle", "byte").split()[0]
        self.assertEqual(uri, os.path.join(self.daemon.root, "cli.ome.zarr"))
        self.assertIn("x.nii", self.fine("convert", uri, os.path.join(self.daemon.directory, "x.nii")))
        np.testing.assert_array_equal(READERS["nifti"](os.path.join(self.daemon.directory, "x.nii")).array, array)
        self.assertIn("DISCARDED", self.fine("volume", "discard", volumes[1]["name"]))
        self.assertIn("COMMITTED", self.fine("volume", "show", volumes[0]["name"]))
        again = ["scan", "submit", "--source", "simulated", "--fast", "--ascans", "16", "--bscans", "8", "--volumes", "1", "--samples", "256", "--request-id", "cli-1"]
        self.assertEqual(*(self.fine(*again).splitlines()[0] for _ in range(2)))
        self.assertNotIn("cli-1", self.fine("--json", "scan", "list"))  # the spec does not repeat it
        pictures = os.path.join(self.daemon.directory, "png")
        self.fine("watch", "--parent", scan, "--count", "1", "--png-dir", pictures)
        with open(os.path.join(pictures, os.listdir(pictures)[0]), "rb") as picture:
            self.assertTrue(picture.read().startswith(b"\x89PNG"))
        self.fine("watch", "--parent", scan, "--count", "1", "--jpeg-dir", pictures, "--colour-map", "inferno", "--percentiles", "1", "99", "--scale-bar",
                  "--max-width", "32")
        with open(os.path.join(pictures, max(name for name in os.listdir(pictures) if name.endswith(".jpg"))), "rb") as picture:
            self.assertTrue(picture.read().startswith(b"\xff\xd8\xff"))
        self.assertIn("MIP  picture ", self.fine("watch", "--parent", scan, "--count", "1"))
        running = self.client.submit_scan(octavo.simulated(3), octavo.raster(16, 8, volumes=0), samples=256, rate_hz=3000)
        for slab in (("20,40",), ("20", "40")):
            shown = json.loads(self.fine("--json", "watch", "--parent", running.name, "--count", "1", "--slab", *slab))
            self.assertEqual(shown["slab"], {"begin": "20", "end": "40"})
        running.stop()

    def test_axes_of_matlab_and_of_fortran(self):
        """`--axes` of MATLAB's volume(z, x, y) are y,x,z; of a Fortran array (z, x, y) of NumPy they are z,x,y."""
        array = np.arange(4 * 5 * 6, dtype="<u2").reshape(4, 5, 6)  # z, x, y
        scipy.io.savemat(os.path.join(self.daemon.root, "zxy.mat"), {"volume": array})
        np.save(os.path.join(self.daemon.root, "fortran.npy"), np.asfortranarray(array))
        array.tofile(os.path.join(self.daemon.root, "c.raw"))
        array.ravel(order="F").tofile(os.path.join(self.daemon.root, "f.raw"))
        for file, axes, flags in (("zxy.mat", "y,x,z", ("--dataset", "volume")), ("fortran.npy", "z,x,y", ()), ("c.raw", "z,x,y", ("--raw-shape", "4,5,6", "--raw-type", "u16")),
                                  ("f.raw", "z,x,y", ("--raw-shape", "4,5,6", "--raw-type", "u16", "--raw-fortran"))):
            with self.subTest(file):
                made = json.loads(self.fine("--json", "volume", "import", file, "--axes", axes, *flags, "--to-buffer", "--order", "zxy").splitlines()[-1])
                np.testing.assert_array_equal(self.client.buffers.read(made["name"]), array)

    def test_what_is_scanned_is_told_at_submit(self):
        """A path means replay. The name alone is on standard output, for scripts."""
        volume, name = 16 * 8, "told.u16"
        np.arange((3 * volume + 5) * 256, dtype="<u2").tofile(os.path.join(self.daemon.root, name))
        geometry = ("--samples", "256", "--ascans", "16", "--bscans", "8", "--volumes", "2")
        code, out, error = self.octavo("scan", "submit", "--path", name, *geometry, "--title", "mouse 7")
        self.assertEqual(code, 0, error)
        self.assertRegex(out, r"^scans/\S+\n$")
        self.assertIn(f"source: replay of '{name}', which holds {3 * volume + 5} records of 256 samples (u16); the scan takes {2 * volume}\n", error)
        self.assertIn("title: mouse 7\n", error)
        self.assertIn(f"warning: The file holds {3 * volume + 5} records; the scan takes {2 * volume} of them: {volume + 5} are left out.\n", error)
        self.assertEqual(self.client.scan(out.strip()).spec.replay.path, name)
        code, out, error = self.octavo("scan", "submit", "--source", "simulated", "--seed", "7", "--fast", *geometry)
        self.assertEqual(code, 0, error)
        self.assertIn("source: simulated with seed 7, records of 256 samples (u16); the scan takes 256\n", error)
        self.assertIn("source: simulated with seed 7", self.fine("scan", "show", out.strip()))
        spec = os.path.join(self.daemon.directory, "spec.json")
        with open(spec, "w") as file:
            file.write('{"simulated": {"seed": 1}, "title": "of the file", "acquisition": {"samples_per_record": 256}}')
        code, out, error = self.octavo("scan", "submit", "--json-spec", spec, "--seed", "3", "--fast", "--ascans", "16", "--bscans", "8")
        self.assertEqual(code, 0, error)
        self.assertIn("source: simulated with seed 3, records of 256 samples (u16); the scan takes 128\n", error)
        self.assertIn("title: of the file\n", error)
        code, out, error = self.octavo("scan", "submit", "--json-spec", spec, "--path", name, "--ascans", "16", "--bscans", "8")
        self.assertEqual(code, 0, error)
        self.assertIn("source: replay of", error)

    def test_a_file_that_the_server_does_not_reach_is_pushed(self):
        """The same voxels, plan and warnings as when the server reads the file
        itself."""
        samples, volume = 256, 16 * 8
        random = np.random.default_rng(5)
        records = (2000 + 500 * np.cos(np.arange(samples) * 0.3) + random.normal(0, 20, (3 * volume + 5, samples))).astype("<u2")
        outside = os.path.join(self.daemon.directory, "outside")
        os.makedirs(outside, exist_ok=True)
        for folder in (self.daemon.root, outside):
            records.tofile(os.path.join(folder, "in.u16"))
            np.save(os.path.join(folder, "in.npy"), records)
            np.save(os.path.join(folder, "channels.npy"), np.stack([records, records[::-1]], 2))
        geometry = ("--ascans", "16", "--bscans", "8", "--background", "none")

        def scan(path, *flags, where=None):
            done = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, "scan", "submit", "--path", path, *geometry, *flags],
                                  capture_output=True, text=True, timeout=60, cwd=where)
            self.assertEqual(done.returncode, 0, done.stderr)
            ended = self.client.wait(done.stdout.strip())
            return ended, [self.client.read(v.name) for v in self.client.volumes(ended.name)], done.stderr

        for name, flags in (("in.u16", ("--samples", "256")), ("in.npy", ()), ("channels.npy", ("--channels", "2", "--channel", "1"))):
            for more, count in ((("--volumes", "3"), 3), (("--volumes", "5"), 4), (("--volumes", "5", "--loops", "2"), 5), (("--volumes", "4", "--loops", "0"), 4)):
                with self.subTest(name, more=more):
                    near, expected, _ = scan(name, *flags, *more)
                    path, where = (name, outside) if count == 5 else (os.path.join(outside, name), None)
                    if where is not None:
                        os.rename(os.path.join(self.daemon.root, name), os.path.join(self.daemon.root, "away"))
                    try:
                        far, voxels, error = scan(path, *flags, *more, where=where)
                    finally:
                        if where is not None:
                            os.rename(os.path.join(self.daemon.root, "away"), os.path.join(self.daemon.root, name))
                    self.assertIn(f"the server does not reach '{path}': octavo reads it here and pushes it; it holds {len(records)} records of {samples} samples (u16)", error)
                    self.assertEqual((far.state, far.records, far.missing_ascans), (near.state, near.records, near.missing_ascans))
                    self.assertEqual(len(voxels), len(expected))
                    for a, b in zip(voxels, expected):
                        np.testing.assert_array_equal(a, b)
        _, _, error = scan(os.path.join(outside, "in.u16"), "--samples", "256", "--volumes", "2")
        self.assertIn(f"warning: The file holds {len(records)} records; the scan takes {2 * volume} of them: {volume + 5} are left out.", error)
        _, _, error = scan(os.path.join(outside, "in.u16"), "--samples", "256", "--volumes", "4")
        self.assertIn(f"the scan takes {4 * volume}: it ends early", error)
        _, _, error = scan(os.path.join(outside, "in.u16"), "--samples", "256", "--volumes", "1", "--raw-type", "u8")
        self.assertIn("warning: acquisition.raw_type is u8", error.replace("The ", ""))
        plan = self.octavo("scan", "plan", "--path", os.path.join(outside, "in.npy"), *geometry, "--volumes", "3")
        self.assertEqual(plan[0], 0, plan[2])
        self.assertIn("octavo reads it here and pushes it", plan[2])
        self.assertIn("source: push, a client sends records of 256 samples (u16); the scan takes 384", plan[1])

    def test_who_interrupts_the_sending_ends_the_scan(self):
        path = os.path.join(self.daemon.directory, "slow.npy")
        np.save(path, np.zeros((4096, 256), np.uint16))
        process = subprocess.Popen([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, "scan", "submit", "--path", path, "--ascans", "16",
                                    "--bscans", "8", "--volumes", "32", "--rate", "64", "--block", "16"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        name = process.stdout.readline().strip()
        until(lambda: self.client.scan(name).records > 0)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, error)
        self.assertEqual(self.client.wait(name).reason_code, reason_pb2.REASON_CANCELLED)

    def test_a_plan_begins_with_its_verdict(self):
        """The decisive lines come before the holders: verdict, advice, warnings, figures, the ten
        largest holders, and the description last."""
        geometry = ("--source", "simulated", "--fast", "--samples", "256", "--ascans", "64")
        scans = [self.fine("scan", "submit", *geometry, "--bscans", str(8 * (i + 1)), "--volumes", "1").strip() for i in range(13)]
        for scan in scans:
            self.client.wait(scan)
        plan = self.fine("scan", "plan", *geometry, "--bscans", "8", "--volumes", "2").splitlines()
        self.assertRegex(plan[0], r"^fits devices/0: wants \S+ \S+, free .* of ")
        self.assertRegex(plan[1], r"^a volume is ")
        held = plan.index("held by:")
        ten = plan[held + 1:held + 11]
        biggest = [self.client.volumes(scan)[0].name for scan in reversed(scans[3:])]
        # The list includes memory that is kept for the next scan, if there is much of it.
        volumes = [line.split()[2] for line in ten if line.split()[2] != "cached"]
        self.assertGreaterEqual(len(volumes), 9)
        self.assertEqual(volumes, biggest[:len(volumes)])
        self.assertRegex(plan[held + 11], r"^  \S+ \S+  in [3-9] more \(octavo memory\)$")
        self.assertTrue(plan[held + 12].startswith("source: simulated"), plan)
        code, out, _ = self.octavo("scan", "plan", *geometry[:-2], "--ascans", "16384", "--bscans", "16384", "--volumes", "100")
        self.assertEqual(code, 1)
        lines = out.splitlines()
        self.assertRegex(lines[0], r"^does NOT fit devices/0: wants ")
        self.assertRegex(lines[1], r"can never fit|commit, spill or discard")
        self.assertLessEqual(sum(" held volume " in line for line in lines), 10)
        # A refused scan prints the same figures.
        code, _, error = self.octavo("scan", "submit", *geometry[:-2], "--ascans", "16384", "--bscans", "16384", "--volumes", "100")
        self.assertEqual(code, 1)
        self.assertIn(lines[0], error)
        self.assertEqual(error.count(lines[1]), 1)
        self.assertLessEqual(error.count(" held volume "), 10)

    SMALL = ("--source", "simulated", "--fast", "--samples", "256", "--ascans", "16", "--bscans", "8")

    def test_the_ending_of_a_destination_decides(self):
        """The ending decides, for commit, auto-commit and convert alike; without one, --format or
        OME-Zarr."""
        scan = self.fine("scan", "submit", *self.SMALL, "--volumes", "6", "--watch").splitlines()[0]
        at = lambda *parts: os.path.join(self.daemon.root, *parts)  # noqa: E731
        calls = ((("first.nii",), "first.nii"), (("foo.tif",), "foo.tif"), (("a/b.h5", "--chunk", "1,2,3"), "a/b.h5"), (("v1.5",), "v1.5.ome.zarr"),
                 (("same.npy", "--format", "npy"), "same.npy"), (("c", "--format", "nrrd"), "c.nrrd"))
        for volume, (arguments, name) in zip(self.client.volumes(scan), calls):
            with self.subTest(arguments):
                array = self.client.read(volume.name)
                uri = self.fine("volume", "commit", volume.name, *arguments).split()[0]
                self.assertEqual(uri, at(name))
                for format, endings in (("nifti", ".nii"), ("tiff", ".tif"), ("hdf5", ".h5"), ("zarr", ".zarr"), ("npy", ".npy"), ("nrrd", ".nrrd")):
                    if name.endswith(endings):
                        np.testing.assert_array_equal(READERS[format](uri).array, array)
        code, _, error = self.octavo("volume", "commit", volume.name, "again")
        self.assertEqual(code, 1)
        self.assertIn(f"is COMMITTED ({uri}); only a HELD one can be committed [VOLUME_STATE]\n", error)
        self.assertEqual(error.count(uri), 1)
        for more in ((), ("--format", "nrrd")):
            scan = self.fine("scan", "submit", *self.SMALL, "--volumes", "1", "--disposition", "auto-commit", "--destination", f"auto{len(more)}.nrrd", *more, "--watch").split()[0]
            until(lambda: self.client.scan(scan).volumes_committed == 1)
            self.assertEqual(READERS["nrrd"](at(f"auto{len(more)}.nrrd")).array.shape, (8, 16, 128))

    def test_texts_of_others_control_no_terminal(self):
        title = "a\x1b[2Jb\nbuffers/fake  READY\u202ec\x9bd"
        scan = self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=1), samples=128, title=title)
        self.client.wait(scan.name)
        (volume,) = self.client.volumes(scan.name)
        shown = r"a\x1b[2Jb\x0abuffers/fake  READY\u202ec\x9bd"
        for command in (("scan", "list"), ("scan", "show", scan.name), ("volume", "list"), ("volume", "show", volume.name), ("memory",)):
            said = self.fine(*command)
            self.assertIn(shown, said, command)
            self.assertNotRegex(said, r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", command)
        self.assertIn(title, json.loads(self.fine("--json", "scan", "show", scan.name))["spec"]["title"])  # for programs as it is
        # The text of an error holds what other clients said, too.
        with self.client.lease(volume.name, holder="evil\n2026 ERROR fake\x1b[31m", seconds=60):
            code, _, error = self.octavo("volume", "discard", volume.name)
        self.assertEqual(code, 1, error)
        self.assertIn(r"evil\x0a2026 ERROR fake\x1b[31m", error)
        self.assertNotRegex(error, r"[\x00-\x09\x0b-\x1f\x7f-\x9f]|\n2026")

    def test_buffers(self):
        at = lambda name: os.path.join(self.daemon.directory, name)  # noqa: E731
        rng = np.random.default_rng(5)
        for dtype in ("u1", "<i2", "<f4", "<f8", "<c8", "<u4", "<i8", "<c16"):
            array = (100 * rng.random((3, 5, 4))).astype(dtype)
            np.save(at("in.npy"), array)
            name = self.fine("buffer", "put", at("in.npy"), "--label", "eye=OD").split()[0]
            self.assertIn("[3, 5, 4]", self.fine("buffer", "show", name))
            self.assertIn(name, self.fine("buffer", "list", "--filter", "labels.eye = OD"))
            self.fine("buffer", "get", name, "-o", at("out.npy"))
            back = np.load(at("out.npy"))
            self.assertEqual(back.dtype, array.dtype)
            np.testing.assert_array_equal(back, array)
            np.testing.assert_array_equal(self.client.buffers.read(name), array)
            self.fine("buffer", "get", name, "-o", at("out.npy"), "--start", "1,0,2", "--count", "2,0,1")
            np.testing.assert_array_equal(np.load(at("out.npy")), array[1:3, :, 2:3])
            made = json.loads(self.fine("--json", "buffer", "apply", name, "--operation", '{"flip": {"axes": [1]}}', "--operation", '{"transpose": {}}'))
            self.assertEqual((made["state"], made["origin"]), ("BUFFER_STATE_READY", name))
            np.testing.assert_array_equal(self.client.buffers.read(made["name"]), array[:, ::-1].T)
            for one in (made["name"], name):
                self.assertEqual(self.fine("buffer", "destroy", one), f"{one}  destroyed\n")
        np.save(at("line.npy"), np.arange(7, dtype="<f4"))
        name = self.fine("buffer", "put", at("line.npy"), "--devices", "0", "--ttl", "600").split()[0]
        self.assertIn("on devices/0  expires in", self.fine("buffer", "show", name))
        self.fine("buffer", "get", name, "-o", at("line2.npy"), "--replica", "0")
        np.testing.assert_array_equal(np.load(at("line2.npy")), np.load(at("line.npy")))
        lanes = self.client.buffers.put(np.arange(12, dtype="<u2").reshape(2, 3, 2), lanes=2)
        self.fine("buffer", "get", lanes.name, "-o", at("lanes.npy"))
        np.testing.assert_array_equal(np.load(at("lanes.npy")), np.arange(12, dtype="<u2").reshape(2, 3, 2))
        np.save(at("turned.npy"), np.asfortranarray(np.ones((2, 3), "<f4")))
        before = self.client.buffers.list()
        code, _, error = self.octavo("buffer", "put", at("turned.npy"))
        self.assertEqual(code, 2)
        self.assertIn("is in Fortran order; allowed is C order (np.ascontiguousarray)", error)
        code, _, error = self.octavo("buffer", "put", at("line.npy"), "--devices", "99")
        self.assertEqual((code, self.client.buffers.list()), (1, before))
        scan = self.fine("scan", "submit", *self.SMALL, "--volumes", "1", "--watch").split()[0]
        (volume,) = self.client.volumes(scan)
        made = self.fine("buffer", "apply", volume.name, "--operation", '{"histogram": {"bins": 16}}').split()[0]
        self.assertEqual(self.client.buffers.read(made).sum(), volume.read().size)
        bins = volume.derive({"histogram": {"bins": 16}})
        self.assertNotIn(" um)", self.fine("volume", "png", bins.name, "-o", at("bins.png"), "--plane", "z"))
        self.assertIn(" um)", self.fine("volume", "png", volume.name, "-o", at("volume.png"), "--plane", "z"))

    def test_other_packages_words_and_endings_in_upper_case(self):
        words = ("--dtype", "float32", "--raw-type", "uint16", "--window", "hanning")
        scan = self.fine("scan", "submit", *self.SMALL, "--volumes", "1", *words, "--watch").split()[0]
        (volume,) = self.client.volumes(scan)
        self.assertEqual(self.client.read(volume).dtype, np.float32)
        self.assertEqual(self.client.scan(scan).spec.processing.window, 2)  # HANN
        uri = self.fine("volume", "commit", volume.name, "first.NII").split()[0]
        self.assertEqual(uri, os.path.join(self.daemon.root, "first.NII"))

    def test_how_long_a_volume_is_held(self):
        scan = self.fine("scan", "submit", *self.SMALL, "--volumes", "1", "--watch").split()[0]
        (volume,) = self.client.volumes(scan)
        for _ in range(8):  # at several instants within a second
            before = datetime.datetime.now(datetime.timezone.utc)
            held = re.search(r"  held (\S+) s", self.fine("volume", "show", volume.name))
            after = datetime.datetime.now(datetime.timezone.utc)
            self.assertTrue((before - volume.hold_time).total_seconds() - 0.051 <= float(held[1]) <= (after - volume.hold_time).total_seconds() + 0.051, held)
            time.sleep(0.11)

    def test_derived_volumes(self):
        scan = self.fine("scan", "submit", *self.SMALL, "--volumes", "1", "--device", "0", "--watch").split()[0]
        (volume,) = self.client.volumes(scan)
        array = volume.read()  # [8, 16, 128]
        for flags, wanted in ((("--crop", "1,2,3,4,0,6"), array[1:5, 2:, 3:9]), (("--mip", "z"), array.max(axis=2, keepdims=True)),
                              (("--slab", "z=100:"), array[:, :, 100:].max(axis=2, keepdims=True)), (("--min", "y=2:5"), array[2:5].min(axis=0, keepdims=True)),
                              (("--mip", "x", "--crop", "0,4,0,0,8,0"), array[:, 4:12].max(axis=1, keepdims=True))):
            with self.subTest(flags):
                made = self.fine("volume", "derive", volume.name, *flags).split()[0]
                np.testing.assert_array_equal(self.client.read(made), wanted)
        for flag, wanted in (("--mean", array[:, :, 10:20].mean(axis=2, keepdims=True, dtype="f8")), ("--std", array[:, :, 10:20].std(axis=2, keepdims=True, dtype="f8"))):
            made = self.fine("volume", "derive", volume.name, flag, "z=10:20").split()[0]
            np.testing.assert_allclose(self.client.read(made), wanted, rtol=1e-5, atol=0.51)
        made = self.client.volume(self.fine("volume", "derive", volume.name, "--resize", "4,0,64").split()[0])
        self.assertEqual(made.shape, [4, 16, 64])
        np.testing.assert_array_equal(made.read(), volume.derive({"resize": {"shape": [4, 0, 64]}}).read())
        made = self.client.volume(self.fine("volume", "derive", volume.name, "--affine", "1,0,0,0,1,0,0,0,0.5,0,0.25,3", "--sampling", "cubic").split()[0])
        same = {"affine": {"matrix": [[1, 0, 0], [0, 1, 0], [0, 0, 0.5]], "offset": [0, 0.25, 3], "sampling": "cubic"}}
        np.testing.assert_array_equal(made.read(), volume.derive(same).read())
        self.assertIn("has 10 numbers; allowed are 9 and 12", self.octavo("volume", "derive", volume.name, "--affine", "1,0,0,0,1,0,0,0,1,0")[2])
        self.assertIn("needs --resize or --affine", self.octavo("volume", "derive", volume.name, "--sampling", "cubic")[2])
        made = self.client.volume(self.fine("volume", "derive", volume.name, "--median", "3", "--gaussian", "0,0,20", "--threshold", "otsu").split()[0])
        wanted = volume.derive({"median": {"size": 3}}, {"gaussian": {"sigma_um": [0, 0, 20]}}, {"threshold": {"otsu": {}}})
        np.testing.assert_array_equal(made.read(), wanted.read())
        self.assertEqual(made.quantity, "MASK")

    def test_bars_without_room_are_told(self):
        scan = self.fine("scan", "submit", *self.SMALL, "--volumes", "1", "--watch").split()[0]
        (volume,) = self.client.volumes(scan)
        picture = os.path.join(self.daemon.directory, "bars.png")
        code, out, error = self.octavo("volume", "png", volume.name, "--plane", "z=60", "--scale-bar", "--colour-bar", "-o", picture)
        self.assertEqual(code, 0, error)
        self.assertIn("octavo: warning: no colour bar: the picture of 16 x 8 pixels is too small for one\n", error)
        self.assertEqual(self.octavo("volume", "png", volume.name, "--plane", "z=60", "-o", picture)[2], "")

    def test_warnings_name_the_flags(self):
        np.random.default_rng(1).integers(0, 4096, (64, 512)).astype("<u2").cumsum(axis=1, dtype="<u2").tofile(os.path.join(self.daemon.root, "words.u16"))
        plan = self.fine("scan", "plan", "--path", "words.u16", "--raw-type", "u8", "--samples", "1024", "--ascans", "8", "--bscans", "8", "--extent-y", "3000")
        self.assertIn("acquisition.raw_type is u8", plan)
        self.assertIn("(--raw-type)", plan)
        self.assertIn("extent_y_mm is 3000", plan)
        self.assertIn("(--extent-y)", plan)

    def test_an_incomplete_volume_is_told_at_its_commit(self):
        np.save(os.path.join(self.daemon.root, "short.npy"), np.ones((200, 256), np.uint16))
        scan = self.fine("scan", "submit", "--path", "short.npy", "--ascans", "16", "--bscans", "8", "--volumes", "2", "--watch").split()[0]
        whole, lacking = self.client.volumes(scan)
        code, out, error = self.octavo("volume", "commit", lacking.name, "lacking")
        self.assertEqual((code, error), (0, f"octavo: warning: {lacking.name} is incomplete: 56 A-scans are missing\n"))
        self.assertIn("lacking.ome.zarr", out)
        self.assertEqual(self.octavo("volume", "commit", whole.name, "whole")[2], "")

    def test_a_picture_says_what_it_shows(self):
        scan = self.fine("scan", "submit", *self.SMALL, "--volumes", "1", "--watch").split()[0]
        for flags, words in (((), "MIP  picture "), (("--product", "bscan", "--index", "3"), "BSCAN y 3  picture "),
                             (("--product", "bscan", "--axis", "x"), "BSCAN x in the middle  picture ")):
            self.assertIn(words, self.fine("watch", "--parent", scan, "--count", "1", *flags))

    def test_raw_spectra_are_held_and_json_is_taken_as_text(self):
        spec = '{"simulated": {"seed": 4}, "title": "inline"}'
        out = self.fine("scan", "submit", "--json-spec", spec, *self.SMALL, "--volumes", "1", "--hold-raw", "--watch")
        held = self.client.volumes(out.split()[0])
        self.assertEqual((sorted(v.raw for v in held), held[0].title), ([False, True], "inline"))
        (raw,) = [v.name for v in held if v.raw]
        self.assertIn("a2 ", self.fine("job", "autofocus", raw, "--only-a2", "--watch"))
        job = self.fine("job", "submit", "--json-spec", json.dumps({"reprocess": {"volume": raw}}), "--watch")
        self.assertIn("DONE", job)

    def interrupted(self, *arguments, until_begun=None):
        """Runs a watching command and interrupts it once it is ready; returns its output."""
        process = subprocess.Popen([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, *arguments], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        first = process.stdout.readline() if until_begun else ""
        if until_begun:
            until(lambda: until_begun(first.split()[0]))

        def caught():
            with open(f"/proc/{process.pid}/status") as status:
                return int(next(line for line in status if line.startswith("SigCgt")).split()[1], 16) & 2  # SIGINT

        until(caught)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, error)
        return first.split()[0] if first else "", error

    def test_who_interrupts_the_watching_leaves_scan_and_job_alone(self):
        endless = ("scan", "submit", "--source", "simulated", *self.SMALL[3:], "--volumes", "0", "--rate", "1000", "--watch")
        scan, error = self.interrupted(*endless, until_begun=lambda name: self.client.scan(name).records > 0)
        ends = f"octavo: the scan goes on: octavo scan cancel {scan} ends it\n"
        self.assertTrue(error.endswith(ends), error)
        self.assertEqual(self.interrupted("scan", "watch", scan)[1], ends)
        self.assertEqual(self.client.scan(scan).state, 2)
        self.fine("scan", "cancel", scan)
        self.client.wait(scan)
        np.save(os.path.join(self.daemon.root, "long.npy"), np.ones((24, 2, 64), np.float32))
        spec = {"tomography": {"file": {"path": "long.npy"}, "angles_rad": list(np.arange(24) * np.pi / 24), "preparation": {"already_sinograms": True},
                               "reconstruction": {"algorithm": "ALGORITHM_SIRT", "iterations": 1000000}}}
        job, error = self.interrupted("job", "submit", "--json-spec", json.dumps(spec), "--watch", until_begun=lambda name: self.client.job(name).state == 2)
        ends = f"octavo: the job goes on: octavo job cancel {job} ends it\n"
        self.assertEqual(error, ends)
        self.assertEqual(self.interrupted("job", "watch", job)[1], ends)
        self.assertEqual(self.client.job(job).state, 2)
        self.fine("job", "cancel", job)

    def test_a_slice_that_is_not_there_costs_no_work(self):
        tomo = np.exp(-np.random.default_rng(1).random((24, 6, 32))).astype(np.float32)
        np.save(os.path.join(self.daemon.root, "slices.npy"), tomo)

        def no_room():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))  # of a file

        flags = ("recon", "slices.npy", "--angles", "0:172.5:24", "--transmissions")
        picture = os.path.join(self.daemon.directory, "slice.png")
        for more, slices in (((), 6), (("-o", "recon.npy"), 6), (("--rows", "1:5"), 4), (("--bin", "2"), 3), (("--prepare-only",), 6), (("--plan",), 6)):
            with self.subTest(more):
                code, out, error = self.octavo(*flags, "--png", picture, "--slice", str(slices), *more)
                self.assertEqual((code, out), (2, ""))
                self.assertIn(f"--slice: is {slices}; allowed are 0 to {slices - 1}, the slices of the volume", error)
        self.assertFalse(os.path.exists(picture))
        self.assertFalse(os.path.exists(os.path.join(self.daemon.root, "recon.npy")))
        done = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, *flags, "--png", picture, "-o", "unseen.npy"], capture_output=True,
                              text=True, timeout=60, preexec_fn=no_room)
        self.assertEqual((done.returncode, done.stderr), (1, f"octavo: could not write {picture}\n"))
        self.assertEqual(np.load(os.path.join(self.daemon.root, "unseen.npy")).shape, (6, 32, 32))
        # The messages do not name volumes that are gone, each message comes once, and tried axes
        # are listed as such.
        out = self.fine(*flags, "--png", picture, "--slice", "5")
        self.assertNotIn("volumes/", out)
        np.save(os.path.join(self.daemon.root, "noted.npy"), tomo)
        # Angles that tell nothing about the axis are no reason to guess it.
        code, _, error = self.octavo("recon", "noted.npy", "--angles", "0:100:24", "--png", picture)
        self.assertEqual(code, 1)
        self.assertIn("no projections half a turn apart", error)
        self.assertIn("center.pixels: --center", error)
        out = self.fine("recon", "noted.npy", "--angles", "0:100:24", "--center", "middle", "--png", picture)
        warnings = [line.split("warning: ")[1] for line in out.splitlines() if "warning: " in line]
        self.assertGreater(len(warnings), 0)
        self.assertEqual(len(set(warnings)), len(warnings), out)
        out = self.fine(*flags, "--try-centers", "14:17:1", "--rows", "2", "--png", picture)
        self.assertIn("axes from column 14 to 17 tried", out)
        self.assertNotIn("axis at column", out)
        np.save(os.path.join(self.daemon.root, "slices.npy"), tomo * 3)
        code, out, error = self.octavo(*flags, "--algorithm", "mlem", "--png", picture)
        self.assertEqual(code, 1)
        self.assertIn("values are negative; mlem allows 0 or more, or ask for negative data to become 0) (--negative-to-zero)", out)
        self.fine(*flags, "--algorithm", "mlem", "--negative-to-zero", "--png", picture)

    def test_exit_codes(self):
        self.assertEqual(self.octavo("volume", "show", "volumes/none")[0], 1)
        self.assertEqual(self.octavo("nonsense")[0], 2)
        self.assertEqual(self.octavo("watch", "--scale-bar")[0], 2)  # for files only
        self.assertEqual(self.octavo("watch", "--png-dir", "/proc/none", "--levels", "3", "1")[0], 1)
        self.assertEqual(self.octavo("volume", "commit", "volumes/none", "--format", "f1000")[0], 2)
        self.assertEqual(self.octavo("volume", "commit", "volumes/none", "--codec", "f1000")[0], 2)
        self.assertEqual(self.octavo("convert", "/nowhere/a.npy", "b.nii")[0], 1)
        self.assertEqual(self.octavo("convert", "/nowhere/a.npy")[0], 2)
        code, _, error = self.octavo("--timeout", "2", "info", address="127.0.0.1:1")
        self.assertEqual(code, 3)
        self.assertIn("is octavod running", error)
        code, _, error = self.octavo("scan", "submit", "--source", "simulated", "--ascans", "100000", "--bscans", "100000")
        self.assertEqual(code, 1)
        self.assertIn("[", error)
        code, out, _ = self.octavo("--json", "volume", "show", "volumes/none")
        self.assertEqual(json.loads(out)["code"], 5)


if __name__ == "__main__":
    unittest.main()
