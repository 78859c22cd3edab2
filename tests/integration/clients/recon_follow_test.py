"""octavo recon --follow: a scan is reconstructed while a program writes it (scan_writer.py)."""

import os
import time
import unittest

import h5py
import numpy as np
import tifffile

from following import FIELDS, FollowTest
from scan_writer import ANGLES, COUNT, DARKS, FLATS, ROWS, SIZE


class ReconFollow(FollowTest):
    def test_ways_of_writing(self):
        ways = {"swmr.h5": (dict(swmr=True), ()),
                "swmr-grow.h5": (dict(swmr=True, grow=True, compress=True, theta="grow", seed=2), ("--follow-count", str(COUNT))),
                "plain.h5": (dict(seed=3), ()),
                "plain-grow.h5": (dict(grow=True, theta="none"), ("--angles", f"0:{ANGLES[-1]}:{COUNT}")),
                "latest.h5": (dict(latest=True), ()),
                "contiguous.h5": (dict(chunk=0), ()),
                "chunks.h5": (dict(chunk=7, compress=True, flush_every=3), ()),
                "chunks-swmr.h5": (dict(chunk=4, swmr=True, grow=True), ("--follow-count", str(COUNT), "--follow-flats", str(FLATS), "--follow-darks", str(DARKS))),
                "fields-last.h5": (dict(swmr=True, fields="last"), ()),
                "fields-last-grow.h5": (dict(grow=True, fields="last", swmr=True), ("--follow-count", str(COUNT))),
                "rare.h5": (dict(flush_every=11, grow=True), ("--follow-count", str(COUNT))),
                "folder": (dict(kind="tiff"), ("--angles", f"0:{ANGLES[-1]}:{COUNT}", "--flats", self.at("folder.white"), "--darks", self.at("folder.dark"))),
                "new.zarr": (dict(kind="zarr", grow=True), ("--follow-count", str(COUNT))),
                "set.zarr": (dict(kind="zarr"), ("--follow-count", str(COUNT)))}
        followers = {name: self.follower(name, *flags) for name, (_, flags) in ways.items()}
        time.sleep(1.5)  # the files are not there yet, which the command says after a second
        writers = {name: self.writer(name, **job) for name, (job, _) in ways.items()}
        for name, process in followers.items():
            with self.subTest(name):
                said = self.ended(process)
                self.ended(writers[name])
                self.assertIn("waits for the first projection", said)
                self.assertIn(f"{COUNT} projections of {ROWS} x {SIZE} (u16), {FLATS} flat and {DARKS} dark fields", said)
                np.testing.assert_array_equal(self.result(name), self.reference)
                self.assertEqual("waits for flat fields" in said, "last" in name and "grow" in name)

    def test_projections_are_sent_while_the_scan_runs(self):
        follower = self.follower("live.h5")
        writer = self.writer("live.h5", swmr=True, stay=True, wait=0.05, tell=True)
        for line in writer.stdout:
            if int(line) == 15:
                break
        self.until_sent(10 + FIELDS)
        self.assertIsNone(writer.poll())
        begun = time.monotonic()
        while int(writer.stdout.readline()) < COUNT - 1:
            pass
        self.ended(follower)  # while the file is open
        self.assertLess(time.monotonic() - begun, 20)
        np.testing.assert_array_equal(self.result("live.h5"), self.reference)

    def test_types_and_steps(self):
        """Followed and complete files give the same, whatever their type and the steps of the job."""
        for name, dtype, flags, options in (("float.h5", "<f4", (), {}), ("big.h5", ">u2", (), {}), ("long.h5", "<i4", (), {}), ("byte.h5", "u1", (), {}),
                                            ("rows.h5", "<u2", ("--rows", "1:4", "--projections", "0:40:2"), dict(rows=(1, 4), projections=(0, 40, 2)))):
            scale = 100 if dtype == "u1" else 1
            arrays = {key: (array // scale).astype(dtype) for key, array in (("data", self.data), ("data_white", self.flats), ("data_dark", self.darks))}
            self.whole(name, **arrays)
            with self.subTest(name):
                self.ended(self.follower(name, *flags))
                np.testing.assert_array_equal(self.result(name), self.reconstructed(name, **options))
        with h5py.File(self.at("radians.h5"), "w") as file:
            file["entry/frames"], file["entry/white"], file["entry/angle"] = self.data, self.flats, np.deg2rad(ANGLES)
            file["entry/angle"].attrs["units"] = "rad"
        self.ended(self.follower("radians.h5", "--data", "entry/frames", "--flats", "entry/white", "--darks", "-", "--angles-file", "entry/angle"))
        np.testing.assert_allclose(self.result("radians.h5"), self.without_darks(), rtol=1e-5, atol=1e-7)
        # An axis that is searched, and volumes of parts of the scan.
        self.ended(self.follower("reference.h5", center="auto", output="auto.npy"))
        self.ended(self.follower("reference.h5", "--series", "20:10", output="time/part.npy"))
        for i in range(3):
            self.assertEqual(np.load(self.at("time", f"part_{i:04}.npy")).shape, self.reference.shape)
        # Half of a scan over a whole turn. Of all frames, fields among them, it would be less than half a turn.
        for center in ("auto", "15.25"):
            said = self.ended(self.follower("reference.h5", "--angles", f"0:{360 - 360 / COUNT}:{COUNT}", "--projections", f"0:{COUNT // 2}", center=center, output=f"half-{center}.npy"))
            self.assertNotIn("gap", said)
            self.assertEqual(np.load(self.at(f"half-{center}.npy")).shape, self.reference.shape)
        turn = ("--angles", f"0:{360 - 360 / COUNT}:{COUNT}")
        for half, begin in (("first", 0), ("second", COUNT // 2)):
            said = self.ended(self.follower("reference.h5", *turn, "--half-turn", half, output=f"{half}.npy"))
            self.assertIn(f"projections {begin} to {begin + COUNT // 2 - 1}", said)
            self.ended(self.follower("reference.h5", *turn, "--projections", f"{begin}:{begin + COUNT // 2}", output=f"by-hand-{half}.npy"))
            np.testing.assert_array_equal(np.load(self.at(f"{half}.npy")), np.load(self.at(f"by-hand-{half}.npy")))
        # Fields of another type than the projections; trial slices; sinograms alone.
        self.whole("mixed.h5", data_white=self.flats + np.float32(0.25))
        self.ended(self.follower("mixed.h5"))
        np.testing.assert_array_equal(self.result("mixed.h5"), self.reconstructed("mixed.h5"))
        picture = os.path.join(self.daemon.directory, "tries.png")
        done = self.command("recon", self.at("reference.h5"), "--follow", "--try-centers", "14:16:1", "--png", picture)
        self.assertIn(f"{picture}  3 slices", done.stdout)
        self.command("recon", self.at("reference.h5"), "--follow", "--prepare-only", "-o", "sinograms.npy")
        self.assertEqual(np.load(self.at("sinograms.npy")).shape, (ROWS, COUNT, SIZE))
        # Angles from -90 to 0: the last one is the fill value, and goes on in equal steps.
        self.whole("to-zero.h5", theta=np.linspace(-90, 0, COUNT))
        self.ended(self.follower("to-zero.h5"))
        np.testing.assert_array_equal(self.result("to-zero.h5"), self.reconstructed("to-zero.h5"))

    def test_mistakes(self):
        np.save(self.at("x.npy"), self.data)
        tifffile.imwrite(self.at("x.tif"), self.data, photometric="minisblack")
        with open(self.at("text.h5"), "w") as file:
            file.write("no scan " * 200)
        self.whole("no-angles.h5")
        self.whole("theta.h5", theta=ANGLES[:-1])
        self.whole("flat.h5", data=self.data[0])
        self.whole("small.h5", data_white=self.flats[:, 1:])
        self.whole("nan.h5", theta=np.where(np.arange(COUNT) == 7, np.nan, ANGLES))
        self.whole("unit.h5")
        with h5py.File(self.at("no-angles.h5"), "a") as file:
            del file["exchange/theta"]
        with h5py.File(self.at("unit.h5"), "a") as file:
            file["exchange/theta"].attrs["units"] = "mm"
        with h5py.File(self.at("virtual.h5"), "w", libver="latest") as file:
            layout = h5py.VirtualLayout(self.data.shape, "<u2")
            layout[:] = h5py.VirtualSource(self.at("reference.h5"), "exchange/data", self.data.shape)
            file.create_virtual_dataset("exchange/data", layout)
            file["exchange/theta"] = ANGLES
        with h5py.File(self.at("endless.h5"), "w") as file:
            for name, array in (("data", self.data), ("data_white", self.flats), ("theta", ANGLES)):
                file.create_dataset(f"exchange/{name}", data=array, maxshape=(None, *array.shape[1:]))
        with h5py.File(self.at("many.h5"), "w") as file:
            for name, array in (("data", self.data), ("theta", ANGLES)):
                file[f"exchange/{name}"] = array
            fields = file.create_dataset("exchange/data_white", (2 ** 32 + 1, ROWS, SIZE), "<u2", chunks=(1, ROWS, SIZE))
            fields[0] = self.flats[0]
        before = len(self.client.jobs())
        for flags, code, words in ((("x.npy",), 1, "is .npy, whose header says how long it is from the first; allowed HDF5, Zarr, or a folder of TIFF files"),
                                   (("x.tif",), 1, "is a single file of TIFF; allowed"),
                                   (("text.h5", "--follow-timeout", "1"), 1, "nothing new for 1 s (--follow-timeout): text.h5 cannot be read now"),
                                   (("no-angles.h5", "--follow-timeout", "1"), 1, "nothing new for 1 s (--follow-timeout): has no angles: nothing is at /exchange/theta; allowed --angles"),
                                   (("reference.h5", "--follow-timeout", "1", "--data", "entry/x"), 1, "has no projections: nothing is at entry/x (--data)"),
                                   (("reference.h5", "--follow-timeout", "1", "--flats", "entry/x"), 1, "no flat field is written yet at entry/x (--flats)"),
                                   (("reference.h5", "--follow-timeout", "1", "--darks", "entry/x"), 1, "no dark field is written yet at entry/x (--darks)"),
                                   (("reference.h5", "--follow-timeout", "1", "--angles-file", "entry/x"), 1, "has no angles: nothing is at entry/x; allowed --angles"),
                                   (("endless.h5", "--follow-count", "1000001"), 1, "--follow-count gives 1000001 projections; allowed 1000000 frames in all"),
                                   (("endless.h5", "--follow-count", "4294967295"), 1, "--follow-count gives 4294967295 projections; allowed 1000000 frames in all"),
                                   (("endless.h5", "--follow-count", "999990", "--follow-flats", "11"), 1, "--follow-flats gives 11 flat fields after 999990 other frames; allowed"),
                                   (("many.h5", "--follow-count", "40"), 1, "/exchange/data_white gives 4294967297 flat fields after 40 other frames; allowed 1000000"),
                                   (("reference.h5", "--half-turn", "first"), 1, "half_turn: is FIRST, but the 40 projections turn by"),
                                   (("reference.h5", "--half-turn", "best", "--angles", "0:179:40"), 1,
                                    "and hold 1 complete half turn; allowed are two or more, 360 degrees: leave half_turn out to use all projections (--half-turn)"),
                                   (("reference.h5", "--half-turn", "second", "--angles", "0:351:40", "--projections", "0:10"), 1, "hold no complete half turn; allowed"),
                                   (("reference.h5", "--follow-count", "0"), 2, "--follow-count: is 0; allowed are 1 or more"),
                                   (("theta.h5",), 1, "/exchange/theta has 39 values for ever, and 40 projections are to come"),
                                   (("reference.h5", "--follow-count", "41"), 1, "/exchange/data has 40 values for ever, and 41 projections are to come"),
                                   (("reference.h5", "--angles", "0:180:41"), 1, "/exchange/data has 40 values for ever, and 41"),
                                   (("endless.h5",), 1, "does not say how many projections will come: /exchange/data and its angles may grow; allowed --follow-count N"),
                                   (("flat.h5",), 1, "/exchange/data has 2 dimensions; allowed 3"),
                                   (("small.h5",), 1, "/exchange/data_white has frames of 4 x 32; allowed 5 x 32"),
                                   (("nan.h5",), 1, "/exchange/theta is nan at 7; allowed finite angles"),
                                   (("unit.h5",), 1, "/exchange/theta@units is 'mm'; allowed degrees or radians"),
                                   (("virtual.h5",), 1, "/exchange/data is a virtual dataset; allowed a dataset of the file that is written"),
                                   (("reference.h5", "-o", "x.nothing"), 2, "--output"),
                                   (("reference.h5", "--follow-count", "7", "--angles", "0:180:9"), 2, "--follow-count: is 7, and --angles gives 9; allowed is the same number"),
                                   (("reference.h5", "theta.h5"), 2, "--follow"), (("reference.h5", "--preview", "x"), 2, "excludes"), (("reference.h5", "--plan"), 2, "excludes"),
                                   (("reference.h5", "-o", "x.npy", "--no-wait"), 2, "excludes"), (("reference.h5", "--output-dir", "x"), 2, "excludes"),
                                   (("reference.h5", "--follow-timeout", "0"), 2, "--follow-timeout"), (("reference.h5", "--follow-count", "-1"), 2, "--follow-count")):
            with self.subTest(flags=flags):
                paths = [self.at(flag) if flag.split(".")[-1] in ("h5", "npy", "tif") and flags[i - 1] != "-o" else flag for i, flag in enumerate(flags)]
                done = self.command("recon", *paths, "--follow", check=False)
                self.assertEqual(done.returncode, code, done.stderr + done.stdout)
                self.assertIn(words, done.stderr)
        for flags, flag in ((("--transmissions", "--follow-flats", "3"), "--follow-flats"), (("--darks", "-", "--follow-darks", "3"), "--follow-darks")):
            self.assertIn(f"{flag}: counts fields, and none are used here", self.command("recon", self.at("reference.h5"), "--follow", *flags, check=False).stderr)
        for flag in ("--follow-count", "--follow-flats", "--follow-darks", "--follow-timeout"):
            self.assertIn(f"{flag} requires --follow", self.command("recon", "x.h5", flag, "3", check=False).stderr)
        self.assertEqual(len(self.client.jobs()), before)  # each was refused before a job was made


if __name__ == "__main__":
    unittest.main()
