"""octavo bench with its own daemon and with a running one: its output, and that it reports only
verified figures."""

import json
import os
import subprocess
import unittest

from harness import BUILD, DaemonTest, octavo

SMALL = ["--seconds", "0.05", "--samples", "256", "--ascans", "64", "--bscans", "16"]
STAGES = ["hand-over", "upload", "process", "download", "wake-up", "seal", "publish", "send", "transport"]


def bench(*arguments, environment=None, address=None):
    clean = {name: value for name, value in os.environ.items() if name != "OCTAVO_ADDRESS"}
    done = subprocess.run([os.path.join(BUILD, "bin", "octavo"), *(["--address", address] if address else []), *arguments], capture_output=True, text=True,
                          timeout=240, env={**clean, **(environment or {})})
    return done.returncode, done.stdout, done.stderr


class OwnDaemon(unittest.TestCase):
    def test_everything(self):
        code, out, error = bench("--json", "bench", *SMALL)
        self.assertEqual(code, 0, error)
        figures = {figure["name"]: figure for figure in map(json.loads, out.splitlines())}
        self.assertEqual(list(figures), ["upload", "download", "device copy", "launch", "resident", "resident no dispersion", "streamed", "streamed packed",
                                         "latency p50", "latency p90", "latency p99", "latency max", *(f"latency by memory {name}" for name in ("p50", "p90", "p99", "max")),
                                         "subscribe to volumes", "volumes by read", "commit .npy", "commit OME-Zarr"])
        for name, figure in figures.items():
            self.assertGreater(figure["value"], 0, name)
            self.assertTrue(figure["verified"] and figure["included"], name)
            if "ceiling" in figure:
                self.assertAlmostEqual(figure["of_ceiling"], figure["value"] / figure["ceiling"])
        for way in ("latency", "latency by memory"):
            latency = [figures[f"{way} {name}"]["value"] for name in ("p50", "p90", "p99", "max")]
            self.assertEqual(latency, sorted(latency))
            stages = figures[f"{way} p50"]["stages"]
            self.assertEqual([stage["stage"] for stage in stages], STAGES)
            self.assertAlmostEqual(sum(stage["share"] for stage in stages), 1, 6)

    def test_storage(self):
        code, out, error = bench("--json", "bench", "storage", "--mib", "32")
        self.assertEqual(code, 0, error)
        figures = {figure["name"]: figure for figure in map(json.loads, out.splitlines())}
        for name in ("file into host memory, buffered, cold", "upload link", "file into the device, buffered, cold", "zstd decoded in memory",
                     *(f"import {kind}, {state}" for kind in (".npy", "raw OME-Zarr", "zstd OME-Zarr") for state in ("cold", "warm"))):
            self.assertGreater(figures[name]["value"], 0, name)
            self.assertTrue(figures[name]["verified"] and figures[name]["included"], name)
        for name, figure in figures.items():
            self.assertEqual("of_ceiling" in figure, name.startswith(("import", "file into the device")), name)

    def test_a_table_for_people(self):
        code, out, error = bench("bench", "latency", *SMALL)
        self.assertEqual(code, 0, error)
        self.assertIn("| latency p99 ", out)
        self.assertIn("p50", out)
        for stage in STAGES:
            self.assertIn(f"  {stage} ", out)

    def test_a_wrong_chain_is_not_told(self):
        code, out, _ = bench("--json", "bench", "chain", *SMALL, environment={"OCTAVO_FAILPOINT": "measured_output:errno=5:2"})
        self.assertEqual(code, 1)
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([line["name"] for line in lines if "value" in line], ["upload", "download", "device copy", "launch", "resident"])
        self.assertIn("the model in double precision says", " ".join(line.get("refused", "") for line in lines))

    def test_a_wrong_projection_is_not_told(self):
        # The first frame belongs to the volume that the test compares.
        code, out, _ = bench("--json", "bench", "latency", "--rate", "20000", *SMALL, environment={"OCTAVO_FAILPOINT": "published_frame:errno=5:4"})
        self.assertEqual(code, 1)
        refused, *other = [json.loads(line) for line in out.splitlines()]
        self.assertIn("is not that of its voxels", refused["refused"])
        self.assertEqual({line["name"].rsplit(" ", 1)[0] for line in other}, {"latency by memory"})  # which met no wrong frame

    def test_usage(self):
        self.assertEqual(bench("bench", "nonsense")[0], 2)
        self.assertEqual(bench("bench", "--seconds", "100")[0], 2)
        code, _, error = bench("bench", "--backend", "host", "--directory", "/proc", "chain")
        self.assertEqual(code, 3, error)


class RunningDaemon(DaemonTest):
    def test_beside_nothing_else(self):
        code, out, error = bench("--json", "bench", *SMALL, address=self.daemon.address)
        self.assertEqual(code, 0, error)
        self.assertEqual(len(out.splitlines()), 16)
        self.assertEqual(os.listdir(self.daemon.root), [])  # the committed files are gone again
        self.assertEqual([v for v in self.client.volumes() if v.state == 2], [])

    def test_not_while_a_scan_runs(self):
        scan = self.client.submit_scan(octavo.simulated(1), octavo.raster(64, 8, volumes=0), samples=256)
        code, _, error = bench("bench", "chain", *SMALL, address=self.daemon.address)
        self.assertEqual(code, 1)
        self.assertIn("SCANS_RUNNING", error)
        self.client.cancel(scan.name)

    def test_frames_tell_their_stages(self):
        scan = self.client.submit_scan(octavo.simulated(1), octavo.raster(64, 32, volumes=3), samples=256)
        frames = [frame for frame in self.client.subscribe(scan.name, ["mip"], delivery="lossless", from_sequence=0) if frame.complete]
        self.assertEqual(len(frames), 3)
        for frame in frames:
            s = frame.stages
            times = [frame.acquired_ns, s.taken_ns, s.uploaded_ns, s.processed_ns, s.on_host_ns, s.seen_ns, s.sealed_ns, frame.published_ns, s.sent_ns]
            self.assertEqual(times, sorted(times))
            self.assertNotIn(0, times)


if __name__ == "__main__":
    unittest.main()
