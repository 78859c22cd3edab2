"""The page Server in a real browser: its figures are those of the daemon's own answers, and events come as they happen."""

import json
import os
import shutil
import sqlite3
import tempfile
import time
import unittest

import numpy as np

from chromium import Chromium
from harness import Daemon, DaemonTest, octavo, until
from octavo.v1 import system_pb2, volume_pb2
from web_accessibility_test import RUN, axe
from web_page_test import REVIEW, SIZES, PageTest
from web_viewer import Viewer


class Figures(PageTest):
    flags = ("--device.frame_pool_bytes", str(64 << 20), "--spill.disk_bytes", str(1 << 30))

    def show(self):
        self.go("server")
        self.page.wait("document.querySelector('#memory svg') && document.querySelector('#versions dd')", what="the server's figures are there")

    def text(self, selector):
        return self.page.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''").replace("\n", " ")

    def figures(self):
        return self.page.evaluate("Object.fromEntries([...document.querySelectorAll('#memory [data-figure]')].map(e => [e.dataset.figure, Number(e.dataset.bytes)]))")

    def holders(self):
        return [tuple(row) for row in self.page.evaluate("[...document.querySelectorAll('#memory tr[data-holder]')].map(e => [e.dataset.holder, Number(e.dataset.bytes)])")]

    def test_memory_is_that_of_get_memory(self):
        self.show()
        scan = self.scan(volumes=3, title="holder")
        buffer = self.client.buffers.create((64, 1024), "f32")
        self.addCleanup(self.client.buffers.destroy, buffer.name)
        self.client.spill(self.client.volumes(scan)[0].name, "disk")

        def same():
            memory = self.client.memory()
            (device,) = memory.devices
            names = dict(reserved="reserved", held="held", buffers="buffer", cached="cached", detached="detached", free="free")
            return (self.figures() == {name: getattr(device, f"{field}_bytes") for name, field in names.items()} and
                    sorted(self.holders()) == sorted((holder.name, holder.bytes) for holder in memory.holders))

        until(same)
        (device,) = self.client.memory().devices
        self.assertGreater(device.held_bytes, 0)
        sizes = [size for _, size in self.holders()]
        self.assertEqual(sizes, sorted(sizes, reverse=True))
        # The segments of the bar are as long as what they stand for.
        widths = self.page.evaluate("[...document.querySelectorAll('#memory .segment')].map(e => Number(e.getAttribute('width')))")
        self.assertAlmostEqual(sum(widths) / 1000, sum(sizes) / device.budget_bytes, delta=1e-6)
        disk = next(tier for tier in self.client.memory().tiers if tier.tier == 3)
        self.assertEqual(self.page.evaluate("Number(document.querySelector(`[data-tier='DISK']`).dataset.used)"), disk.used_bytes)
        # A name leads to its page.
        held = next(name for name, _ in self.holders() if name.startswith("volumes/"))
        self.page.click(f"#memory tr[data-holder='{held}'] a")
        self.page.wait(f"document.activeElement?.closest('tr')?.dataset.volume === '{held}'")

    def test_versions_devices_storage_and_sources(self):
        self.show()
        info = self.client.info()
        words = self.text("#versions")
        for part in (info.version, info.server_id, info.build, *info.listening):
            self.assertIn(part, words)
        self.assertRegex(words, r"runs for (\d+ s|\d+ min \d\d s), since .+ octavo web 0\.1\.0, Node \d+")
        self.assertNotIn("without TLS", words)
        (device,) = self.client.devices()
        self.assertRegex(self.text("#devices"), rf"{device.name} .*healthy")
        self.assertIn(device.uuid, self.text("#devices"))
        roots = self.page.evaluate("[...document.querySelectorAll('#storage [data-root]')].map(e => e.innerText)")
        self.assertEqual(len(roots), len(info.storage))
        self.assertIn(self.daemon.root, roots[0])
        self.assertRegex(roots[0], r"for commits: *read and write, [\d.]+ [GT]iB free")
        self.assertEqual(self.page.evaluate("[...document.querySelectorAll('#sources [data-source]')].map(e => e.dataset.source)"), [source.name for source in info.sources])
        for source in info.sources:
            self.assertIn(source.reason, self.text("#sources"))

    def test_events_and_warnings_come_as_they_happen(self):
        self.show()
        scan = self.scan(volumes=2, title="told")
        self.page.wait(f"document.querySelector(`[data-event='FINISHED'][data-parent='{scan}']`) && document.querySelector(`[data-event='VOLUME_DONE'][data-parent='{scan}']`)")
        self.assertIn("(2 times)", self.text(f"[data-event='VOLUME_DONE'][data-parent='{scan}']"))
        order = self.page.evaluate(f"[...document.querySelectorAll(`[data-parent='{scan}']`)].map(e => e.dataset.event)")
        self.assertLess(order.index("FINISHED"), order.index("STARTED"))  # the newest first
        # A job, and what it warns of.
        np.save(os.path.join(self.daemon.root, "nothing.npy"), np.random.default_rng(1).normal(1, 0.1, (100, 1, 128)).astype(np.float32))
        work = octavo.tomography("nothing.npy", angles=np.linspace(0, np.pi, 100, endpoint=False), center="auto", prepare=octavo.preparation(already_sinograms=True))
        with self.assertWarns(octavo.OctavoWarning):
            job = self.client.submit_job(work, title="doubtful").wait()
        self.page.wait(f"[...document.querySelectorAll(`[data-warning='{job.name}']`)].length === {len(job.warnings)}")
        self.assertIn(job.warnings[0], self.text("#warnings"))
        self.page.wait(f"document.querySelector(`[data-event='JOB'][data-parent='{job.name}']`)?.innerText.includes('done')")
        # A page that comes later is told the same.
        other = self.browser.open(self.viewer.invitation(), fresh=True)
        other.wait("document.querySelector('.link.up')")
        other.evaluate("location.hash = '#server'")
        other.wait(f"document.querySelector(`[data-event='FINISHED'][data-parent='{scan}']`)")
        other.close()

    def test_streams(self):
        scan = self.live()
        self.show()
        self.page.wait("document.querySelector('#streams')?.innerText.includes('Nobody looks')")
        web = self.viewer.socket()
        web.open(0, scan, encoding="RAW")
        self.page.wait("document.querySelector(`[data-stream='MIP']`)?.innerText.includes('raw')")
        self.page.wait("document.querySelector('#streams').innerText.includes('2 browser pages with 1 picture')")
        web.close()

    def test_it_is_asked_for_once_whatever_the_number_of_pages(self):
        def asked():
            return self.viewer.status()["daemon_calls"].get("SystemService/GetMemory", 0)

        def calls(seconds):
            """How often in how many seconds."""
            before, begun = asked(), time.monotonic()
            time.sleep(seconds)
            return asked() - before, time.monotonic() - begun

        self.go("held")
        self.page.wait("document.querySelector('.held')")
        until(lambda: calls(2)[0] == 0, 30)  # some may have been under way
        self.show()
        before = asked()
        until(lambda: asked() >= before + 3)
        sockets = [self.viewer.socket() for _ in range(20)]
        for web in sockets:
            web.look(server=True)
        for web in sockets:
            told = web.text("server")
            self.assertEqual(told["memory"]["devices"][0]["budget"], self.client.memory().devices[0].budget_bytes)
        count, took = calls(3)
        self.assertLessEqual(count, took + 1.5)
        for web in sockets:
            web.close()
        self.go("held")
        self.page.wait("document.querySelector('.held')")
        until(lambda: calls(3)[0] == 0, 30)

    def content(self):
        scan = self.scan(volumes=3, title="a rather long title of a scan that somebody made of the left eye")
        self.client.spill(self.client.volumes(scan)[0].name, "disk")
        self.live(title="runs", labels={"who": "me"})
        np.save(os.path.join(self.daemon.root, "nothing.npy"), np.random.default_rng(1).normal(1, 0.1, (100, 1, 128)).astype(np.float32))
        work = octavo.tomography("nothing.npy", angles=np.linspace(0, np.pi, 100, endpoint=False), center="auto", prepare=octavo.preparation(already_sinograms=True))
        with self.assertWarns(octavo.OctavoWarning):
            self.client.submit_job(work, title="doubtful").wait()
        # A page that looks at the scan: it answers pings, and shows frames.
        other = self.browser.open(self.viewer.invitation(), fresh=True)
        self.addCleanup(other.close)
        other.wait("Number(document.querySelector('#enface canvas')?.dataset.sequence) > 1")

    def ready(self):
        self.show()
        self.page.wait("document.querySelector('#events tr[data-event]') && document.querySelector('#memory tr[data-holder]') && document.querySelector('[data-warning]') && document.querySelector('[data-stream]')")

    def test_names_contrast_and_places(self):
        self.content()
        for theme in ("dark", "light"):
            self.dress(theme)
            self.ready()
            self.assertEqual(self.nameless(), [])
            self.assertEqual(self.hardly_legible(), [], theme)
        for width, height in SIZES:
            self.page.resize(width, height)
            time.sleep(0.3)
            self.assertEqual(self.badly_placed(), [], (width, height))

    def test_no_serious_finding_of_axe(self):
        text = axe()
        self.content()
        for theme in ("dark", "light"):
            self.dress(theme)
            self.ready()
            self.page.evaluate(text + "; true")
            self.assertEqual(self.page.evaluate(RUN), [], theme)

    @unittest.skipUnless(REVIEW, "OCTAVO_REVIEW names no folder for pictures")
    def test_pictures(self):
        os.makedirs(REVIEW, exist_ok=True)
        self.content()
        for theme in ("dark", "light"):
            self.dress(theme)
            self.ready()
            for width, height in ((1366, 768), (820, 1180)):
                self.page.resize(width, height)
                time.sleep(1)
                self.page.screenshot(os.path.join(REVIEW, f"server_{theme}_{width}.png"))
                self.page.evaluate("document.querySelector('.server-page').scrollTo(0, 9999); scrollTo(0, 9999)")
                time.sleep(0.3)
                self.page.screenshot(os.path.join(REVIEW, f"server_end_{theme}_{width}.png"))


class Open(DaemonTest):
    flags = ("--listen.tcp", "0.0.0.0:0", "--security.insecure", "true", "--listen.loopback_role", "operator")

    def test_a_server_that_others_can_reach_is_told(self):
        with Chromium() as browser:
            viewer = Viewer(f"127.0.0.1:{self.daemon.address.rpartition(':')[2]}")
            self.addCleanup(viewer.stop)
            page = browser.open(viewer.url)
            page.wait("document.querySelector('.link.up')")
            page.evaluate("location.hash = '#server'")
            page.wait("document.querySelector('#versions [role=alert]')?.textContent.includes('without TLS or login')")


class Quotas(PageTest):
    """Of the principal that octavo web is, which is all its pages together."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix="octavo-web-quota-")
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        cls.lab = os.path.join(folder, "lab")
        os.makedirs(cls.lab)
        cls.flags = ("--device.frame_pool_bytes", str(64 << 20), "--quota.plans", "0", "--quota.exceptions", f"loopback scans=1 jobs=1 device_bytes={1 << 30}", "--storage.roots", cls.lab,
                     "--quota.roots", f"loopback={cls.lab}")
        super().setUpClass()

    def shown(self):
        return {kind: (int(used), int(allowed)) for kind, used, allowed in
                self.page.evaluate("[...document.querySelectorAll('[data-quota]')].map(e => [e.dataset.quota, e.dataset.used, e.dataset.allowed])")}

    def test_use_and_limits_are_those_of_get_info(self):
        self.go("server")
        self.page.wait("document.querySelector('#quotas')")
        self.assertNotIn("PLANS", self.shown())  # without a limit it is not shown
        scan = self.live(title="the only one")
        until(lambda: self.shown()["SCANS"] == (1, 1))
        told = {system_pb2.Quota.Kind.Name(quota.kind)[5:]: quota.allowed for quota in self.client.info().caller.quotas if quota.allowed > 0}
        self.assertEqual({kind: allowed for kind, (_, allowed) in self.shown().items()}, told)
        words = self.page.evaluate("document.querySelector('#quotas').innerText").replace("\n", " ")
        self.assertRegex(words, r"device memory +[\d.]+ [KM]iB of 1\.00 GiB scans, queued and running +1 of 1, all used jobs, queued and running +0 of 1 ")
        self.assertIn(f"may only name {self.lab}", words)
        for theme in ("dark", "light"):
            self.dress(theme)
            self.go("server")
            self.page.wait("document.querySelector('#quotas meter')")
            self.assertEqual((self.nameless(), self.hardly_legible()), ([], []), theme)
        for width, height in SIZES:
            self.page.resize(width, height)
            time.sleep(0.3)
            self.assertEqual(self.badly_placed(), [], (width, height))
        self.client.cancel(scan)
        until(lambda: self.shown()["SCANS"] == (0, 1))

    def test_a_refusal_is_told_in_plain_words(self):
        scan = self.live(title="the only one")
        self.go("scan")
        for path, value in (("pattern.raster.ascans_per_bscan", 32), ("pattern.raster.bscans_per_volume", 8), ("acquisition.samples_per_record", 256), ("acquisition.record_rate_hz", 3000)):
            self.page.choose(f"[data-path='{path}']", value)
        self.page.wait("document.querySelector('.running') && document.querySelector('aside .plan .good')")
        self.page.evaluate("document.querySelector('aside button.primary').click()")
        self.page.wait("document.querySelector('.toast.error')")
        self.assertIn("The quota of loopback is used up: 1 of 1 scans, queued and running. Wait until one ends, or stop one.", self.page.evaluate("document.querySelector('.toast.error').textContent"))
        self.assertEqual([one.name for one in self.client.scans(filter="state = RUNNING")], [scan])


class WatchQuota(unittest.TestCase):
    def test_the_banner_says_what_is_used_up_by_whom_and_what_helps(self):
        browser = Chromium()
        self.addCleanup(browser.close)
        daemon = Daemon("--quota.exceptions", "loopback watches=2")
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            ours = [client._volumes.WatchVolumes(volume_pb2.WatchVolumesRequest()) for _ in range(2)]
            until(lambda: [quota.used for quota in client.info().caller.quotas if quota.kind == system_pb2.Quota.KIND_WATCHES] == [2])
            viewer = Viewer(daemon.address)
            self.addCleanup(viewer.stop)
            page = browser.open(viewer.url)
            page.wait("document.querySelector('.banner[data-refused]')")
            words = page.evaluate("document.querySelector('.banner[data-refused]').textContent")
            for part in ("does not tell octavo web of its volumes. The quota of loopback is used up: 2 of 2 open watches and streams.", "All pages of octavo web count together",
                         "quota.watches", "It is tried again"):
                self.assertIn(part, words)
            self.assertNotIn("..", words)
            self.assertNotIn("does not answer", page.evaluate("document.body.textContent"))
            # The volumes have the first place that is free; what has none is told.
            ours[0].cancel()
            page.wait("document.querySelector('.link.up') && !document.querySelector('.banner[data-refused]')")
            page.wait("document.querySelector('.banner.mild')?.textContent.includes('does not tell all that there is (events: The quota of loopback is used up: 2 of 2 open watches')")
            ours[1].cancel()
            page.wait("!document.querySelector('.banner')")
            self.assertTrue(page.evaluate("!!document.querySelector('.link.up')"))
        self.assertEqual(daemon.stop(), 0)

    def test_after_a_restart_nothing_else_takes_the_place_of_the_volumes(self):
        daemon = Daemon("--quota.exceptions", "loopback watches=1")
        self.addCleanup(daemon.remove)
        browser = Chromium()
        self.addCleanup(browser.close)
        viewer = Viewer(daemon.address)
        self.addCleanup(viewer.stop)
        page = browser.open(viewer.url)
        for round in range(3):
            page.wait("document.querySelector('.link.up') && document.querySelector('.banner.mild')?.textContent.includes('(events: ')")
            if round < 2:
                daemon.kill()
                page.wait("document.querySelector('.banner:not(.mild)')")
                daemon = Daemon("--listen.tcp", daemon.address, "--quota.exceptions", "loopback watches=1", directory=daemon.directory)
                self.addCleanup(daemon.remove)
        self.assertEqual(daemon.stop(), 0)


def rows(daemon):
    """The states, by name, that the next daemon would find."""
    with sqlite3.connect(f"file:{daemon.directory}/state/history/history.sqlite?mode=ro", uri=True, timeout=20) as database:
        return dict(database.execute("SELECT name, state FROM work"))


class Restart(unittest.TestCase):
    def test_a_daemon_that_is_killed_and_comes_back(self):
        browser = Chromium()
        self.addCleanup(browser.close)
        daemon = Daemon()
        self.addCleanup(daemon.remove)
        viewer = Viewer(daemon.address)
        self.addCleanup(viewer.stop)
        page = browser.open(viewer.url)
        page.wait("document.querySelector('.link.up')")
        page.evaluate("location.hash = '#server'")
        with daemon.client() as client:
            scan = client.submit_scan(octavo.simulated(5, fast=True), octavo.raster(32, 8, volumes=2), samples=256).name
            held = client.wait(scan).volume_names
            cut = client.submit_scan(octavo.push(idle_timeout=600), octavo.raster(32, 8, volumes=1), samples=256, title="cut off").name
        # The viewer must know that it is at work before it can tell of its loss.
        page.evaluate("location.hash = '#live'")
        page.wait(f"document.querySelector(`option[value='{cut}']`)")
        page.evaluate("location.hash = '#server'")
        page.wait(f"document.querySelectorAll('#memory tr[data-holder]').length >= 3 && document.querySelector(`#memory tr[data-holder='{cut}']`)")
        until(lambda: rows(daemon).items() >= {scan: "DONE", cut: "RUNNING", **dict.fromkeys(held, "HELD")}.items())
        daemon.kill()
        page.wait("document.querySelector('.banner')?.textContent.includes('does not answer')")
        self.assertTrue(page.evaluate("document.querySelectorAll('#memory tr[data-holder]').length >= 2"))  # what was seen stays
        again = Daemon("--listen.tcp", daemon.address, directory=daemon.directory)
        self.addCleanup(again.remove)
        page.wait("!document.querySelector('.banner') && document.querySelectorAll('#memory tr[data-holder]').length === 0")
        # What was at work or held is lost, and told; what had ended is not.
        page.wait(f"document.querySelector(`[data-lost='{cut}']`)?.innerText.includes('cut off: lost with the server; it was running')")
        lost = page.evaluate("[...document.querySelectorAll('[data-lost]')].map((line) => line.innerText)")
        self.assertEqual((len(lost), sum(line.split(" ")[0] in held for line in lost)), (3, 2))
        page.wait(f"document.querySelector(`[data-event='LOST'][data-parent='{cut}']`)?.innerText.includes('scan was lost with the server')")
        self.assertIn("3 tell of losses", page.evaluate("document.querySelector('#versions summary').textContent"))
        page.click(f"[data-lost='{cut}'] a")
        page.wait("document.querySelector('.earlier-run.lost')?.innerText.startsWith('This scan was lost with the server')")
        self.assertEqual(page.evaluate("document.querySelector('.figures .state').textContent"), "lost with the server")
        self.assertIn("nothing of it can be watched", page.evaluate("document.querySelector('#enface').innerText"))
        self.assertEqual(page.evaluate("fetch('api/status').then(answer => answer.json()).then(status => status.views)"), 0)
        page.evaluate(f"location.hash = '#live/{scan.split('/')[1]}'")
        page.wait("document.querySelector('.figures .state')?.textContent === 'done, earlier run'")
        page.evaluate("location.hash = '#signal'")
        page.wait("document.querySelector('#spectrum')?.innerText.includes('nothing of it can be watched')")
        page.evaluate("location.hash = '#scan'")
        page.wait("document.querySelector('.scan-page') && document.querySelectorAll('.running').length === 0")
        page.evaluate("location.hash = '#server'")
        page.wait("document.querySelector('#events')")
        self.assertTrue(page.evaluate(f"document.querySelector(`[data-event='FINISHED'][data-parent='{scan}']`) !== null"))  # what happened stays
        with again.client() as client:
            scan = client.submit_scan(octavo.simulated(5, fast=True), octavo.raster(32, 8, volumes=1), samples=256).name
            client.wait(scan)
        page.wait(f"document.querySelector(`[data-event='FINISHED'][data-parent='{scan}']`)")
        self.assertEqual(page.problems, [])
        again.kill()

    def test_a_commit_that_was_lost_is_told_to_the_page_that_began_it(self):
        daemon = Daemon(environment={"OCTAVO_FAILPOINT": "chunk_written:kill"})
        self.addCleanup(daemon.remove)
        with daemon.client() as client:
            scan = client.submit_scan(octavo.simulated(5, fast=True), octavo.raster(32, 8, volumes=1), samples=256, title="cut off").name
            client.wait(scan)
            volume = client.volumes(scan)[0].name
            try:
                begun = client.start_commit(volume, "never", "npy").name
            except octavo.OctavoError:  # it died before its answer
                begun = None
        daemon.process.wait(30)
        if begun is None or rows(daemon).get(begun) != "RUNNING":
            self.skipTest("the daemon died before it had written down that there is a commit")
        again = Daemon(directory=daemon.directory)
        self.addCleanup(again.remove)
        with again.client() as client:
            lost = client.operation(begun).error is not None  # else its files were there, and it has SUCCEEDED
        browser = Chromium()
        self.addCleanup(browser.close)
        viewer = Viewer(again.address)
        self.addCleanup(viewer.stop)
        page = browser.open(viewer.url)
        page.wait("document.querySelector('.link.up')")
        page.evaluate(f"sessionStorage.setItem('octavo-begun', JSON.stringify([{json.dumps(begun)}])); location.reload()")
        page.wait("document.querySelector('.toasts')?.innerText.includes('%s')" % ("was lost with the server, which died before its end: no file was written" if lost else "ommitted to"))
        again.kill()


del PageTest, DaemonTest  # they have no tests of their own

if __name__ == "__main__":
    unittest.main()
