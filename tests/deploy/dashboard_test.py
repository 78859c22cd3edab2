"""The Grafana dashboard: its form and all its queries, which a real Prometheus evaluates while it
scrapes a working daemon."""

import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration"))
from harness import SOURCE, DaemonTest, octavo, until  # noqa: E402

with open(os.path.join(SOURCE, "deploy", "grafana", "octavo.json")) as file:
    DASHBOARD = json.load(file)
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
# From Grafana's list of units.
UNITS = {"none", "s", "bytes", "Bps", "percentunit", "cps", "rps", "cpm"}


def queries():
    """Returns (panel's title, expression as Grafana would send it)."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "15s").replace("$instance", ".*").replace("[1h]", "[15s]")


class Form(unittest.TestCase):
    def test_rows(self):
        self.assertEqual([p["title"] for p in DASHBOARD["panels"] if p["type"] == "row"],
                         ["Overview", "Acquisition", "Memory by holder", "Streams", "Storage", "Jobs", "Devices", "Process"])

    def test_ids_and_titles_are_unique(self):
        ids = [p["id"] for p in DASHBOARD["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        titles = [p["title"] for p in PANELS]
        self.assertEqual(sorted(titles), sorted(set(titles)))

    def test_nothing_overlaps_or_leaves_the_grid(self):
        taken = {}
        for panel in DASHBOARD["panels"]:
            at = panel["gridPos"]
            self.assertGreaterEqual(at["x"], 0)
            self.assertLessEqual(at["x"] + at["w"], 24, panel["title"])
            for x in range(at["x"], at["x"] + at["w"]):
                for y in range(at["y"], at["y"] + at["h"]):
                    self.assertIsNone(taken.get((x, y)), f"{panel['title']} covers {taken.get((x, y))}")
                    taken[x, y] = panel["title"]

    def test_every_panel_says_what_it_shows(self):
        for panel in PANELS:
            with self.subTest(panel["title"]):
                self.assertTrue(panel["description"])
                self.assertIn(panel["fieldConfig"]["defaults"]["unit"], UNITS)
                self.assertEqual([t["refId"] for t in panel["targets"]], [chr(65 + i) for i in range(len(panel["targets"]))])
                for target in panel["targets"]:
                    self.assertTrue(target["legendFormat"])
                    self.assertEqual(target["datasource"]["uid"], "${datasource}")
                    self.assertIn("$instance", target["expr"])
                    # A legend names only labels that the expression keeps.
                    kept = re.findall(r"by \(([^)]*)\)", target["expr"])
                    for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                        if kept:
                            self.assertIn(label, [k.strip() for group in kept for k in group.split(",")], target["expr"])

    def test_a_metric_in_seconds_is_shown_in_seconds(self):
        for panel in PANELS:
            for target in panel["targets"]:
                unit = panel["fieldConfig"]["defaults"]["unit"]
                if "histogram_quantile" in target["expr"]:
                    self.assertEqual(unit, "s", panel["title"])
                elif re.search(r"_bytes_total", target["expr"]):
                    self.assertEqual(unit, "Bps", panel["title"])
                elif re.search(r"_bytes\b", target["expr"]) and " / " not in target["expr"]:
                    self.assertEqual(unit, "bytes", panel["title"])


@unittest.skipUnless(shutil.which("promtool"), "no promtool (Debian package prometheus)")
class Alerts(unittest.TestCase):
    def check(self, series, *expected, interval="1m"):
        """expected: (at, alert, [labels of those that fire])."""
        tests = [{"interval": interval, "input_series": [{"series": name, "values": values} for name, values in series.items()],
                  "alert_rule_test": [{"eval_time": at, "alertname": alert, "exp_alerts": [{"exp_labels": labels} for labels in firing]} for at, alert, firing in expected]}]
        with tempfile.TemporaryDirectory(prefix="octavo-rules-") as work:
            # Only whether they fire counts here: the annotations are left out.
            with open(os.path.join(SOURCE, "deploy", "prometheus-rules.yml")) as rules, open(os.path.join(work, "rules.yml"), "w") as out:
                out.write(re.sub(r"(?m)^ *annotations: .*\n", "", rules.read()))
            with open(os.path.join(work, "test.yml"), "w") as out:
                json.dump({"rule_files": ["rules.yml"], "evaluation_interval": interval, "tests": tests}, out)  # JSON is YAML
            done = subprocess.run(["promtool", "test", "rules", "test.yml"], cwd=work, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_rules_are_sound(self):
        done = subprocess.run(["promtool", "check", "rules", os.path.join(SOURCE, "deploy", "prometheus-rules.yml")], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_lost_work_is_told_for_a_day(self):
        series = {f'octavo_lost_at_start{{instance="lab",job="octavo",kind="{kind}"}}': f"{count}+0x200" for kind, count in (("scan", 2), ("job", 0), ("commit", 1))}
        series['process_start_time_seconds{instance="lab",job="octavo"}'] = "600+0x200"
        firing = [dict(severity="critical", instance="lab", job="octavo", kind=kind) for kind in ("commit", "scan")]
        self.check(series, ("20m", "OctavoWorkLost", firing), ("1440m", "OctavoWorkLost", firing), ("1460m", "OctavoWorkLost", []), interval="10m")

    def test_a_scan_that_does_not_go_on_is_told_until_it_does(self):
        series = {'octavo_scans_not_resumed{instance="lab",job="octavo"}': "0 1x20 0x10"}
        firing = [dict(severity="critical", instance="lab", job="octavo")]
        self.check(series, ("0m", "OctavoScanNotResumed", []), ("10m", "OctavoScanNotResumed", firing), ("25m", "OctavoScanNotResumed", []))

    def test_refusals_that_go_on_are_told_and_single_ones_are_not(self):
        series = {'octavo_quota_refusals_total{instance="lab",job="octavo",kind="scans"}': "0+1x60",
                  'octavo_quota_refusals_total{instance="lab",job="octavo",kind="jobs"}': "0x10 3x50",
                  'octavo_quota_refusals_total{instance="lab",job="octavo",kind="watches"}': "0x60"}
        firing = [dict(severity="warning", instance="lab", kind="scans")]
        self.check(series, ("5m", "OctavoQuotaRefusals", []), ("30m", "OctavoQuotaRefusals", firing))

    def test_a_history_that_cannot_be_written_is_told(self):
        series = {'octavo_history_errors_total{instance="lab",job="octavo"}': "0x5 1x30", 'octavo_history_dropped_total{instance="lab",job="octavo"}': "0x40"}
        self.check(series, ("4m", "OctavoHistoryFails", []), ("8m", "OctavoHistoryFails", [dict(severity="warning", instance="lab", job="octavo")]), ("20m", "OctavoHistoryFails", []))


@unittest.skipUnless(shutil.which("prometheus"), "no prometheus (Debian package prometheus)")
class Live(DaemonTest):
    flags = ("--device.memory_bytes", str(64 << 20), "--spill.disk_bytes", str(256 << 20), "--handoff.unix", "auto")
    rounds = itertools.count(1)  # of all tests: they share the daemon, and so the names of what it commits

    def setUp(self):
        self.work = tempfile.mkdtemp(prefix="octavo-prometheus-")
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
                  "scrape_configs": [{"job_name": "octavo", "static_configs": [{"targets": [self.daemon.metrics]}]}]}
        path = os.path.join(self.work, "prometheus.yml")
        with open(path, "w") as out:
            json.dump(config, out)  # JSON is YAML
        log = open(os.path.join(self.work, "log"), "w+")
        self.prometheus = subprocess.Popen(["prometheus", f"--config.file={path}", f"--storage.tsdb.path={self.work}/data", "--web.listen-address=127.0.0.1:0"],
                                           stdout=log, stderr=log)
        self.addCleanup(self.end)
        self.port = None

        def listens():
            self.assertIsNone(self.prometheus.poll(), "Prometheus ended")
            with open(log.name) as text:
                found = re.search(r'msg="Listening on"[^\n]*address=127\.0\.0\.1:(\d+)', text.read())
            self.port = found and int(found[1])
            return self.port

        until(listens, 60)

    def end(self):
        self.prometheus.send_signal(signal.SIGTERM)
        self.prometheus.wait(30)

    def ask(self, expression):
        """Values of all series, without NaN."""
        url = f"http://127.0.0.1:{self.port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        try:
            answer = json.load(urllib.request.urlopen(url, timeout=30))
        except urllib.error.HTTPError as error:
            self.fail(f"{expression}: {error.read().decode()}")
        values = [float(series["value"][1]) for series in answer["data"]["result"]]
        return [v for v in values if not math.isnan(v)]

    def provoke(self):
        """Produces a day of work and failures in miniature."""
        round_ = next(self.rounds)
        client, fast = self.client, octavo.simulated(round_, fast=True)
        scan = client.submit_scan(fast, octavo.raster(16, 8, volumes=2), samples=64, retention=dict(hold_raw=True))
        for _ in client.subscribe(scan.name, ["mip"], from_sequence=0):
            break
        client.wait(scan.name)
        volumes = client.volumes(scan.name)
        held, raw = [v for v in volumes if not v.raw], [v for v in volumes if v.raw]
        client.commit(held[0].name, f"day_{round_}", format="npy")
        with self.assertRaises(octavo.OctavoError):  # the name is taken
            client.commit(held[1].name, f"day_{round_}", format="npy")
        client.spill(held[1].name)
        client.restore(held[1].name)
        with self.assertRaises(octavo.OctavoError):
            client.submit_scan(fast, octavo.raster(4096, 4096, volumes=1), samples=1024)
        buffer = client.buffers.put(np.zeros(1000, np.float32))
        client.buffers.read(buffer.name)
        client.buffers.destroy(buffer.name)
        client.wait_job(client.submit_job(octavo.reprocess(raw[0].name)).name)
        for volume in client.volumes():
            if volume.state == 2:
                client.discard(volume.name)

    def test_every_query_has_an_answer(self):
        wanted = dict.fromkeys(queries())
        deadline = time.monotonic() + 150
        while wanted:
            self.provoke()
            for query in list(wanted):
                if self.ask(query[1]):
                    del wanted[query]
            self.assertLess(time.monotonic(), deadline, "these have none: " + "\n".join(f"{title}: {expression}" for title, expression in wanted))

    def test_mishaps_are_seen(self):
        """The queries of the panels for failures and refusals increase when those happen."""
        expressions = [e for title, e in queries() if title in ("Refusals", "Failed commits and spills", "Scans that ended", "Jobs that ended")]
        seen = set()
        deadline = time.monotonic() + 150
        while len(seen) < 4:
            self.provoke()
            for title, expression in queries():
                if title in ("Refusals", "Failed commits and spills", "Scans that ended", "Jobs that ended") and max(self.ask(expression), default=0) > 0:
                    seen.add(title)
            self.assertLess(time.monotonic(), deadline, f"of {expressions} only {seen} rise")


if __name__ == "__main__":
    unittest.main()
