#!/usr/bin/env python3
"""Octavo beside TomoPy on processors, in one run: the same projections, from an array in memory to slices in memory, by both. One JSON object a line.

TomoPy's part is its compiled code, called as tomopy.recon calls it: gridrec with a thread for each processor, each with slices of its own, and the
accelerated SIRT with a pool of as many. --libtomo names the folder with libtomo-gridrec.so and libtomo-accel.so, built of its sources
(source/libtomo/gridrec and, with OpenCV, source/libtomo/accel). Without --libtomo only Octavo is measured.
"gridrec, padded" widens each row to twice its columns by its end values, as tomopy.pad does, which is what gridrec needs in order not to wrap around.

  OCTAVO_BUILD_DIR=build/default tests/bench/bench_tomopy.py [--libtomo DIR] [--backend host] [--sizes 512,1024,2048] [--slices 16] [--iterations 10]
  OCTAVO_BUILD_DIR=build/default tests/bench/bench_tomopy.py --errors [--libtomo DIR] [--size 512] [--counts 0,100000,10000,1000] [--angles 90,180,...]

--errors measures PSNR in place of time: against the number of angles and the counts of the open beam (0: no noise). The object is Shepp and Logan's
phantom, its projections exact line integrals averaged over each column; the middle of the circle is compared with its pixel means. Each image may have
another half pixel of shift, scale and mean; Octavo's also as they are.
With --errors the exit status is 1 if Octavo's fbp is worse than gridrec by more than 1 dB, or its auto worse than its fbp by more than 0.1 dB.
"""

import argparse
import atexit
import concurrent.futures
import contextlib
import ctypes
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration"))

import numpy as np  # noqa: E402
from harness import Daemon, octavo  # noqa: E402
from tomography.tomography_test import psnr, shepp_logan_image, shepp_logan_lines  # noqa: E402

SLOW = "tomopy sirt, accelerated"
PROCESSORS = len(os.sched_getaffinity(0))


def pointer(array):
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_float if array.dtype == np.float32 else ctypes.c_int))


class TomoPy:
    """The compiled code of TomoPy. Sinograms [slice, angle, column] float32, angles in radians; the axis is in the middle of the columns."""

    def __init__(self, folder):
        self._gridrec = ctypes.CDLL(os.path.join(folder, "libtomo-gridrec.so")).gridrec
        self._sirt = ctypes.CDLL(os.path.join(folder, "libtomo-accel.so")).cxx_sirt

    def gridrec(self, sinograms, theta, size):
        """Of rows that may be wider than the image."""
        slices, angles, columns = sinograms.shape
        theta = theta.astype(np.float32)
        out = np.empty((slices, columns, columns), np.float32)

        def part(chosen):
            rows, images = np.ascontiguousarray(sinograms[chosen]), np.ascontiguousarray(out[chosen])
            axis = np.full(len(rows), (columns - 1) / 2, np.float32)  # an index here, unlike in its other code
            self._gridrec(pointer(rows), len(rows), angles, columns, pointer(axis), pointer(theta), pointer(images), columns, columns, b"shepp",
                          pointer(np.array([0.5, 8], np.float32)))
            out[chosen] = images

        edges = [slices * i // PROCESSORS for i in range(PROCESSORS + 1)]
        with concurrent.futures.ThreadPoolExecutor(PROCESSORS) as pool:
            list(pool.map(part, [slice(a, b) for a, b in zip(edges, edges[1:]) if a < b]))
        wide = (columns - size) // 2
        return out[:, wide:wide + size, wide:wide + size]

    def padded(self, sinograms, theta):
        columns = sinograms.shape[2]
        return self.gridrec(np.pad(sinograms, [(0, 0), (0, 0), (columns // 2, columns // 2)], "edge"), theta, columns)

    def sirt(self, sinograms, theta, iterations):
        slices, angles, columns = sinograms.shape
        images, one = np.full((slices, columns, columns), 1e-6, np.float32), np.ones(3, np.int32)
        axis = np.full(slices, columns / 2, np.float32)
        with silence():  # it prints a line for each iteration
            self._sirt(pointer(sinograms), slices, angles, columns, pointer(axis), pointer(theta.astype(np.float32)), pointer(images), columns, columns,
                       iterations, PROCESSORS, b"linear", b"cpu", pointer(one), pointer(one))
        return images


@contextlib.contextmanager
def silence():
    """What compiled code prints goes nowhere."""
    c = ctypes.CDLL(None)
    c.fflush(None)
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        c.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


class Truth:
    """The phantom's pixel means, and how far an image is from them, in the middle of the circle."""

    def __init__(self, size, finer):
        self._size, self._finer = size, finer
        self._fine = shepp_logan_image(size * finer)
        at = np.arange(size) - (size - 1) / 2
        self._inside = np.hypot(at[:, None], at[None, :]) < 0.48 * size

    def _pixels(self, down=0, right=0):
        moved = np.roll(self._fine, (down, right), (0, 1))
        return moved.reshape(self._size, self._finer, self._size, self._finer).mean(axis=(1, 3))[self._inside]

    def psnr(self, image):
        return round(float(psnr(image[self._inside], self._pixels())), 2)

    def kindest(self, image):
        """After the best half pixel of shift, scale and offset: TomoPy's images have their middle at another place of the pixel, and gridrec's no mean."""
        values = image[self._inside]
        basis = np.stack([values, np.ones(len(values))], axis=1)
        best, half = -np.inf, self._finer // 2
        for down in (-half, 0, half):
            for right in (-half, 0, half):
                exact = self._pixels(down, right)
                best = max(best, psnr(basis @ np.linalg.lstsq(basis, exact, rcond=None)[0], exact))
        return round(float(best), 2)


def scan(size, count, finer, counts=0, random=None):
    """Angles over half a turn, and a sinogram [angle, column] with the noise of `counts` of the open beam; 0 for none."""
    theta = np.linspace(0, np.pi, count, endpoint=False)
    lines = [shepp_logan_lines(size * finer, theta[at:at + 64], (size * finer - 1) / 2).reshape(-1, size, finer).mean(axis=2) / finer
             for at in range(0, count, 64)]
    sinogram = np.concatenate(lines)
    if counts:
        density = 3.0 / sinogram.max()  # 5 % of the light comes through along the densest line
        light = random.poisson(counts * np.exp(-density * sinogram.astype(np.float64)))
        sinogram = -np.log(np.maximum(light, 1) / counts) / density
    return theta, sinogram.astype(np.float32)


def ways(client, peer, iterations):
    """What is compared: name -> function of (sinograms [slice, angle, column], theta)."""
    def octavo_by(algorithm, **fields):
        return lambda rows, theta: octavo.recon(rows, theta, sinogram_order=True, algorithm=algorithm, client=client, **fields)

    out = {"octavo fbp": octavo_by("fbp", filter_name="ramlak"), "octavo fourier": octavo_by("fourier", filter_name="ramlak"),
           "octavo auto": octavo_by("auto", filter_name="ramlak")}
    if iterations:
        out["octavo sirt"] = octavo_by("sirt", num_iter=iterations)
    if peer:
        out["tomopy gridrec"] = lambda rows, theta: peer.gridrec(rows, theta, rows.shape[2])
        out["tomopy gridrec, padded"] = peer.padded
        if iterations:
            out[SLOW] = lambda rows, theta: peer.sirt(rows, theta, iterations)
    return out


def measure_times(compared, a):
    for size in a.sizes:
        count = size * 3 // 4
        theta, lines = scan(size, count, 2)
        exact = Truth(size, 2)
        factors = (1 + np.arange(a.slices) % 8 / 8).astype(np.float32)
        rows = np.ascontiguousarray(lines[None] * factors[:, None, None])
        seconds = {name: [] for name in compared}
        for _ in range(a.rounds):  # in turn, so that a busy moment of the machine meets all of them
            for name, way in compared.items():
                if name == SLOW and size > a.largest_sirt:
                    continue
                began = time.perf_counter()
                images = way(rows, theta)
                seconds[name].append(time.perf_counter() - began)
                found = [exact.kindest(images[n] / factors[n]) for n in (0, a.slices - 1)]
                if len(seconds[name]) == a.rounds:
                    print(json.dumps({"name": name, "size": size, "angles": count, "slices": a.slices, "processors": PROCESSORS,
                                      "iterations": a.iterations if "sirt" in name else 0, "ms_per_slice": round(1e3 * min(seconds[name]) / a.slices, 2),
                                      "psnr": found}), flush=True)
    return True


def measure_errors(compared, a):
    random, right = np.random.default_rng(a.seed), True
    exact = Truth(a.size, 4)
    for count in a.angles:
        for counts in a.counts:
            theta, lines = scan(a.size, count, 4, counts, random)
            images = {name: way(lines[None], theta)[0] for name, way in compared.items() if name != SLOW or a.size <= a.largest_sirt}
            found = {name: exact.kindest(image) for name, image in images.items()}
            as_they_are = {name: exact.psnr(image) for name, image in images.items() if name.startswith("octavo")}
            print(json.dumps({"size": a.size, "angles": count, "counts": counts, "seed": a.seed, "psnr": found, "as_they_are": as_they_are}), flush=True)
            right = right and found["octavo auto"] >= found["octavo fbp"] - 0.1
            right = right and all(found["octavo fbp"] >= value - 1 for name, value in found.items() if "gridrec" in name)
    return right


def numbers(text):
    return [int(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libtomo", help="folder with TomoPy's libraries")
    parser.add_argument("--backend", default="host", choices=["host", "cuda"])
    parser.add_argument("--iterations", type=int, default=10, help="of SIRT; 0 leaves it out")
    parser.add_argument("--sizes", type=numbers, default=[512, 1024, 2048], help="columns; there are 3/4 as many angles")
    parser.add_argument("--slices", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3, help="the best one counts")
    parser.add_argument("--largest-sirt", type=int, default=512, help="TomoPy's SIRT is left out above it")
    parser.add_argument("--errors", action="store_true", help="PSNR in place of time")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--angles", type=numbers, default=[90, 180, 360, 720, 1440])
    parser.add_argument("--counts", type=numbers, default=[0, 100000, 10000, 1000])
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()
    daemon = Daemon("--device.backend", a.backend)
    atexit.register(daemon.remove)
    with daemon.client() as client:
        compared = ways(client, TomoPy(a.libtomo) if a.libtomo else None, a.iterations)
        right = (measure_errors if a.errors else measure_times)(compared, a)
    sys.exit(0 if daemon.stop() == 0 and right else 1)


if __name__ == "__main__":
    main()
