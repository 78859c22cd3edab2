#!/usr/bin/env python3
"""Frames of a tomography scan to a job, over a gRPC stream and through a ring, in turns: GB/s from the first frame to the server's
word that it has all, the processor time of both sides, and the copy of the same frames within one process as the ceiling. One JSON object a line.
  OCTAVO_BUILD_DIR=build/default tests/bench/bench_push.py [--rows 2048] [--columns 2048] [--frames 64] [--rounds 5]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration"))

import numpy as np  # noqa: E402
from harness import BUILD, Daemon, octavo  # noqa: E402


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("--rows", 2048), ("--columns", 2048), ("--frames", 64), ("--rounds", 5)):
        parser.add_argument(name, type=int, default=default)
    options = parser.parse_args()
    rows, columns, count = options.rows, options.columns, options.frames
    random = np.random.default_rng(1)
    projections = random.integers(1000, 60000, (count, rows, columns), "<u2")
    angles = np.arange(count) * np.pi / count
    nbytes, figures = projections.nbytes, {}
    daemon = Daemon("--handoff.unix", "auto", "--device.projection_bytes", str(2 * nbytes + (1 << 30)))
    file = tempfile.NamedTemporaryFile(suffix=".raw")
    projections.tofile(file.name)
    with daemon.client() as client:
        def submit():
            # One frame more than comes: nothing is reconstructed while it is measured.
            push = octavo.PushedProjections(rows=rows, columns=columns, frames=count + 1)
            return client.submit_job(octavo.tomography(push, center=columns / 2, rows=(0, 4))).name

        def in_python(job, ring):
            result = client.push_projections(job, octavo.projection_frames(projections, angles), ring=ring, end=False)
            assert result.status.frames == count, result

        def in_c(job, _):
            ticket = client.ring_ticket(job=job)
            subprocess.run([os.path.join(BUILD, "bin", "projection_feed"), ticket.socket_path, ticket.ticket, file.name], check=True, stdout=subprocess.DEVNULL)

        def copy(*_):
            np.copyto(target, projections)

        target = np.zeros_like(projections)
        ways = {"stream": (in_python, False), "ring": (in_python, True), "ring, C": (in_c, None), "copy": (copy, None)}
        for _ in range(options.rounds):
            for name, (way, ring) in ways.items():
                job = submit() if name != "copy" else None
                before, mine, began = cpu_seconds(daemon.process.pid), sum(os.times()[:4]), time.monotonic()
                way(job, ring)
                seconds = time.monotonic() - began
                figures.setdefault(name, []).append((nbytes / seconds / 1e9, cpu_seconds(daemon.process.pid) - before, sum(os.times()[:4]) - mine))
                if job is not None:
                    client.cancel_job(job)
                    client.wait_job(job, check=False)
    file.close()
    assert daemon.stop() == 0
    daemon.remove()
    middle = {name: statistics.median(rate for rate, *_ in values) for name, values in figures.items()}
    for name, values in figures.items():
        print(json.dumps({"name": name, "gb_per_s": round(middle[name], 3), "rounds": [round(rate, 3) for rate, *_ in values],
                          "server_cpu_s_per_gb": round(statistics.median(cpu for _, cpu, _ in values) / nbytes * 1e9, 3),
                          "client_cpu_s_per_gb": round(statistics.median(cpu for *_, cpu in values) / nbytes * 1e9, 3),
                          "of_stream": round(middle[name] / middle["stream"], 2)}), flush=True)


if __name__ == "__main__":
    main()
