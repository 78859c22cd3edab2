"""SIGHUP while the server works: the new configuration is taken over as a whole, or nothing of it and an error is counted; no call fails, and
no scan loses a record."""

import json
import os
import signal
import tempfile
import threading
import unittest

from faults import LONG, FaultTest, Scraper, held_volume, live_scan, page
from harness import Daemon, octavo, until
from octavo.v1 import scan_pb2


class Reload(FaultTest):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="octavo-reload-")
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "octavod.toml")

    def write(self, text, path=None):
        with open((path or self.path) + ".new", "w") as file:
            file.write(text)
        os.rename((path or self.path) + ".new", path or self.path)

    def metric(self, daemon, name):
        return page(daemon.metrics)[0][name]

    def counts(self, daemon):
        return self.metric(daemon, "octavo_config_reloads_total"), self.metric(daemon, "octavo_config_reload_errors_total")

    def test_under_load(self):
        good = ["[log]\nlevel = 'info'\n", "[log]\nlevel = 'warning'\n[drain]\nseconds = 7\n", "[drain]\nspill_seconds = 3\n", "[storage]\ncommit_threads = 9\n"]
        bad = ["[log]\nlevel = 'loud'\n", "a = \n", "[drain]\nsecond = 3\n", "[log\n", "[log]\nlevel = 'error'\n[session]\nexpiry_seconds = 1\n", "\x00\x01", "x" * 100_000]
        self.write(good[0])
        daemon = self.start("--config", self.path, "--listen.loopback_role", "operator")
        stop, failed = threading.Event(), []

        def work(number):
            with daemon.client() as client:
                for i in range(1_000_000):
                    if stop.is_set():
                        return
                    try:
                        volume = held_volume(client, 16, 8, 256)
                        client.commit(volume.name, f"w{number}-{i}", "npy") if i % 3 else client.discard(volume.name)
                        with client.session("s"):
                            client.buffers.destroy(client.buffers.create((16,)).name)
                    except octavo.OctavoError as error:
                        failed.append(error)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        with daemon.client() as client, Scraper(daemon):
            scan = live_scan(client)
            for thread in threads:
                thread.start()
            try:
                for i in range(400 if LONG else 40):
                    right = self.random.random() < 0.5
                    before = self.counts(daemon)
                    self.write(self.random.choice(good if right else bad))
                    daemon.process.send_signal(signal.SIGHUP)
                    until(lambda: self.counts(daemon) == (before[0] + right, before[1] + (not right)))
                for i in range(200):  # nobody waits for the one before
                    self.write(self.random.choice(good + bad))
                    daemon.process.send_signal(signal.SIGHUP)
                self.write(good[0])
                before = self.counts(daemon)[0]
                daemon.process.send_signal(signal.SIGHUP)
                until(lambda: self.counts(daemon)[0] > before)
            finally:
                stop.set()
                for thread in threads:
                    thread.join(60)
            done = client.scan(scan).volumes_done
            until(lambda: client.scan(scan).volumes_done > done + 3)
            self.assertEqual(client.scan(scan).blocks_dropped, 0)
            client.cancel(scan)
        self.assertEqual(failed, [])
        self.assertEqual(daemon.stop(), 0)

    def test_what_takes_effect_and_what_is_refused(self):
        path, write = self.path, self.write

        def reload(good, bad):
            daemon.process.send_signal(signal.SIGHUP)
            until(lambda: self.counts(daemon) == (good, bad))
            return [line for line in map(json.loads, daemon.text().splitlines()) if "configuration" in line["event"]]

        write("[log]\nlevel = 'info'\n")
        daemon = Daemon("--config", path, "--storage.commit_threads", "3", "--listen.loopback_role", "operator", environment={"OCTAVO_SPILL_THREADS": "3"})
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            scan = client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 4, volumes=0), samples=64,
                                      retention=dict(disposition=scan_pb2.DISPOSITION_AUTO_DISCARD))
            # Changes that can take effect at once do so; the daemon reports the others. Environment
            # and flags still override the file.
            write("[log]\nlevel = 'warning'\n[device]\nmemory_fraction = 0.5\n[storage]\ncommit_threads = 5\n[spill]\nthreads = 7\n")
            lines = reload(1, 0)
            self.assertEqual([line["level"] for line in lines], ["warning"])  # the new level applies to the records of the reload itself
            self.assertEqual(lines[-1]["changes"], ["device.memory_fraction: 0.6 -> 0.5"])
            # Bad files of every kind change nothing.
            bad = 0
            for text in ("[log]\nlevel = 'loud'\n", "[log]\nlevel = 'error'\n[drain]\nsecond = 3\n", "a = \n", "[log]\nlevel = 'info'\n[session]\nexpiry_seconds = 1\n",
                         f"[log]\nlevel = 'info'\n[history]\ndir = '{daemon.root}/history'\n"):  # where clients could write
                write(text)
                bad += 1
                lines = reload(1, bad)
                self.assertEqual((len(lines), lines[-1]["level"]), (1 + bad, "error"))
            os.unlink(path)
            lines = reload(1, bad + 1)
            self.assertIn("no such file", lines[-1]["error"])
            write("[log]\nlevel = 'info'\n")
            lines = reload(2, bad + 1)
            self.assertEqual(lines[-1]["taken_over"], ["log.level: warning -> info"])
            done = client.scan(scan.name).volumes_done
            until(lambda: client.scan(scan.name).volumes_done > done + 3)
        self.assertEqual(daemon.stop(), 0)


if __name__ == "__main__":
    unittest.main()
