#!/usr/bin/env python3
"""What bench_storage measures, done by CuPy with decoding on the host: files of one folder into device memory, cold and warm.
Run both on the same folder in one go:
  bench_storage --directory DIR --mib 1024 ; bench_storage_cupy.py DIR --mib 1024
Without network and without zarr: the arrays are written by this program, and read as zarr-python reads them (each chunk decoded into
its place of one host array by a thread pool, then one upload), or by zarr itself where it is there. zstd comes from Python's
compression.zstd, zstandard, numcodecs or libzstd.so.1 by ctypes. With --numpy, without a GPU: the host array is the result."""

import argparse
import concurrent.futures
import ctypes
import json
import math
import os
import shutil
import statistics
import time

import numpy as np


def load_zstd():
    """(compress, decompress_into) of the first library that is there."""
    library = None
    for name in ("libzstd.so.1", "libzstd.so"):
        try:
            library = ctypes.CDLL(name)
            break
        except OSError:
            pass
    if library is not None:
        library.ZSTD_compressBound.restype = library.ZSTD_compress.restype = library.ZSTD_decompress.restype = ctypes.c_size_t
        library.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
        library.ZSTD_compress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        library.ZSTD_decompress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t]

        def compress(data):
            out = ctypes.create_string_buffer(library.ZSTD_compressBound(len(data)))
            size = library.ZSTD_compress(out, len(out), data, len(data), 1)
            return ctypes.string_at(out, size)

        def decompress_into(data, out):
            got = library.ZSTD_decompress(out.ctypes.data, out.nbytes, data, len(data))
            assert got == out.nbytes, got

        return "libzstd by ctypes", compress, decompress_into
    try:
        import numcodecs
        codec = numcodecs.Zstd(1)
        return "numcodecs", codec.encode, lambda data, out: codec.decode(data, out=out)
    except ImportError:
        return None, None, None


def evict(path):
    for folder, _, files in os.walk(path) if os.path.isdir(path) else [(os.path.dirname(path), [], [os.path.basename(path)])]:
        for name in files:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def write_zarr(folder, voxels, side, compress):
    os.makedirs(folder)
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}}]
    if compress:
        codecs.append({"name": "zstd", "configuration": {"level": 1, "checksum": False}})
    with open(os.path.join(folder, "zarr.json"), "w") as file:
        json.dump({"zarr_format": 3, "node_type": "array", "shape": list(voxels.shape), "data_type": "uint16", "fill_value": 0,
                   "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [side] * 3}},
                   "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "codecs": codecs}, file)

    def write(index):
        z, y, x = (i * side for i in index)
        chunk = np.zeros((side, side, side), voxels.dtype)
        part = voxels[z:z + side, y:y + side, x:x + side]
        chunk[tuple(slice(n) for n in part.shape)] = part
        data = chunk.tobytes()
        path = os.path.join(folder, "c", *map(str, index))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(compress(data) if compress else data)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(write, np.ndindex(*(math.ceil(n / side) for n in voxels.shape))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--numpy", action="store_true", help="no GPU: the host array is the result")
    arguments = parser.parse_args()
    if arguments.numpy:
        to_device, settle, gpu = (lambda array: array), (lambda: None), "NumPy"
    else:
        import cupy
        to_device, settle, gpu = cupy.asarray, cupy.cuda.Device().synchronize, f"CuPy {cupy.__version__}"
        to_device(np.zeros(1))
    try:
        import zarr
        zarr = zarr if int(zarr.__version__.split(".")[0]) >= 3 else None  # older ones do not read v3
    except ImportError:
        zarr = None
    zstd, compress, decompress_into = load_zstd()
    folder = os.path.join(arguments.directory, f"octavo-bench-storage-cupy-{os.getpid()}")
    os.makedirs(folder)
    try:
        random = np.random.default_rng(1)
        shape = (arguments.mib * 2, 512, 512)
        voxels = random.integers(0, 256, shape, np.uint16)
        voxels += (20000 + np.arange(512, dtype=np.uint16) * 8)[None, :, None]
        threads = os.cpu_count()
        rows = []

        def chunks_by_threads(path, side, encoded):
            """As zarr-python does it: chunks decoded into the places of one array by threads."""
            out = np.empty(shape, np.uint16)

            def read(index):
                with open(os.path.join(path, "c", *map(str, index)), "rb") as file:
                    data = file.read()
                if encoded:
                    chunk = np.empty((side, side, side), np.uint16)
                    decompress_into(data, chunk)
                else:
                    chunk = np.frombuffer(data, np.uint16).reshape(side, side, side)
                z, y, x = (i * side for i in index)
                part = out[z:z + side, y:y + side, x:x + side]
                part[...] = chunk[tuple(slice(n) for n in part.shape)]

            with concurrent.futures.ThreadPoolExecutor(threads) as pool:
                list(pool.map(read, np.ndindex(*(math.ceil(n / side) for n in shape))))
            return out

        def measure(name, path, read):
            for cold in (True, False):
                rates = []
                for _ in range(arguments.rounds):
                    if cold:
                        evict(path)
                    settle()
                    begun = time.perf_counter()
                    made = to_device(read())
                    settle()
                    rates.append(voxels.nbytes / (time.perf_counter() - begun) / 1e9)
                    assert bool((made[::97] == to_device(voxels[::97])).all()), f"{name}: other voxels"
                    del made
                rows.append((f"{name}, {'cold' if cold else 'warm'}", statistics.median(rates)))
                print(json.dumps({"name": rows[-1][0], "GB_per_s": rows[-1][1], "by": gpu}), flush=True)

        plain = os.path.join(folder, "plain.npy")
        np.save(plain, voxels)
        measure(".npy", plain, lambda: np.load(plain))
        os.remove(plain)
        for side, encoded in ((256, False), (128, False), (32, False), (128, True), (64, True)):
            if encoded and compress is None:
                print(json.dumps({"name": f"zstd Zarr {side}^3", "skipped": "no zstd"}))
                continue
            path = os.path.join(folder, f"{side}-{encoded}")
            write_zarr(path, voxels, side, compress if encoded else None)
            name = f"{'zstd' if encoded else 'raw'} Zarr {side}^3"
            measure(f"{name}, {threads} threads{', ' + zstd if encoded else ''}", path, lambda: chunks_by_threads(path, side, encoded))
            if zarr is not None:
                measure(f"{name}, zarr {zarr.__version__}", path, lambda: zarr.open_array(path, mode="r")[...])
            shutil.rmtree(path)
        print(f"\n{gpu}, {arguments.mib} MiB in {arguments.directory}\n| what | GB/s |\n|---|---|")
        for name, rate in rows:
            print(f"| {name} | {rate:.2f} |")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
