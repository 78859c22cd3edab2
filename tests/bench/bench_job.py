#!/usr/bin/env python3
"""Whole reconstruction jobs through the daemon, from a file of counts to a held volume: reading, upload, flat and dark fields, logarithm,
iterations, all slices. One JSON object a line; slices that are spread over the volume are compared with the phantom they were made from.
  OCTAVO_BUILD_DIR=build/cuda tests/bench/bench_job.py [--size 2048 --angles 1501 --slices 64 --iterations 100 --algorithms fbp,sirt,mlem --check 64 --backend cuda]
With --push the projections are pushed by a client instead, and seconds_after_last is the time from the moment in which the client hands its
last projection to gRPC until the job is done, with all slices held. With --raw-type the counts have 12 bits: u16 pushes them as numbers, u12p
and u12_packed as a camera packs them, before the clock starts. Several raw types, with commas, are runs of the same counts.
With --planes subscribers look at the middle planes along z, y and x meanwhile; planes_after_last is the time from that moment until the last
preview of all three is an array of its subscriber: it shows all projections (as far as the 2 s of PushedProjections reach). all_in_after_last is
the time until the client heard that the server has all frames, published_after_last that until the server published the last preview.
With --commit the same bytes are then written by fio, if it is there: direct I/O, four files in flight. share_of_disk is what the whole job,
from the file of counts to the committed files, reaches of that. The server writes while it computes; with --afterwards the client commits the
volume when it is held. With --file hdf5 or hdf5-gzip the counts are in an HDF5 file (h5py).
The slices are Shepp-Logan's phantom from exact line integrals, each of another density, as u16 counts with noise-free flat and dark fields.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration"))

import numpy as np  # noqa: E402
from harness import Daemon, octavo, until  # noqa: E402
from octavo.v1 import job_pb2  # noqa: E402
from tomography.tomography_test import psnr, shepp_logan  # noqa: E402

FLAT, DARK = 60000, 100


FLAT12 = 4000  # of counts of 12 bits


def write_frames(task):
    """Some projections of write_counts."""
    path, first, sinogram, densities, flat = task
    counts = np.lib.format.open_memmap(path, "r+")
    for at, line in enumerate(sinogram.astype(np.float32), first):
        counts[at] = np.rint(DARK + (flat - DARK) * np.exp(-np.outer(densities.astype(np.float32), line)))


def write_counts(root, size, count, slices, flat=FLAT):
    """Writes the scan as .npy files of counts [angle, row, column] below `root`, by all processors. Returns the
    angles, the phantom, each slice's density and the bytes of the projections."""
    angles = np.linspace(0, np.pi, count, endpoint=False)
    image, sinogram = shepp_logan(size, angles, (size - 1) / 2)
    densities = np.linspace(0.5, 1.0, slices) * 3.0 / sinogram.max()  # attenuation of at most 3: 5 % of the light comes through
    path = os.path.join(root, "counts.npy")
    counts = np.lib.format.open_memmap(path, "w+", np.uint16, (count, slices, size))
    with multiprocessing.get_context("fork").Pool() as pool:
        pool.map(write_frames, [(path, at, sinogram[at:at + 8], densities, flat) for at in range(0, count, 8)], chunksize=1)
    np.save(os.path.join(root, "flats.npy"), np.full((4, slices, size), flat, np.uint16))
    np.save(os.path.join(root, "darks.npy"), np.full((4, slices, size), DARK, np.uint16))
    return angles, image, densities, counts.nbytes


def as_hdf5(root, gzip):
    """The .npy files of write_counts as one HDF5 file of Data Exchange, counts in chunks of one projection's rows. Gives its path."""
    import h5py
    path = os.path.join(root, "counts.h5")
    with h5py.File(path, "w") as file:
        for name, array in (("data", "counts"), ("data_white", "flats"), ("data_dark", "darks")):
            values = np.load(os.path.join(root, f"{array}.npy"), mmap_mode="r")
            options = dict(compression="gzip", compression_opts=1, shuffle=True) if gzip else {}
            rows = min(values.shape[1], max(1, (1 << 20) // (values.shape[2] * values.itemsize)))
            into = file.create_dataset(f"exchange/{name}", values.shape, values.dtype, chunks=(1, rows, values.shape[2]), **options)
            for at in range(0, len(values), 16):
                into[at:at + 16] = values[at:at + 16]
    return path


def bytes_below(folder):
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names)


def fio_bytes_per_second(root, size):
    """What the disk takes: `size` bytes in four files at once, past the page cache. None without fio."""
    if not shutil.which("fio"):
        return None
    folder = os.path.join(root, "fio")
    os.makedirs(folder)
    each = max(1 << 26, size // 4 >> 22 << 22)
    out = subprocess.run(["fio", "--name=w", f"--directory={folder}", "--rw=write", "--bs=4M", f"--size={each}", "--numjobs=4", "--direct=1",
                          "--ioengine=libaio", "--iodepth=8", "--end_fsync=1", "--fallocate=none", "--group_reporting", "--output-format=json"],
                         capture_output=True, text=True, check=True)
    shutil.rmtree(folder)
    return json.loads(out.stdout)["jobs"][0]["write"]["bw_bytes"]


class Planes:
    """Subscribers of the middle planes of a job, each a thread with a connection of its own."""

    def __init__(self, address, job):
        self.shown, self.began = {axis: [] for axis in "zyx"}, threading.Barrier(4)  # when each preview was published, and when it came
        self.threads = [threading.Thread(target=self.watch, args=(address, job, axis)) for axis in "zyx"]
        for thread in self.threads:
            thread.start()
        self.began.wait(60)

    def watch(self, address, job, axis):
        with octavo.Client(address) as client:
            frames = client.subscribe(job, ["bscan"], axis=axis, same_host=True, timeout=600)
            self.began.wait(60)
            for frame in frames:
                if frame.complete:  # of the volume
                    return
                self.shown[axis].append((frame.published_ns * 1e-9, time.perf_counter()))

    def last(self):
        """When the last of the three was published, and when it came, by this host's monotonic clock; how many came of each. The job publishes the
        three together, and later a slice z alone, of the volume that it makes: that is no plane of projections that still come."""
        for thread in self.threads:
            thread.join(600)
        together = max(self.shown[axis][-1][0] for axis in "yx") + 0.05
        last = [max(preview for preview in self.shown[axis] if preview[0] <= together) for axis in "zyx"]
        return max(at for at, _ in last), max(at for _, at in last), {axis: len(previews) for axis, previews in sorted(self.shown.items())}


def pack_counts(root, raw_type):
    """The .npy files of write_counts with rows packed, once."""
    for name in ("counts", "flats", "darks"):
        path = os.path.join(root, f"{name}-{raw_type}.npy")
        if os.path.exists(path):
            continue
        values = np.load(os.path.join(root, f"{name}.npy"), mmap_mode="r")
        packed = np.lib.format.open_memmap(path, "w+", np.uint8, (*values.shape[:2], (values.shape[2] * 3 + 1) // 2))
        for at, frame in enumerate(values):
            packed[at] = octavo.pack12(frame, raw_type)


def pushed_job(client, root, angles, options, raw_type, with_planes):
    """Pushes the scan to a job. Returns the job at its end, the seconds from the last projection to that, with_planes those to the last previews, the
    seconds of the push, and the bytes of the frames."""
    kind = f"-{raw_type}" if raw_type.startswith("u12") else ""
    counts, flats, darks = (np.load(os.path.join(root, f"{name}{kind}.npy"), mmap_mode="r") for name in ("counts", "flats", "darks"))
    frames, columns = len(counts) + len(flats) + len(darks), np.load(os.path.join(root, "counts.npy"), mmap_mode="r").shape[2]
    work = octavo.tomography(octavo.PushedProjections(rows=counts.shape[1], columns=columns, frames=frames, raw_type=raw_type), **options)
    job = client.submit_job(work)
    planes = Planes(client.address, job.name) if with_planes else None
    last, began = 0.0, time.perf_counter()

    def one_after_the_other():
        nonlocal last
        of_kind = {kind: [f for f in octavo.projection_frames(counts, angles, flats, darks) if (f.kind == "projection") == kind] for kind in (False, True)}
        for frame in of_kind[False] + of_kind[True]:
            last = time.perf_counter()
            yield frame

    client.push_projections(job, one_after_the_other())
    pushed = time.perf_counter() - began
    job = client.wait_job(job.name)
    seconds, sent = time.perf_counter() - last, counts.nbytes + flats.nbytes + darks.nbytes
    if not planes:
        return job, seconds, None, pushed, sent
    published, shown, previews = planes.last()
    print(json.dumps({"name": "planes", "previews": previews, "all_in_after_last": round(began + pushed - last, 4),
                      "published_after_last": round(published - last, 4), "planes_after_last": round(shown - last, 4)}), flush=True)
    return job, seconds, shown - last, pushed, sent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="cuda", choices=["host", "cuda"])
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--angles", type=int, default=1501)
    parser.add_argument("--slices", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--algorithms", default="fbp,sirt,mlem", help="of fbp, fourier, auto, sirt, mlem, tv")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each job: the first one finds cold pools")
    parser.add_argument("--samples", default="f32", choices=["u8", "u16", "f16", "f32"], help="of the result; u8 and u16 find their window")
    parser.add_argument("--commit", default="", choices=["", "zarr", "npy", "tif"], help="the server commits the result of all rounds but the last")
    parser.add_argument("--afterwards", action="store_true", help="with --commit: the volume is committed when it is held, not while it is made")
    parser.add_argument("--batch", type=int, default=0, help="slices in a batch; default: chosen by the server")
    parser.add_argument("--codec", default="", help="of the commit: none, zstd, ...; default: the format's")
    parser.add_argument("--file", default="npy", choices=["npy", "hdf5", "hdf5-gzip"], help="where the counts are")
    parser.add_argument("--devices", type=int, default=1, help="so many jobs at a time, each of a part of the rows on a device of its own")
    parser.add_argument("--push", action="store_true", help="a client pushes the projections")
    parser.add_argument("--planes", action="store_true", help="with --push: subscribers of three planes")
    parser.add_argument("--raw-type", default="", help="with --push: of u16, u12p, u12_packed, for counts of 12 bits")
    parser.add_argument("--check", type=int, default=64, help="slices to compare, at most")
    a = parser.parse_args()
    if a.devices > 1 and (a.commit or a.push):
        parser.error("--devices above 1 goes with neither --commit nor --push")
    raw_types = a.raw_type.split(",") if a.raw_type else ["u16"]
    if a.raw_type and not (a.push and set(raw_types) <= {"u16", "u12p", "u12_packed"}):
        parser.error("--raw-type needs --push; of u16, u12p, u12_packed")
    socket = tempfile.mkdtemp(prefix="octavo-bench-")
    daemon = Daemon("--device.backend", a.backend, "--handoff.unix", os.path.join(socket, "handoff.sock"))
    right = True
    with daemon.client() as client:
        began = time.perf_counter()
        angles, image, densities, size = write_counts(daemon.root, a.size, a.angles, a.slices, FLAT12 if a.raw_type else FLAT)
        for raw_type in raw_types:
            if raw_type != "u16":
                pack_counts(daemon.root, raw_type)
        print(json.dumps({"name": "counts", "input_mb": round(size * 1e-6, 1), "seconds": round(time.perf_counter() - began, 2)}), flush=True)
        checked = np.unique(np.linspace(0, a.slices - 1, min(a.check, a.slices)).astype(int))
        file = dict(path="counts.npy", flats="flats.npy", darks="darks.npy")
        if a.file != "npy":
            file = dict(path=as_hdf5(daemon.root, a.file == "hdf5-gzip"))
        for algorithm, raw_type in itertools.product(a.algorithms.split(","), raw_types):
            iterative = algorithm in ("sirt", "mlem", "tv")
            # Of a scan without noise: far below the contrast of the thinnest slice, so that no slice loses by it.
            weight = {"tv_weight": 1e-3 * densities[0]} if algorithm == "tv" else {}
            settings = dict(algorithm=algorithm, iterations=a.iterations if iterative else 1, samples=a.samples, batch=a.batch, **weight)
            parts = [(int(rows[0]), int(rows[-1]) + 1) for rows in np.array_split(np.arange(a.slices), a.devices)]
            works = [octavo.tomography(file, angles=angles, **settings, **({"rows": part} if a.devices > 1 else {})) for part in parts]
            rounds, commits, after_last, planes_after_last, pushes, written, sent = [], [], [], [], [], 0, 0
            for _ in range(a.rounds):  # later runs find the device's pools filled
                began = time.perf_counter()
                commits_it = a.commit and len(rounds) + 1 < a.rounds
                destination = f"out-{len(rounds)}.{a.commit}"
                codec = {"codec": a.codec} if a.codec else {}
                options = {"commit": octavo.commit_options(destination, **codec)} if commits_it and not a.afterwards else {}
                if a.push:
                    job, seconds, planes, push_seconds, sent = pushed_job(client, daemon.root, angles, settings, raw_type, a.planes)
                    jobs = [job]
                    after_last.append(seconds)
                    planes_after_last += [planes] if a.planes else []
                    pushes.append(push_seconds)
                else:
                    jobs = [client.submit_job(work, device=f"devices/{at}", **options) for at, work in enumerate(works)]
                    jobs = [client.wait_job(job.name) for job in jobs]
                rounds.append(time.perf_counter() - began)
                for job in jobs:
                    if job.state != job_pb2.JOB_STATE_DONE:
                        sys.exit(f"{algorithm}: {job.reason}")
                if commits_it:
                    if a.afterwards:
                        path = client.commit(job.volume_names[0], destination, **codec).path
                    else:
                        until(lambda: client.job(job.name).commits, 600)
                        path = client.job(job.name).commits[0]
                    commits.append(time.perf_counter() - began)
                    written = bytes_below(path) if os.path.isdir(path) else os.path.getsize(path)
                    shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
                    continue
                if len(rounds) == a.rounds:
                    quality = []
                    for job, (begin, end) in zip(jobs, parts):
                        report, top = job.tomography, {"u8": 255, "u16": 65535}.get(a.samples)
                        scale, offset = ((report.high - report.low) / top, report.low) if top else (1.0, 0.0)
                        for n in checked[(checked >= begin) & (checked < end)]:
                            plane = client.read(job.volume_names[0], start=(int(n) - begin, 0, 0), count=(1, a.size, a.size))[0]
                            quality.append(psnr((plane * scale + offset) / densities[n], image))
                for job in jobs:
                    client.discard(job.volume_names[0])
            disk = fio_bytes_per_second(daemon.root, written) if commits else None
            bar = 20.0
            right = right and min(quality) > bar and max(quality) - min(quality) < 1.0
            print(json.dumps({"name": "job", "algorithm": algorithm, "backend": a.backend, "size": a.size, "angles": a.angles, "slices": a.slices,
                              "iterations": works[0].reconstruction.iterations, "devices": a.devices, "samples": a.samples, "commit": a.commit,
                              "afterwards": a.afterwards,
                              "seconds_with_commit": round(min(commits), 3) if commits else None, "file": a.file, "codec": a.codec,
                              "written_mb": round(written * 1e-6, 1), "fio_mb_per_s": disk and round(disk * 1e-6, 1),
                              "share_of_disk": disk and round(written / min(commits) / disk, 3),
                              "clipped": sum(job.tomography.clipped_below + job.tomography.clipped_above for job in jobs), "slices_per_batch": job.tomography.slices_per_batch,
                              "input_mb": round(size * 1e-6, 1), "seconds_first": round(rounds[0], 3), "seconds": round(min(rounds), 3),
                              "seconds_after_last": round(min(after_last), 3) if after_last else None,
                              "planes_after_last": round(max(planes_after_last), 4) if planes_after_last else None,
                              "raw_type": raw_type if a.push else None, "seconds_push": round(min(pushes), 3) if pushes else None,
                              "pushed_mb": round(sent * 1e-6, 1) if pushes else None,
                              "seconds_per_slice": round(min(rounds) / a.slices, 5), "input_gb_per_s": round(size / min(rounds) * 1e-9, 3),
                              "psnr_least": round(min(quality), 2), "psnr_most": round(max(quality), 2)}), flush=True)
    code = daemon.stop()
    daemon.remove()
    shutil.rmtree(socket)
    sys.exit(0 if right and code == 0 else 1)


if __name__ == "__main__":
    main()
