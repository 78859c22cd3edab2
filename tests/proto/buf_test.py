#!/usr/bin/env python3
"""buf says of the contract what the own checks say (contract_test.py): its STANDARD lint finds nothing, and nothing that was
released is broken. `buf_test.py FOLDER` installs buf there from npm, at the version of package.json, unless it is there.

Without npm, or where npm's registry cannot be reached, the test is skipped and says so; the own checks run everywhere."""

import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PROTO = os.path.join(os.path.dirname(os.path.dirname(HERE)), "proto")
RELEASED = os.path.join(PROTO, "released.binpb")
FOLDER = ""


def installed(folder):
    """The path of buf; raises SkipTest if it cannot be installed here."""
    buf = os.path.join(folder, "node_modules", ".bin", "buf")
    os.makedirs(folder, exist_ok=True)
    stamp = os.path.join(folder, "installed.json")
    wanted = os.path.join(HERE, "package.json")
    if os.path.exists(buf) and os.path.exists(stamp) and filecmp.cmp(stamp, wanted, shallow=False):
        return buf
    if shutil.which("npm") is None:
        raise unittest.SkipTest("npm is not installed, so buf is not either")
    shutil.copy(wanted, folder)
    try:
        done = subprocess.run(["npm", "install", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=20000"], cwd=folder, timeout=180,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except subprocess.TimeoutExpired:
        raise unittest.SkipTest("npm could not install buf within 180 s") from None
    if done.returncode != 0:
        # A registry that cannot be reached is no fault of the contract; a version that does not exist is one.
        if any(code in done.stdout for code in ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "network")):
            raise unittest.SkipTest("npm's registry cannot be reached: " + done.stdout.strip().splitlines()[-1])
        raise AssertionError("npm could not install buf:\n" + done.stdout)
    shutil.copy(wanted, stamp)
    return buf


class Buf(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.buf = installed(FOLDER)

    def run_buf(self, verb, folder, *arguments):
        """Runs buf over the contract's files below `folder`; --path is relative to it."""
        return subprocess.run([self.buf, verb, ".", *arguments, "--path", "octavo"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=120)

    def test_lint(self):
        done = self.run_buf("lint", PROTO)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_nothing_released_is_broken(self):
        done = self.run_buf("breaking", PROTO, "--against", RELEASED)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_both_find_what_is_wrong(self):
        """A check that could not fail would prove nothing: buf sees a bad name and a field that is gone."""
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "proto")
            shutil.copytree(PROTO, copy)
            path = os.path.join(copy, "octavo", "v1", "types.proto")
            with open(path) as file:
                text = file.read()
            with open(path, "w") as file:
                file.write(text.replace("  float lo = 1;", "  float loWest = 1;"))
            self.assertIn("loWest", self.run_buf("lint", copy).stdout)
            done = self.run_buf("breaking", copy, "--against", RELEASED)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("Levels", done.stdout)


if __name__ == "__main__":
    FOLDER = os.path.abspath(sys.argv.pop(1))
    unittest.main()
