"""SIGTERM and SIGINT: whatever octavod does then, and whatever its clients and its disk do, it stops to serve at once, lets running work end,
and has ended after drain.seconds and a little (5 s, when something hangs). A second signal does not wait. No other signal ends it."""

import json
import os
import signal
import tempfile
import threading
import time
import unittest
import urllib.request

from faults import HELD, LONG, Child, FaultTest, held_volume, live_scan, page
from harness import BUILD, Daemon, octavo, until
from octavo.v1 import scan_pb2, types_pb2
from raw_http2 import RawPeer

HANG_FSYNC = os.path.join(BUILD, "lib", "libhang_fsync.so")
GRACE = 5  # seconds after drain.seconds at which octavod ends even if something hangs
SLOW = 15  # what a busy machine may take besides


CUT = "drain time is over"


class Ending(unittest.TestCase):
    def drained(self, daemon):
        """Expects exit code 0: the daemon ended by itself, within drain.seconds + 5. Returns its
        output."""
        self.assertEqual(daemon.stop(timeout=60), 0)
        text = daemon.text()
        daemon.remove()
        return text

    def test_idle(self):
        text = self.drained(Daemon("--drain.seconds", "300"))
        self.assertNotIn(CUT, text)

    def test_running_scan_stops_at_the_volume(self):
        daemon = Daemon()
        with daemon.client() as client:
            client.submit_scan(octavo.simulated(1), octavo.raster(64, 16, volumes=0), samples=256, rate_hz=20000)
            text = self.drained(daemon)
        self.assertIn("DRAINED", text)
        self.assertNotIn(CUT, text)

    def test_a_scan_that_takes_too_long_does_not_hold_the_end(self):
        daemon = Daemon("--drain.seconds", "1")
        with daemon.client() as client:
            client.submit_scan(octavo.simulated(1), octavo.raster(64, 4000, volumes=1), samples=256, rate_hz=1000)
            self.assertIn(CUT, self.drained(daemon))


class Signals(unittest.TestCase):
    def busy(self, *flags, **options):
        """Starts a daemon with a scan whose one volume takes minutes."""
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
            while client.health():  # until draining begins
                pass
        self.assertIsNone(daemon.process.poll())
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.process.wait(60), 0)
        (end,) = self.ends(daemon)
        self.assertEqual((end["reason"], end["text"]), ("SERVER_STOPPED", "the server was told a second time to end"))

    def ends(self, daemon):
        """The log records of ended scans."""
        return [record for record in map(json.loads, daemon.text().splitlines()) if record["event"] == "scan ended"]

    def test_a_drain_that_takes_too_long_says_so(self):
        daemon = self.busy("--drain.seconds", "0.5")
        with daemon.client() as client:
            client.submit_scan(octavo.simulated(1), octavo.raster(64, 8, volumes=0), samples=256, rate_hz=1000, queue="q")
        self.assertEqual(daemon.stop(), 0)
        cut = {end["text"] for end in self.ends(daemon) if end["reason"] == "SERVER_STOPPED"}
        self.assertEqual(cut, {"drain.seconds (0.5) were over"})
        self.assertNotIn("by a client", daemon.text())

    def test_a_client_that_cancels_is_told_of_as_ever(self):
        daemon = self.busy()
        with daemon.client() as client:
            client.cancel(client.scans()[0].name)
        self.assertEqual(daemon.stop(), 0)
        (end,) = self.ends(daemon)
        self.assertEqual((end["reason"], end["text"]), ("CANCELLED", "cancelled by a client"))

    def metric(self, daemon, name):
        page = urllib.request.urlopen(f"http://{daemon.metrics}/metrics", timeout=10).read().decode()
        return float(page.split(f"\n{name} ")[1].split("\n")[0])

    def test_no_other_signal_ends_it(self):
        daemon = Daemon()
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            scan = client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 4, volumes=0), samples=64,
                                      retention=dict(disposition=scan_pb2.DISPOSITION_AUTO_DISCARD))
            for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGPIPE, signal.SIGALRM) * 2:
                done = client.scan(scan.name).volumes_done
                daemon.process.send_signal(number)
                if number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT):
                    until(lambda: '"signal":%d}' % number in daemon.text())
                until(lambda: client.scan(scan.name).volumes_done > done + 3)
                self.assertIsNone(daemon.process.poll(), number)
            until(lambda: self.metric(daemon, "octavo_config_reloads_total") >= 1)
            self.assertEqual(client.scan(scan.name).state, types_pb2.SCAN_STATE_RUNNING)
        self.assertEqual(daemon.stop(), 0)

    def test_a_signal_while_it_drains_neither_ends_nor_hurries_it(self):
        daemon = self.busy("--drain.seconds", "300")
        daemon.process.send_signal(signal.SIGTERM)
        with daemon.client() as client:
            while client.health():
                pass
            (scan,) = client.scans()
            for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT):
                records = client.scan(scan.name).records
                daemon.process.send_signal(number)
                until(lambda: client.scan(scan.name).records > records + 100)
                self.assertIsNone(daemon.process.poll())
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.process.wait(30), 0)

    @unittest.skipUnless(os.path.exists(HANG_FSYNC), "sanitizers do not take a preloaded library")
    def test_storage_that_hangs_does_not_hold_the_end(self):
        flag = os.path.join(tempfile.gettempdir(), f"octavo-hang-{os.getpid()}")
        self.addCleanup(lambda: os.path.exists(flag) and os.unlink(flag))
        daemon = Daemon("--drain.seconds", "1", "--drain.on_held", "lose", environment={"LD_PRELOAD": HANG_FSYNC, "HANG_FSYNC_WHEN": flag})
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


class Everything(FaultTest):
    """Everything at once, and signals at random instants."""

    DRAIN = 2

    def busy(self, daemon):
        """Scans, a queue, commits, spills, jobs, subscribers that read and that do not, watchers."""
        stop, threads = threading.Event(), []

        def again(act):
            def run():
                with daemon.client() as client:
                    while not stop.is_set():
                        try:
                            act(client)
                        except (octavo.OctavoError, ValueError, IndexError):  # it ends, or what was made is gone
                            stop.wait(0.02)
            threads.append(threading.Thread(target=run))
            threads[-1].start()

        def commit(client):
            volume = held_volume(client, retention=dict(hold_raw=True))
            job = client.submit_job(octavo.reprocess(next(v.name for v in client.volumes(volume.parent) if v.raw), octavo.processing(window="rect")))
            client.spill(volume.name)
            client.commit(volume.name, f"b{time.monotonic_ns()}")
            client.wait_job(job.name)

        def subscribe(client):
            for _ in client.subscribe(products=["volume", "mip"], delivery="drop_oldest"):
                if stop.is_set():
                    return

        def watch(client):
            for _ in client.watch_volumes():
                if stop.is_set():
                    return

        with daemon.client() as client:
            live_scan(client, queue="q")
            live_scan(client, queue="q")
            live_scan(client, rate_hz=20000)
        for act in (commit, commit, subscribe, watch):
            again(act)
        peers = [RawPeer(address, window=0) for address in (daemon.address, "unix:" + daemon.ready["unix"])]
        for peer in peers:
            self.addCleanup(peer.close)
            peer.call("/octavo.v1.StreamService/Subscribe", b"")  # reads nothing
        return stop, threads

    def test_at_random_instants(self):
        for i in range(20 if LONG else 2):
            with self.subTest(i=i):
                daemon = self.start("--drain.seconds", str(self.DRAIN), "--drain.on_held", "lose" if i % 2 else "spill")
                stop, threads = self.busy(daemon)
                try:
                    time.sleep(self.random.uniform(0.1, 2))  # the instant is random
                    begun = time.monotonic()
                    daemon.process.send_signal(self.random.choice([signal.SIGTERM, signal.SIGINT]))
                    if i % 3 == 2:
                        time.sleep(self.random.uniform(0, 0.5))  # as well
                        daemon.process.send_signal(signal.SIGTERM)
                    code = daemon.process.wait(self.DRAIN + GRACE + SLOW)
                    print(f"ended after {time.monotonic() - begun:.1f} s with {code}", flush=True)
                    self.assertIn(code, (0, 3), daemon.text()[-3000:])
                finally:
                    stop.set()
                    for thread in threads:
                        thread.join(60)
                # The next daemon has whole volumes, and no commit half done.
                daemon = self.start("--drain.seconds", "1")
                with daemon.client() as client:
                    for volume in client.volumes(states=[HELD])[:10]:
                        client.read(volume.name)
                    for volume in client.volumes(states=[HELD]):
                        client.discard(volume.name)
                self.assertEqual([name for name in os.listdir(self.root) if name.startswith(".octavo-") and name.endswith(".tmp")], [])
                self.assertEqual(daemon.stop(), 0)

    def test_it_stops_serving_first(self):
        """Health says so while a scan still runs, new work is refused, what runs is told to its watchers to the end, and the page answers."""
        daemon = self.start("--drain.seconds", "60")
        with daemon.client() as client:
            scan = client.submit_scan(octavo.simulated(1), octavo.raster(64, 500, volumes=1), samples=256, rate_hz=3000, acquisition=dict(records_per_block=64, ring_blocks=1024)).name
            until(lambda: client.scan(scan).current_volume == 0)
            watched = []
            watcher = threading.Thread(target=lambda: watched.extend(s.state for s in client.watch(scan)))
            watcher.start()
            daemon.process.send_signal(signal.SIGTERM)
            until(lambda: not client.health())
            self.assertIn(client.scan(scan).state, (types_pb2.SCAN_STATE_RUNNING, types_pb2.SCAN_STATE_DRAINING))
            for call in (lambda: held_volume(client), lambda: client.submit_job(octavo.tomography(octavo.PushedProjections(rows=2, columns=16, frames=9)))):
                self.assertEqual(self.refused("DRAINING", call).code.name, "UNAVAILABLE")
            page(daemon.metrics)
            self.assertIsNone(daemon.process.poll())
            watcher.join(60)
        self.assertEqual(watched[-1], types_pb2.SCAN_STATE_DONE)
        self.assertEqual(daemon.process.wait(60), 0)


class StuckPeers(FaultTest):
    def test_stopped_clients_of_both_transports(self):
        """SIGSTOPped in the middle of a stream: their sockets are full and nobody reads."""
        script = "frames = octavo.Client(address).subscribe(products=['volume'], delivery='drop_oldest')\nnext(frames)\nsay('reads')\nimport time\ntime.sleep(1000)"
        daemon = self.start("--drain.seconds", "1", "--listen.stalled_seconds", "3600")
        children = [Child(script, address) for address in (daemon.address, "unix:" + daemon.ready["unix"])]
        try:
            with daemon.client() as client:
                client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(512, 64, volumes=0), samples=512,
                                   retention=dict(disposition=scan_pb2.DISPOSITION_AUTO_DISCARD))
                for child in children:
                    self.assertEqual(child.hear(), "reads")
                    child.signal(signal.SIGSTOP)
            begun = time.monotonic()
            daemon.process.send_signal(signal.SIGTERM)
            self.assertEqual(daemon.process.wait(1 + GRACE + SLOW), 0)
            print(f"ended after {time.monotonic() - begun:.1f} s", flush=True)
        finally:
            for child in children:
                child.remove()


if __name__ == "__main__":
    unittest.main()
