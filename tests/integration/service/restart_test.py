"""A planned end of the daemon loses no held volume that the disk has room for; what is lost is named."""

import glob
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest
import urllib.request

import numpy as np

from harness import BUILD, Daemon, octavo, until
from octavo.v1 import scan_pb2, system_pb2, types_pb2

HANG_FSYNC = os.path.join(BUILD, "lib", "libhang_fsync.so")
SEED = int(os.environ.get("OCTAVO_SEED", "1"))
INSTANTS = int(os.environ.get("OCTAVO_KILLS", "6"))
LABELS = {"eye": "OD", "study": "glaucoma"}
HUNDRED = dict(mode=scan_pb2.RETENTION_MODE_CAPTURE, hold_slots=100)


class Restart(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="octavo-restart-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def start(self, *flags, **options):
        log = os.path.join(self.directory, "octavod.log")
        before = os.path.getsize(log) if os.path.exists(log) else 0
        daemon = Daemon(*flags, directory=self.directory, **options)
        daemon.log_begin = before
        self.addCleanup(daemon.remove)
        return daemon

    def acquire(self, client, volumes=40, **more):
        """A finished scan with held volumes on the device."""
        options = dict(title="eye", labels=LABELS, retention=HUNDRED)
        return client.wait(client.submit_scan(octavo.simulated(5, fast=True), octavo.raster(64, 16, volumes=volumes), samples=512, **{**options, **more}))

    def records(self, daemon, event):
        """Those of this daemon alone, although the log goes on with the next one."""
        with open(daemon.log.name) as log:
            log.seek(daemon.log_begin)
            return [record for record in map(json.loads, log) if record["event"] == event]

    def lost(self, daemon):
        return {record["volume"]: record["reason"] for record in self.records(daemon, "held volume is lost with the daemon")}

    def command(self, daemon, *words):
        return subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--address", daemon.address, *words], capture_output=True, text=True, check=True).stdout

    def spilled(self):
        return glob.glob(os.path.join(self.directory, "state", "spill", "*.spill"))

    def metric(self, daemon, name):
        page = urllib.request.urlopen(f"http://{daemon.metrics}/metrics", timeout=10).read().decode()
        return float(page.split(f"\n{name} ")[1].split("\n")[0])


class NothingIsLost(Restart):
    def test_forty_held_volumes(self):
        daemon = self.start()
        with daemon.client() as client:
            scan = self.acquire(client)
            before = {v.name: v for v in client.volumes(scan.name)}
            self.assertEqual(len(before), 40)
            self.assertTrue(all(v.tier == types_pb2.TIER_DEVICE for v in before.values()))
            marked = list(before)[7]
            client.hold(marked)
            client.lease(list(before)[3], seconds=100, exclusive=False)  # protects it from clients, not from being saved
            client.spill(list(before)[5], "host")
            arrays = {name: client.read(name) for name in before}
            derived = client.derive(list(before)[0], {"mip": {"axis": 2}})
            mip = client.read(derived)
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(self.lost(daemon), {})
        self.assertEqual(len(self.spilled()), 41)
        (written,) = self.records(daemon, "held volumes written")
        self.assertEqual(written["volumes"], 41)
        self.assertFalse(os.path.exists(os.path.join(self.directory, "state", "held_at_stop.jsonl")))
        daemon = self.start()
        with daemon.client() as client:
            self.assertFalse([line for line in client.info().recovered if "lost" in line])
            after = {v.name: v for v in client.volumes() if v.name in before}
            self.assertEqual(after.keys(), before.keys())
            for name, old in before.items():
                new = after[name]
                self.assertEqual((new.digest, new.parent, new.index, new.title, dict(new.labels)), (old.digest, scan.name, old.index, "eye", LABELS))
                self.assertEqual((new.state, new.tier, new.kept, new.recovered, new.marked),
                                 (types_pb2.VOLUME_STATE_HELD, types_pb2.TIER_DISK, True, True, name == marked))
                np.testing.assert_array_equal(client.read(name), arrays[name])
            np.testing.assert_array_equal(client.read(derived.name), mip)
            first, second = list(before)[:2]
            self.assertEqual(client.restore(second).tier, types_pb2.TIER_DEVICE)
            np.testing.assert_array_equal(client.read(client.derive(first, {"mip": {"axis": 2}})), mip)  # restores it first
            np.testing.assert_array_equal(np.load(client.commit(list(before)[2], "after", "npy").path), arrays[list(before)[2]])
        # What was restored is written once more.
        self.assertEqual(daemon.stop(), 0)
        daemon = self.start()
        with daemon.client() as client:
            for name in (first, second):
                self.assertEqual(client.volume(name).digest, before[name].digest)
                np.testing.assert_array_equal(client.read(name), arrays[name])

    def test_in_the_middle_of_a_scan(self):
        daemon = self.start()
        with daemon.client() as client:
            scan = client.submit_scan(octavo.simulated(5), octavo.raster(64, 16, volumes=0), samples=512, rate_hz=100_000, retention=HUNDRED,
                                      overrun=scan_pb2.OVERRUN_DROP_BLOCK)  # a busy machine need not keep up
            until(lambda: client.scan(scan.name).volumes_held >= 20)
            before = {v.name: v.digest for v in client.volumes(scan.name) if v.state == types_pb2.VOLUME_STATE_HELD}
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(self.lost(daemon), {})
        daemon = self.start()
        with daemon.client() as client:
            after = {v.name: v.digest for v in client.volumes()}
            self.assertLessEqual(before.items(), after.items())
            for name in after:
                client.read(name)

    def test_a_live_ring_is_kept_too(self):
        daemon = self.start()
        with daemon.client() as client:
            scan = client.submit_scan(octavo.simulated(1), octavo.raster(32, 8, volumes=0), samples=256, rate_hz=10e3,
                                      retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, keep_last=4, hold_slots=1))
            until(lambda: client.scan(scan.name).volumes_done > 8)
        self.assertEqual(daemon.stop(), 0)
        self.assertGreaterEqual(len(self.spilled()), 4)
        self.assertEqual(self.lost(daemon), {})

    def test_what_is_held_by_a_job_and_raw_spectra(self):
        daemon = self.start()
        with daemon.client() as client:
            scan = client.wait(client.submit_scan(octavo.simulated(4, fast=True), octavo.raster(12, 8, 1), samples=256, retention=dict(hold_raw=True)))
            (raw,) = (v.name for v in client.volumes(scan) if v.raw)
            job = client.wait_job(client.submit_job(octavo.reprocess(raw, octavo.processing(window="rect"))))
            arrays = {name: client.read(name) for name in [*job.volume_names, *scan.volume_names]}
        self.assertEqual(daemon.stop(), 0)
        daemon = self.start()
        with daemon.client() as client:
            for name, array in arrays.items():
                np.testing.assert_array_equal(client.read(name), array)


class WhatTheDiskDoesNotTake(Restart):
    def test_a_quota_that_is_full_takes_the_most_precious(self):
        size = 64 * 16 * 512  # of one volume, without its footer
        daemon = self.start("--spill.disk_bytes", str(7 * size // 2))  # room for three
        with daemon.client() as client:
            expiring = {v.name for v in client.volumes(self.acquire(client, 2, retention={**HUNDRED, "ttl": 3600}).name)}
            plain = [v.name for v in client.volumes(self.acquire(client, 2).name)]
            derived = [client.derive(plain[0], {"flip": {}}).name, client.derive(plain[1], {"flip": {}}).name]
            self.assertEqual(client.volume(plain[0]).bytes, size)
            kept_for_sure, lost_for_sure = set(plain), expiring
        self.assertEqual(daemon.stop(), 0)
        lost = self.lost(daemon)
        self.assertEqual(len(lost) + len(self.spilled()), 6)
        self.assertFalse(kept_for_sure & lost.keys())
        self.assertLessEqual(lost_for_sure, lost.keys())
        self.assertLessEqual(lost.keys(), lost_for_sure | set(derived))
        for reason in lost.values():
            self.assertIn("spill.disk_bytes", reason)
        # The next daemon names them, once.
        daemon = self.start()
        with daemon.client() as client:
            told = [line for line in client.info().recovered if ": lost at the last end" in line]
            self.assertEqual({line.split(" ")[0] for line in told}, lost.keys())
            self.assertTrue(all("'eye'" in line and "spill.disk_bytes" in line for line in told if line.split(" ")[0] in expiring))
            self.assertEqual(len(self.records(daemon, "lost at the last end of the daemon")), len(lost))
        self.assertEqual(daemon.stop(), 0)
        daemon = self.start()
        with daemon.client() as client:
            self.assertFalse([line for line in client.info().recovered if "lost" in line])

    def test_a_full_disk_costs_the_volume_that_it_met(self):
        daemon = self.start(environment={"OCTAVO_FAILPOINT": "spill_write:errno=28:2"})
        with daemon.client() as client:
            names = {v.name for v in client.volumes(self.acquire(client, 6).name)}
        self.assertEqual(daemon.stop(), 0)
        ((volume, reason),) = self.lost(daemon).items()
        self.assertIn("No space left", reason)
        daemon = self.start()
        with daemon.client() as client:
            self.assertEqual({v.name for v in client.volumes()}, names - {volume})

    def test_the_time_that_it_may_take(self):
        daemon = self.start("--drain.spill_seconds", "0.001")
        with daemon.client() as client:
            names = {v.name for v in client.volumes(self.acquire(client).name)}
        self.assertEqual(daemon.stop(), 0)
        lost = self.lost(daemon)
        self.assertGreater(len(lost), 20)
        self.assertEqual(set(lost.values()), {"drain.spill_seconds (0.001) were over"})
        daemon = self.start()
        with daemon.client() as client:
            self.assertEqual({v.name for v in client.volumes()} | lost.keys(), names)
            self.assertEqual(len(client.volumes()) + len(lost), len(names))

    def test_another_spill_folder_finds_none_and_says_so(self):
        daemon = self.start()
        with daemon.client() as client:
            names = {v.name for v in client.volumes(self.acquire(client, 3).name)}
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(len(self.spilled()), 3)
        daemon = self.start("--spill.dir", os.path.join(self.directory, "elsewhere"))
        with daemon.client() as client:
            self.assertEqual(list(client.volumes()), [])
            told = [line for line in client.info().recovered if ": LOST: " in line]
        self.assertEqual({line.split(" ")[0] for line in told}, names)
        for line in told:
            self.assertIn("the server died while it was held, or spill.dir named another folder then", line)
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(len(self.spilled()), 3)
        daemon = self.start()  # as before
        with daemon.client() as client:
            self.assertEqual({v.name for v in client.volumes()}, names)
        self.assertEqual(daemon.stop(), 0)

    def test_a_spill_folder_whose_disk_is_not_mounted_is_not_made_anew(self):
        disk = os.path.join(self.directory, "ssd")
        spill = ("--spill.dir", os.path.join(disk, "octavo", "spill"))
        with self.assertRaises(RuntimeError) as caught:
            self.start(*spill)  # folders above it are never made
        self.assertIn("spill.dir: creating spill directory", str(caught.exception))
        os.makedirs(os.path.join(disk, "octavo"))
        daemon = self.start(*spill)
        with daemon.client() as client:
            names = [v.name for v in client.volumes(self.acquire(client, 5).name)]
            scan = client.scans()[0].name
        self.assertEqual(daemon.stop(), 0)
        os.rename(disk, disk + ".away")
        for mount_point in (False, True):
            if mount_point:
                os.makedirs(os.path.join(disk, "octavo"))
            with self.subTest(mount_point=mount_point), self.assertRaises(RuntimeError) as caught:
                self.start(*spill)
            self.assertIn(f"spill.dir: '{spill[1]}' is missing, and the last octavod used it: mount it, or make it to go on without them", str(caught.exception))
            self.assertFalse(os.path.exists(spill[1]))
        # A folder that somebody has made is taken, and said to be another one.
        os.mkdir(spill[1])
        daemon = self.start(*spill)
        with daemon.client() as client:
            told = list(client.info().recovered)
            self.assertTrue(any(f"another folder is at {spill[1]} than the last octavod used" in line for line in told), told)
            self.assertEqual(len([line for line in told if ": LOST: " in line]), 5)
            self.assertTrue(any("5 held volumes of it are LOST" in warning for warning in client.scan(scan).warnings))
        self.assertEqual(daemon.stop(), 0)
        daemon = self.start(*spill)
        with daemon.client() as client:
            self.assertTrue(any("another folder is at" in line for line in client.info().recovered), "as long as it is another one")
        self.assertEqual(daemon.stop(), 0)
        shutil.rmtree(disk)
        os.rename(disk + ".away", disk)
        daemon = self.start(*spill)
        with daemon.client() as client:
            self.assertEqual([v.name for v in client.volumes()], names)  # oldest first
            self.assertFalse([warning for warning in client.scan(scan).warnings if "LOST" in warning])
            self.assertFalse([line for line in client.info().recovered if "another folder" in line])
        self.assertEqual(daemon.stop(), 0)

    def test_of_many_that_are_held_again_some_are_named(self):
        daemon = self.start()
        with daemon.client() as client:
            names = {v.name for v in client.volumes(self.acquire(client, 25).name)}
        self.assertEqual(daemon.stop(), 0)
        daemon = self.start()
        with daemon.client() as client:
            told = [line for line in client.info().recovered if "held again" in line]
            self.assertEqual({v.name for v in client.volumes()}, names)
        folder = os.path.join(self.directory, "state", "spill")
        self.assertEqual(len(told), 21)
        named = {line.split(":")[0] for line in told[:20]}
        self.assertEqual((len(named), named - names), (20, set()))
        self.assertEqual(told[0].split(": ", 1)[1], f"held again, from {folder}")
        self.assertEqual(told[20], f"5 more volumes are held again, from {folder}: the list of volumes names them")
        self.assertEqual(len(self.records(daemon, "spilled volume found")), 20)
        (more,) = self.records(daemon, "more spilled volumes found")
        self.assertEqual(more["held_again"], 5)
        self.assertEqual(daemon.stop(), 0)

    @unittest.skipUnless(os.path.exists(HANG_FSYNC), "sanitizers do not take a preloaded library")
    def test_a_disk_that_hangs(self):
        for second_signal in (False, True):
            flag = os.path.join(self.directory, "hang")
            daemon = self.start("--drain.spill_seconds", "300" if second_signal else "1", "--drain.seconds", "1",
                                environment={"LD_PRELOAD": HANG_FSYNC, "HANG_FSYNC_WHEN": flag})
            with daemon.client() as client:
                names = {v.name for v in client.volumes(self.acquire(client, 6).name)}
                on_disk = client.spill(sorted(names)[0]).name
                with open(flag, "w"):
                    pass  # from now on every fsync takes for ever
                daemon.process.send_signal(signal.SIGTERM)
                if second_signal:
                    until(lambda: client.info().draining)
                    # It is readable while it drains, and no client can bring it back into harm's way.
                    with self.assertRaises(octavo.OctavoError) as caught:
                        client.restore(on_disk)
                    self.assertEqual((caught.exception.code.name, caught.exception.reason), ("UNAVAILABLE", "DRAINING"))
                    client.read(on_disk)
                    daemon.process.send_signal(signal.SIGTERM)
            self.assertEqual(daemon.process.wait(60), 3)
            os.unlink(flag)
            lost = self.lost(daemon)
            self.assertEqual(lost.keys(), names - {on_disk})
            why = "the server was told a second time to end" if second_signal else "drain.spill_seconds (1) were over"
            self.assertEqual(set(lost.values()), {why})
            self.assertIn("did not end within", daemon.text())
            daemon = self.start("--drain.on_held", "lose")
            with daemon.client() as client:
                self.assertIn(on_disk, {v.name for v in client.volumes()})
            self.assertEqual(daemon.stop(), 0)

    def test_a_second_signal_while_it_writes(self):
        daemon = self.start("--spill.threads", "1")
        with daemon.client() as client:
            names = {v.name for v in client.volumes(self.acquire(client).name)}
        daemon.process.send_signal(signal.SIGTERM)
        until(self.spilled)
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.process.wait(30), 0)
        lost = self.lost(daemon)
        daemon = self.start()
        with daemon.client() as client:
            self.assertEqual(sorted([v.name for v in client.volumes()] + list(lost)), sorted(names))


class Killed(Restart):
    """kill -9 while the daemon writes what it holds: each volume is there, whole, or absent and named."""

    def check(self, before):
        daemon = self.start("--drain.on_held", "lose")
        with daemon.client() as client:
            found = {v.name: v.digest for v in client.volumes() if v.name in before}
            self.assertLessEqual(found.items(), before.items())
            for name in found:
                client.restore(name)  # compares the digest
            missing = {line.split(" ")[0] for line in client.info().recovered if ": lost at the last end of the daemon: the daemon was killed" in line}
            self.assertEqual(missing, before.keys() - found.keys())
            for volume in client.volumes():
                client.discard(volume.name)
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(self.spilled(), [])
        return len(found)

    def hold(self, **options):
        daemon = self.start(**options)
        with daemon.client() as client:
            return daemon, {v.name: v.digest for v in client.volumes(self.acquire(client).name)}

    def test_at_every_point(self):
        for point in ("spill_create", "spill_write:kill:4", "spill_footer:kill:2", "spill_synced:kill:4", "spill_renamed:kill:3"):
            with self.subTest(point=point):
                daemon, before = self.hold(environment={"OCTAVO_FAILPOINT": point if ":" in point else point + ":kill"})
                daemon.process.send_signal(signal.SIGTERM)
                self.assertEqual(daemon.process.wait(30), -9)
                self.assertLess(self.check(before), 40)

    def test_at_random_instants(self):
        source = random.Random(SEED)
        for _ in range(INSTANTS):
            daemon, before = self.hold()
            daemon.process.send_signal(signal.SIGTERM)
            enough = source.randrange(1, 30)
            until(lambda: len(self.spilled()) >= enough or daemon.process.poll() is not None)
            daemon.kill()
            self.assertGreaterEqual(self.check(before), enough)


class OnHeld(Restart):
    def test_lose(self):
        for flags, reason in ((("--drain.on_held", "lose"), "drain.on_held is lose"),
                              (("--spill.disk_bytes", "0"), "drain.on_held is spill, but there is no tier DISK (spill.disk_bytes is 0)")):
            daemon = self.start(*flags)
            (told,) = self.records(daemon, "held volumes will be lost with the daemon")
            self.assertEqual(told["because"], reason)
            with daemon.client() as client:
                names = {v.name for v in client.volumes(self.acquire(client, 3).name)}
            self.assertEqual(daemon.stop(), 0)
            self.assertEqual(self.lost(daemon), dict.fromkeys(names, reason))
            self.assertEqual(self.spilled(), [])

    def test_commit(self):
        daemon = self.start("--drain.on_held", "commit", "--drain.commit_format", "npy")
        with daemon.client() as client:
            scan = self.acquire(client, 5)
            names = [v.name for v in client.volumes(scan.name)]
            arrays = [client.read(name) for name in names]
            derived = client.derive(names[0], {"mip": {"axis": 2}}).name
        # The commit of one fails; it is spilled.
        taken = os.path.join(self.directory, "data", "held_at_stop", f"{scan.name.split('/')[1]}_00003.npy")
        os.makedirs(taken)
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(self.lost(daemon), {})
        folder = os.path.dirname(taken)
        for index in (0, 1, 2, 4):
            np.testing.assert_array_equal(np.load(os.path.join(folder, f"{scan.name.split('/')[1]}_{index:05}.npy")), arrays[index])
        self.assertEqual(len(glob.glob(os.path.join(folder, f"*_00000_{derived.split('/')[1]}.npy"))), 1)
        daemon = self.start()
        with daemon.client() as client:
            (kept,) = client.volumes()
            self.assertEqual(kept.name, names[3])
            np.testing.assert_array_equal(client.read(kept.name), arrays[3])

    def test_bad_values(self):
        for flags, words in ((("--drain.on_held", "keep"), "drain.on_held: is 'keep'; allowed spill, commit, lose"),
                             (("--drain.spill_seconds", "-1"), "drain.spill_seconds: is '-1'; allowed 0 to 86400"),
                             (("--drain.commit_format", "png"), "drain.commit_format: is 'png'; allowed ome.zarr"),
                             (("--drain.commit_root", "/elsewhere"), "drain.commit_root: is '/elsewhere'; allowed one of storage.roots")):
            with self.assertRaisesRegex(RuntimeError, "exit code 2") as caught:
                Daemon(*flags)
            self.assertIn(words, str(caught.exception))


class KnownBefore(Restart):
    def test_metrics_say_what_a_stop_would_write(self):
        daemon = self.start("--drain.spill_seconds", "25")
        until(lambda: self.metric(daemon, "octavo_stop_disk_bytes_per_second") > 0)
        self.assertEqual((self.metric(daemon, "octavo_stop_volumes"), self.metric(daemon, "octavo_stop_expected_seconds")), (0, 0))
        self.assertEqual(self.metric(daemon, "octavo_stop_limit_seconds"), 25)
        with daemon.client() as client:
            volumes = client.volumes(self.acquire(client, 4).name)
            bytes_ = sum(v.bytes for v in volumes)
            self.assertEqual(self.metric(daemon, 'octavo_stop_bytes{kind="unwritten"}'), bytes_)
            self.assertEqual(self.metric(daemon, "octavo_stop_volumes"), 4)
            self.assertGreater(self.metric(daemon, 'octavo_stop_bytes{kind="room"}'), bytes_)
            rate, seconds = self.metric(daemon, "octavo_stop_disk_bytes_per_second"), self.metric(daemon, "octavo_stop_expected_seconds")
            self.assertAlmostEqual(seconds, bytes_ / rate, delta=seconds * 0.01)
            stop = client.info().stop
            self.assertEqual((stop.on_held, stop.volumes, stop.bytes, stop.limit.ToSeconds()), (system_pb2.StopForecast.ON_HELD_SPILL, 4, bytes_, 25))
            self.assertGreater(stop.disk_bytes_per_s, 0)
            self.assertAlmostEqual(stop.expected_duration.ToNanoseconds() * 1e-9, bytes_ / stop.disk_bytes_per_s, delta=seconds * 0.01)
            self.assertGreater(stop.room_bytes, bytes_)
            told = self.command(daemon, "info")
            self.assertRegex(told, r"at a stop held volumes: spill; to write now: 4, 2.0 MiB in .+ at .+/s, limit 25")
            client.spill(volumes[0].name)
            self.assertEqual(self.metric(daemon, "octavo_stop_volumes"), 3)
        self.assertEqual(daemon.stop(), 0)

    def test_nothing_is_to_be_written_where_all_is_lost_anyway(self):
        daemon = self.start("--drain.on_held", "lose")
        with daemon.client() as client:
            self.acquire(client, 2)
            stop = client.info().stop
            self.assertEqual((stop.on_held, stop.volumes, stop.HasField("limit")), (system_pb2.StopForecast.ON_HELD_LOSE, 0, False))
        self.assertIn("at a stop held volumes: lose (drain.on_held is lose, or it is spill and spill.disk_bytes is 0)", self.command(daemon, "info"))
        self.assertEqual((self.metric(daemon, "octavo_stop_volumes"), self.metric(daemon, 'octavo_stop_bytes{kind="room"}')), (0, 0))
        self.assertEqual(daemon.stop(), 0)


class Systemd(Restart):
    def notified(self):
        path = os.path.join(self.directory, "notify")
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(notify.close)
        notify.bind(path)
        notify.settimeout(20)
        return path, lambda: notify.recv(1000).decode()

    def test_it_is_asked_to_wait_while_volumes_are_written(self):
        path, receive = self.notified()
        daemon = self.start(environment={"NOTIFY_SOCKET": path})
        self.assertEqual(receive(), "READY=1")
        with daemon.client() as client:
            self.acquire(client)
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(receive(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=20000000")
        message = receive()
        while (match := re.fullmatch(r"EXTEND_TIMEOUT_USEC=(\d+)\nSTATUS=Writing held volumes: (\d+) of 40, .+ of .+", message)):
            self.assertGreater(int(match.group(1)) * 1e-6, 120)
            message = receive()
        self.assertEqual(message, "EXTEND_TIMEOUT_USEC=20000000")  # the last one: for the rest of the end
        self.assertTrue(match is None and self.lost(daemon) == {})

    def test_a_bound_is_what_systemd_is_asked_for(self):
        path, receive = self.notified()
        daemon = self.start("--drain.spill_seconds", "7", environment={"NOTIFY_SOCKET": path})
        self.assertEqual(receive(), "READY=1")
        with daemon.client() as client:
            self.acquire(client, 10)
        self.assertEqual(daemon.stop(), 0)
        self.assertTrue(receive().startswith("STOPPING=1\n"))
        asked = int(re.match(r"EXTEND_TIMEOUT_USEC=(\d+)\nSTATUS=", receive()).group(1)) * 1e-6
        self.assertTrue(17 < asked <= 28, asked)

    def test_a_reload_has_a_begin_and_an_end(self):
        path, receive = self.notified()
        configuration = os.path.join(self.directory, "octavod.toml")

        def write(text):
            with open(configuration + ".new", "w") as file:
                file.write(text)
            os.rename(configuration + ".new", configuration)

        write("[log]\nlevel = 'info'\n")
        daemon = self.start("--config", configuration, environment={"NOTIFY_SOCKET": path})
        self.assertEqual(receive(), "READY=1")
        last = 0
        for text, good in (("[drain]\nspill_seconds = 33\n", True), ("[drain]\nspill_seconds = 'soon'\n", False), (None, False), ("[drain]\nspill_seconds = 34\n", True)):
            if text is None:
                os.unlink(configuration)
            else:
                write(text)
            daemon.process.send_signal(signal.SIGHUP)
            begun = re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=(\d+)", receive())
            self.assertGreater(int(begun.group(1)), last)
            last = int(begun.group(1))
            self.assertEqual(receive(), "READY=1")
            if good:
                self.assertEqual(self.metric(daemon, "octavo_stop_limit_seconds"), float(re.search(r"\d+", text).group()))
            else:
                self.assertEqual(self.metric(daemon, "octavo_stop_limit_seconds"), 33)
        self.assertEqual((self.metric(daemon, "octavo_config_reloads_total"), self.metric(daemon, "octavo_config_reload_errors_total")), (2, 2))
        write("[drain]\non_held = 'lose'\n")
        daemon.process.send_signal(signal.SIGHUP)
        receive(), receive()
        (told,) = self.records(daemon, "changes of the configuration that need a restart")
        self.assertEqual(told["changes"], ["drain.on_held: spill -> lose"])
        self.assertEqual(daemon.stop(), 0)


if __name__ == "__main__":
    unittest.main()
