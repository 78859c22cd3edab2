"""What tests of octavo recon --follow share: a scan, programs that write it, and the command that follows it."""

import json
import os
import subprocess
import sys
import time
import warnings

import h5py
import numpy as np

import scan_writer
from harness import BUILD, DaemonTest, octavo, until
from scan_writer import ANGLES, DARKS, FLATS, ROWS, SIZE

FIELDS = FLATS + DARKS


class FollowTest(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = cls.daemon.root
        cls.data, cls.flats, cls.darks = scan_writer.scan()
        cls.whole("reference.h5")
        cls.reference = cls.reconstructed("reference.h5")

    @classmethod
    def at(cls, *names):
        return os.path.join(cls.root, *names)

    @classmethod
    def whole(cls, name, **more):
        with h5py.File(cls.at(name), "w") as file:
            for dataset, array in {"data": cls.data, "data_white": cls.flats, "data_dark": cls.darks, "theta": ANGLES, **more}.items():
                file[f"exchange/{dataset}"] = array

    @classmethod
    def reconstructed(cls, name, **more):
        """What the server makes of a file that is complete."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", octavo.OctavoWarning)  # of parts of the angles, and of none of the dark fields
            job = cls.client.wait_job(cls.client.submit_job(octavo.tomography(name, center=15.25, **more)).name)
        voxels = cls.client.read(job.volume_names[0])
        cls.client.discard(job.volume_names[0])
        return voxels

    def without_darks(self):
        self.whole("no-darks.h5")
        with h5py.File(self.at("no-darks.h5"), "a") as file:
            del file["exchange/data_dark"]
        return self.reconstructed("no-darks.h5")

    def writer(self, name, **job):
        process = subprocess.Popen([sys.executable, scan_writer.__file__, json.dumps({"path": self.at(name), **job})], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        return process

    def follower(self, name, *flags, timeout=20, center="15.25", output=None):
        output = output or f"{name}.npy"
        process = subprocess.Popen([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, "recon", self.at(name), "--follow", "--follow-timeout",
                                    str(timeout), "--center", center, "-o", output, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        return process

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

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def ended(self, process, code=0):
        out, error = process.communicate(timeout=100)
        self.assertEqual(process.returncode, code, error + out)
        return out + error

    def result(self, name):
        return np.load(self.at(name + ".npy"))

    def job(self):
        """The job that is not over."""
        (job,) = [job for job in self.client.jobs() if job.state in (1, 2)]
        return self.client.job(job.name)

    def until_sent(self, frames):
        until(lambda: any(job.state == 2 and self.client.job(job.name).step >= frames for job in self.client.jobs()))

    def stays_at(self, frames):
        """No further frame is taken, for longer than two looks."""
        time.sleep(0.9)
        self.assertEqual(self.job().step, frames)
