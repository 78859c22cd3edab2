"""The guarantees for programs that start, supervise and end a daemon: the ready file, systemd's
messages, and identity. Signals and the forced exit: tests/fault."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import unittest.mock

import harness
from harness import BUILD, Daemon, octavo

STOPPING = b"STOPPING=1\nEXTEND_TIMEOUT_USEC=20000000"  # the harness' drain.seconds are 10


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
            self.assertEqual(notify.recv(100), STOPPING)
            self.assertEqual(daemon.stop(), 0)

    def test_systemd_is_asked_to_wait_as_long_as_the_drain_may_take(self):
        path = os.path.join(self.folder, "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(path)
            notify.settimeout(20)
            for seconds in ("0", "0.5", "300", "3600"):
                daemon = self.start("--drain.seconds", seconds, environment={"NOTIFY_SOCKET": path, "INVOCATION_ID": "1"})
                self.assertEqual(notify.recv(100), b"READY=1")
                daemon.process.send_signal(signal.SIGTERM)
                asked = re.fullmatch(rb"STOPPING=1\nEXTEND_TIMEOUT_USEC=(\d+)", notify.recv(100))
                self.assertGreater(int(asked.group(1)) * 1e-6, float(seconds) + 5)  # after that, octavod ends itself
                self.assertEqual(daemon.stop(), 0)
                self.assertEqual(notify.recv(100).split(b"=")[0], b"EXTEND_TIMEOUT_USEC")  # once more, for the rest of the end
                self.assertNotIn("TimeoutStopSec", daemon.text())
        # If the daemon cannot ask systemd, its log names TimeoutStopSec.
        os.makedirs(os.path.join(self.folder, "bin"))
        with open(os.path.join(self.folder, "bin", "octavod"), "w") as script:  # systemd names the process that it starts
            script.write(f'#!/bin/sh\nSYSTEMD_EXEC_PID=$$ exec {shlex.quote(os.path.join(harness.BUILD, "bin", "octavod"))} "$@"\n')
        os.chmod(script.name, 0o755)
        lose, bounded = ("--drain.on_held", "lose"), ("--drain.spill_seconds", "30")
        for flags, by_systemd, told in ((("--drain.seconds", "300", *lose), True, True), (("--drain.seconds", "20", *lose), True, False),
                                        (("--drain.seconds", "20", *bounded), True, False), (("--drain.seconds", "60", *bounded), True, True),
                                        ((), True, True),  # writes held volumes as long as it makes progress
                                        (("--drain.seconds", "300"), False, False)):  # by a shell of a service
            with self.subTest(flags), unittest.mock.patch.object(harness, "BUILD", self.folder if by_systemd else harness.BUILD):
                daemon = self.start(*flags, environment={"INVOCATION_ID": "1", "SYSTEMD_EXEC_PID": str(os.getpid())})
                self.assertEqual("TimeoutStopSec" in daemon.text(), told)
                self.assertEqual(daemon.stop(), 0)

    def test_every_line_of_the_log_is_a_record(self):
        # gRPC itself logs a lot here.
        talkative = {"GRPC_VERBOSITY": "DEBUG", "GRPC_TRACE": "api,http"}
        daemon = self.start("--log.format", "json", "--log.level", "debug", environment=talkative)
        with daemon.client() as client:
            self.assertTrue(client.health())
        with self.assertRaises(RuntimeError) as caught:
            Daemon("--listen.tcp", daemon.address, "--log.format", "json", environment=talkative)
        records = [json.loads(line) for line in str(caught.exception).split(": ", 1)[1].splitlines()]
        self.assertEqual((records[-1]["event"], records[-1]["level"]), ("octavod cannot start", "error"))
        self.assertEqual(daemon.stop(), 0)
        self.assertTrue(any(json.loads(line)["event"] == "grpc" for line in daemon.text().splitlines()))

    def test_roots_are_made_only_when_asked_for(self):
        missing = os.path.join(self.folder, "not", "mounted")
        with self.assertRaises(RuntimeError) as caught:
            Daemon("--storage.roots", missing)
        self.assertIn(f"storage.roots: '{missing}' is missing; mount or make it, or set storage.create_roots = true", str(caught.exception))
        self.assertFalse(os.path.exists(os.path.dirname(missing)))
        away = os.path.join(self.folder, "away")
        daemon = self.start("--storage.roots", missing, "--storage.create_roots", "true", "--storage.replay_roots", f"{missing},{away}")
        self.assertTrue(os.path.isdir(missing))
        self.assertIn("replay root is no directory", daemon.text())
        self.assertIn(away, daemon.text())
        self.assertEqual(daemon.stop(), 0)
        # Folders of the daemon's own are no place for clients, neither by a link.
        state = os.path.join(self.folder, "links-to-data")
        os.symlink(missing, state)
        for key, folder in (("state.dir", state), ("audit.dir", os.path.join(missing, "audit")), ("history.dir", os.path.join(state, "history")), ("spill.dir", missing)):
            with self.subTest(key), self.assertRaises(RuntimeError) as caught:
                Daemon("--storage.roots", missing, f"--{key}", folder)
            self.assertIn(f"{key}: is '{folder}'", str(caught.exception))
            self.assertIn(f"which lies in '{missing}' of storage.roots: clients could write or read there", str(caught.exception))
        self.assertNotIn("octavo.sock", os.listdir(missing))
        # A missing default root is no mistake of the user.
        home = os.path.join(self.folder, "home")
        os.mkdir(home)
        if os.geteuid() != 0:
            daemon = self.start("--storage.roots", "", environment={"HOME": home, "XDG_DATA_HOME": os.path.join(home, "share")})
            self.assertTrue(os.path.isdir(os.path.join(home, "share", "octavo")))
            self.assertEqual(daemon.stop(), 0)

    def test_text_of_the_log_is_quoted_where_it_is_no_plain_word(self):
        daemon = self.start("--log.format", "text", "--log.level", "debug")
        with daemon.client() as client:
            for title in ("plain", "two words", "a=b", 'said "so"', "line\nend", "\u00b5m"):
                scan = client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 4, volumes=1), samples=64, title=title)
                client.wait(scan.name)
                quoted = title if title in ("plain", "\u00b5m") else json.dumps(title)
                self.assertRegex(daemon.text(), rf"(?m)scan started .*\btitle={re.escape(quoted)}( |$)")
        self.assertEqual(daemon.stop(), 0)

    def test_the_version(self):
        for program in ("octavo", "octavod"):
            done = subprocess.run([os.path.join(BUILD, "bin", program), "--version"], capture_output=True, text=True)
            self.assertRegex(done.stdout, rf"^{program} \d+\.\d+\.\d+\n$")
            self.assertEqual(done.returncode, 0)

    def test_the_journal_learns_how_grave_a_line_is(self):
        for format_ in ("json", "text"):
            for ours in (True, False):
                folder = tempfile.mkdtemp(dir=self.folder)
                path = os.path.join(folder, "octavod.log")
                with open(path, "w"):
                    pass
                stream = os.stat(path) if ours else os.stat(folder)
                environment = {"JOURNAL_STREAM": f"{stream.st_dev}:{stream.st_ino}", "OCTAVO_STORAGE_ROOT": "/nowhere"}  # a warning
                daemon = self.start("--log.format", format_, "--log.level", "debug", directory=folder, environment=environment)
                with self.assertRaises(RuntimeError) as caught:
                    Daemon("--log.format", format_, directory=folder, environment=environment)  # another daemon uses its state
                self.assertIn("another octavod", str(caught.exception))
                with self.assertRaises(RuntimeError):
                    Daemon("--drain.seconds", "-1", directory=folder, environment=environment)
                self.assertEqual(daemon.stop(), 0)
                with open(path) as log:
                    lines = log.read().splitlines()
                if not ours:
                    self.assertEqual([line for line in lines if line.startswith("<")], [])
                    continue
                for line in lines:
                    priority = re.match(r"<([3467])>", line).group(1)
                    word = "error" if line[3:].startswith("octavod: ") else json.loads(line[3:])["level"] if format_ == "json" else line.split()[1]
                    self.assertEqual(priority, {"debug": "7", "info": "6", "warning": "4", "error": "3"}[word], line)
                self.assertLessEqual({"<3>", "<4>", "<6>"}, {line[:3] for line in lines})

    def test_the_watchdog_is_answered_until_the_end(self):
        path = os.path.join(self.folder, "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(path)
            notify.settimeout(20)
            daemon = self.start(environment={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "4500000"})
            self.assertEqual(notify.recv(100), b"READY=1")
            with daemon.client() as client:
                client.submit_scan(octavo.simulated(1), octavo.raster(64, 8, volumes=0), samples=256, rate_hz=5000)
            beats = []
            while len(beats) < 5:
                self.assertEqual(notify.recv(100), b"WATCHDOG=1")
                beats.append(time.monotonic())
            self.assertLess(max(b - a for a, b in zip(beats, beats[1:])), 4.5)  # systemd would end the daemon for a longer gap
            daemon.process.send_signal(signal.SIGSTOP)
            notify.settimeout(3)
            with self.assertRaises(TimeoutError):
                while True:
                    notify.recv(100)  # no more than was sent before the stop
            daemon.process.send_signal(signal.SIGCONT)
            notify.settimeout(20)
            self.assertEqual(notify.recv(100), b"WATCHDOG=1")
            daemon.process.send_signal(signal.SIGTERM)
            while (message := notify.recv(100)) != STOPPING:
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
            self.assertEqual(notify.recv(100), STOPPING)

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


if __name__ == "__main__":
    unittest.main()
