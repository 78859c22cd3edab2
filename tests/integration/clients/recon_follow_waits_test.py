"""octavo recon --follow waits for what is still to come, and for nothing else."""

import time
import unittest

import h5py
import numpy as np

from following import FIELDS, FollowTest
from scan_writer import ANGLES, ROWS, SIZE


class ReconFollowWaits(FollowTest):
    def test_frames_in_parts(self):
        """A pause within a frame that is longer than two looks: it is not taken before it is whole."""
        for name, layout in (("bands.h5", dict(chunks=(1, ROWS, SIZE))), ("bands-contiguous.h5", dict(chunks=None))):
            with self.subTest(name):
                file, follower = self.begun(name, **layout)
                for i in (10, 11):
                    for rows in (slice(0, 2), slice(2, ROWS)):
                        data = file["exchange/data"]
                        data[i, rows] = self.data[i, rows]
                        file.flush()
                        time.sleep(0.5)
                data[12:] = self.data[12:]
                file.flush()
                self.ended(follower)
                np.testing.assert_array_equal(self.result(name), self.reference)
                file.close()
                # One that is longer than the settling of the last frame, and leaves no row empty, is found.
                file, follower = self.begun("slow-" + name, **layout)
                file["exchange/data"][10, :, :SIZE // 2] = self.data[10, :, :SIZE // 2]
                file.flush()
                self.until_sent(11 + FIELDS)
                file["exchange/data"][10] = self.data[10]
                file.flush()
                said = self.ended(follower, 1)
                self.assertIn("frame 10 of /exchange/data has changed after it was taken", said)
                self.assertIn("CANCELLED", said)
                file.close()

    def test_angles_come_late(self):
        with h5py.File(self.at("late.h5"), "w") as file:
            for dataset, array in (("data", self.data), ("data_white", self.flats), ("data_dark", self.darks)):
                file[f"exchange/{dataset}"] = array
        follower = self.follower("late.h5")
        time.sleep(1)
        self.assertIsNone(follower.poll())
        with h5py.File(self.at("late.h5"), "a") as file:
            file["exchange/theta"] = ANGLES
        self.ended(follower)
        np.testing.assert_array_equal(self.result("late.h5"), self.reference)

    def test_no_fields(self):
        self.ended(self.follower("reference.h5", "--follow-darks", "0", output="bright.npy"))
        np.testing.assert_array_equal(np.load(self.at("bright.npy")), self.without_darks())
        self.whole("transmissions.h5", data=(self.data / np.float32(20100)).astype("<f4"))
        with h5py.File(self.at("transmissions.h5"), "a") as file:
            del file["exchange/data_white"], file["exchange/data_dark"]
        expected = self.reconstructed("transmissions.h5")
        self.whole("unused.h5", data=(self.data / np.float32(20100)).astype("<f4"))
        self.ended(self.follower("unused.h5", "--follow-flats", "0", "--follow-darks", "0"))
        np.testing.assert_array_equal(self.result("unused.h5"), expected)

    def test_a_file_that_grows_without_frames(self):
        file, follower = self.begun("noise.h5", timeout=3)
        begun = time.monotonic()
        for i in range(200):
            if follower.poll() is not None:
                break
            file.create_dataset(f"noise/{i}", data=np.arange(1000))
            file.flush()
            time.sleep(0.1)
        self.assertIn("nothing new for 3 s (--follow-timeout): 10 of 40 projections", self.ended(follower, 1))
        self.assertLess(time.monotonic() - begun, 15)


if __name__ == "__main__":
    unittest.main()
