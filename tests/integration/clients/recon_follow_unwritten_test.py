"""octavo recon --follow takes no frame that is not written, and says why it waits, stops or ends."""

import os
import signal
import unittest

import h5py
import numpy as np
import tifffile

from following import FIELDS, FollowTest
from harness import octavo, until
from scan_writer import ANGLES, COUNT, DARKS, FLATS, ROWS, SIZE


class ReconFollowUnwritten(FollowTest):
    def open_scan(self, name, **layout):
        """A file in SWMR mode whose fields are there; the datasets of projections and angles."""
        file = h5py.File(self.at(name), "w", libver="latest")
        self.addCleanup(file.close)
        data = file.create_dataset("exchange/data", dtype="<u2", **layout)
        theta = file.create_dataset("exchange/theta", (COUNT,), "f8", fillvalue=-1)
        for dataset, array in (("data_white", self.flats), ("data_dark", self.darks)):
            file.create_dataset(f"exchange/{dataset}", data=array, chunks=(1, ROWS, SIZE))
        file.swmr_mode = True
        return file, data, theta

    def test_what_is_not_written_is_not_taken(self):
        file, data, theta = self.open_scan("tiles.h5", shape=self.data.shape, chunks=(1, ROWS, SIZE // 2))
        follower = self.follower("tiles.h5")
        theta[:], data[:10] = ANGLES, self.data[:10]
        data[10, :, :SIZE // 2] = self.data[10, :, :SIZE // 2]  # a half
        data[12] = self.data[12]                                 # one that comes too early
        file.flush()
        self.until_sent(10 + FIELDS)
        self.stays_at(10 + FIELDS)
        data[10] = self.data[10]
        file.flush()
        self.until_sent(11 + FIELDS)
        self.stays_at(11 + FIELDS)
        data[11:] = self.data[11:]
        file.flush()
        self.ended(follower)  # the file is still open
        np.testing.assert_array_equal(self.result("tiles.h5"), self.reference)

        # Several frames in a chunk, which has space for those that are still to come.
        file, data, theta = self.open_scan("several.h5", shape=self.data.shape, chunks=(8, ROWS, SIZE))
        follower = self.follower("several.h5")
        theta[:5] = ANGLES[:5]
        data[:11] = self.data[:11]
        file.flush()
        self.until_sent(5 + FIELDS)  # as many angles as there are
        self.stays_at(5 + FIELDS)
        theta[:] = ANGLES
        file.flush()
        self.until_sent(11 + FIELDS)
        self.stays_at(11 + FIELDS)
        data[11:] = self.data[11:]
        file.flush()
        self.ended(follower)
        np.testing.assert_array_equal(self.result("several.h5"), self.reference)

        # A frame of nothing but the fill value counts where its chunk is its own, or a later one is there.
        dark = np.array(self.data)
        dark[[3, 17]] = 0
        for name, chunk in (("own.h5", (1, ROWS, SIZE)), ("shared.h5", (4, ROWS, SIZE))):
            file, data, theta = self.open_scan(name, shape=self.data.shape, chunks=chunk)
            follower = self.follower(name, "--no-log")
            theta[:], data[:] = ANGLES, dark
            file.flush()
            self.ended(follower)
            file.close()
            np.testing.assert_array_equal(self.result(name), self.reconstructed(name, prepare=octavo.preparation(logarithm=False)))

    def test_a_last_frame_that_is_half_written(self):
        """It may stay like that for longer than values have to stay the same: rows of fill values tell that it is."""
        masked = np.array(self.data)
        masked[:, 0] = 0  # in all frames: that tells nothing
        for name, layout in (("half-own.h5", dict(chunks=(1, ROWS, SIZE))), ("half-gzip.h5", dict(chunks=(1, ROWS, SIZE), compression="gzip")),
                             ("half-shared.h5", dict(chunks=(8, ROWS, SIZE))), ("half-contiguous.h5", dict(chunks=None))):
            with self.subTest(name):
                file = h5py.File(self.at(name), "w")
                self.addCleanup(file.close)
                for dataset, array in (("data_white", self.flats), ("data_dark", self.darks), ("theta", ANGLES)):
                    file[f"exchange/{dataset}"] = array
                data = file.create_dataset("exchange/data", self.data.shape, "<u2", **layout)
                data[:10], data[10, :3] = masked[:10], masked[10, :3]
                file.flush()
                follower = self.follower(name, "--no-log")
                self.until_sent(10 + FIELDS)
                for frame in (10, COUNT - 1):
                    data[:frame], data[frame, :3] = masked[:frame], masked[frame, :3]
                    file.flush()
                    self.until_sent(frame + FIELDS)
                    self.stays_at(frame + FIELDS)
                    self.stays_at(frame + FIELDS)
                    data[frame] = masked[frame]
                    file.flush()
                self.ended(follower)
                file.close()
                np.testing.assert_array_equal(self.result(name), self.reconstructed(name, prepare=octavo.preparation(logarithm=False)))
        file, follower = self.begun("half-stops.h5", frames=20, timeout=3)
        file["exchange/data"][20, 2:4] = self.data[20, 2:4]
        file.flush()
        said = self.ended(follower, 1)
        self.assertIn("20 of 40 projections", said)
        self.assertIn("3 of 5 rows of frame 20 of /exchange/data, the first is 0, hold nothing but the fill value 0, unlike those of frame 19: "
                      "it counts as half written until a later frame is there", said)
        self.assertIn("CANCELLED", said)

    def test_a_scan_that_stops(self):
        cases = {"stops.h5": (dict(swmr=True, stop_at=20), (), 1), "killed.h5": (dict(swmr=True, stop_at=20, kill=True), (), 1),
                 "killed-plain.h5": (dict(stop_at=20, kill=True), ("--follow-partial",), 0), "part.h5": (dict(swmr=True, grow=True, stop_at=20), ("--follow-partial", "--follow-count", "40"), 0),
                 "half-turn.h5": (dict(swmr=True, stop_at=20), ("--follow-partial", "--angles", "0:351:40", "--half-turn", "first"), 1),
                 "never.h5": (None, (), 1), "no-flats.h5": (dict(swmr=True, fields="none"), (), 1),
                 "folder-part": (dict(kind="tiff", stop_at=13), ("--angles", f"0:{ANGLES[-1]}:{COUNT}", "--transmissions"), 1)}
        writers = {name: self.writer(name, **job) for name, (job, _, _) in cases.items() if job}
        until(lambda: all(os.path.exists(self.at(name)) for name in writers))  # from here on the three seconds count
        followers = {name: self.follower(name, *flags, timeout=3) for name, (_, flags, _) in cases.items()}
        said = {name: self.ended(process, cases[name][2]) for name, process in followers.items()}
        for process in writers.values():
            process.communicate(timeout=60)
        for name in ("stops.h5", "killed.h5"):
            self.assertIn(f"nothing new for 3 s (--follow-timeout): 20 of 40 projections, {FLATS} of {FLATS} flat fields, {DARKS} of {DARKS} dark fields; "
                          "frame 20 of /exchange/data is not in the file yet", said[name])
            self.assertIn("CANCELLED", said[name])
            self.assertFalse(os.path.exists(self.at(name + ".npy")))
        self.assertIn(f"nothing new for 3 s (--follow-timeout): {self.at('never.h5')} is not there yet", said["never.h5"])
        self.assertIn("waits for flat fields: integers are counts", said["no-flats.h5"])
        self.assertIn("no flat field is written yet", said["no-flats.h5"])
        self.assertIn("hold 1 complete half turn; allowed are two or more, 360 degrees: leave half_turn out to use all projections", said["half-turn.h5"])
        self.assertIn("--half-turn", said["half-turn.h5"])
        self.assertIn("13 of 40 projections; folder-part has 13 frames", said["folder-part"])
        for name in ("killed-plain.h5", "part.h5"):
            self.assertIn("what came is reconstructed (--follow-partial)", said[name])
            self.assertIn("20 of 47 frames never came", said[name])
            self.whole("half.h5", data=self.data[:20], theta=ANGLES[:20])
            np.testing.assert_array_equal(self.result(name), self.reconstructed("half.h5"))
        self.assertEqual(self.client.volumes(), [])

    def test_an_interrupt_cancels_the_job(self):
        follower = self.follower("interrupted.h5")
        self.writer("interrupted.h5", swmr=True, wait=0.2)
        self.until_sent(3 + FIELDS)
        follower.send_signal(signal.SIGINT)
        self.ended(follower, 130)
        self.assertEqual([job for job in self.client.jobs() if job.state in (1, 2, 3)], [])
        self.assertFalse(os.path.exists(self.at("interrupted.h5.npy")))
        waiting = self.follower("to-come.h5")  # nothing is begun yet
        waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        self.assertNotEqual(waiting.wait(timeout=30), 0)

    def test_names_of_files_go_on(self):
        folder, pages = self.at("numbered"), self.at("white.tif")
        os.mkdir(folder)
        tifffile.imwrite(pages, self.flats, photometric="minisblack")
        np.save(self.at("angles.npy"), ANGLES)
        flags = ("--angles-file", self.at("angles.npy"), "--flats", pages)
        follower = self.follower("numbered", *flags)
        for i in (*range(8), *range(9, 12)):
            tifffile.imwrite(os.path.join(folder, f"p{i:03}.tif"), self.data[i])
        self.until_sent(8 + FLATS)
        self.stays_at(8 + FLATS)
        for i in (8, *range(12, COUNT)):
            tifffile.imwrite(os.path.join(folder, f"p{i:03}.tif"), self.data[i])
        self.ended(follower)
        np.testing.assert_array_equal(self.result("numbered"), self.without_darks())
        # One that comes too late would shift the angles of all that follow.
        os.remove(os.path.join(folder, "p039.tif"))
        os.rename(os.path.join(folder, "p000.tif"), self.at("first.tif"))
        follower = self.follower("numbered", *flags, output="never.npy")
        self.until_sent(10 + FLATS)
        os.rename(self.at("first.tif"), os.path.join(folder, "p000.tif"))
        said = self.ended(follower, 1)
        self.assertIn("p000.tif came after p001.tif was taken; allowed files that appear in the order of their names", said)
        self.assertIn("CANCELLED", said)


if __name__ == "__main__":
    unittest.main()
