"""Scans that go on after a restart (ScanSpec.on_restart = RESUME): what was committed stays, exactly one scan runs, and it goes on as its owner's until a client
stops it, it fails, or three daemons in a row die early."""

import glob
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
import unittest
import urllib.request

import grpc
import numpy as np

from harness import BUILD, Daemon, octavo, until
from octavo.v1 import scan_pb2

OCTAVO = os.path.join(BUILD, "bin", "octavo")
DESTINATION = "long/{scan}_{index:05}"
OVER = ("DONE", "FAILED", "CANCELLED", "LOST")


class Resume(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="octavo-resume-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.folder = os.path.join(self.directory, "state", "resume")
        self.root = os.path.join(self.directory, "data")

    def start(self, *flags, **options):
        daemon = Daemon(*flags, directory=self.directory, **options)
        self.addCleanup(daemon.remove)
        return daemon

    def client(self, daemon, **options):
        client = octavo.Client(daemon.address, **options)
        self.addCleanup(client.close)
        return client

    def submit(self, client, destination=DESTINATION, **more):
        """A scan of some ten small volumes a second, until it is stopped."""
        return client.submit_scan(octavo.simulated(5), octavo.raster(16, 8, volumes=0), samples=256, rate_hz=1280, on_restart="resume",
                                  retention=dict(disposition="auto_commit", auto_commit=octavo.commit_options(destination, "npy")),
                                  **{"title": "night", **more})

    def running(self, client):
        return [scan for scan in client.scans() if scan.state not in OVER and not scan.earlier_run]

    def files(self, scan, root=None):
        """The files of a scan's volumes, in their order."""
        return sorted(glob.glob(os.path.join(root or self.root, "long", scan.split("/")[1] + "_*.npy")))

    def commits(self, scan, more=3, root=None):
        before = len(self.files(scan, root))
        until(lambda: len(self.files(scan, root)) >= before + more)

    def records(self):
        return sorted(os.path.basename(path) for path in glob.glob(os.path.join(self.folder, "*.resume")))

    def told(self, client, *parts):
        """The lines of GetInfo.recovered that have all these parts."""
        return [line for line in client.info().recovered if all(part in line for part in parts)]

    def metric(self, daemon, name):
        page = urllib.request.urlopen(f"http://{daemon.metrics}/metrics", timeout=10).read().decode()
        return float(page.split(f"\n{name} ")[1].split("\n")[0])

    def audited(self, what):
        with open(os.path.join(self.directory, "state", "audit", "audit.jsonl"), "rb") as file:
            lines = [json.loads(line) for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
        return [line for line in lines if line.get("what") == what]

    def successor(self, client, scan):
        """The one scan that goes on with `scan`."""
        (now,) = self.running(client)
        self.assertEqual(now.resumed_from, scan)
        self.assertEqual(len(self.told(client, f"{scan} was resumed as {now.name}")), 1, client.info().recovered)
        return now


class GoesOn(Resume):
    def test_after_two_kills_and_an_orderly_end(self):
        daemon = self.start()
        names = [self.submit(self.client(daemon), labels={"eye": "OD"}, subject=dict(id="patient 7")).name]
        self.assertEqual(len(self.records()), 1)
        self.assertEqual(stat.S_IMODE(os.stat(self.folder).st_mode), 0o700)
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.folder, self.records()[0])).st_mode), 0o600)
        kept = {}
        for end in ("kill", "kill", "stop"):
            self.commits(names[-1])
            getattr(daemon, end)()
            for path in self.files(names[-1]):
                kept[path] = np.load(path)
                self.assertEqual(kept[path].shape[:2], (8, 16))
            daemon = self.start()
            client = self.client(daemon)
            now = self.successor(client, names[-1])
            self.assertNotIn(now.name, names)
            self.assertEqual((now.spec.title, dict(now.spec.labels), now.spec.subject.id), ("night", {"eye": "OD"}, "patient 7"))
            self.assertEqual(now.spec.on_restart, scan_pb2.ON_RESTART_RESUME)
            self.assertEqual(len(self.records()), 1)
            self.assertEqual(self.metric(daemon, "octavo_scans_resumed_total"), 1)
            self.assertEqual(self.metric(daemon, "octavo_scans_not_resumed"), 0)
            until(lambda: [line for line in self.audited("scan resumed") if (line["object"], line["now"]) == (names[-1], now.name)])
            names.append(now.name)
        self.commits(names[-1])
        for path, array in kept.items():
            np.testing.assert_array_equal(np.load(path), array)
        # The history knows the ends of the others, and who came after whom.
        old = {scan.name: scan for scan in client.scans() if scan.earlier_run}
        self.assertEqual({name: old[name].resumed_from for name in names[1:-1]}, dict(zip(names[1:-1], names)))
        self.assertEqual(old[names[0]].state, "LOST")
        text = subprocess.run([OCTAVO, "--address", daemon.address, "scan", "show", names[-1]], capture_output=True, text=True, check=True).stdout
        self.assertIn(f"resumed from {names[-2]}", text)
        client.stop(names[-1])
        self.assertEqual(self.records(), [])

    def test_two_scans_go_on_side_by_side(self):
        daemon = self.start()
        client = self.client(daemon)
        names = {self.submit(client, title=title).name: title for title in ("one", "two")}
        for name in names:
            self.commits(name, 1)
        daemon.kill()
        daemon = self.start()
        client = self.client(daemon)
        now = self.running(client)
        self.assertEqual({scan.resumed_from: scan.spec.title for scan in now}, names)
        self.assertEqual(self.metric(daemon, "octavo_scans_resumed_total"), 2)
        client.stop(now[0].name)
        daemon.kill()
        daemon = self.start()
        self.assertEqual([scan.resumed_from for scan in self.running(self.client(daemon))], [now[1].name])

    def test_by_the_command_line(self):
        daemon = self.start()
        done = subprocess.run([OCTAVO, "--address", daemon.address, "scan", "submit", "--source", "simulated", "--samples", "256", "--rate", "1280", "--ascans", "16",
                               "--bscans", "8", "--volumes", "0", "--disposition", "auto-commit", "--destination", DESTINATION + ".npy", "--on-restart", "resume"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        (scan,) = self.running(self.client(daemon))
        daemon.kill()
        self.successor(self.client(self.start()), scan.name)

    def test_a_retry_does_not_begin_a_second_scan(self):
        for flags in ((), ("--history.dir", "none")):
            with self.subTest(flags=flags):
                daemon = self.start(*flags)
                client = self.client(daemon)
                scan = self.submit(client, request_id="night-1")
                self.assertEqual(self.submit(client, request_id="night-1").name, scan.name)
                if not flags:
                    until(lambda: not self.metric(daemon, "octavo_history_waiting_rows"))  # written beside the control path
                daemon.kill()
                daemon = self.start(*flags)
                client = self.client(daemon)
                (now,) = self.running(client)
                if flags:  # nobody knows of the first answer, but the scan goes on
                    self.assertEqual(self.submit(client, request_id="night-1").name, now.name)
                else:
                    with self.assertRaises(octavo.OctavoError) as caught:
                        self.submit(client, request_id="night-1")
                    self.assertEqual(caught.exception.reason, "LOST")
                self.assertEqual([one.name for one in self.running(client)], [now.name])
                client.cancel(now.name)
                daemon.stop()
                shutil.rmtree(os.path.join(self.directory, "state"))

    def test_its_owner_is_kept(self):
        tokens, secret = os.path.join(self.directory, "tokens"), {}
        for name, role in {"ada": "operator", "sam": "operator"}.items():
            secret[name] = os.path.join(self.directory, f"token-of-{name}")
            subprocess.run([OCTAVO, "token", "add", "--file", tokens, "--name", name, "--role", role, "--secret-file", secret[name]], check=True, capture_output=True)
        flags = ("--security.tokens", tokens, "--listen.loopback_role", "viewer")
        daemon = self.start(*flags)
        scan = self.submit(self.client(daemon, token_file=secret["ada"]))
        daemon.kill()
        daemon = self.start(*flags)
        ada, sam = (self.client(daemon, token_file=secret[name]) for name in ("ada", "sam"))
        now = self.successor(ada, scan.name)
        self.assertEqual(now.owner, "ada")
        until(lambda: [line for line in self.audited("scan resumed") if line["owner"] == "ada"])
        for name in (now.name, scan.name):
            with self.assertRaises(octavo.OctavoError) as caught:
                sam.stop(name)
            self.assertEqual(caught.exception.reason, "NOT_OWNER")
        self.assertEqual(len(self.records()), 1)
        ada.stop(now.name)
        self.assertEqual(self.records(), [])


    def test_grants_follow_and_whoever_has_lost_its_role_is_not_resumed(self):
        tokens, secret = os.path.join(self.directory, "tokens"), {}
        for name in ("ada", "sam"):
            secret[name] = os.path.join(self.directory, f"token-of-{name}")
            subprocess.run([OCTAVO, "token", "add", "--file", tokens, "--name", name, "--role", "operator", "--secret-file", secret[name]], check=True, capture_output=True)
        flags = ("--security.tokens", tokens, "--listen.loopback_role", "viewer")
        daemon = self.start(*flags)
        ada = self.client(daemon, token_file=secret["ada"])
        scan = self.submit(ada)
        ada.grant(scan.name, "sam", seconds=3600)
        daemon.kill()
        daemon = self.start(*flags)
        sam = self.client(daemon, token_file=secret["sam"])
        now = self.successor(sam, scan.name)
        self.assertEqual({grant.object for grant in sam.grants()}, {scan.name, now.name})
        self.commits(now.name, 1)
        daemon.kill()
        listed = subprocess.run([OCTAVO, "token", "list", "--file", tokens], capture_output=True, text=True, check=True).stdout
        (ids,) = [line.split()[0] for line in listed.splitlines() if " ada " in line],
        subprocess.run([OCTAVO, "token", "revoke", "--file", tokens, *ids], check=True, capture_output=True)
        daemon = self.start(*flags)
        sam = self.client(daemon, token_file=secret["sam"])
        self.assertEqual(self.running(sam), [])
        self.assertTrue([line for line in sam.info().recovered if "was not resumed: its owner, ada, has the role none now" in line], list(sam.info().recovered))
        self.assertEqual(len(self.records()), 1)  # until somebody stops it
        sam.stop(now.name)
        self.assertEqual(self.records(), [])
        self.assertEqual(daemon.stop(), 0)


class IsOver(Resume):
    def test_a_scan_that_a_client_ended_does_not_come_back(self):
        for verb in ("stop", "cancel"):
            with self.subTest(verb=verb):
                daemon = self.start()
                client = self.client(daemon)
                scan = self.submit(client)
                self.commits(scan.name, 1)
                getattr(client, verb)(scan.name)
                daemon.kill()  # right after the answer
                self.assertEqual(self.records(), [])
                daemon = self.start()
                client = self.client(daemon)
                self.assertEqual(self.running(client), [])
                self.assertEqual(self.told(client, "resumed"), [])
                self.assertEqual(daemon.stop(), 0)

    def test_a_scan_that_was_resumed_can_be_ended_too(self):
        daemon = self.start()
        self.submit(self.client(daemon))
        daemon.kill()
        daemon = self.start()
        client = self.client(daemon)
        (now,) = self.running(client)
        client.cancel(now.name)
        daemon.kill()
        self.assertEqual(self.running(self.client(self.start())), [])

    def test_each_earlier_name_ends_the_scan_that_goes_on(self):
        # Four scans, one after another: without the history, the first name and the last one are known.
        for flags, verb, which in (((), "stop", 0), ((), "cancel", 1), (("--history.dir", "none"), "cancel", 0), (("--history.dir", "none"), "stop", 2)):
            with self.subTest(flags=flags, verb=verb, which=which):
                daemon = self.start(*flags)
                names = [self.submit(self.client(daemon)).name]
                for _ in range(3):
                    self.assertEqual(daemon.stop(), 0)
                    daemon = self.start(*flags)
                    names.append(self.successor(self.client(daemon), names[-1]).name)
                client = self.client(daemon)
                self.assertEqual(getattr(client, verb)(names[which]).name, names[3])
                self.assertEqual(self.records(), [])
                until(lambda: client.scan(names[3]).state == ("DONE" if verb == "stop" else "CANCELLED"))
                if not flags:  # it has ended, and stays as it is
                    self.assertEqual(getattr(client, verb)(names[which]).name, names[which])
                daemon.kill()
                daemon = self.start(*flags)
                self.assertEqual(self.running(self.client(daemon)), [])
                daemon.kill()

    def test_the_command_line_says_which_scan_it_stopped_and_promises_nothing_of_it(self):
        daemon = self.start()
        scan = self.submit(self.client(daemon)).name
        self.assertEqual(daemon.stop(), 0)
        daemon = self.start()
        client = self.client(daemon)
        now = self.successor(client, scan).name

        def said(*command):
            done = subprocess.run([OCTAVO, "--address", daemon.address, "scan", *command], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            return [line for line in done.stdout.splitlines() if line.startswith("scans/")]
        (line,) = [line for line in said("list") if line.startswith(now)]
        self.assertIn("goes on after a restart", line)
        (line,) = said("stop", scan)
        self.assertTrue(line.startswith(now) and f"resumed from {scan}" in line, line)
        self.assertNotIn("goes on after a restart", line)
        until(lambda: client.scan(now).state == "DONE")
        self.assertFalse([line for line in said("list") if "goes on after a restart" in line])

    def test_a_scan_without_it_does_not_come_back(self):
        daemon = self.start()
        self.client(daemon).submit_scan(octavo.simulated(5), octavo.raster(16, 8, volumes=0), samples=256, rate_hz=1280,
                                        retention=dict(disposition="auto_commit", auto_commit=octavo.commit_options(DESTINATION, "npy")))
        self.assertEqual(self.records(), [])
        daemon.kill()
        self.assertEqual(self.running(self.client(self.start())), [])

    def test_the_third_daemon_that_dies_early_is_the_last(self):
        daemon = self.start()
        scan = self.submit(self.client(daemon)).name
        for _ in range(2):
            daemon.kill()
            daemon = self.start()
            scan = self.successor(self.client(daemon), scan).name
        self.commits(scan, 1)  # so that the history has it
        daemon.kill()
        daemon = self.start()
        client = self.client(daemon)
        self.assertEqual(self.running(client), [])
        self.assertEqual(len(self.told(client, scan, "3 daemons in a row", "no start tries again")), 1, client.info().recovered)
        self.assertEqual(client.scan(scan).state, "LOST")
        self.assertEqual(self.records(), [])
        self.assertEqual(self.metric(daemon, "octavo_scans_not_resumed"), 1)
        until(lambda: self.audited("scan not resumed"))
        daemon.kill()
        self.assertEqual(self.running(self.client(self.start())), [])

    def test_orderly_ends_are_no_deaths(self):
        daemon = self.start()
        scan = self.submit(self.client(daemon)).name
        for _ in range(4):
            self.assertEqual(daemon.stop(), 0)
            daemon = self.start()
            scan = self.successor(self.client(daemon), scan).name

    def test_a_kill_while_it_is_resumed_neither_loses_nor_doubles_it(self):
        # Writes of the record at a start: that it is about to begin, and that the new scan has it.
        for point in ("resume_written:kill", "resume_renamed:kill", "scan_begun:kill", "resume_synced:kill:2", "resume_renamed:kill:2"):
            with self.subTest(point=point):
                daemon = self.start()
                scan = self.submit(self.client(daemon))
                self.assertEqual(daemon.stop(), 0)
                with self.assertRaises(RuntimeError):
                    self.start(environment={"OCTAVO_FAILPOINT": point})
                self.assertEqual(len(self.records()), 1)
                daemon = self.start()
                client = self.client(daemon)
                (now,) = self.running(client)
                self.assertNotEqual(now.resumed_from, "")
                if point != "resume_renamed:kill:2":
                    self.assertEqual(now.resumed_from, scan.name)
                client.cancel(now.name)
                self.assertEqual(daemon.stop(), 0)


class IsRefused(Resume):
    def test_each_combination_that_needs_somebody_else(self):
        client = self.client(self.start())
        retention = dict(disposition="auto_commit", auto_commit=octavo.commit_options(DESTINATION, "npy"))
        kept = dict(samples=256, rate_hz=1280, retention=retention, on_restart="resume")
        raster = octavo.raster(16, 8, volumes=0)
        bad = [(octavo.push(), raster, kept, "simulated or camera"),
               (octavo.simulated(5), octavo.raster(16, 8, volumes=3), kept, "pattern.volumes 0"),
               (octavo.simulated(5), raster, {**kept, "retention": {}}, "AUTO_COMMIT"),
               (octavo.simulated(5), raster, {**kept, "retention": {**retention, "auto_commit": octavo.commit_options("long/{index:05}", "npy")}}, "{scan}"),
               (octavo.simulated(5), raster, {**kept, "queue": "night"}, "queue")]
        for source, pattern, fields, allowed in bad:
            for call in (client.submit_scan, client.plan_scan):
                with self.subTest(allowed=allowed, call=call.__name__):
                    with self.assertRaises(octavo.OctavoError) as caught:
                        call(source, pattern, **fields)
                    self.assertEqual((caught.exception.code, caught.exception.field), (grpc.StatusCode.INVALID_ARGUMENT, "on_restart"))
                    self.assertIn(allowed, caught.exception.message)
        with client.session() as session:
            with self.assertRaises(octavo.OctavoError) as caught:
                client.submit_scan(octavo.simulated(5), raster, session=session, **{**kept, "retention": {**retention, "orphan": "discard"}})
            self.assertEqual(caught.exception.field, "on_restart")
        self.assertEqual((self.records(), self.running(client)), ([], []))

    def test_the_disk_does_not_take_the_record(self):
        for point in ("resume_create", "resume_synced", "resume_renamed"):
            with self.subTest(point=point):
                daemon = self.start(environment={"OCTAVO_FAILPOINT": f"{point}:errno=28"})
                client = self.client(daemon)
                with self.assertRaises(octavo.OctavoError) as caught:
                    self.submit(client, request_id=point)
                self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.RESOURCE_EXHAUSTED, "DISK_FULL"))
                self.assertEqual((self.running(client), self.records()), ([], []))
                scan = self.submit(client, request_id=point)  # the id is free again
                client.cancel(scan.name)
                daemon.stop()

    def test_a_refused_scan_waits_for_the_next_start(self):
        other = tempfile.mkdtemp(prefix="octavo-resume-root-")
        self.addCleanup(shutil.rmtree, other, ignore_errors=True)
        roots = ("--storage.roots", f"{self.root},{other}")
        daemon = self.start(*roots)
        scan = self.submit(self.client(daemon), destination=f"{other}/{DESTINATION}")
        self.commits(scan.name, 1, other)
        daemon.kill()
        for _ in range(4):  # more daemons than may die: they do not die of it
            daemon = self.start()
            client = self.client(daemon)
            self.assertEqual(self.running(client), [])
            (line,) = self.told(client, scan.name, "was not resumed", "the next start tries again")
            self.assertIn("retention.auto_commit.destination", line)
            self.assertEqual(self.metric(daemon, "octavo_scans_not_resumed"), 1)
            until(lambda: self.audited("scan not resumed"))
            daemon.kill()
        daemon = self.start(*roots)
        now = self.successor(self.client(daemon), scan.name)
        self.commits(now.name, 1, other)

    def test_a_scan_that_waits_can_be_given_up(self):
        other = tempfile.mkdtemp(prefix="octavo-resume-root-")
        self.addCleanup(shutil.rmtree, other, ignore_errors=True)
        roots = ("--storage.roots", f"{self.root},{other}")
        for flags in ((), ("--history.dir", "none")):
            with self.subTest(flags=flags):
                daemon = self.start(*roots, *flags)
                scan = self.submit(self.client(daemon), destination=f"{other}/{DESTINATION}")
                daemon.kill()
                daemon = self.start(*flags)
                client = self.client(daemon)
                self.assertEqual(client.stop(scan.name).state, "LOST")
                self.assertEqual(self.records(), [])
                self.assertEqual(self.metric(daemon, "octavo_scans_not_resumed"), 0)
                daemon.kill()
                daemon = self.start(*roots, *flags)
                self.assertEqual(self.running(self.client(daemon)), [])
                daemon.kill()

    def test_the_quota_of_its_owner(self):
        # Callers without an identity have the role of the loopback address, and admins no quota.
        flags = ("--listen.loopback_role", "operator")
        daemon = self.start(*flags)
        client = self.client(daemon)
        names = {self.submit(client).name, self.submit(client).name}
        daemon.kill()
        daemon = self.start(*flags, "--quota.scans", "1")
        client = self.client(daemon)
        (now,) = self.running(client)
        (other,) = names - {now.resumed_from}
        (line,) = self.told(client, other, "was not resumed")
        self.assertIn("quota.scans", line)
        daemon.kill()
        client = self.client(self.start(*flags))
        self.assertEqual({scan.resumed_from for scan in self.running(client)}, {now.name, other})


class WhatLiesInTheFolder(Resume):
    def test_damaged_and_foreign_files_are_put_aside(self):
        daemon = self.start()
        client = self.client(daemon)
        names = [self.submit(client).name for _ in range(2)]
        daemon.kill()
        good, bad = self.records()
        with open(os.path.join(self.folder, good), "rb") as file:
            sound = file.read()
        with open(os.path.join(self.folder, bad), "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x00\x01")
        for name, content in (("copy.resume", sound), ("text.resume", b"hello"), (".half.tmp", b"x"), ("notes.txt", b"of somebody")):
            with open(os.path.join(self.folder, name), "wb") as file:
                file.write(content)
        os.symlink("/etc/passwd", os.path.join(self.folder, "link.resume"))
        os.mkfifo(os.path.join(self.folder, "pipe.resume"))
        daemon = self.start()
        client = self.client(daemon)
        (now,) = self.running(client)  # a copy does not run as a second one
        self.assertIn(now.resumed_from, names)
        self.assertEqual(len(self.told(client, "renamed to", ".damaged")), 5, client.info().recovered)
        self.assertEqual(self.metric(daemon, "octavo_scans_not_resumed"), 5)
        self.assertEqual(sorted(os.listdir(self.folder)), sorted([good, bad.replace(".resume", ".damaged"), "copy.damaged", "text.damaged", "link.damaged",
                                                                  "pipe.damaged", "notes.txt"]))
        daemon.kill()
        client = self.client(self.start())
        self.assertEqual(len(self.told(client, "renamed to")), 0)
        self.successor(client, now.name)

    def test_a_request_that_is_none(self):
        daemon = self.start()
        scan = self.submit(self.client(daemon))
        daemon.kill()
        path = os.path.join(self.folder, self.records()[0])
        with open(path, "rb") as file:
            record = file.read()
        length = int.from_bytes(record[8:12], "little")
        body = record[8:12 + length] + b"\xff\xff\xff\xff no message"
        with open(path, "wb") as file:
            file.write(record[:4] + crc32c(body).to_bytes(4, "little") + body)
        client = self.client(self.start())
        self.assertEqual(self.running(client), [])
        self.assertEqual(len(self.told(client, scan.name, "does not parse")), 1, client.info().recovered)

    def test_a_folder_that_cannot_be_used_costs_only_such_scans(self):
        self.start().stop()
        os.rmdir(self.folder)
        os.symlink("/tmp", self.folder)
        daemon = self.start()
        client = self.client(daemon)
        self.assertEqual(len(self.told(client, "no scan can go on after a restart")), 1)
        with self.assertRaises(octavo.OctavoError) as caught:
            self.submit(client)
        self.assertEqual((caught.exception.code, caught.exception.field), (grpc.StatusCode.FAILED_PRECONDITION, "on_restart"))
        self.assertTrue(client.wait(client.submit_scan(octavo.simulated(5, fast=True), octavo.raster(16, 8, volumes=1), samples=256)))

    def test_the_secret_of_a_session_is_not_kept(self):
        client = self.client(self.start())
        with client.session() as session:
            scan = self.submit(client, session=session)
            with open(os.path.join(self.folder, self.records()[0]), "rb") as file:
                record = file.read()
            self.assertRegex(record, re.escape(b"night"))
            self.assertNotIn(session.secret.encode(), record)
            client.cancel(scan.name)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


if __name__ == "__main__":
    unittest.main()
