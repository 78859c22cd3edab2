"""The page Server in a real browser: its figures are those of the daemon's own answers, and events come as they happen."""

import json
import os
import time
import unittest

import numpy as np

from chromium import Chromium
from harness import Daemon, DaemonTest, octavo, until
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

        until(same, seconds=20)
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
        def calls(seconds):
            before = self.viewer.status()["daemon_calls"].get("SystemService/GetMemory", 0)
            time.sleep(seconds)
            return self.viewer.status()["daemon_calls"].get("SystemService/GetMemory", 0) - before

        self.go("held")
        self.page.wait("document.querySelector('.held')")
        self.assertLessEqual(calls(2), 1)  # one may have been under way
        self.show()
        self.assertGreaterEqual(calls(4), 2)
        sockets = [self.viewer.socket() for _ in range(20)]
        for web in sockets:
            web.look(server=True)
        for web in sockets:
            told = web.text("server")
            self.assertEqual(told["memory"]["devices"][0]["budget"], self.client.memory().devices[0].budget_bytes)
        self.assertLessEqual(calls(3), 4)
        for web in sockets:
            web.close()
        self.go("held")
        self.page.wait("document.querySelector('.held')")
        self.assertLessEqual(calls(3), 1)

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
            client.wait(scan)
        page.wait("document.querySelectorAll('#memory tr[data-holder]').length >= 2")
        daemon.kill()
        page.wait("document.querySelector('.banner')?.textContent.includes('does not answer')")
        self.assertTrue(page.evaluate("document.querySelectorAll('#memory tr[data-holder]').length >= 2"))  # what was seen stays
        again = Daemon("--listen.tcp", daemon.address, directory=daemon.directory)
        self.addCleanup(again.remove)
        page.wait("!document.querySelector('.banner') && document.querySelectorAll('#memory tr[data-holder]').length === 0")
        self.assertTrue(page.evaluate(f"document.querySelector(`[data-event='FINISHED'][data-parent='{scan}']`) !== null"))  # what happened stays
        with again.client() as client:
            scan = client.submit_scan(octavo.simulated(5, fast=True), octavo.raster(32, 8, volumes=1), samples=256).name
            client.wait(scan)
        page.wait(f"document.querySelector(`[data-event='FINISHED'][data-parent='{scan}']`)")
        self.assertEqual(page.problems, [])
        again.kill()


del PageTest, DaemonTest  # they have no tests of their own

if __name__ == "__main__":
    unittest.main()
