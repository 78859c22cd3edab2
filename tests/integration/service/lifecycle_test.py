"""The daemon itself: start, readiness, health, metrics, configuration errors. How it ends: tests/fault."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest
import urllib.request

import grpc
import numpy as np

from harness import BUILD, SOURCE, Daemon, DaemonTest, octavo, until
from octavo.v1 import scan_pb2


class Serving(DaemonTest):
    def test_info_says_what_runs_and_why(self):
        info = self.client.info()
        chosen = [b for b in info.backends if b.chosen]
        self.assertEqual(len(chosen), 1)
        self.assertTrue(all(b.reason for b in info.backends))
        self.assertEqual(len(info.server_id), 8)
        self.assertTrue(self.client.health())
        self.assertTrue(any(a.startswith("unix:") for a in info.listening))

    def test_metrics_page(self):
        scan = self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(64, 8, volumes=3), samples=256)
        self.client.wait(scan.name)
        page = urllib.request.urlopen(f"http://{self.daemon.metrics}/metrics", timeout=10).read().decode()
        values = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith("octavo_")}
        self.assertEqual(values['octavo_volumes{state="HELD"}'], 3)
        self.assertGreaterEqual(values["octavo_records_total"], 3 * 64 * 8)
        self.assertEqual(values['octavo_device_memory_bytes{device="devices/0",kind="held"}'] > 0, True)
        for line in page.splitlines():
            if line.startswith("# TYPE octavo_"):
                name, kind = line.split()[2:4]
                self.assertEqual(name.endswith("_total"), kind == "counter", line)

    def test_second_daemon_on_the_same_state_is_refused(self):
        with self.assertRaises(RuntimeError) as caught:
            Daemon(directory=self.daemon.directory)
        self.assertIn("another octavod uses", str(caught.exception))

    def test_second_daemon_on_the_same_spill_folder_is_refused(self):
        """It would hold the first one's volumes again, and discard them."""
        scan = self.client.wait(self.client.submit_scan(octavo.simulated(1, fast=True), octavo.raster(64, 8, volumes=1), samples=256,
                                                        retention=dict(mode=scan_pb2.RETENTION_MODE_CAPTURE, hold_slots=1)))
        volume = self.client.spill(self.client.volumes(scan.name)[0].name)
        array = self.client.read(volume.name)
        folder = os.path.join(self.daemon.directory, "state", "spill")
        for name in (".later-7.tmp", "damaged.spill"):
            with open(os.path.join(folder, name), "w"):
                pass
            self.addCleanup(os.unlink, os.path.join(folder, name))
        before = sorted(os.listdir(folder))
        with self.assertRaises(RuntimeError) as caught:
            self.addCleanup(Daemon("--spill.dir", folder).remove)
        self.assertIn(f"spill.dir: another octavod uses {folder}; give this one its own", str(caught.exception))
        self.assertEqual(sorted(os.listdir(folder)), before)
        np.testing.assert_array_equal(self.client.read(volume.name), array)
        self.client.discard(volume.name)

    def test_reflection(self):
        call = self.client.channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                                 request_serializer=lambda b: b, response_deserializer=bytes)
        answer = next(call(iter([b"\x3a\x00"])))  # list_services
        for service in (b"ScanService", b"VolumeService", b"StreamService", b"SystemService"):
            self.assertIn(b"octavo.v1." + service, answer)

    def test_strangers_cannot_have_a_thread_for_each_reflection(self):
        threads = lambda: len(os.listdir(f"/proc/{self.daemon.process.pid}/task"))  # noqa: E731
        with grpc.insecure_channel(self.daemon.address) as channel:
            call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", request_serializer=lambda b: b, response_deserializer=bytes)
            before, silent = threads(), threading.Event()

            def wait():
                silent.wait(60)
                yield b"\x3a\x00"

            streams = [call(wait()) for _ in range(200)]
            # The server has seen them all when some are refused.
            until(lambda: sum(not stream.is_active() for stream in streams) >= 150)
            self.assertLess(threads(), before + 40)
            silent.set()
            for stream in streams:
                stream.cancel()
        until(lambda: self.lists_services(), 30)

    def lists_services(self):
        with grpc.insecure_channel(self.daemon.address) as channel:
            call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", request_serializer=lambda b: b, response_deserializer=bytes)
            try:
                return b"octavo.v1.ScanService" in next(call(iter([b"\x3a\x00"])))
            except grpc.RpcError:
                return False


class OwnFolders(unittest.TestCase):
    """What the daemon believes at its start, nobody else may write."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="octavo-own-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.state = os.path.join(self.directory, "state")

    def refused(self, *flags):
        with self.assertRaisesRegex(RuntimeError, "exit code 1") as caught:
            self.start(*flags)
        return [line for line in str(caught.exception).splitlines() if "octavod cannot start" in line][-1]

    def start(self, *flags, **options):
        daemon = Daemon(*flags, directory=self.directory, **options)
        self.addCleanup(daemon.remove)
        return daemon

    def test_a_new_state_directory_is_said_once(self):
        daemon = self.start(before_exec=lambda: os.umask(0))
        with daemon.client() as client:
            server_id = client.info().server_id
        (line,) = (line for line in daemon.text().splitlines() if "new state directory" in line)
        self.assertIn(server_id, line)
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(os.stat(self.state).st_mode & 0o7777, 0o755)
        self.assertEqual(self.start().stop(), 0)
        with open(os.path.join(self.directory, "octavod.log")) as log:
            self.assertEqual(log.read().count("new state directory"), 1)

    def test_the_server_id_is_its_own(self):
        daemon = self.start(before_exec=lambda: os.umask(0))
        path = os.path.join(self.state, "server_id")
        self.assertEqual(os.stat(path).st_mode & 0o7777, 0o600)
        self.assertEqual(daemon.stop(), 0)
        os.chmod(path, 0o666)
        self.assertIn(f"state.dir: {path} has mode 0666 and can be written by others", self.refused())
        os.remove(path)
        os.mkfifo(path)
        self.assertIn(f"state.dir: {path} is no regular file", self.refused())
        os.remove(path)
        os.symlink(os.path.join(self.directory, "elsewhere"), path)
        self.assertIn(f"state.dir: cannot open {path}", self.refused())
        os.remove(path)
        # Nor does a configuration that is a FIFO hold up anything.
        fifo = os.path.join(self.directory, "octavod.toml")
        with open(fifo, "w") as file:
            file.write("[log]\nlevel = \"info\"\n")
        daemon = self.start("--config", fifo)
        os.remove(fifo)
        os.mkfifo(fifo)
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: f"{fifo}: is no regular file" in daemon.text())
        self.assertEqual(daemon.stop(), 0)

    def test_folders_that_others_may_write(self):
        self.assertEqual(self.start().stop(), 0)
        for key, folder, mode, command in (("state.dir", self.state, 0o777, "chmod go-w"), ("state.dir", self.state, 0o775, "chmod go-w"),
                                           ("spill.dir", os.path.join(self.state, "spill"), 0o777, "chmod 700"),
                                           ("history.dir", os.path.join(self.state, "history"), 0o770, "chmod 700")):
            with self.subTest(key, mode=mode):
                before = os.stat(folder).st_mode & 0o7777
                os.chmod(folder, mode)
                text = self.refused()
                self.assertIn(f"{key}: {folder} has mode {mode:04o} and can be written by others; allowed is a folder of user {os.geteuid()}", text)
                self.assertIn(f"then: {command} '{folder}')", text)
                os.chmod(folder, before)
        os.chmod(self.state, 0o755)
        self.assertEqual(self.start().stop(), 0)

    @unittest.skipUnless(os.geteuid() == 0, "only root gives files away")
    def test_folders_of_others(self):
        self.assertEqual(self.start().stop(), 0)
        for key, path, kind in (("state.dir", self.state, "folder"), ("spill.dir", os.path.join(self.state, "spill"), "folder"),
                                ("history.dir", os.path.join(self.state, "history"), "folder"),
                                ("history.dir", os.path.join(self.state, "history", "history.sqlite"), "file")):
            with self.subTest(path):
                os.chown(path, 65534, 65534)
                text = self.refused()
                self.assertIn(f"{key}: {path} belongs to user 65534; allowed is a {kind} of user 0", text)
                self.assertIn(f"then: chown 0 '{path}')", text)
                os.chown(path, 0, 0)
        self.assertEqual(self.start().stop(), 0)

    @unittest.skipIf(os.geteuid() == 0, "root writes everywhere")
    def test_a_spill_folder_that_cannot_be_written(self):
        folder = os.path.join(self.directory, "spill")
        os.mkdir(folder, 0o500)
        self.assertIn(f"spill.dir: making files in spill directory {folder}: Permission denied", self.refused("--spill.dir", folder))
        self.assertEqual(self.start("--spill.dir", folder, "--spill.disk_bytes", "0").stop(), 0)

    def test_a_damaged_journal_is_put_aside(self):
        self.assertEqual(self.start().stop(), 0)
        journal = os.path.join(self.state, "commits.journal")
        data = b"\xff\xfe" + os.urandom(4096)
        with open(journal, "wb") as file:
            file.write(data)
        daemon = self.start()
        with daemon.client() as client:
            (line,) = (line for line in client.info().recovered if line.startswith(journal))
        self.assertIn(f"put aside as {journal}.damaged", line)
        self.assertIn(f"put aside as {journal}.damaged", daemon.text())
        with open(f"{journal}.damaged", "rb") as file:
            self.assertEqual(file.read(), data)
        self.assertEqual(daemon.stop(), 0)


class Configuration(unittest.TestCase):
    def run_with(self, text=None, *flags, environment=None):
        with tempfile.TemporaryDirectory() as directory:
            command = [os.path.join(BUILD, "bin", "octavod"), *flags]
            if text is not None:
                path = os.path.join(directory, "c.toml")
                with open(path, "w") as file:
                    file.write(text)
                command += ["--config", path]
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, env={**os.environ, **(environment or {})})
            return done.returncode, done.stderr

    def test_errors_name_file_line_and_the_nearest_key(self):
        for text, parts in (("[listen]\ntcpp = ['x']\n", ["listen.tcpp", "line 2", "listen.tcp"]), ("[device]\nmemory_fraction = 3\n", ["device.memory_fraction", "0.05 to 0.95", "line 2"]),
                            ("[log]\nlevel = 'loud'\n", ["log.level", "debug"]), ("a = \n", ["line 1"])):
            code, error = self.run_with(text)
            self.assertEqual(code, 2, error)
            for part in parts:
                self.assertIn(part, error)

    def test_addresses_that_others_reach_need_a_word(self):
        # As in the image: one sentence that names the key, and no more.
        image = {"OCTAVO_LISTEN_TCP": "0.0.0.0:0", "OCTAVO_LISTEN_UNIX": "none", "OCTAVO_METRICS_LISTEN": "0.0.0.0:0", "OCTAVO_LOG_FORMAT": "json"}
        code, error = self.run_with("", environment=image)
        self.assertEqual((code, error.count("\n")), (2, 1), error)
        self.assertIn("listen.tcp", error)
        self.assertIn("security.insecure = true", error)
        code, error = self.run_with("[metrics]\nlisten = '[::]:0'\n")
        self.assertEqual(code, 2, error)
        self.assertIn("metrics.listen", error)
        for flags, open_ in ((("--listen.tcp", "0.0.0.0:0"), ["0.0.0.0:0"]), (("--metrics.listen", "0.0.0.0:0"), ["0.0.0.0:0"]), ((), [])):
            daemon = Daemon(*flags, "--security.insecure", "true")
            try:
                with octavo.Client("unix:" + daemon.ready["unix"]) as client:
                    self.assertEqual(list(client.info().insecure_listening), open_)
                told = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--address", "unix:" + daemon.ready["unix"], "info"], capture_output=True, text=True,
                                      timeout=60).stdout
                self.assertEqual("security.insecure" in told, bool(open_))
                self.assertEqual("security.insecure is set" in daemon.text(), bool(open_))
                self.assertEqual(daemon.stop(), 0)
            finally:
                daemon.remove()

    def test_flags_and_environment_are_checked(self):
        self.assertEqual(self.run_with(None, "--drain.seconds", "-1")[0], 2)
        self.assertEqual(self.run_with(None, "--nonsense")[0], 2)
        code, error = self.run_with(None, environment={"OCTAVO_LOG_LEVEL": "loud"})
        self.assertEqual(code, 2)
        self.assertIn("environment", error)

    def test_the_example_file_has_every_key_and_is_accepted(self):
        path = os.path.join(SOURCE, "deploy", "octavod.toml")
        keys, section = set(), ""
        with open(path) as file:
            text = file.read()
        for line in text.splitlines():
            if line.startswith("["):
                section = line.strip().strip("[]")
            elif "=" in line and not line.startswith("# ") and line.strip():
                keys.add(f"{section}.{line.lstrip('#').split('=')[0].strip()}")
        shown = subprocess.run([os.path.join(BUILD, "bin", "octavod"), "--help"], capture_output=True, text=True).stdout
        known = {word.lstrip("-") for word in shown.split() if word.startswith("--") and "." in word}
        self.assertEqual(keys, known)
        with tempfile.TemporaryDirectory() as directory:
            daemon = Daemon("--config", path, directory=directory)
            self.assertEqual(daemon.stop(), 0)
            daemon.remove()


if __name__ == "__main__":
    unittest.main()
