#!/usr/bin/env python3
"""Resampling beside CuPy: runs bench_array_ops, then times cupyx.scipy.ndimage on the same device for the same operations, and prints one JSON line
for each: both times, and whether the target is met: 1.5 times as fast as CuPy, or 70 % of the rate of a copy, whichever is less. The program checks
its results itself.
  bench_array_ops_cupy.py PROGRAM [--libraries PATH] [--size N] [--only TEXT] [--backend cuda]"""

import argparse
import json
import os
import subprocess
import sys

import numpy as np


def turn(n):
    """The matrix and offset of bench_array_ops."""
    c, s, middle = np.cos(0.1), np.sin(0.1), (n - 1) / 2
    matrix = np.array([[c, -s, 0], [s * c, c * c, -s], [s * s, c * s, c]])
    return matrix, middle - matrix.sum(1) * middle


def operations(xp, ndimage, n, image):
    """name → function of CuPy or SciPy that makes the same."""
    matrix, offset = (xp.asarray(one) for one in turn(n))
    field = xp.random.uniform(-2, 2, (3, n, n, n)).astype(np.float32)
    grid = xp.stack(xp.meshgrid(*[xp.arange(n, dtype=np.float32)] * 3, indexing="ij"))
    coordinates = grid + field
    made = {}
    for name, order, mode in (("nearest", 0, "constant"), ("linear", 1, "constant"), ("cubic", 3, "mirror")):
        made[f"affine_{name}"] = lambda order=order, mode=mode: ndimage.affine_transform(image, matrix, offset, order=order, mode=mode)
        made[f"map_coordinates_{name}"] = lambda order=order, mode=mode: ndimage.map_coordinates(image, coordinates, order=order, mode=mode)
        made[f"displace_{name}"] = lambda order=order, mode=mode: ndimage.map_coordinates(image, grid + field, order=order, mode=mode)
        for axis in (0, 2):
            amounts = xp.expand_dims(xp.random.uniform(-20, 20, (n, n)).astype(np.float32), axis)

            def shift(order=order, axis=axis, amounts=amounts):
                moved = [grid[d] - amounts if d == axis else grid[d] for d in range(3)]
                return ndimage.map_coordinates(image, xp.stack(moved), order=order, mode="grid-wrap")

            made[f"shift_{name}_axis_{axis}"] = shift

    def resized(m, order, corners):
        values = image.astype(np.float32)
        if m < n:
            values = ndimage.gaussian_filter(values, (n / m - 1) / 2, mode="mirror")
        return ndimage.zoom(values, m / n, order=order, mode="mirror", grid_mode=not corners).astype(image.dtype)

    for name, order in (("linear", 1), ("cubic", 3)):
        made[f"resize_half_{name}"] = lambda order=order: resized(n // 2, order, False)
        made[f"resize_up_{name}"] = lambda order=order: resized(n * 5 // 4, order, True)
    return made


def milliseconds(cupy, call):
    """Median of rounds of about half a second, after a warm-up that compiles."""
    call()
    cupy.cuda.Device().synchronize()
    times, total = [], 0.0
    while len(times) < 5 or total < 500:
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end))
        total += times[-1]
    return float(np.median(times))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--only", default="")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--libraries", help="LD_LIBRARY_PATH of the program alone")
    options = parser.parse_args()
    environment = {**os.environ, **({"LD_LIBRARY_PATH": options.libraries} if options.libraries else {})}
    out = subprocess.run([options.program, "--backend", options.backend, "--size", str(options.size), "--only", options.only], stdout=subprocess.PIPE,
                         text=True, check=True, env=environment).stdout
    ours = {(row["op"], row["type"]): row for row in map(json.loads, out.splitlines())}
    import cupy
    import cupyx.scipy.ndimage as ndimage
    missed = 0
    for name, dtype in (("f32", np.float32), ("u16", np.uint16)):
        n = options.size
        image = (cupy.random.random((n, n, n), np.float32) * (1 if name == "f32" else 65535)).astype(dtype)
        for op, call in operations(cupy, ndimage, n, image).items():
            row = ours.get((op, name))
            if row is None:
                continue
            try:
                peer = milliseconds(cupy, call)
            except Exception as error:  # noqa: B902: CuPy's own limits must not end the run
                cupy.get_default_memory_pool().free_all_blocks()
                print(json.dumps({**row, "cupy_error": f"{type(error).__name__}: {error}"[:200]}), flush=True)
                continue
            faster = peer / row["ms"]
            met = faster >= 1.5 or row["of_copy"] >= 0.7
            missed += not met
            print(json.dumps({**row, "cupy": cupy.__version__, "cupy_ms": round(peer, 4), "times_cupy": round(faster, 2), "target": met}), flush=True)
            cupy.get_default_memory_pool().free_all_blocks()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
