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

    def test_a_file_that_is_written_anew_in_its_place(self):
        """Without another name, or another file: the same place on the disk."""
        for name, frames in (("anew.h5", 15), ("anew-short.h5", 3)):
            file, follower = self.begun(name)
            inode = os.stat(self.at(name)).st_ino
            file.close()
            with h5py.File(self.at(name), "w") as again:
                again["exchange/theta"] = ANGLES
                again.create_dataset("exchange/data", self.data.shape, "<u2", chunks=(1, ROWS, SIZE))[:frames] = self.data[::-1][:frames]
            self.assertEqual(os.stat(self.at(name)).st_ino, inode)
            said = self.ended(follower, 1)
            self.assertRegex(said, "frame [09] of /exchange/data has changed after it was read: another scan is written in its place, or it was half written; "
                                   "allowed files whose frames stay|was cut to [0-9]+ bytes after frames of it were read")
            self.assertIn("CANCELLED", said)
        for size in (0, 100):  # cut, and nothing new yet
            file, follower = self.begun(f"cut-{size}.h5")
            file.close()
            os.truncate(self.at(f"cut-{size}.h5"), size)
            begun = time.monotonic()
            self.assertRegex(self.ended(follower, 1), f"was cut to {size} bytes after frames of it were read: another scan is written in its place; "
                                                      "allowed at least [0-9]+ bytes")
            self.assertLess(time.monotonic() - begun, 15)  # not when nothing new came for 20 s
        # What was taken stays as it is, and space behind it is given back: that is no new scan.
        file, follower = self.begun("shrinks.h5")
        length = os.path.getsize(self.at("shrinks.h5"))
        for size in (1 << 20, length):
            os.truncate(self.at("shrinks.h5"), size)
            time.sleep(0.7)
        file["exchange/data"][10:] = self.data[10:]
        file.close()
        self.ended(follower)
        np.testing.assert_array_equal(self.result("shrinks.h5"), self.reference)

    def test_a_zarr_folder_that_is_written_anew(self):
        self.writer("anew.zarr", kind="zarr", stop_at=20).communicate(timeout=60)
        follower = self.follower("anew.zarr", "--follow-count", str(COUNT))
        self.until_sent(20 + FIELDS)
        for frame in (0, 19):
            for half in range(2):
                with open(self.at("anew.zarr", "exchange", "data", "c", str(frame), "0", str(half)), "r+b") as chunk:
                    chunk.write(np.ascontiguousarray(self.data[30][:, :SIZE // 2]).tobytes())
        self.assertIn("has changed after it was", self.ended(follower, 1))

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
