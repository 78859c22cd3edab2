"""The systemd unit in a container that boots: it is installed, started, killed, reloaded, stopped
and removed, with a scan running.

Needs root, mmdebstrap and systemd-nspawn (Debian packages), and the network for the container's
packages the first time (build/<preset>/debian).
"""

import os
import shutil
import subprocess
import tempfile
import unittest

BUILD = os.environ["OCTAVO_BUILD_DIR"]
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BASE = os.path.join(BUILD, "debian")


def base():
    """A Debian that boots, with everything that octavod needs to run; made only once."""
    wanted = subprocess.run([os.path.join(SOURCE, "deploy", "install-deps"), "--daemon", "--list"], capture_output=True, text=True, check=True).stdout.split()
    wanted = ["systemd", "systemd-sysv", "dbus", "nodejs", "python3", *wanted]
    stamp = os.path.join(BASE, ".octavo-packages")
    if os.path.exists(stamp) and open(stamp).read().split() == wanted:
        return BASE
    shutil.rmtree(BASE, ignore_errors=True)
    subprocess.run(["mmdebstrap", "--variant=minbase", f"--include={','.join(wanted)}", "bookworm", BASE], check=True)
    with open(stamp, "w") as file:
        file.write("\n".join(wanted))
    return BASE


@unittest.skipUnless(os.geteuid() == 0, "needs root")
@unittest.skipUnless(shutil.which("mmdebstrap") and shutil.which("systemd-nspawn"), "needs mmdebstrap and systemd-nspawn (packages mmdebstrap, systemd-container)")
class Unit(unittest.TestCase):
    def test_life_of_the_service(self):
        root = base()
        with tempfile.TemporaryDirectory(prefix="octavo-unit-") as work:
            installed, results = os.path.join(work, "installed"), os.path.join(work, "results")
            os.makedirs(results)
            subprocess.run(["cmake", "--install", BUILD, "--prefix", "/usr", "--strip"], env={**os.environ, "DESTDIR": installed}, check=True,
                           capture_output=True)
            shutil.copy(os.path.join(SOURCE, "tests", "deploy", "unit_scenario"), results)
            with open(os.path.join(results, "octavo-scenario.service"), "w") as unit:
                unit.write("[Unit]\nAfter=multi-user.target\n[Service]\nType=simple\nExecStart=/results/unit_scenario\n"
                           "StandardOutput=file:/results/log\nStandardError=file:/results/log\n")
            command = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--ephemeral", "--directory", root, "--machine", "octavo-unit-test",
                       "--private-network", "--bind-ro", f"{installed}:/installed", "--bind", f"{results}:/results",
                       "--bind-ro", f"{results}/octavo-scenario.service:/etc/systemd/system/octavo-scenario.service", "--boot",
                       "systemd.wants=octavo-scenario.service"]
            try:
                boot = subprocess.run(command, capture_output=True, text=True, timeout=400, stdin=subprocess.DEVNULL)
                console = boot.stdout + boot.stderr
            except subprocess.TimeoutExpired as expired:
                console = f"the container did not end: {expired.stdout}"
            path = os.path.join(results, "log")
            log = open(path).read() if os.path.exists(path) else ""
            print(log)
            self.assertTrue(log.rstrip().endswith("all steps passed"), f"{log}\n-- console\n{console[-3000:]}")


if __name__ == "__main__":
    unittest.main()
