"""What starts, supervises and ends a daemon can rely on: the ready file, systemd's messages, identity, signals, the backstop."""

import json
import os
import re
import signal
import socket
import tempfile
import time
import unittest
import urllib.request

from harness import BUILD, Daemon, octavo, until
from octavo.v1 import scan_pb2

HANG_FSYNC = os.path.join(BUILD, "lib", "libhang_fsync.so")


class Supervised(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="octavo-daemon-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, *flags, **options):
        daemon = Daemon(*flags, **options)
        self.addCleanup(daemon.remove)
        return daemon

    def test_the_ready_file_says_what_the_descriptor_says(self):
        path = os.path.join(self.folder, "ready.json")
        daemon = self.start("--ready-file", path)
        with open(path) as file:
            self.assertEqual(json.load(file), daemon.ready)
        self.assertEqual(os.listdir(self.folder), ["ready.json"])
        self.assertEqual(daemon.ready["pid"], daemon.process.pid)
        self.assertEqual(sorted(daemon.ready), ["metrics", "pid", "tcp", "unix"])
        with octavo.Client("unix:" + daemon.ready["unix"]) as client:
            self.assertTrue(client.health())
        self.assertEqual(daemon.stop(), 0)
        self.assertFalse(os.path.exists(daemon.ready["unix"]))

    def test_a_ready_file_that_cannot_be_written_is_exit_1(self):
        with self.assertRaisesRegex(RuntimeError, "(?s)exit code 1.*--ready-file"):
            Daemon("--ready-file", os.path.join(self.folder, "none", "ready.json"))

    def test_systemd_is_told(self):
        path = os.path.join(self.folder, "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(path)
            notify.settimeout(20)
            daemon = self.start(environment={"NOTIFY_SOCKET": path})
            self.assertEqual(notify.recv(100), b"READY=1")
            daemon.process.send_signal(signal.SIGTERM)
            self.assertEqual(notify.recv(100), b"STOPPING=1")
            self.assertEqual(daemon.stop(), 0)

    def test_the_watchdog_is_answered_until_the_end(self):
        path = os.path.join(self.folder, "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(path)
            notify.settimeout(20)
            daemon = self.start(environment={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "1500000"})
            self.assertEqual(notify.recv(100), b"READY=1")
            with daemon.client() as client:
                client.submit_scan(octavo.simulated(1), octavo.raster(64, 8), samples=256, rate_hz=5000)
            beats = []
            while len(beats) < 5:
                self.assertEqual(notify.recv(100), b"WATCHDOG=1")
                beats.append(time.monotonic())
            self.assertLess(max(b - a for a, b in zip(beats, beats[1:])), 1.5)  # what systemd would end it for
            daemon.process.send_signal(signal.SIGSTOP)
            notify.settimeout(1)
            with self.assertRaises(TimeoutError):
                while True:
                    notify.recv(100)  # at most what was sent before the stop
            daemon.process.send_signal(signal.SIGCONT)
            notify.settimeout(20)
            self.assertEqual(notify.recv(100), b"WATCHDOG=1")
            daemon.process.send_signal(signal.SIGTERM)
            while (message := notify.recv(100)) != b"STOPPING=1":
                self.assertEqual(message, b"WATCHDOG=1")
            self.assertEqual(daemon.stop(), 0)

    def test_a_watchdog_for_another_process_is_left_alone(self):
        path = os.path.join(self.folder, "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(path)
            notify.settimeout(20)
            daemon = self.start(environment={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "30000", "WATCHDOG_PID": "1"})
            self.assertEqual(notify.recv(100), b"READY=1")
            self.assertEqual(daemon.stop(), 0)
            self.assertEqual(notify.recv(100), b"STOPPING=1")

    def test_the_server_id_stays_with_the_state_directory(self):
        ids = []
        for _ in range(2):
            daemon = self.start(directory=self.folder)
            with daemon.client() as client:
                ids.append(client.info().server_id)
            self.assertEqual(daemon.stop(), 0)
        self.assertEqual(ids[0], ids[1])
        self.assertRegex(ids[0], "^[a-z0-9]{8}$")
        other = self.start()
        with other.client() as client:
            self.assertNotEqual(client.info().server_id, ids[0])

    def test_after_kill_9_the_same_state_directory_serves_again(self):
        self.start(directory=self.folder).kill()
        daemon = self.start(directory=self.folder)
        with octavo.Client("unix:" + daemon.ready["unix"]) as client:
            self.assertTrue(client.health())

    def test_an_address_in_use_is_exit_1_and_named(self):
        first = self.start()
        for flag, address in (("--listen.tcp", first.address), ("--metrics.listen", first.metrics)):
            with self.assertRaisesRegex(RuntimeError, "exit code 1") as caught:
                Daemon(flag, address)
            self.assertIn("listen", str(caught.exception))

    def test_a_near_miss_in_the_environment_is_told(self):
        daemon = self.start(environment={"OCTAVO_STORAGE_ROOT": "/nowhere"})
        self.assertIn("OCTAVO_STORAGE_ROOT", daemon.text())

    def test_no_metrics_no_socket(self):
        daemon = self.start("--metrics.listen", "none", "--listen.unix", "none")
        self.assertEqual((daemon.ready["metrics"], daemon.ready["unix"]), ("", ""))


class Signals(unittest.TestCase):
    def busy(self, *flags, **options):
        """A daemon with a scan whose one volume takes minutes."""
        daemon = Daemon(*flags, **options)
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            scan = client.submit_scan(octavo.simulated(1), octavo.raster(64, 4000, volumes=1), samples=256, rate_hz=1000,
                                      acquisition=dict(records_per_block=64, ring_blocks=1024))
            until(lambda: client.scan(scan.name).current_volume == 0)
        return daemon

    def test_sigint_drains_too(self):
        daemon = Daemon()
        self.addCleanup(daemon.remove)
        daemon.process.send_signal(signal.SIGINT)
        self.assertEqual(daemon.process.wait(20), 0)

    def test_a_second_signal_does_not_wait_for_the_drain(self):
        daemon = self.busy("--drain.seconds", "300")
        daemon.process.send_signal(signal.SIGTERM)
        with daemon.client() as client:
            while client.health():  # draining has begun
                pass
        self.assertIsNone(daemon.process.poll())
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.process.wait(30), 0)
        self.assertLess(time.monotonic() - began, 8)

    def test_the_metrics_page_answers_while_draining(self):
        daemon = self.busy("--drain.seconds", "300")
        daemon.process.send_signal(signal.SIGTERM)
        with daemon.client() as client:
            while client.health():
                pass
        page = urllib.request.urlopen(f"http://{daemon.metrics}/metrics", timeout=10).read().decode()
        self.assertIn("octavo_scans{", page)
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.process.wait(30), 0)

    @unittest.skipUnless(os.path.exists(HANG_FSYNC), "sanitizers do not take a preloaded library")
    def test_storage_that_hangs_does_not_hold_the_end(self):
        flag = os.path.join(tempfile.gettempdir(), f"octavo-hang-{os.getpid()}")
        self.addCleanup(lambda: os.path.exists(flag) and os.unlink(flag))
        daemon = Daemon("--drain.seconds", "1", environment={"LD_PRELOAD": HANG_FSYNC, "HANG_FSYNC_WHEN": flag})
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            scan = client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(64, 8, volumes=1), samples=256)
            client.wait(scan.name)
            with open(flag, "w"):
                pass  # from now on every fsync takes for ever
            steps = client.commit_iter(client.volumes(scan.name)[0].name, "stuck")
            next(steps)
            daemon.process.send_signal(signal.SIGTERM)
            self.assertEqual(daemon.process.wait(30), 3)
        self.assertIn("did not end within", daemon.text())


if __name__ == "__main__":
    unittest.main()
