"""zarrita of npm, which shares nothing with Octavo: tests/client/zarr has the programs that read and write with it."""

import os
import shutil
import subprocess

BUILD = os.environ["OCTAVO_BUILD_DIR"]
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def folder(test):
    """A folder with the programs and zarrita; skips the test if it cannot be had."""
    programs = os.path.join(SOURCE, "tests", "client", "zarr")
    work = os.path.join(BUILD, "zarrita")
    os.makedirs(work, exist_ok=True)
    for file in os.listdir(programs):
        shutil.copy(os.path.join(programs, file), work)
    npm = shutil.which("npm")
    if npm is None:
        test.skipTest("no npm: zarrita cannot be had")
    if not os.path.isdir(os.path.join(work, "node_modules", "zarrita")):
        try:
            done = subprocess.run([npm, "install", "--no-audit", "--no-fund"], cwd=work, capture_output=True, timeout=200).returncode == 0
        except subprocess.TimeoutExpired:
            done = False
        if not done:
            test.skipTest("npm install failed: zarrita cannot be had")
    return work
