"""A program that writes a tomography scan as a beamline does, slowly and irregularly. Run with a JSON object:

  path       where to
  kind       "hdf5", "tiff", "zarr"
  swmr       hdf5: after the datasets are made, the file is written in SWMR mode
  latest     hdf5: the newest format of the file, which nobody may read while it is written, without SWMR
  grow       datasets get longer with each frame; else they have their extent from the first
  chunk      frames of a chunk; 0: contiguous
  compress   hdf5: chunks pass gzip and shuffle
  theta      "first": all angles at once; "grow": with each projection; "none"
  fields     "first", "last": flats and darks come before or after the projections; "none"
  stop_at    projections after which the program ends; "kill": it kills itself there
  flush_every  hdf5: frames after which the file is flushed
  stay       afterwards the file stays open until standard input ends
  wait       seconds between two projections, on the average
  tell       each frame is told on standard output when it is written
"""

import json
import os
import shutil
import signal
import sys
import time

import numpy as np

COUNT, ROWS, SIZE = 40, 5, 32
ANGLES = np.linspace(0, 180, COUNT, endpoint=False)
FLATS, DARKS = 4, 3


def scan(dtype=np.uint16):
    """Projections, flats and darks: two discs."""
    noise = np.random.default_rng(5)
    s, theta, row = np.arange(SIZE) - 15.25, np.deg2rad(ANGLES)[:, None, None], np.arange(ROWS)[None, :, None]
    lines = np.zeros((COUNT, ROWS, SIZE))
    for x, y, radius in ((0, 0, 10), (4, -3, 3)):
        shift = s - ((x + row) * np.cos(theta) - y * np.sin(theta))
        lines += 0.04 * np.sqrt(np.maximum(radius ** 2 - shift ** 2, 0))
    data = 100 + 20000 * np.exp(-lines) + noise.normal(0, 15, lines.shape)
    flats, darks = 20100 + noise.normal(0, 30, (FLATS, ROWS, SIZE)), 100 + noise.normal(0, 5, (DARKS, ROWS, SIZE))
    return [np.round(array).astype(dtype) for array in (data, flats, darks)]


class Hdf5:
    def __init__(self, job):
        import h5py
        self.job = job
        self.file = h5py.File(job["path"], "w", libver="latest" if job.get("swmr") or job.get("latest") else None)
        self.sets = {}
        for name, frames in (("data", COUNT), ("data_white", FLATS), ("data_dark", DARKS)):
            if name != "data" and job.get("fields") == "none":
                continue
            options = {}
            if job.get("chunk", 1):
                options = {"chunks": (min(job.get("chunk", 1), frames), ROWS, SIZE // 2)}
                if job.get("compress"):
                    options.update(compression="gzip", shuffle=True)
            shape = (0 if job.get("grow") else frames, ROWS, SIZE)
            self.sets[name] = self.file.create_dataset(f"exchange/{name}", shape, job.get("dtype", "<u2"), maxshape=(None, ROWS, SIZE) if job.get("grow") else None,
                                                       **options)
        if job.get("theta", "first") == "first":
            self.file["exchange/theta"] = ANGLES
            self.file["exchange/theta"].attrs["units"] = "degrees"
        elif job["theta"] == "grow":
            self.sets["theta"] = self.file.create_dataset("exchange/theta", (0,), "f8", maxshape=(None,), chunks=(16,))
        if job.get("swmr"):
            self.file.swmr_mode = True
        self.file.flush()

    def write(self, name, i, array):
        data = self.sets[name]
        if i >= len(data):
            data.resize(i + 1, axis=0)
        data[i] = array
        if i % self.job.get("flush_every", 1) == 0:
            self.file.flush()

    def angle(self, i):
        if "theta" in self.sets:
            self.write("theta", i, ANGLES[i])

    def close(self):
        self.file.close()


class Tiff:
    """A folder for each kind beside the path."""

    def __init__(self, job):
        self.path = job["path"]

    def write(self, name, i, array):
        import tifffile
        folder = {"data": self.path, "data_white": self.path + ".white", "data_dark": self.path + ".dark"}[name]
        os.makedirs(folder, exist_ok=True)
        file, whole = os.path.join(folder, f"p{i + 1}.tif"), os.path.join(os.path.dirname(self.path), "whole.tmp")
        tifffile.imwrite(whole, array)
        with open(whole, "rb") as source, open(file, "wb") as to:  # in two halves
            content = source.read()
            to.write(content[:len(content) // 2])
            to.flush()
            time.sleep(0.02)
            to.write(content[len(content) // 2:])

    def angle(self, i):
        pass

    def close(self):
        pass


class Zarr:
    """A Zarr v3 group; the files of chunks get their names when they are whole."""

    def __init__(self, job):
        self.job, self.path = job, job["path"]
        self.sets = {"data": COUNT, "data_white": FLATS, "data_dark": DARKS}
        for folder in ("", "exchange"):
            self.json(folder, {"zarr_format": 3, "node_type": "group", "attributes": {}})
        for name, frames in self.sets.items():
            self.describe(name, 0 if job.get("grow") else frames, (ROWS, SIZE), (1, ROWS, SIZE // 2), "uint16")
        self.describe("theta", COUNT, (), (COUNT,), "float64")
        self.chunk("theta", "c/0", ANGLES)

    def json(self, folder, content):
        os.makedirs(os.path.join(self.path, folder), exist_ok=True)
        file = os.path.join(self.path, folder, "zarr.json")
        with open(file + ".tmp", "w") as to:
            json.dump(content, to)
        os.rename(file + ".tmp", file)

    def describe(self, name, frames, rest, chunk, dtype):
        self.json(f"exchange/{name}", {"zarr_format": 3, "node_type": "array", "shape": [frames, *rest], "data_type": dtype, "fill_value": 0, "attributes": {},
                                       "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
                                       "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
                                       "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]})

    def chunk(self, name, key, array):
        file = os.path.join(self.path, "exchange", name, key)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file + ".tmp", "wb") as to:
            to.write(np.ascontiguousarray(array).tobytes())
        os.rename(file + ".tmp", file)

    def write(self, name, i, array):
        if self.job.get("grow"):
            self.describe(name, i + 1, (ROWS, SIZE), (1, ROWS, SIZE // 2), "uint16")
        for half in range(2):
            self.chunk(name, f"c/{i}/0/{half}", array[:, half * SIZE // 2:(half + 1) * SIZE // 2])

    def angle(self, i):
        pass

    def close(self):
        pass


def main():
    job = json.loads(sys.argv[1])
    if os.path.isdir(job["path"]):
        shutil.rmtree(job["path"])
    data, flats, darks = scan(job.get("dtype", "<u2"))
    pause = np.random.default_rng(job.get("seed", 1))
    out = {"hdf5": Hdf5, "tiff": Tiff, "zarr": Zarr}[job.get("kind", "hdf5")](job)

    def fields():
        for name, frames in (("data_dark", darks), ("data_white", flats)):
            for i, frame in enumerate(frames):
                out.write(name, i, frame)

    if job.get("fields", "first") == "first":
        fields()
    for i in range(COUNT):
        if i == job.get("stop_at"):
            if job.get("kill"):
                os.kill(os.getpid(), signal.SIGKILL)
            break
        time.sleep(pause.exponential(job.get("wait", 0.01)))
        out.angle(i)
        out.write("data", i, data[i])
        if job.get("tell"):
            print(i, flush=True)
    if job.get("fields", "first") == "last":
        fields()
    if job.get("stay"):  # open, without writing any more
        sys.stdin.read()
    out.close()


if __name__ == "__main__":
    main()
