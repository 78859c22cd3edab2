#!/usr/bin/env python3
"""Whole reconstruction jobs through the daemon, from a file of counts to a held volume: reading, upload, flat and dark fields, logarithm,
iterations, all slices. One JSON object a line; every slice is compared with the phantom it was made from.
  OCTAVO_BUILD_DIR=build/cuda tests/bench/bench_job.py [--size 2048 --angles 1501 --slices 64 --iterations 100 --backend cuda]
The slices are Shepp-Logan's phantom from exact line integrals, each of another density, as u16 counts with noise-free flat and dark fields.
"""

import argparse
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration"))

import numpy as np  # noqa: E402
from harness import Daemon, octavo  # noqa: E402
from octavo.v1 import job_pb2  # noqa: E402
from tomography.tomography_test import psnr, shepp_logan  # noqa: E402

FLAT, DARK = 60000, 100


def write_counts(root, size, count, slices):
    """Writes the scan as .npy files of counts [angle, row, column] below `root`. Returns the
    phantom and each slice's density."""
    angles = np.linspace(0, np.pi, count, endpoint=False)
    image, sinogram = shepp_logan(size, angles, (size - 1) / 2)
    densities = np.linspace(0.5, 1.0, slices) * 3.0 / sinogram.max()  # attenuation of at most 3: 5 % of the light comes through
    counts = np.lib.format.open_memmap(os.path.join(root, "counts.npy"), "w+", np.uint16, (count, slices, size))
    for row, density in enumerate(densities):
        counts[:, row] = np.rint(DARK + (FLAT - DARK) * np.exp(-density * sinogram)).astype(np.uint16)
    counts.flush()
    np.save(os.path.join(root, "flats.npy"), np.full((4, slices, size), FLAT, np.uint16))
    np.save(os.path.join(root, "darks.npy"), np.full((4, slices, size), DARK, np.uint16))
    return angles, image, densities, counts.nbytes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="cuda", choices=["host", "cuda"])
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--angles", type=int, default=1501)
    parser.add_argument("--slices", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--algorithms", default="fbp,sirt,mlem")
    a = parser.parse_args()
    daemon = Daemon("--device.backend", a.backend)
    right = True
    with daemon.client() as client:
        angles, image, densities, size = write_counts(daemon.root, a.size, a.angles, a.slices)
        file = dict(path="counts.npy", flats="flats.npy", darks="darks.npy")
        for algorithm in a.algorithms.split(","):
            iterative = algorithm != "fbp"
            work = octavo.tomography(file, algorithm=algorithm, iterations=a.iterations if iterative else 1, angles=angles)
            rounds = []
            for _ in range(2):  # the second run finds the file in memory and the device's pools filled
                began = time.perf_counter()
                job = client.wait_job(client.submit_job(work).name)
                rounds.append(time.perf_counter() - began)
                if job.state != job_pb2.JOB_STATE_DONE:
                    sys.exit(f"{algorithm}: {job.reason}")
                volume = client.read(job.volume_names[0])
                client.discard(job.volume_names[0])
            quality = [psnr(volume[n] / densities[n], image) for n in range(a.slices)]
            bar = 20.0
            right = right and min(quality) > bar and max(quality) - min(quality) < 1.0
            print(json.dumps({"name": "job", "algorithm": algorithm, "backend": a.backend, "size": a.size, "angles": a.angles, "slices": a.slices,
                              "iterations": work.reconstruction.iterations, "slices_per_batch": job.tomography.slices_per_batch,
                              "input_mb": round(size * 1e-6, 1), "seconds_first": round(rounds[0], 3), "seconds": round(rounds[1], 3),
                              "seconds_per_slice": round(rounds[1] / a.slices, 5), "input_gb_per_s": round(size / rounds[1] * 1e-9, 3),
                              "psnr_least": round(min(quality), 2), "psnr_most": round(max(quality), 2)}), flush=True)
    code = daemon.stop()
    daemon.remove()
    sys.exit(0 if right and code == 0 else 1)


if __name__ == "__main__":
    main()
