"""octavo recon --follow ends with a reason, and never hangs or mixes scans, whatever happens to the files of the scan."""

import os
import time
import unittest

import h5py
import numpy as np
import tifffile

from following import FIELDS, FollowTest
from scan_writer import ANGLES, COUNT, FLATS, ROWS, SIZE


class ReconFollowFaults(FollowTest):
    def begun(self, name, frames=10, timeout=20, **layout):
        """A file whose first frames are sent, and its follower."""
        file = h5py.File(self.at(name), "w")
        self.addCleanup(file.close)
        for dataset, array in (("data_white", self.flats), ("data_dark", self.darks), ("theta", ANGLES)):
            file[f"exchange/{dataset}"] = array
        data = file.create_dataset("exchange/data", self.data.shape, "<u2", **(layout or dict(chunks=(1, ROWS, SIZE))))
        data[:frames] = self.data[:frames]
        file.flush()
        follower = self.follower(name, timeout=timeout)
        self.until_sent(frames + FIELDS)
        return file, follower

    def test_a_wrong_checksum_does_not_hang(self):
        with h5py.File(self.at("damaged.h5"), "w", libver="latest") as file:
            for dataset, array in (("data", self.data), ("data_white", self.flats), ("theta", ANGLES)):
                file.create_dataset(f"exchange/{dataset}", data=array, chunks=True)
        with open(self.at("damaged.h5"), "r+b") as file:
            content = file.read()
            headers = [at for at in range(len(content)) if content[at:at + 4] == b"OHDR"]
            self.assertGreater(len(headers), 3)
            for at in headers[1:]:  # the root group stays whole
                file.seek(at + 20)
                file.write(bytes([content[at + 20] ^ 0x55]))
        begun = time.monotonic()
        self.assertIn("nothing new for 1 s (--follow-timeout)", self.ended(self.follower("damaged.h5", timeout=1), 1))
        self.assertLess(time.monotonic() - begun, 20)

    def test_another_file_takes_the_place(self):
        self.whole("other.h5", data=self.data[::-1])
        file, follower = self.begun("replaced.h5")
        os.rename(self.at("other.h5"), self.at("replaced.h5"))
        self.assertIn("another file has taken its place", self.ended(follower, 1))
        file.close()
        file, follower = self.begun("pipe.h5")
        os.mkfifo(self.at("pipe"))
        os.rename(self.at("pipe"), self.at("pipe.h5"))
        self.assertIn("is no regular file any more", self.ended(follower, 1))
        file.close()
        # Nothing of the first one was taken.
        with h5py.File(self.at("early.h5"), "w") as file:
            file.create_dataset("exchange/data", (COUNT, ROWS + 1, SIZE), "<u2", chunks=(1, ROWS, SIZE))
        follower = self.follower("early.h5")
        self.assertIn("waits for the first projection", follower.stderr.readline())
        self.whole("later.h5")
        os.rename(self.at("later.h5"), self.at("early.h5"))
        self.ended(follower)
        np.testing.assert_array_equal(self.result("early.h5"), self.reference)

    def test_frames_that_are_too_large(self):
        for name, shape, words in (("huge.h5", (4, 2 ** 31, 2 ** 31), "has frames of 2147483648 rows and 2147483648 columns; allowed 1 to 65535 rows and 2 to 32768 columns"),
                                   ("rows.h5", (4, 65536, 32), "has frames of 65536 rows and 32 columns; allowed"),
                                   ("columns.h5", (4, 5, 32769), "has frames of 5 rows and 32769 columns; allowed"),
                                   ("columns1.h5", (4, 5, 1), "has frames of 5 rows and 1 columns; allowed")):
            with self.subTest(name):
                with h5py.File(self.at(name), "w") as file:
                    file.create_dataset("exchange/data", shape, "<u2", chunks=(2, 5, 1))
                    file["exchange/theta"] = np.arange(4.0)
                self.assertIn(words, self.ended(self.follower(name, timeout=5), 1))

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
                # One that is longer than the settling of the last frame is found.
                file, follower = self.begun("slow-" + name, **layout)
                file["exchange/data"][10, :2] = self.data[10, :2]
                file.flush()
                self.until_sent(11 + FIELDS)
                file["exchange/data"][10] = self.data[10]
                file.flush()
                said = self.ended(follower, 1)
                self.assertIn("frame 10 of /exchange/data has changed after it was taken", said)
                self.assertIn("CANCELLED", said)
                file.close()

    def folder(self, name, frames=10):
        """A folder of TIFF whose first frames are sent, with a folder of flats, and its follower."""
        path, white = self.at(name), self.at(name + ".white")
        for folder, arrays in ((path, self.data[:frames]), (white, self.flats)):
            os.mkdir(folder)
            for i, array in enumerate(arrays):
                tifffile.imwrite(os.path.join(folder, f"p{i:03}.tif"), array)
        follower = self.follower(name, "--angles", f"0:{ANGLES[-1]}:{COUNT}", "--flats", white, "--follow-flats", str(FLATS))
        self.until_sent(frames + FLATS)
        return path, white, follower

    def test_a_folder_that_is_away_for_a_moment(self):
        path, white, follower = self.folder("away")
        for folder in (path, white):
            os.rename(folder, folder + ".kept")
            with open(folder, "w"):
                pass
        time.sleep(0.7)
        for folder in (path, white):
            os.remove(folder)
            os.mkdir(folder)
        time.sleep(0.7)
        self.assertIsNone(follower.poll())
        for folder in (path, white):
            os.rmdir(folder)
            os.rename(folder + ".kept", folder)
        for i in range(10, COUNT):
            tifffile.imwrite(os.path.join(path, f"p{i:03}.tif"), self.data[i])
        self.ended(follower)
        np.testing.assert_array_equal(self.result("away"), self.without_darks())

    def test_a_file_of_a_folder_that_changes(self):
        path, _, follower = self.folder("changes")
        tifffile.imwrite(os.path.join(path, "p003.tif"), self.data[7])
        said = self.ended(follower, 1)
        self.assertIn("p003.tif has changed after it was taken", said)
        self.assertIn("CANCELLED", said)
        _, white, follower = self.folder("changes-white")
        tifffile.imwrite(self.at("new.tif"), self.flats[0])
        os.rename(self.at("new.tif"), os.path.join(white, "p001.tif"))
        self.assertIn("p001.tif has changed after it was taken", self.ended(follower, 1))


if __name__ == "__main__":
    unittest.main()
