"""Times the operations of bench_filters with CuPy and cupyx.scipy.ndimage, and runs bench_filters on the same GPU beside it. Prints
the lines of both, and one a comparison: whether bench_filters is at least 1.5 times as fast, or reaches 70 % of the device's copy.

    bench_filters_cupy.py BENCH_FILTERS [--size N] [--seconds S] [--libraries PATH]
"""

import argparse
import json
import os
import subprocess
import sys
import time

import cupy
import numpy
from cupyx.scipy import ndimage

# The filters convert integers to f32 first, as bench_filters does.
OPERATIONS = {
    "gaussian_sigma1": lambda x: ndimage.gaussian_filter(x.astype(cupy.float32, copy=False), 1),
    "gaussian_sigma2": lambda x: ndimage.gaussian_filter(x.astype(cupy.float32, copy=False), 2),
    "uniform_5": lambda x: ndimage.uniform_filter(x.astype(cupy.float32, copy=False), 5),
    "median_3": lambda x: ndimage.median_filter(x, 3),
    "median_5": lambda x: ndimage.median_filter(x, 5),
    "logarithm": lambda x: cupy.log(x.astype(cupy.float32, copy=False)),
    "threshold": lambda x: (x > 2000).view(cupy.uint8),
    "select": lambda x: cupy.where(x > 2000, x, x.dtype.type(0)),
    "argmax_last": lambda x: cupy.argmax(x, 2),
    "argmax_first": lambda x: cupy.argmax(x, 0),
}


def median_seconds(seconds, call):
    call()
    cupy.cuda.Device().synchronize()
    times, begin = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        call()
        cupy.cuda.Device().synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bench")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--libraries", default="", help="where BENCH_FILTERS, and not this program, looks for its libraries first")
    options = parser.parse_args()
    environment = {**os.environ, **({"LD_LIBRARY_PATH": options.libraries} if options.libraries else {})}
    ran = subprocess.run([options.bench, "--backend", "cuda", "--size", str(options.size), "--seconds", str(options.seconds)],
                         stdout=subprocess.PIPE, text=True, env=environment)
    sys.stdout.write(ran.stdout)
    if ran.returncode != 0:
        sys.exit(f"{options.bench} ended with {ran.returncode}")
    ours = {(line["type"], line["operation"]): line for line in map(json.loads, ran.stdout.splitlines())}
    missed = []
    for name, dtype in (("f32", numpy.float32), ("u16", numpy.uint16)):
        array = cupy.random.randint(1, 4097, (options.size,) * 3).astype(dtype)
        for operation, call in OPERATIONS.items():
            seconds = median_seconds(options.seconds, lambda: call(array))
            mine = ours[name, operation]
            times, copy = seconds / mine["seconds"], mine["of_copy"]
            reached = times >= 1.5 or copy >= 0.7
            print(json.dumps({"bench": "filters_cupy", "operation": operation, "type": name, "size": options.size, "cupy_seconds": seconds,
                              "octavo_seconds": mine["seconds"], "times_as_fast": round(times, 2), "of_copy": copy, "reached": reached}), flush=True)
            if not reached:
                missed.append(f"{operation} of {name}")
    if missed:
        sys.exit(f"below both targets: {', '.join(missed)}")


if __name__ == "__main__":
    main()
