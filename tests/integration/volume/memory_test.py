"""Guarantees about device memory, against the real daemon: tiers, recovery after kill -9, sessions,
leases, holders."""

import json
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

import numpy as np

from google.protobuf.duration_pb2 import Duration
from harness import BUILD, Daemon, DaemonTest, octavo, seconds_until, until
from octavo.v1 import scan_pb2, session_pb2, types_pb2, volume_pb2

INSTANTS = int(os.environ.get("OCTAVO_KILL_INSTANTS", "6"))  # a long run: 100
SEED = int(os.environ.get("OCTAVO_TEST_SEED", "20261121"))
SPILL = dict(mode=scan_pb2.RETENTION_MODE_CAPTURE, hold_slots=3, on_full=scan_pb2.ON_FULL_SPILL_DISK)


def metrics(daemon):
    page = urllib.request.urlopen(f"http://{daemon.metrics}/metrics", timeout=10).read().decode()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith("octavo_")}


def octavo_command(daemon, *words):
    return subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--address", daemon.address, *words], capture_output=True, text=True, timeout=60)


class Tiers(DaemonTest):
    def capture(self, volumes=12, **retention):
        scan = self.client.submit_scan(octavo.simulated(3, fast=True), octavo.raster(32, 8, volumes=volumes), samples=256,
                                       retention={**SPILL, **retention})
        return self.client.wait(scan.name)

    def test_a_capture_larger_than_its_slots_loses_nothing(self):
        scan = self.capture()
        self.assertEqual((scan.volumes_done, scan.volumes_dropped, scan.volumes_held), (12, 0, 12))
        self.assertGreaterEqual(scan.volumes_spilled, 9)
        plain = self.client.submit_scan(octavo.simulated(3, fast=True), octavo.raster(32, 8, volumes=12), samples=256)
        self.client.wait(plain.name)
        for spilled, truth in zip(self.client.volumes(scan.name), self.client.volumes(plain.name)):
            self.assertEqual(spilled.digest, truth.digest)
            np.testing.assert_array_equal(self.client.read(spilled.name), self.client.read(truth.name))
            np.testing.assert_array_equal(self.client.read(spilled.name, (1, 2, 3), (4, 5, 6)), self.client.read(truth.name)[1:5, 2:7, 3:9])
        spilled = [v for v in self.client.volumes(scan.name) if v.tier == types_pb2.TIER_DISK]
        folder = os.path.join(self.daemon.directory, "state", "spill")
        self.assertEqual(len(os.listdir(folder)), len(spilled))
        for name in os.listdir(folder):
            self.assertEqual(stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o700)
        memory = self.client.memory()
        disk = next(t for t in memory.tiers if t.tier == types_pb2.TIER_DISK)
        self.assertEqual(disk.volumes, len(spilled))
        self.assertEqual(metrics(self.daemon)['octavo_held_volumes{tier="DISK"}'], len(spilled))
        result = self.client.commit(spilled[0].name, "from_disk", "npy")
        np.testing.assert_array_equal(np.load(result.path), self.client.read(self.client.volumes(plain.name)[spilled[0].index].name))
        for volume in spilled[1:]:
            self.client.discard(volume.name)
        self.assertEqual(os.listdir(folder), [])

    def test_there_and_back_by_command(self):
        name = self.client.volumes(self.capture(2, hold_slots=4).name)[0].name
        array = self.client.read(name)
        for words, tier in ((("volume", "spill", name, "--tier", "host"), "HOST"), (("volume", "spill", name), "DISK"), (("volume", "restore", name), "")):
            done = octavo_command(self.daemon, *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(tier, done.stdout)
            np.testing.assert_array_equal(self.client.read(name), array)
        done = octavo_command(self.daemon, "memory")
        self.assertEqual(done.returncode, 0, done.stderr)
        for part in ("devices/0  budget", "held volume", name, "tier HOST", "tier DISK"):
            self.assertIn(part, done.stdout)
        self.assertEqual(octavo_command(self.daemon, "volume", "spill", "volumes/none").returncode, 1)

    def test_deriving_restores_first(self):
        scan = self.client.submit_scan(octavo.simulated(3, fast=True), octavo.spiral(32, 8, volumes=1, radius=(0.1, 1)), samples=256)
        self.client.wait(scan.name)
        name = self.client.volumes(scan.name)[0].name
        truth = self.client.read(self.client.derive(name, {"cartesian": {}}).name)
        self.client.spill(name)
        self.assertEqual(self.client.volume(name).tier, types_pb2.TIER_DISK)
        derived = self.client.derive(name, {"cartesian": {}})
        np.testing.assert_array_equal(self.client.read(derived.name), truth)
        self.assertEqual(self.client.volume(name).tier, types_pb2.TIER_DEVICE)

    def test_plan_says_when_the_tier_will_be_full(self):
        report = self.client.plan_scan(octavo.simulated(1), octavo.raster(512, 512, volumes=0), samples=1024, rate_hz=1e6,
                                       retention={**SPILL, "hold_slots": 4}).report
        self.assertGreater(report.spill_free_bytes, 0)
        self.assertGreater(report.time_to_memory_full.ToNanoseconds(), 0)
        self.assertGreater(report.time_to_spill_full.ToNanoseconds(), report.time_to_memory_full.ToNanoseconds())

    def test_tier_and_mode_are_checked(self):
        name = self.client.volumes(self.capture(1, hold_slots=4).name)[0].name
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client._call(self.client._volumes.SpillVolume, volume_pb2.SpillVolumeRequest(name=name, tier=types_pb2.TIER_DEVICE))
        self.assertEqual((caught.exception.code.name, caught.exception.field), ("INVALID_ARGUMENT", "tier"))


class Ring(DaemonTest):
    def test_the_last_and_the_marked(self):
        scan = self.client.submit_scan(octavo.simulated(1), octavo.raster(32, 8, volumes=0), samples=256, rate_hz=10e3,  # the ring: a tenth of a second
                                       retention=dict(mode=scan_pb2.RETENTION_MODE_LIVE, keep_last=4, hold_slots=1))
        marked = None
        for frame in self.client.subscribe(scan.name, ["mip"]):
            if frame.complete and marked is None:
                try:
                    marked = self.client.hold(frame.volume).name
                except octavo.OctavoError:
                    continue  # the ring was faster than this client
            if marked and self.client.scan(scan.name).volumes_done > 40:
                break
        self.client.stop(scan.name)
        self.client.wait(scan.name)
        volumes = self.client.volumes(scan.name)
        self.assertEqual(len(volumes), 5)
        self.assertEqual([v.name for v in volumes if v.marked], [marked])


class Sessions(DaemonTest):
    flags = ("--session.heartbeat_seconds", "0.3", "--session.expiry_seconds", "4")

    def test_a_session_keeps_itself_alive_and_a_killed_client_does_not(self):
        script = f"""
import sys, time
sys.path.insert(0, {os.path.join(BUILD, "python")!r})
import octavo
client = octavo.Client({self.daemon.address!r})
session = client.session("victim")
scan = client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(32, 8, volumes=2), samples=256, session=session,
                          retention=dict(orphan=octavo.v1.scan_pb2.ORPHAN_DISCARD))
client.wait(scan.name)
buffer = client.buffers.create([4]).name
lease = client.lease(buffer, exclusive=True, session=session)
print(session.name, session.secret, buffer, flush=True)
time.sleep(1000)
"""
        victim = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        try:
            name, secret, buffer = victim.stdout.readline().split()
            mine = lambda: [v for v in self.client.volumes() if v.session == name]
            self.assertEqual(len(mine()), 2)
            time.sleep(5)  # longer than the expiry: keep-alive calls hold the session
            self.assertEqual(len(mine()), 2)
            self.assertTrue(next(s for s in self.client.sessions() if s.name == name).alive)
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.lease(buffer, exclusive=True, seconds=5)
            self.assertEqual((caught.exception.code.name, caught.exception.reason), ("ABORTED", "LEASED"))
            self.assertIn("victim", str(caught.exception))
            waited = []
            waiter = threading.Thread(target=lambda: waited.append(self.client.lease(buffer, exclusive=True, seconds=5, wait=20)))
            waiter.start()
        finally:
            victim.kill()
            victim.wait()
            victim.stdout.close()
        waiter.join(20)
        self.assertEqual(len(waited), 1, "its lease ended with it")
        waited[0].release()
        until(lambda: not mine())
        with self.client.session(secret=secret) as again:
            self.assertEqual(again.name, name)
            self.assertTrue(next(s for s in self.client.sessions() if s.name == name).alive)

    def test_a_lease_and_the_end_of_its_volume_exclude_each_other(self):
        """Two clients act at the same moment: one leases a volume, the other one discards or
        commits it."""
        rounds = 60
        scan = self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 4, volumes=2 * rounds), samples=64)
        self.client.wait(scan.name)
        volumes = [volume.name for volume in self.client.volumes(scan.name)]
        self.assertEqual(len(volumes), 2 * rounds)
        other = octavo.Client(self.daemon.address)
        self.addCleanup(other.close)
        answers, start = {}, threading.Barrier(2)

        def at_once(who, call):
            start.wait()
            try:
                answers[who] = call()
            except octavo.OctavoError as error:
                answers[who] = error

        won = {"lease": 0, "end": 0}
        for i, name in enumerate(volumes):
            end = (lambda: other.discard(name)) if i % 2 else (lambda: other.commit(name, f"raced_{i}", "npy"))
            threads = [threading.Thread(target=at_once, args=("lease", lambda: self.client.lease(name, seconds=30, holder="annotator"))),
                       threading.Thread(target=at_once, args=("end", end))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            failed = [who for who, answer in answers.items() if isinstance(answer, octavo.OctavoError)]
            self.assertEqual(len(failed), 1, f"{name}: {answers}")
            won["end" if failed == ["lease"] else "lease"] += 1
            error = answers[failed[0]]
            if failed == ["end"]:
                self.assertEqual((error.code.name, error.reason, error.numbers["holder"]), ("ABORTED", "LEASED", "annotator"))
                self.client.commit(name, f"own_{i}", "npy", lease=answers["lease"])
            else:
                self.assertEqual((error.code.name, error.reason), ("FAILED_PRECONDITION", "VOLUME_STATE"))
            self.assertEqual(self.client.leases(filter=f'resource = "{name}"'), [])

    def test_leases(self):
        scan = self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(32, 8, volumes=1), samples=256)
        self.client.wait(scan.name)
        name = self.client.volumes(scan.name)[0].name
        with self.client.lease(name, seconds=30, holder="annotator") as lease:
            self.assertEqual(self.client.volume(name).shared_leases, 1)
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.discard(name)
            self.assertEqual((caught.exception.code.name, caught.exception.reason), ("ABORTED", "LEASED"))
            for call in (lambda: self.client.commit(name, "leased", "npy"), lambda: self.client.spill(name, "host")):
                with self.assertRaises(octavo.OctavoError) as caught:
                    call()
                self.assertEqual((caught.exception.code.name, caught.exception.reason, caught.exception.numbers["holder"]),
                                 ("ABORTED", "LEASED", "annotator"))
            self.client.spill(name, "host", lease=lease)
            self.client.restore(name)
            listed = self.client.leases(filter=f'resource = "{name}"')
            self.assertEqual([(one.holder, one.token, one.fence) for one in listed], [("annotator", "", lease.fence)])
            done = octavo_command(self.daemon, "lease", "list")
            self.assertIn("annotator", done.stdout)
            self.assertEqual(metrics(self.daemon)['octavo_leases{mode="SHARED"}'], 1)
        self.assertEqual(self.client.leases(filter=f'resource = "{name}"'), [])
        for arguments, code in ((dict(exclusive=True, seconds=5), "FAILED_PRECONDITION"),
                                (dict(seconds=1e9), "INVALID_ARGUMENT"), (dict(seconds=1, wait=1e9), "INVALID_ARGUMENT")):
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.lease(name, **arguments)
            self.assertEqual(caught.exception.code.name, code, arguments)
        for resource, code in (("volumes/none", "NOT_FOUND"), ("buffers/none", "NOT_FOUND"), ("scans/x", "INVALID_ARGUMENT")):
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.lease(resource, seconds=5)
            self.assertEqual(caught.exception.code.name, code, resource)
        for request in (dict(resource=name), dict(ttl=Duration(seconds=5))):  # the library refuses these itself
            with self.assertRaises(octavo.OctavoError) as caught, octavo.errors.raising():
                self.client._sessions.AcquireLease(session_pb2.AcquireLeaseRequest(mode=session_pb2.LEASE_MODE_SHARED, **request))
            self.assertEqual(caught.exception.code.name, "INVALID_ARGUMENT", request)
        granted = octavo_command(self.daemon, "lease", "acquire", name)
        self.assertEqual(granted.returncode, 0, granted.stderr)
        token = granted.stdout.split("token ")[1].strip()
        self.assertEqual(octavo_command(self.daemon, "lease", "renew", token).returncode, 0)
        self.assertEqual(octavo_command(self.daemon, "lease", "release", token).returncode, 0)
        self.assertEqual(octavo_command(self.daemon, "lease", "release", token).returncode, 1)

    def test_a_waiting_client_that_goes_leaves_the_queue(self):
        buffer = self.client.buffers.create([4]).name
        with self.client.lease(buffer, exclusive=True, seconds=60):
            impatient = octavo.Client(self.daemon.address, timeout=0.3)
            with self.assertRaises(octavo.OctavoError) as caught:
                request = octavo.v1.session_pb2.AcquireLeaseRequest(resource=buffer, mode=2, ttl=Duration(seconds=60), wait=Duration(seconds=60))
                impatient._call(impatient._sessions.AcquireLease, request)
            self.assertEqual(caught.exception.code.name, "DEADLINE_EXCEEDED")
            impatient.close()
            until(lambda: metrics(self.daemon)['octavo_leases{mode="waiting"}'] == 0)
        self.assertEqual(self.client.leases(filter=f'resource = "{buffer}"'), [])

    def test_all_that_a_scan_leaves_is_committed_under_names_of_its_own(self):
        session = self.client.session("leaves")
        scan = self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(32, 8, volumes=2), samples=256, session=session,
                                       retention=dict(orphan=scan_pb2.ORPHAN_COMMIT_DEFAULT, hold_raw=True))
        self.client.wait(scan.name)
        self.client.derive(self.client.volumes(scan.name)[0].name, {"mip": {"axis": 2}})
        names = [v.name for v in self.client.volumes(scan.name)]
        self.assertEqual(len(names), 5)
        session.close()
        until(lambda: all(self.client.volume(name).state == types_pb2.VOLUME_STATE_COMMITTED for name in names))
        self.assertEqual(len({self.client.volume(name).commit_result.path for name in names}), 5)

    def test_orphan_needs_a_session(self):
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(32, 8, volumes=1), samples=256,
                                    retention=dict(orphan=scan_pb2.ORPHAN_DISCARD))
        self.assertEqual(caught.exception.field, "retention.orphan")
        with self.assertRaises(octavo.OctavoError) as caught:
            spec = octavo.scan_spec(octavo.simulated(1, fast=True), octavo.raster(32, 8, volumes=1), samples=256)
            self.client._call(self.client._scans.SubmitScan, scan_pb2.SubmitScanRequest(spec=spec, session_secret="nobody's"))
        self.assertEqual(caught.exception.reason, "NO_SESSION")


class TimeToLive(DaemonTest):
    def test_warned_and_gone(self):
        scan = self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(32, 8, volumes=2), samples=256,
                                       retention=dict(ttl=6, ttl_warning=3))
        self.client.wait(scan.name)
        first, second = self.client.volumes(scan.name)
        self.assertGreater(seconds_until(first.expire_time), 0)
        self.client.hold(first.name)
        until(lambda: len(self.client.volumes(scan.name)) == 1)
        self.assertEqual(self.client.volumes(scan.name)[0].name, first.name)
        events = [e.text for e in self.client.scan(scan.name).events if e.kind == "EXPIRING"]
        self.assertEqual(len(events), 1)
        self.assertIn("time to live", self.client.volume(second.name).reason)
        self.assertEqual(self.client.volume(second.name).reason_code, "EXPIRED")
        # Released, its time to live begins anew. By the command line, and again: it is idempotent.
        self.assertIsNone(self.client.volume(first.name).expire_time)
        self.assertIn("expires in", self.command("volume", "release", first.name).stdout)
        released = self.client.release(first.name)
        self.assertFalse(released.marked)
        self.assertTrue(3 < seconds_until(released.expire_time) <= 6)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.client.release("volumes/none")
        self.assertEqual(caught.exception.reason, "NO_VOLUME")
        marked = self.command("volume", "hold", first.name).stdout
        self.assertIn("marked", marked)
        self.assertNotIn("expires in", marked)


def memory_group(limit):
    """A control group with its own limit, of the version that this machine has. Returns its folder
    and the name of the limit, or the reason why there is none."""
    for folder, file in (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")):
        name = os.path.join(folder, f"octavo-test-{os.getpid()}")
        try:
            os.mkdir(name)
        except OSError as error:
            why = str(error)
            continue
        try:
            with open(os.path.join(name, file), "r+") as out:  # the kernel creates it in a control group of memory
                out.write(str(limit))
            return name, file
        except OSError as error:
            why = str(error)
            os.rmdir(name)
    raise unittest.SkipTest(f"no control group can be made here: {why}")


class ControlGroup(unittest.TestCase):
    @unittest.skipUnless(os.environ.get("OCTAVO_DEVICE_BACKEND", "host") == "host", "the memory of a GPU is not the group's")
    def test_a_limit_of_the_group_is_the_servers(self):
        limit = 768 << 20
        group, file = memory_group(limit)
        self.addCleanup(lambda: until(lambda: os.rmdir(group) is None if not open(os.path.join(group, "cgroup.procs")).read() else False))

        def join():
            with open(os.path.join(group, "cgroup.procs"), "w") as procs:
                procs.write("0")

        daemon = Daemon(before_exec=join)
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            host, memory = client.info().host_memory, client.memory()
            self.assertEqual((host.total_bytes, host.limited_by), (limit, os.path.join(group, file)))
            self.assertGreater(host.machine_bytes, limit)
            self.assertEqual(memory.host.total_bytes, limit)
            budgets = [line for line in daemon.text().splitlines() if '"host memory"' in line]
            budgets = json.loads(budgets[0])
            self.assertLess(sum(budgets[name] for name in ("devices_bytes", "frame_pool_bytes", "listen_memory_bytes", "spill_host_bytes", "projection_bytes", "picture_bytes", "shared_frame_bytes")), limit)
            self.assertLess(memory.devices[0].budget_bytes, limit * 0.6)
            told = octavo_command(daemon, "memory").stdout
            self.assertIn(file, told)
            self.assertIn(file, octavo_command(daemon, "info").stdout)
            # All granted memory is really available: the daemon refuses requests before the
            # kernel would kill it.
            made = []
            with self.assertRaises(octavo.OctavoError) as caught:
                while True:
                    made.append(client.buffers.put(np.ones(32 << 20, np.uint8)).name)
            self.assertEqual(caught.exception.code.name, "RESOURCE_EXHAUSTED")
            self.assertGreater(len(made), 3)
            for name in made:
                self.assertEqual(client.buffers.read(name)[-1], 1)
        self.assertEqual(daemon.stop(), 0)


class Quota(DaemonTest):
    flags = ("--spill.disk_bytes", "200000", "--spill.host_bytes", "0")

    def test_quota_and_a_tier_that_is_off(self):
        retention = {**SPILL, "on_tier_full": scan_pb2.ON_FULL_DROP_NEW}
        scan = self.client.submit_scan(octavo.simulated(3, fast=True), octavo.raster(32, 8, volumes=40), samples=256, retention=retention)
        scan = self.client.wait(scan.name)
        self.assertGreater(scan.volumes_dropped, 0)
        self.assertGreater(scan.spill_failures, 0)
        self.assertEqual(scan.volumes_done + scan.volumes_dropped, 40)
        disk = next(t for t in self.client.memory().tiers if t.tier == types_pb2.TIER_DISK)
        self.assertLessEqual(disk.used_bytes, 200000)
        self.assertGreater(disk.volumes, 0)
        for volume in self.client.volumes(scan.name):
            self.client.read(volume.name)
        text = self.command("memory").stdout
        self.assertIn("tier HOST: off: spill.host_bytes of the server's configuration is 0", text)
        self.assertNotIn("spill.disk_bytes", text)
        for mode in (scan_pb2.ON_FULL_SPILL_HOST,):
            with self.assertRaises(octavo.OctavoError) as caught:
                self.client.submit_scan(octavo.simulated(3, fast=True), octavo.raster(32, 8, volumes=40), samples=256,
                                        retention={**SPILL, "on_full": mode})
            self.assertEqual((caught.exception.reason, caught.exception.field), ("SPILL_OFF", "retention.on_full"))


class KillNine(unittest.TestCase):
    """kill -9 while volumes are being spilled: after the restart each file is a held volume with
    all its voxels, or is absent."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="octavo-spill-")

    def tearDown(self):
        shutil.rmtree(self.directory, ignore_errors=True)

    def capture(self, environment=None, delay=None):
        """Runs a capture that spills until the daemon dies; returns the volumes that had certainly
        been spilled."""
        daemon = Daemon(directory=self.directory, environment=environment)
        sure = {}
        try:
            killer = None
            if delay is not None:
                killer = threading.Timer(delay, daemon.process.kill)
                killer.start()
            try:
                with daemon.client() as client:
                    scan = client.submit_scan(octavo.simulated(5, fast=True), octavo.raster(64, 16, volumes=30), samples=512, retention=SPILL)
                    while True:
                        for volume in client.volumes(scan.name):
                            if volume.tier == types_pb2.TIER_DISK:
                                sure[volume.name] = volume
            except octavo.OctavoError as error:
                self.assertIn(error.code.name, ("UNAVAILABLE", "CANCELLED", "INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED"))
            if killer:
                killer.join()
            self.assertEqual(daemon.process.wait(30), -9)
        finally:
            daemon.remove()
        return sure

    def check(self, sure):
        daemon = Daemon("--drain.on_held", "lose", directory=self.directory)
        try:
            with daemon.client() as client:
                plain = client.submit_scan(octavo.simulated(5, fast=True), octavo.raster(64, 16, volumes=30), samples=512)
                client.wait(plain.name)
                truth = {v.index: client.read(v.name) for v in client.volumes(plain.name)}
                found = {v.name: v for v in client.volumes() if v.recovered}
                for name, volume in sure.items():
                    self.assertIn(name, found)
                    self.assertEqual(found[name].digest, volume.digest)
                for name, volume in found.items():
                    self.assertEqual((volume.state, volume.tier, volume.kept), (types_pb2.VOLUME_STATE_HELD, types_pb2.TIER_DISK, True))
                    np.testing.assert_array_equal(client.read(name), truth[volume.index])
                folder = os.path.join(self.directory, "state", "spill")
                self.assertEqual(len(os.listdir(folder)), len(found), os.listdir(folder))
                for number, name in enumerate(list(found)):
                    if number == 0:
                        result = client.commit(name, "recovered", "npy")
                        np.testing.assert_array_equal(np.load(result.path), truth[found[name].index])
                        os.remove(result.path)
                        os.remove(result.path + ".json")
                    else:
                        client.discard(name)
                self.assertEqual(os.listdir(folder), [])
            self.assertEqual(daemon.stop(), 0)
        finally:
            daemon.remove()
        return len(found)

    def test_at_every_point(self):
        for point in ("spill_create", "spill_write:kill:3", "spill_footer", "spill_synced:kill:4", "spill_renamed:kill:2"):
            with self.subTest(point=point):
                spec = point if ":" in point else point + ":kill"
                self.check(self.capture(environment={"OCTAVO_FAILPOINT": spec}))

    def test_at_random_instants(self):
        source = random.Random(SEED)
        for _ in range(INSTANTS):
            self.check(self.capture(delay=source.uniform(0.1, 1.5)))

    def test_a_clean_stop_keeps_them_too(self):
        daemon = Daemon(directory=self.directory)
        with daemon.client() as client:
            scan = client.submit_scan(octavo.simulated(5, fast=True), octavo.raster(64, 16, volumes=30), samples=512, retention=SPILL)
            client.wait(scan.name)
            sure = {v.name: v for v in client.volumes(scan.name) if v.tier == types_pb2.TIER_DISK}
        self.assertEqual(daemon.stop(), 0)
        self.assertGreaterEqual(len(sure), 27)
        self.assertEqual(self.check(sure), 30)  # restart_test.py has the rest of what a stop keeps


class AfterARestart(unittest.TestCase):
    """Spilled volumes that the next process holds are unchanged: restored, derived from, spilled
    again, committed."""

    N, M = 12, 8
    POINTS = np.stack(np.meshgrid(np.linspace(-1, 1, N), np.linspace(-1, 1, M)), axis=-1)
    # name, pattern, operations
    KINDS = [
        ("raster", octavo.raster(N, M, 1), [{"mip": {"axis": 2}}]),
        ("bidirectional", octavo.raster(N, M, 1, bidirectional=True, extent_x_mm=2), [{"crop": {"start": [1, 2, 3], "count": [2, 3, 4]}}, {"flip": {}}]),
        ("repeats", octavo.repeated_raster(N, M, 1, repeats=3, period=2), [{"angiography": {"contrast_method": "speckle_variance"}}, {"aip": {"axis": 2}}]),
        ("repeats in order", octavo.repeated_raster(N, M, 1, repeats=2, period=4, order=True), [{"angiography": {}}]),
        ("radial", octavo.pattern(octavo.radial(N, M, 1, radius=(-2, 2)), offset=(1, 2), rotation=30), [{"cartesian": {"rows": 20, "columns": 22}}]),
        ("repeated radial", octavo.repeated_radial(N, M, 1, repeats=2, period=1), [{"angiography": {}}, {"cartesian": {}}]),
        ("spiral", octavo.spiral(N, M, 1, radius=(0.2, 1), linear=True), [{"cartesian": {}}]),
        ("lissajous", octavo.lissajous(N, M, 1, extent=(2, 1)), [{"cartesian": {}}]),
        ("freeform", octavo.freeform(POINTS, 1), [{"cartesian": {"extent_x_mm": 2.5}}]),
        ("with a flyback as short as can be", octavo.pattern(octavo.raster(N, M, 1), flyback="minimum_time", scanner=octavo.scanner(1e4, 1e8)),
         [{"resize": {"shape": [4, 6, 0]}}]),
    ]

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="octavo-again-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def daemon(self):
        daemon = Daemon(directory=self.directory)
        self.addCleanup(daemon.remove)
        return daemon

    def test_they_are_restored_and_derived_from(self):
        daemon, made = self.daemon(), {}
        with daemon.client() as client:
            for kind, pattern, operations in self.KINDS:
                scan = client.wait(client.submit_scan(octavo.simulated(4, fast=True), pattern, samples=256, rate_hz=20000, title=kind))
                (name,) = scan.volume_names
                made[kind] = (name, client.read(name), client.read(client.derive(name, *operations)))
                client.spill(name)
        self.assertEqual(daemon.stop(), 0)
        for again in range(2):  # the recovered volumes are spilled and recovered again
            daemon = self.daemon()
            with daemon.client() as client:
                for kind, pattern, operations in self.KINDS:
                    with self.subTest(kind, again=again):
                        name, array, derived = made[kind]
                        volume = client.volume(name)
                        self.assertEqual((volume.recovered, volume.tier, volume.title), (True, types_pb2.TIER_DISK, kind))
                        if again == 0:
                            volume = client.restore(name)
                            self.assertEqual((volume.tier, volume.device), (types_pb2.TIER_DEVICE, "devices/0"))
                        result = client.derive(name, *operations)  # restores it if need be
                        np.testing.assert_array_equal(client.read(result), derived)
                        np.testing.assert_array_equal(client.read(name), array)
                        self.assertEqual((result.derived_from, result.recovered, result.title), (name, False, kind))
                        told = client.commit(result, f"{kind}_{again}", "npy").path + ".json"
                        with open(told) as file:
                            meta = json.load(file)
                        self.assertEqual(meta["shape"], list(derived.shape))
                        self.assertEqual(meta["processing"]["derived"]["from"], name)
                        self.assertIn("acquisition", meta)
                        client.spill(name)
            self.assertEqual(daemon.stop(), 0)

    def test_raw_spectra_and_tomograms(self):
        daemon = self.daemon()
        with daemon.client() as client:
            scan = client.wait(client.submit_scan(octavo.simulated(4, fast=True), octavo.raster(12, 8, 1), samples=256, retention=dict(hold_raw=True)))
            (raw,) = (v.name for v in client.volumes(scan) if v.raw)
            spectra = client.read(raw)
            tomo = octavo.ProjectionArrays(projections=client.buffers.put(np.random.default_rng(2).random((12, 5, 16), np.float32)))
            work = octavo.tomography(tomo, angles=np.arange(12) * np.pi / 12, prepare=octavo.preparation(already_sinograms=True))
            (slices,) = client.wait_job(client.submit_job(work)).volume_names
            tomogram = client.read(slices)
            mip = client.read(client.derive(slices, {"mip": {"axis": 0}}))
            np.testing.assert_array_equal(mip[0], tomogram.max(axis=0))
            pushed = client.submit_job(octavo.tomography(octavo.PushedProjections(rows=5, columns=16, frames=20, dtype="f32")))
            frames = list(octavo.projection_frames(np.ones((20, 5, 16), np.float32), np.arange(20) * np.pi / 20))
            client.push_projections(pushed, frames[:3] + frames[5:12])
            (partial,) = client.wait_job(pushed).volume_names
            # What a job made of a scan's spectra is the job's, and so is what is derived from it.
            job = client.wait_job(client.submit_job(octavo.reprocess(raw, octavo.processing(window="rect"))))
            (again,) = job.volume_names
            self.assertEqual([client.volume(name).parent for name in (raw, again, client.derive(again, {"mip": {"axis": 2}}).name)], [scan.name, job.name, job.name])
            parents = {name: client.volume(name).parent for name in (raw, slices, partial, again)}
            for name in parents:
                client.spill(name)
            # The others are spilled by the stop.
            held = {parent: {v.name for v in client.volumes(parent)} for parent in (job.name, scan.name)}
            self.assertEqual([len(names) for names in held.values()], [2, 2])
        self.assertEqual(daemon.stop(), 0)
        daemon = self.daemon()
        with daemon.client() as client:
            self.assertEqual({name: client.volume(name).parent for name in parents}, parents)
            self.assertEqual({parent: {v.name for v in client.volumes(parent)} for parent in held}, held)
            derived = client.derive(again, {"mip": {"axis": 2}})
            self.assertEqual(derived.parent, job.name)
            told = []
            for name in (derived.name, again):
                with open(client.commit(name, f"job_{len(told)}", "npy").path + ".json") as file:
                    told.append(json.load(file)["processing"]["job"])
            self.assertEqual([one["name"] for one in told], [job.name] * 2)
            self.assertEqual(told[0], told[1])
            self.assertEqual(told[0]["parameters"]["volume"], raw)
            np.testing.assert_array_equal(client.read(client.derive(slices, {"mip": {"axis": 0}})), mip)
            self.assertTrue(client.volume(slices).complete)
            volume = client.volume(partial)
            self.assertEqual((volume.complete, volume.missing_frames, volume.expected_frames), (False, 10, 20))
            self.assertEqual([(r.first, r.count) for r in volume.missing_frame_ranges], [(3, 2), (12, 8)])
            with self.assertRaises(octavo.OctavoError) as caught:
                client.derive(slices, {"cartesian": {}})
            self.assertIn("allowed are operations on arrays", caught.exception.message)
            self.assertTrue(client.volume(raw).raw)
            np.testing.assert_array_equal(client.read(client.restore(raw)), spectra)
            with self.assertRaises(octavo.OctavoError) as caught:
                client.submit_job(octavo.reprocess(raw))
            self.assertEqual((caught.exception.reason, caught.exception.field), ("RECOVERED", "reprocess.volume"))
            self.assertIn("can be read and committed", caught.exception.message)
        self.assertEqual(daemon.stop(), 0)


if __name__ == "__main__":
    unittest.main()
