"""The page in a real browser (Debian's Chromium, driven by chromium.py): pictures, contrast, verbs, habits.

OCTAVO_REVIEW=<folder> keeps pictures of each page, in both themes and three sizes, to be looked at.
"""

import json
import os
import re
import struct
import subprocess
import tempfile
import time
import unittest
import zlib

import numpy as np

from chromium import Chromium
from harness import BUILD, Daemon, DaemonTest, octavo, until
from web_viewer import Viewer

REVIEW = os.environ.get("OCTAVO_REVIEW")
HANG_FSYNC = os.path.join(BUILD, "lib", "libhang_fsync.so")
EN_FACE, BSCAN = "#enface canvas", "#bscan canvas"
PAGES = ("live", "signal", "held", "scan", "jobs", "server")
SIZES = ((1366, 768), (1024, 768), (768, 1024), (1920, 1080))


class PageTest(DaemonTest):
    flags = ("--device.frame_pool_bytes", str(64 << 20))
    viewer_flags = ()
    environment = None
    webgl = False

    @classmethod
    def setUpClass(cls):
        cls.browser = Chromium(webgl=cls.webgl)
        cls.addClassCleanup(cls.browser.close)
        cls.daemon = Daemon(*cls.flags, environment=cls.environment)
        cls.client = cls.daemon.client()
        cls.viewer = Viewer(cls.daemon.address, *cls.viewer_flags)
        cls.addClassCleanup(cls.viewer.stop)
        cls.viewer.enter()

    def setUp(self):
        self.page = self.browser.open(self.viewer.invitation(), fresh=True)
        self.page.wait("document.querySelector('.link.up')", what="the page is in, and the daemon answers")

    def tearDown(self):
        problems = self.page.problems + self.page.violations
        hosts = {url.split("/")[2] for url in self.page.requests if url.startswith("http")}
        self.page.close()
        super().tearDown()
        self.assertEqual(problems, [])
        self.assertEqual(hosts, {self.viewer.host})

    def scan(self, ascans=96, bscans=40, volumes=1, wait=True, **more):
        more = {"samples": 512, **more}
        scan = self.client.submit_scan(octavo.simulated(5, fast=True), octavo.raster(ascans, bscans, volumes=volumes, extent_x_mm=3, extent_y_mm=1.5), **more)
        if wait:
            self.client.wait(scan.name)
        return scan.name

    def live(self, ascans=48, bscans=8, rate=6000, **more):
        """A scan without an end: 15 volumes a second, which leaves the processor to the browser."""
        return self.client.submit_scan(octavo.simulated(3), octavo.raster(ascans, bscans, volumes=0, extent_x_mm=3, extent_y_mm=1), samples=256, rate_hz=rate, **more).name

    def grey(self, selector):
        rows, columns, data = self.page.pixels(selector)
        rgba = np.frombuffer(data, np.uint8).reshape(rows, columns, 4)
        self.assertTrue((rgba[..., 3] == 255).all())
        return rgba[..., :3]

    def painted(self, selector, scan):
        """Waits until a panel shows a picture of the scan."""
        self.page.wait(f"document.querySelector({json.dumps(selector)})?.dataset.parent === {json.dumps(scan)} && !document.querySelector({json.dumps(selector)}).hidden", what=f"{selector} shows {scan}")

    def go(self, page):
        self.page.evaluate(f"location.hash = '#{page}'")

    def dress(self, theme):
        self.page.evaluate(f"localStorage.setItem('octavo-theme', '{theme}'); location.reload()")
        self.page.wait(f"document.documentElement.dataset.theme === '{theme}' && document.querySelector('.link.up')")

    def nameless(self):
        """The roles of controls that have no name for those who do not see them."""
        nodes = self.page.command("Accessibility.getFullAXTree")["nodes"]
        return [n["role"]["value"] for n in nodes if not n.get("ignored") and n["role"]["value"] in
                ("button", "link", "combobox", "checkbox", "slider", "spinbutton", "textbox", "progressbar", "image", "img", "application", "menuitem", "navigation") and not n.get("name", {}).get("value")]

    def hardly_legible(self):
        """Texts whose contrast to their ground is below 4.5 : 1 (WCAG AA)."""
        return self.page.evaluate("""(() => {
            const rgb = text => { const m = text.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
            const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
            const poor = [];
            for (const e of document.querySelectorAll("body *")) {
                if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || e.closest(".stage, noscript, :disabled, svg") || !e.checkVisibility()) continue;
                let ground = [0, 0, 0, 0];
                for (let p = e; p && ground[3] < 1; p = p.parentElement) { const c = rgb(getComputedStyle(p).backgroundColor); if (c[3] > 0) ground = c; }
                const [a, b] = [light(rgb(getComputedStyle(e).color).slice(0, 3)), light(ground.slice(0, 3))].sort((x, y) => y - x);
                const ratio = (a + 0.05) / (b + 0.05);
                if (ratio < 4.5) poor.push([e.tagName, e.textContent.trim().slice(0, 30), ratio.toFixed(2)]);
            }
            return poor;
        })()""")

    def badly_placed(self):
        """What is cut off, lies outside of the window, or overlaps."""
        return self.page.evaluate("""(() => {
            const inner = e => e.closest(".scroll, .job-list, .details, .tiles");
            const seen = [...document.querySelectorAll("button, label, select, h1, h2, nav a, .figures div, .facts dd, .counters div, .scale-bar, .panel")].filter(e => e.checkVisibility());
            const bad = [];
            if (document.documentElement.scrollWidth > innerWidth) bad.push(["wider than the window", document.documentElement.scrollWidth]);
            for (const e of seen) {
                const b = e.getBoundingClientRect();
                if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && getComputedStyle(e).overflow !== "visible" && e.tagName !== "SELECT") bad.push(["cut off", e.tagName, e.textContent.slice(0, 40)]);
                if (b.right > innerWidth + 1 && !e.closest(".scroll")) bad.push(["outside", e.tagName, e.textContent.slice(0, 40)]);
                for (const other of seen) {
                    if (e === other || e.contains(other) || other.contains(e) || inner(e) !== inner(other) || e.closest(".scroll")) continue;
                    const c = other.getBoundingClientRect();
                    const [w, h] = [Math.min(b.right, c.right) - Math.max(b.left, c.left), Math.min(b.bottom, c.bottom) - Math.max(b.top, c.top)];
                    if (w > 1 && h > 1) bad.push(["overlaps", e.tagName, e.textContent.slice(0, 30), other.tagName, other.textContent.slice(0, 30)]);
                }
            }
            return bad;
        })()""")


def shown(values, lo, hi):
    """The grey levels of stored values."""
    return np.clip(np.floor((values.astype(float) - lo) / (hi - lo) * 255 + 0.5), 0, 255)


class Live(PageTest):
    def window(self, panel):
        """Stored units of the window, by the two sliders and the picture's own levels."""
        return [float(v) for v in self.page.evaluate(f"[...document.querySelectorAll('{panel} [role=slider]')].map(e => e.getAttribute('aria-valuenow'))")]

    def test_the_pictures_are_the_projections_of_the_volume(self):
        scan = self.scan()
        volume = self.client.read(self.client.volumes(scan)[0].name)
        web = self.viewer.socket()
        web.open(0, scan)
        display = web.frame()[0]["schema"]["display"]
        self.painted(EN_FACE, scan)
        self.painted(BSCAN, scan)
        for selector, expected in ((EN_FACE, volume.max(axis=2)), (BSCAN, volume[20].T)):
            grey = self.grey(selector)
            self.assertEqual(grey.shape[:2], expected.shape)
            self.assertTrue((grey[..., 0] == grey[..., 1]).all() and (grey[..., 0] == grey[..., 2]).all())
            np.testing.assert_allclose(grey[..., 0], shown(expected, display["lo"], display["hi"]), atol=1)  # rounding of floats
        self.assertGreater(self.grey(EN_FACE).std(), 3)

    def test_the_angiogram_of_a_repeated_pattern(self):
        scan = self.client.submit_scan(octavo.simulated(5, fast=True, motion_um_per_volume=3), octavo.repeated_raster(30, 6, 2, repeats=3, flyback_records=4), products=dict(angiography="AMPLITUDE_DECORRELATION"),
                                       processing=octavo.processing(dtype="u16"))
        self.client.wait(scan.name)
        self.painted(EN_FACE, scan.name)
        last = self.client.volumes(scan.name)[-1]
        derived = self.client.derive(last.name, dict(angiography=dict(contrast_method="AMPLITUDE_DECORRELATION")))
        expected = self.client.read(derived.name).mean(axis=2)
        self.page.wait("document.querySelectorAll('#enface header option').length === 3")
        self.assertEqual(self.page.evaluate("[...document.querySelectorAll('#enface header option')].map(e => e.textContent)"), ["maximum (MIP)", "maximum of a slab", "angiogram"])
        self.page.choose("#enface header select", "ANGIOGRAM")
        self.page.wait("document.querySelector('#enface .counters').innerText.includes('raw, 720 B')")  # 6 x 30 x 4 bytes
        grey = self.grey(EN_FACE)[..., 0]
        self.assertEqual(grey.shape, expected.shape)
        np.testing.assert_allclose(grey, shown(expected, *self.window("#enface")), atol=3)  # the window is told with four digits
        self.assertGreater(grey.std(), 1)

    def test_a_live_picture_changes(self):
        scan = self.live()
        self.painted(EN_FACE, scan)
        first = int(self.page.evaluate(f"document.querySelector('{EN_FACE}').dataset.sequence"))
        self.page.wait(f"Number(document.querySelector('{EN_FACE}').dataset.sequence) > {first + 5}")
        pictures = set()
        until(lambda: pictures.add(self.grey(EN_FACE).tobytes()) or len(pictures) > 2, 30)  # the simulated noise is another one in each volume
        figures = self.page.wait("document.querySelector('#enface .counters dd').textContent !== '0.0 Hz' && document.querySelector('#enface .counters').innerText")
        self.assertRegex(figures.replace("\n", " "), r"frames \d+\.\d Hz latency \d+ ms shown [\d.]+( k)? dropped [\d.]+( k)? sent as raw, [\d.]+ (Ki)?B")

    def test_freeze_keeps_the_picture_and_then_goes_on(self):
        scan = self.live()
        self.painted(EN_FACE, scan)
        self.page.click(".freeze")
        self.page.wait("document.querySelector('#enface .frozen')")
        self.page.drawn()
        before, number = self.grey(EN_FACE), self.page.evaluate(f"document.querySelector('{EN_FACE}').dataset.sequence")
        time.sleep(0.7)
        np.testing.assert_array_equal(self.grey(EN_FACE), before)
        self.page.click(".freeze")
        self.page.wait(f"Number(document.querySelector('{EN_FACE}').dataset.sequence) > {int(number) + 5}")

    def test_contrast_and_colours(self):
        scan = self.scan()
        volume = self.client.read(self.client.volumes(scan)[0].name)
        mip = volume.max(axis=2)
        self.painted(EN_FACE, scan)
        # Percentiles: the darkest and the brightest of them become black and white.
        self.page.choose("#enface .contrast select", "percentiles")
        self.page.choose("#enface .percent input:nth-of-type(1)", 20)
        self.page.choose("#enface .percent input:nth-of-type(2)", 80)
        self.page.wait("[...document.querySelectorAll('#enface .percent input')].map(e => e.value).join() === '20,80'")
        grey = self.grey(EN_FACE)[..., 0]
        self.assertAlmostEqual((grey == 0).mean(), 0.2, delta=0.06)
        self.assertAlmostEqual((grey == 255).mean(), 0.2, delta=0.06)
        order = np.argsort(mip.ravel(), kind="stable")
        self.assertTrue((np.diff(grey.ravel()[order].astype(int)) >= 0).all())  # a brighter voxel is never darker
        # The arrow keys move the ends, and a drag does.
        before = self.window("#enface")
        self.page.evaluate("document.querySelectorAll('#enface [role=slider]')[1].focus()")
        self.page.key("ArrowLeft", modifiers=8)
        until(lambda: self.window("#enface")[1] < before[1])
        after = self.window("#enface")
        self.assertEqual(after[0], before[0])
        self.assertEqual(self.page.evaluate("document.querySelector('#enface .contrast select').value"), "fixed")
        self.assertGreater((self.grey(EN_FACE)[..., 0] == 255).mean(), (grey == 255).mean())
        self.page.drag(self.page.place("#enface .histogram svg", (0.4, 0.5)), self.page.place("#enface .histogram svg", (0.02, 0.5)))
        until(lambda: min(self.window("#enface")) < after[0])
        # Colours: those of the daemon's own pictures.
        self.page.choose("#enface .contrast select", "display")
        grey = self.grey(EN_FACE)[..., 0]
        for name in ("viridis", "inferno", "hot", "gray inverted"):
            self.page.choose("#enface .contrast label:last-of-type select", name)
            colours = self.grey(EN_FACE)
            table = np.zeros((256, 3), int)
            table[grey.ravel()] = colours.reshape(-1, 3)
            self.assertEqual(len(np.unique(grey)), len(np.unique(colours.reshape(-1, 3), axis=0)), name)
            for level, expected in {"viridis": {0: (0x44, 0x01, 0x54), 255: (0xfd, 0xe7, 0x25)}, "hot": {255: (255, 255, 255)}, "gray inverted": {0: (255, 255, 255)}}.get(name, {}).items():
                if (grey == level).any():
                    self.assertEqual(tuple(table[level]), expected)

    def test_limits_that_cannot_be_are_told(self):
        self.painted(EN_FACE, self.scan())
        self.page.choose("#enface .contrast select", "percentiles")
        values = "[...document.querySelectorAll('#enface .percent input')].map(e => e.value).join()"
        for field, value in ((2, 120), (1, 99.9), (2, "")):
            self.page.choose(f"#enface .percent input:nth-of-type({field})", value)
            self.page.wait(f"[...document.querySelectorAll('.toast.error')].some(e => e.textContent.includes('percentile is {value or 'no number'}')) && {values} === '1,99.8'")
        self.page.choose("#enface header select", "SLAB")
        self.page.choose("#enface .slab input", 9999)
        self.page.wait("[...document.querySelectorAll('.toast.error')].some(e => e.textContent.includes('depth is 9999; allowed: whole numbers from 0'))")

    def test_the_view_stays_and_fits_the_scan(self):
        """What is looked at stays while another page is; a plane that another scan does not have is its last one."""
        large, small = self.scan(), self.scan(bscans=10)
        for scan in (large, small):
            self.page.wait(f"[...document.querySelector('.bar select').options].some(option => option.value === {json.dumps(scan)})", what=f"{scan} is offered")
        self.page.choose(".bar select", large)
        self.painted(BSCAN, large)
        self.page.choose("#bscan input[type=range]", 35)
        self.page.wait("document.querySelector('#enface .line')?.dataset.at === (35.5 / 40).toFixed(4)")
        self.page.choose("#bscan .contrast label:last-of-type select", "hot")
        self.go("held")
        self.page.wait("document.querySelector('.held')")
        self.go("live")
        self.painted(BSCAN, large)
        self.assertEqual(self.page.evaluate("[document.querySelector('#bscan .contrast label:last-of-type select').value, document.querySelector('#bscan .plane output').textContent]"), ["hot", "35 of 40"])
        self.page.choose(".bar select", small)
        self.painted(BSCAN, small)
        self.assertEqual(self.page.evaluate("document.querySelector('#bscan .plane output').textContent"), "9 of 10")
        self.assertFalse(self.page.evaluate("document.querySelector('#bscan').innerText.includes('the axis has')"))

    def test_the_line_is_where_the_b_scan_is(self):
        scan = self.scan()
        volume = self.client.read(self.client.volumes(scan)[0].name)
        self.painted(BSCAN, scan)
        self.assertAlmostEqual(float(self.page.wait("document.querySelector('#enface .line')?.dataset.at")), 20.5 / 40, delta=1e-3)
        # A click in the en face picture moves it.
        self.page.wait("document.querySelector('#enface .note') && document.querySelector('#bscan .note')", what="both views have ended, and stay where they are")
        self.page.click(EN_FACE, (0.5, 4.5 / 40))
        self.page.wait("document.querySelector('#enface .line')?.dataset.at === (4.5 / 40).toFixed(4)")
        web = self.viewer.socket()
        web.open(0, scan)
        display = web.frame()[0]["schema"]["display"]

        def is_plane(expected):
            grey = self.grey(BSCAN)[..., 0]
            return grey.shape == expected.shape and np.abs(grey - shown(expected, display["lo"], display["hi"])).max() <= 1

        until(lambda: is_plane(volume[4].T))
        self.page.choose("#bscan .plane input", 33)
        until(lambda: is_plane(volume[33].T))
        self.assertEqual(self.page.evaluate("document.querySelector('#bscan output').textContent"), "33 of 40")
        self.page.choose("#bscan header select", "X")
        until(lambda: is_plane(volume[:, 48].T))
        self.assertEqual(self.page.evaluate("document.querySelector('#enface .line').className"), "line column")

    def test_a_slab(self):
        scan = self.client.submit_scan(octavo.simulated(3), octavo.raster(48, 8, volumes=400, extent_x_mm=3, extent_y_mm=1), samples=256, rate_hz=2500, overrun="drop_block").name
        self.painted(EN_FACE, scan)
        self.page.wait("[...document.querySelectorAll('#enface header option')].some(e => e.value === 'SLAB')", what="a volume has told the depth")
        # The bounds are those of the picture: while it is frozen, there are none.
        self.page.click(".freeze")
        self.page.wait("document.querySelector('#enface .frozen')")
        self.page.choose("#enface header select", "SLAB")
        self.page.wait("document.querySelector('#enface .slab')")
        time.sleep(0.3)
        self.assertEqual(self.page.evaluate("document.querySelectorAll('#bscan .line').length"), 0)
        self.page.click(".freeze")
        self.page.wait("document.querySelectorAll('#bscan .line').length === 2")  # where it begins and ends
        self.page.choose("#enface .slab label:nth-of-type(1) input", 60)
        self.page.choose("#enface .slab label:nth-of-type(2) input", 90)
        self.page.choose("#enface .slab label:nth-of-type(2) input", 1000)  # deeper than the volume: changes nothing
        self.page.wait("[...document.querySelectorAll('#bscan .line')].map(e => e.innerText).join() === 'z = 60,z = 90'")
        self.client.stop(scan)
        self.client.wait(scan)
        slabs = [self.client.read(row.name)[:, :, 60:90].max(axis=2) for row in self.client.volumes(scan)]
        web = self.viewer.socket()
        web.open(0, scan)
        display = web.frame()[0]["schema"]["display"]

        def is_slab():
            grey = self.grey(EN_FACE)[..., 0]
            return grey.shape == (8, 48) and any(np.abs(grey - shown(slab, display["lo"], display["hi"])).max() <= 1 for slab in slabs)
        until(is_slab)
        # Another projection takes the bounds away again.
        self.page.choose("#enface header select", "MIP")
        self.page.wait("document.querySelectorAll('#bscan .line').length === 0")

    def test_zoom_pan_and_the_scale_bar(self):
        scan = self.scan()
        self.painted(EN_FACE, scan)

        def bar():
            um, px, width, spacing = self.page.wait("""(() => { const bar = document.querySelector('#enface .scale-bar'), canvas = document.querySelector('#enface canvas');
                return bar && [Number(bar.dataset.um), bar.getBoundingClientRect().width, canvas.getBoundingClientRect().width, canvas.width]; })()""")
            return um, px, width

        um, px, width = bar()
        self.assertAlmostEqual(um / px, 3000 / width, delta=0.03 * 3000 / width)  # the field is 3 mm wide
        self.assertEqual(self.page.evaluate("document.querySelector('#enface .scale-bar').textContent"), f"{um:g} µm")
        box = self.page.evaluate("(() => { const b = document.querySelector('#enface canvas').getBoundingClientRect(); return b.width / b.height; })()")
        self.assertAlmostEqual(box, 2, delta=0.05)  # 3 mm x 1.5 mm, although there are 96 x 40 pixels
        self.page.evaluate("document.querySelector('#enface .stage').focus()")
        for _ in range(4):
            self.page.key("+")
        zoomed = bar()
        self.assertAlmostEqual(zoomed[2], width * 1.25**4, delta=2)
        self.assertAlmostEqual(zoomed[0] / zoomed[1], um / px / 1.25**4, delta=0.03 * um / px)
        self.assertLess(zoomed[0], um)
        left = self.page.evaluate("document.querySelector('#enface canvas').getBoundingClientRect().left")
        self.page.key("ArrowRight")
        self.assertAlmostEqual(self.page.evaluate("document.querySelector('#enface canvas').getBoundingClientRect().left"), left - 40, delta=1)
        start = self.page.place("#enface .stage", (0.5, 0.5))
        self.page.drag(start, (start[0] + 30, start[1] + 20))
        self.assertAlmostEqual(self.page.evaluate("document.querySelector('#enface canvas').getBoundingClientRect().left"), left - 10, delta=8)
        self.page.command("Input.dispatchMouseEvent", type="mouseWheel", x=start[0], y=start[1], deltaX=0, deltaY=-100)
        self.page.wait(f"document.querySelector('#enface canvas').getBoundingClientRect().width > {zoomed[2] + 5}")
        self.page.key("0")
        self.page.wait(f"Math.abs(document.querySelector('#enface canvas').getBoundingClientRect().width - {width}) < 1")

    def test_a_snapshot_says_what_it_shows(self):
        scan = self.scan(title="eye")
        self.painted(BSCAN, scan)
        folder = os.path.join(self.daemon.directory, "downloads")
        os.makedirs(folder, exist_ok=True)
        self.browser.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder)
        context = self.browser.command("Target.getTargetInfo", targetId=self.page.target)["targetInfo"]["browserContextId"]
        self.browser.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder, browserContextId=context)
        self.page.click("#bscan header button")
        until(lambda: any(name.endswith(".png") for name in os.listdir(folder)))
        (name,) = os.listdir(folder)
        with open(os.path.join(folder, name), "rb") as file:
            data = file.read()
        self.assertEqual(data[:8], b"\x89PNG\r\n\x1a\n")
        at, about = 8, None
        while at < len(data):
            length, kind = struct.unpack(">I4s", data[at:at + 8])
            body = data[at + 8:at + 8 + length]
            self.assertEqual(struct.unpack(">I", data[at + 8 + length:at + 12 + length])[0], zlib.crc32(kind + body))
            if kind == b"iTXt":
                keyword, rest = body.split(b"\0", 1)
                self.assertEqual(keyword, b"Octavo")
                about = json.loads(rest[4:].decode())
            at += 12 + length
        self.assertEqual((about["scan"], about["title"], about["product"], about["axes"], about["unit"], about["volume_index"], about["complete"]), (scan, "eye", "BSCAN", ["z", "x"], "dB", 0, True))
        self.assertLess(about["darkest"], about["brightest"])
        self.assertEqual((about["index"], about["planes"]), (20, 40))  # which B-scan

    def test_a_slow_page_gets_fewer_frames_and_the_same_latency(self):
        scan = self.live()
        self.painted(EN_FACE, scan)

        def measure():
            self.page.evaluate("new Promise(done => setTimeout(done, 3000))")
            fps, latency = self.page.evaluate("[...document.querySelectorAll('#enface .counters dd')].slice(0, 2).map(e => parseFloat(e.textContent))")
            return fps, latency

        told = []

        def slower():
            fps, latency = measure()
            self.page.evaluate("window.busy = setInterval(() => { const end = performance.now() + 250; while (performance.now() < end); }, 260)")
            slow_fps, slow_latency = measure()
            self.page.evaluate("clearInterval(window.busy)")
            told.append((fps, latency, slow_fps, slow_latency))
            # Two frames on their way, each at most a busy turn old: no queue grows.
            return slow_fps < fps * 0.75 and slow_latency < latency + 2 * 260 + 150

        self.assertTrue(any(slower() for _ in range(5)), told)  # other programs may disturb one measurement

    def test_jpeg_on_demand(self):
        scan = self.scan(ascans=192, bscans=128)
        volume = self.client.read(self.client.volumes(scan)[0].name)
        self.painted(EN_FACE, scan)
        self.page.wait("!document.querySelector('#enface .tag')", what="the whole volume is shown")
        exact = self.grey(EN_FACE)[..., 0].astype(int)
        self.page.choose(".bar label:nth-of-type(3) select", "JPEG")
        self.page.wait("document.querySelector('#enface .counters').innerText.includes('JPEG')")
        jpeg = self.grey(EN_FACE)[..., 0].astype(int)
        self.assertEqual(jpeg.shape, volume.shape[:2])
        self.assertLess(np.abs(jpeg - exact).mean(), 6)
        self.assertGreater(np.corrcoef(jpeg.ravel(), exact.ravel())[0, 1], 0.9)


class Held(PageTest):
    def rows(self):
        return self.page.evaluate("[...document.querySelectorAll('tr[data-volume]')].map(e => e.dataset.volume)")

    def fill(self, volumes=3, **more):
        scan = self.scan(volumes=volumes, title=more.pop("title", "held"), **more)
        self.go("held")
        names = [v.name for v in self.client.volumes(scan)]
        # The page may learn later than the client that a volume is complete; its verbs leave out what is not.
        self.page.wait(f"{json.dumps(names)}.every(name => /^(?!acquiring)./.test(document.querySelector(`tr[data-volume='${{name}}'] .status`)?.innerText ?? ''))")
        return names

    def select(self, *names):
        for name in names:
            self.page.click(f"tr[data-volume='{name}'] input")
        self.page.wait(f"document.querySelectorAll('tr.selected').length === {len(names)}")

    def verb(self, name):
        self.page.click(f"button[data-verb='{name}']:not(:disabled)")

    def test_the_list(self):
        names = self.fill()
        self.page.wait("[...document.querySelectorAll('img.thumbnail')].filter(e => e.complete && e.naturalWidth > 0).length === 3", what="there are three thumbnails")
        text = self.page.evaluate(f"document.querySelector(`tr[data-volume='{names[0]}']`).innerText").replace("\n", " ")
        volume = self.client.volume(names[0])
        self.assertIn("held #0", text)
        self.assertIn(" × ".join(str(n) for n in volume.shape), text)
        self.assertRegex(text, r"[\d.]+ [KM]iB")
        self.assertRegex(text, r"\d+ s\b")
        self.assertIn("never", text)

    def test_who_leases_a_volume(self):
        names = self.fill(volumes=2)
        cell = f"document.querySelectorAll(`tr[data-volume='{names[0]}'] td`)[9]"
        with self.client.session("scanner room") as session:
            leases = [self.client.lease(names[0], seconds=60, holder="reader of the night"), self.client.lease(names[0], session=session)]
            self.page.wait(f"{cell}.querySelector('summary')?.textContent === '2'")
            self.page.evaluate(f"{cell}.querySelector('summary').focus()")
            self.page.key("Enter")
            self.page.wait(f"{cell}.querySelector('details').open")
            words = self.page.evaluate(f"{cell}.querySelector('ul').innerText")
            self.assertRegex(words, r"reader of the night: shared, for (\d+ s|1 min 00 s) more")
            self.assertRegex(words, r"scanner room.*: shared, until its session ends")
            self.assertIn("reader of the night", self.page.evaluate(f"{cell}.querySelector('summary').title"))
            self.assertEqual(self.page.evaluate(f"document.querySelectorAll(`tr[data-volume='{names[1]}'] td`)[9].textContent"), "0")
            leases[0].release()
            self.page.wait(f"{cell}.querySelector('summary')?.textContent === '1'")
        self.page.wait(f"{cell}.textContent === '0'")

    def test_commit_appears_on_disk(self):
        names = self.fill()
        self.select(names[0])
        self.verb("commit")
        self.page.choose("dialog select", "FORMAT_NPY")
        self.page.choose("dialog input", "{nonsense}")
        self.page.click("dialog button.primary")
        self.page.wait("document.querySelector('#destination-problem').textContent.includes('{nonsense}')")
        expected = self.client.read(names[0])
        self.page.choose("dialog input", "from_the_page_{index}")
        self.page.key("Enter")
        self.page.wait(f"!document.querySelector(`tr[data-volume='{names[0]}']`)")
        path = os.path.join(self.daemon.root, "from_the_page_0.npy")
        np.testing.assert_array_equal(np.load(path), expected)
        self.page.wait("document.querySelector('.toasts').innerText.includes('from_the_page_0.npy')")
        self.assertEqual(sorted(self.rows()), sorted(names[1:]))

    def test_several_at_once(self):
        names = self.fill()
        self.page.click("thead input")
        self.page.wait("document.querySelectorAll('tr.selected').length === 3")
        self.verb("commit")
        self.page.choose("dialog input", "same")
        self.page.click("dialog button.primary")
        self.page.wait("document.querySelector('#destination-problem').textContent.includes('{index}')")
        self.page.choose("dialog input", "many/{title}_{index}.npy")
        self.page.choose("dialog select", "FORMAT_NPY")
        self.page.click("dialog button.primary")
        self.page.wait("document.querySelector('.empty-page')")
        self.assertEqual(sorted(n for n in os.listdir(os.path.join(self.daemon.root, "many")) if n.endswith(".npy")), [f"held_{i}.npy" for i in range(3)])

    def test_discard_asks(self):
        names = self.fill()
        self.select(names[1])
        self.verb("discard")
        self.page.wait("document.querySelector('dialog').open && document.activeElement.textContent === 'Cancel'")
        self.page.key("Escape")
        self.page.wait("!document.querySelector('dialog')")
        self.assertEqual(self.client.volume(names[1]).state, 2)
        self.verb("discard")
        # A click goes to a place: the dialog has to be where it stays.
        self.page.wait("document.querySelector('dialog').open && document.activeElement.textContent === 'Cancel'")
        self.page.click("dialog button.danger")
        self.page.wait(f"!document.querySelector(`tr[data-volume='{names[1]}']`)")
        self.assertEqual(self.client.volume(names[1]).state, 5)
        self.assertEqual([int(self.client.volume(n).state) for n in (names[0], names[2])], [2, 2])

    def test_hold_and_spill(self):
        (name,) = self.fill(volumes=1)
        self.select(name)
        self.verb("hold")
        self.page.wait(f"document.querySelector(`tr[data-volume='{name}']`).innerText.includes('kept')")
        self.verb("release")
        self.page.wait(f"!document.querySelector(`tr[data-volume='{name}']`).innerText.includes('kept')")
        self.verb("spill-disk")
        self.page.wait(f"document.querySelectorAll(`tr[data-volume='{name}'] td`)[8].textContent === 'disk'")
        self.verb("restore")
        self.page.wait(f"document.querySelectorAll(`tr[data-volume='{name}'] td`)[8].textContent.startsWith('device')")

    def test_refusals_are_told(self):
        (name,) = self.fill(volumes=1)
        self.select(name)
        self.verb("discard")
        self.page.wait("document.querySelector('dialog')?.open")
        self.client.discard(name)  # somebody else was faster
        self.page.wait(f"!document.querySelector(`tr[data-volume='{name}']`)")
        self.page.key("Escape")
        self.page.wait("!document.querySelector('dialog')")
        (name,) = self.fill(volumes=1, title="next")
        with open(os.path.join(self.daemon.root, "taken.npy"), "w"):
            pass
        self.page.wait(f"(e => (e.focus(), document.activeElement === e))(document.querySelector(`tr[data-volume='{name}'] input`))")
        self.page.key("c")
        self.page.choose("dialog input", "taken.npy")
        self.page.choose("dialog select", "FORMAT_NPY")
        self.page.click("dialog button.primary")
        self.page.wait("document.querySelector('#destination-problem').textContent.includes('taken.npy')")
        self.page.key("Escape")
        self.assertEqual(self.client.volume(name).state, 2)

    def test_what_others_do_meanwhile_is_told(self):
        """A dialog says what became of its volumes, and leaves out those that are gone; so does the list of selected ones."""
        names = self.fill(volumes=4, title="meanwhile")
        self.select(*names[:2])
        self.verb("discard")
        self.page.wait("document.querySelector('dialog')?.open")
        self.client.discard(names[0])
        self.page.wait("/meanwhile #0 was discarded by a client/.test(document.querySelector('dialog .changes').innerText)")
        self.assertEqual(self.page.evaluate("[...document.querySelectorAll('dialog li')].map(e => e.textContent.split(',')[0]).join()"), "meanwhile #1")
        self.client.discard(names[1])
        self.page.wait("document.querySelector('dialog button.danger').disabled")
        self.page.key("Escape")
        self.page.wait("!document.querySelector('dialog')")
        self.select(names[2])
        self.verb("commit")
        self.page.choose("dialog input", "   ")
        self.page.click("dialog button.primary")
        self.page.wait("document.querySelector('#destination-problem').textContent.includes('blank')")
        self.client.commit(names[2], "by_another")
        self.page.wait("document.querySelector('dialog button.primary').disabled && document.querySelector('dialog .changes').innerText.includes('was committed to')")
        self.page.key("Escape")
        self.select(names[3])
        self.client.discard(names[3])
        self.page.wait("/meanwhile #3 .* was discarded by a client/.test(document.querySelector('.toasts').innerText)")
        # So does an address of a volume that is gone.
        self.go("held/" + names[3].split("/")[1])
        self.page.wait("document.querySelector('.held .banner')?.textContent.includes('was discarded')")
        self.go("3d/" + names[3].split("/")[1])
        self.page.wait("document.querySelector('.empty-page')?.textContent.includes('was discarded')")

    def test_a_commit_that_ends_on_another_page_is_told_there(self):
        (name,) = self.fill(volumes=1, title="elsewhere")
        self.select(name)
        self.verb("commit")
        self.page.choose("dialog input", "elsewhere")
        self.page.evaluate("document.querySelector('dialog button.primary').click()")
        self.page.wait("!document.querySelector('dialog')")
        self.go("jobs")
        self.page.wait("/elsewhere(\\.| #0)/.test(document.querySelector('.toasts').innerText)")

    def test_with_the_keyboard_alone(self):
        names = self.fill()
        first, second = self.rows()[:2]
        self.page.evaluate(f"document.querySelector(`tr[data-volume='{first}'] input`).focus()")
        self.page.key("ArrowDown")
        self.assertEqual(self.page.evaluate("document.activeElement.closest('tr').dataset.volume"), second)
        outline = self.page.evaluate("getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement).outlineWidth")
        self.assertEqual(outline, "solid2px")
        self.page.key(" ")
        self.page.wait("document.querySelectorAll('tr.selected').length === 1")
        self.page.key("Delete")
        self.page.wait("document.querySelector('dialog')?.open")
        self.page.key("Tab")
        self.page.key("Enter")
        self.page.wait(f"!document.querySelector(`tr[data-volume='{second}']`)")
        self.assertEqual(len(self.rows()), len(names) - 1)


@unittest.skipUnless(os.path.exists(HANG_FSYNC), "sanitizers do not take a preloaded library")
class Cancelling(PageTest):
    """With a disk that does not answer while a file is there."""

    stuck = os.path.join(tempfile.mkdtemp(prefix="octavo-hang-"), "stuck")
    environment = {"LD_PRELOAD": HANG_FSYNC, "HANG_FSYNC_WHEN": stuck}

    def test_a_commit_shows_its_progress_and_can_be_cancelled(self):
        self.scan(title="slow")
        name = self.client.volumes()[0].name
        self.go("held")
        row = f"tr[data-volume='{name}']"
        self.page.click(f"{row} input")
        with open(self.stuck, "w"):
            self.addCleanup(lambda: os.path.exists(self.stuck) and os.remove(self.stuck))
        self.page.click("button[data-verb='commit']:not(:disabled)")
        self.page.choose("dialog select", "FORMAT_NPY")
        self.page.choose("dialog input", "cancelled")
        self.page.click("dialog button.primary")
        self.page.wait(f"document.querySelector(`{row} progress`) && /commit: \\w+, \\d+ %/.test(document.querySelector(`{row} .operation`).innerText)")
        self.page.click(f"{row} .operation button")
        self.page.wait(f"document.querySelector(`{row} .operation button`).disabled")
        os.remove(self.stuck)
        self.page.wait(f"document.querySelector(`{row}`).innerText.includes('held') && !document.querySelector(`{row} progress`)")
        self.page.wait("document.querySelector('.toasts').innerText.includes('was cancelled')")
        self.assertEqual(int(self.client.volume(name).state), 2)
        self.assertEqual([n for n in os.listdir(self.daemon.root) if n.startswith("cancelled")], [])


class Habits(PageTest):
    def test_every_control_has_a_name(self):
        scan = self.live()
        self.painted(EN_FACE, scan)
        for page in PAGES:
            self.go(page)
            self.page.wait(f"document.querySelector('header nav a[aria-current]').hash === '#{page}'")
            time.sleep(0.3)
            self.assertEqual(self.nameless(), [], page)

    def test_text_can_be_read_in_both_themes(self):
        self.scan(volumes=2)
        for theme in ("dark", "light"):
            self.dress(theme)
            for page in PAGES:
                self.go(page)
                time.sleep(0.5)
                self.assertEqual(self.hardly_legible(), [], (theme, page))

    def test_nothing_is_cut_off_or_overlaps(self):
        self.scan(volumes=2, title="a rather long title of a scan that somebody made")
        scan = self.live()
        for width, height in SIZES:
            self.page.resize(width, height)
            for page in PAGES:
                self.go(page)
                time.sleep(0.4)
                self.assertEqual(self.badly_placed(), [], (page, width, height))

    def test_an_address_works_once(self):
        url = self.viewer.invitation()
        first = self.browser.open(url, fresh=True)
        first.wait("document.querySelector('.link.up')")
        self.assertNotIn("token", first.evaluate("location.href"))
        self.assertEqual(first.evaluate("document.cookie"), "")  # HttpOnly
        second = self.browser.open(url, fresh=True)
        second.wait("document.querySelector('.outside')")
        self.assertIn("used already", second.evaluate("document.body.innerText"))
        first.close()
        second.close()

    def test_one_more_browser(self):
        self.page.click(".top button")
        url = self.page.wait("document.querySelector('dialog input')?.value")
        other = self.browser.open(url, fresh=True)
        other.wait("document.querySelector('.link.up')")
        other.close()


class Signal(PageTest):
    def test_a_record_and_its_a_scan(self):
        scan = self.client.submit_scan(octavo.simulated(3), octavo.raster(32, 8, volumes=0), samples=256, rate_hz=3000).name
        self.go("signal")
        self.page.wait("Number(document.querySelector('#spectrum .counters')?.dataset.shown) > 3 && Number(document.querySelector('#ascan .counters')?.dataset.shown) > 3")
        self.assertEqual(self.page.evaluate("[...document.querySelectorAll('.plot')].map(e => Number(e.dataset.samples))"), [256, 128])
        self.assertIn("nothing saturated", self.page.evaluate("document.querySelector('#spectrum header').innerText"))
        self.assertIn("depth, µm", self.page.evaluate("document.querySelector('#ascan .u-legend').innerText"))
        self.page.choose("#spectrum select", "CORRECTED")
        self.page.wait("!document.querySelector('#spectrum header').innerText.includes('saturated') && Number(document.querySelector('#spectrum .counters').dataset.shown) > 1")
        self.page.choose(".bar .plane input", 5)
        self.page.wait("document.querySelector('.bar output').textContent === '5 of 32' && Number(document.querySelector('#ascan .counters').dataset.shown) > 1")
        self.client.cancel(scan)

    def test_a_line_does_not_stay_under_the_name_of_another_scan(self):
        first, second = self.scan(title="first"), self.live()
        self.go("signal")
        self.page.choose(".bar select", second)
        self.page.wait("document.querySelector('#spectrum .plot') && document.querySelector('#ascan .plot')")
        self.page.click(".freeze")  # nothing new is drawn from now on
        self.page.choose("#spectrum select", "CORRECTED")
        self.page.wait("!document.querySelector('#spectrum .plot')")
        self.assertTrue(self.page.evaluate("document.querySelector('#ascan .plot') !== null"))
        self.page.choose(".bar select", first)
        self.page.wait("!document.querySelector('#ascan .plot')")
        self.client.cancel(second)

    def test_saturation_is_marked(self):
        """A file whose records are cut off at 12 bits."""
        noise = np.random.default_rng(1).normal(0, 3, (4096, 256))
        noise[:, np.abs(2500 + 2500 * np.sin(np.arange(256) / 9) - 4095) < 100] = 0  # the same samples are cut off in each record
        records = np.clip(2500 + 2500 * np.sin(np.arange(256) / 9) + noise, 0, 4095).astype(np.uint16)
        np.save(os.path.join(self.daemon.root, "cut.npy"), records)
        spec = octavo.replay("cut.npy", rate_hz=2000, loops=0)
        self.client.submit_scan(spec, octavo.raster(32, 8, volumes=0), adc_bits=12)
        (expected,) = set(int(n) for n in (records >= 4095).sum(axis=1))
        self.assertGreater(expected, 10)
        self.go("signal")
        self.page.wait(f"Number(document.querySelector('#spectrum .plot')?.dataset.saturated) === {expected}")
        self.assertIn(f"{expected} samples saturated", self.page.evaluate("document.querySelector('#spectrum header').innerText"))


class Scan(PageTest):
    def field(self, path):
        return f"[data-path='{path}']"

    def test_a_scan_is_planned_submitted_changed_and_stopped_from_the_page(self):
        self.go("scan")
        self.page.choose(self.field("title"), "from the page")
        for path, value in (("pattern.raster.ascans_per_bscan", 32), ("pattern.raster.bscans_per_volume", 8), ("acquisition.samples_per_record", 256), ("acquisition.record_rate_hz", 3000)):
            self.page.choose(self.field(path), value)
        self.page.wait("document.querySelector('.plan .good')?.textContent.startsWith('It fits')")
        self.page.evaluate("[...document.querySelectorAll('aside button')].find(e => e.textContent.includes('waveform')).click()")
        self.page.wait("document.querySelector('.waveform')?.naturalWidth > 100")
        self.page.evaluate("document.querySelector('aside button.primary').click()")
        self.page.wait("document.querySelector('.running h2')?.textContent.startsWith('from the page')")
        (scan,) = [s for s in self.client.scans() if s.spec.title == "from the page"]
        self.assertEqual((scan.spec.pattern.raster.ascans_per_bscan, scan.spec.acquisition.samples_per_record), (32, 256))
        self.page.choose(".running label:nth-of-type(1) input", 5e-5)
        until(lambda: abs(self.client.scan(scan.name).spec.processing.dispersion.a2 - 5e-5) < 1e-6)
        self.go("live")
        self.painted(EN_FACE, scan.name)
        self.go("scan")
        self.assertEqual(self.page.evaluate(f"document.querySelector(\"{self.field('title')}\").value"), "from the page")  # the form stays
        self.page.click(".running header button")
        self.page.wait("!document.querySelector('.running')")
        self.assertEqual(int(self.client.scan(scan.name).state), 4)

    def test_what_the_server_refuses_is_told_at_its_field(self):
        self.go("scan")
        self.page.choose(self.field("pattern.raster.ascans_per_bscan"), 5_000_000)
        at = "document.getElementById('field-pattern-raster-ascans_per_bscan-told')"
        self.page.wait(f"{at}.classList.contains('problem') && {at}.textContent.includes('5000000')")
        self.page.choose(self.field("pattern.raster.ascans_per_bscan"), "many")
        self.page.wait(f"{at}.textContent.includes('no number')")
        self.assertTrue(self.page.evaluate("document.querySelector('aside button.primary').disabled"))
        self.page.choose(self.field("pattern.raster.ascans_per_bscan"), "")
        self.page.wait(f"{at}.textContent === 'is needed'")
        self.page.choose(self.field("pattern.raster.ascans_per_bscan"), 64)
        self.page.choose(self.field("source"), "replay")
        self.page.choose(self.field("replay.path"), "none.npy")
        self.page.wait("document.getElementById('field-replay-path-told').textContent.includes('none.npy')")
        self.page.choose(self.field("source"), "simulated")
        self.page.choose(self.field("pattern.raster.bscans_per_volume"), 100_000)
        self.page.choose(self.field("pattern.raster.ascans_per_bscan"), 2000)
        self.page.wait("document.querySelector('.plan .problem')?.textContent.startsWith('It does not fit')")

    def test_what_is_written_in_another_way_is_not_taken_for_something_else(self):
        self.go("scan")

        def told(path, text):
            self.page.wait(f"document.getElementById('field-{path.replace('.', '-')}-told').textContent.includes({json.dumps(text)})")

        for path, value, answer in (("pattern.raster.extent_x_mm", "3,5", "decimal point"), ("pattern.raster.extent_x_mm", "3 mm", "the number alone, in mm"), ("pattern.raster.volumes", "ten", "digits alone"), ("pattern.raster.volumes", "0x10", "no number"),
                                    ("pattern.raster.volumes", "0", "until it is stopped"), ("simulated.noise_counts", "0", "a negative number is none"), ("retention.auto_commit.destination", "eye_{index}", "would not be used")):
            self.page.choose(self.field(path), value)
            told(path, answer)
            self.assertTrue(self.page.evaluate("document.querySelector('aside button.primary').disabled"), value)
            self.page.choose(self.field(path), "")
            self.page.wait("!document.querySelector('aside button.primary').disabled")
        self.page.choose(self.field("retention.auto_commit.destination"), "eye_{index}")
        self.page.choose(self.field("retention.disposition"), "DISPOSITION_AUTO_COMMIT")
        self.page.wait("document.querySelector('.plan .good')")

    def test_a_double_click_starts_one_scan(self):
        self.go("scan")
        for path, value in (("title", "once"), ("pattern.raster.ascans_per_bscan", 16), ("pattern.raster.bscans_per_volume", 8), ("pattern.raster.volumes", 1), ("acquisition.samples_per_record", 256)):
            self.page.choose(self.field(path), value)
        self.page.wait("document.querySelector('.plan .good')")
        self.page.evaluate("(() => { const start = document.querySelector('aside button.primary'); start.click(); start.click(); })()")
        self.page.wait("document.querySelector('.toast')?.textContent.includes('is submitted') && !document.querySelector('aside button.primary').disabled")
        self.assertEqual(len([scan for scan in self.client.scans() if scan.spec.title == "once"]), 1)

    def test_the_slab_of_the_projections(self):
        """Its limits are told; what the server says of it stands at its field; the en face picture is that of the slab."""
        self.go("scan")
        for path, value in (("pattern.raster.ascans_per_bscan", 48), ("pattern.raster.bscans_per_volume", 16), ("pattern.raster.volumes", 1), ("acquisition.samples_per_record", 256), ("processing.axial_spacing_um", 4), ("title", "slab")):
            self.page.choose(self.field(path), value)

        def told(path):
            return f"document.getElementById('field-{path.replace('.', '-')}-told')"

        self.assertIn("0 ... 1e9 µm", self.page.evaluate(f"{told('products.slab_begin_um')}.textContent"))
        self.page.choose(self.field("products.slab_begin_um"), 100)
        self.page.choose(self.field("products.slab_end_um"), 40)
        self.page.wait(f"{told('products.slab_end_um')}.classList.contains('problem') && {told('products.slab_end_um')}.textContent.includes('is 40 um')")
        self.page.choose(self.field("products.slab_end_um"), 2e9)
        self.page.wait(f"{told('products.slab_end_um')}.textContent.includes('2000000000') || {told('products.slab_end_um')}.textContent.includes('2e+09')")
        self.page.choose(self.field("products.slab_end_um"), 200)
        self.page.wait("document.querySelector('.plan .good')?.textContent.startsWith('It fits')")
        self.page.evaluate("document.querySelector('aside button.primary').click()")
        until(lambda: [s for s in self.client.scans() if s.spec.title == "slab" and s.state == 4])
        (scan,) = [s for s in self.client.scans() if s.spec.title == "slab"]
        volume = self.client.read(self.client.volumes(scan.name)[0].name)
        self.go("live")
        self.painted(EN_FACE, scan.name)
        web = self.viewer.socket()
        web.open(0, scan.name)
        display = web.frame()[0]["schema"]["display"]
        np.testing.assert_allclose(self.grey(EN_FACE)[..., 0], shown(volume[:, :, 25:50].max(axis=2), display["lo"], display["hi"]), atol=1)

    def test_what_insecure_addresses_and_other_servers_do(self):
        """Browsers have no crypto.randomUUID at http://<host>; a proxy answers with a page of its own; JSON may name a prototype."""
        self.page.evaluate("delete Crypto.prototype.randomUUID")
        self.go("scan")
        for path, value in (("pattern.raster.ascans_per_bscan", 32), ("pattern.raster.bscans_per_volume", 8), ("pattern.raster.volumes", 1), ("acquisition.samples_per_record", 256), ("title", "plain http")):
            self.page.choose(self.field(path), value)
        self.page.choose("#further", '{"__proto__": {"polluted": 1}, "constructor": {"prototype": {"polluted": 1}}, "labels": {"who": "me"}}')
        self.page.wait("document.querySelector('.plan .good, aside .problem')")
        self.assertEqual(self.page.evaluate("[typeof {}.polluted, typeof crypto.randomUUID]"), ["undefined", "undefined"])
        self.page.choose("#further", '{"__proto__": {"polluted": 1}, "labels": {"who": "me"}}')
        self.page.wait("document.querySelector('.plan .good')?.textContent.startsWith('It fits')")
        self.page.evaluate("document.querySelector('aside button.primary').click()")
        until(lambda: [s for s in self.client.scans() if s.spec.title == "plain http" and s.spec.labels["who"] == "me"])
        self.page.evaluate("window.fetch = async () => new Response('<h1>Bad gateway</h1>', { status: 502 })")
        self.page.choose(self.field("title"), "no answer")
        self.page.wait("document.querySelector('aside .problem')?.textContent.includes('the answer is no JSON (HTTP status 502)')")

    def test_saved_specs(self):
        self.go("scan")
        self.page.choose(self.field("title"), "kept")
        self.page.choose(".saved input", "mine")
        self.page.wait("!document.querySelector('.saved .row:last-child button').disabled")
        self.page.evaluate("document.querySelector('.saved .row:last-child button').click()")
        self.page.choose(self.field("title"), "another")
        self.page.wait("document.querySelector('.saved .name')?.textContent === 'mine'")
        # Not by the mouse: the plan above grows and shrinks meanwhile.
        self.page.evaluate("document.querySelector(\".saved button[aria-label='Load mine']\").click()")
        self.page.wait(f"document.querySelector(\"{self.field('title')}\").value === 'kept'")
        self.page.evaluate("document.querySelector(\".saved button[aria-label='Remove mine']\").click()")
        self.page.wait("!document.querySelector('.saved .name')")


class ReadOnly(PageTest):
    viewer_flags = ("--read-only",)

    def test_nothing_is_offered_that_changes_anything(self):
        scan = self.scan()
        self.painted(EN_FACE, scan)
        self.go("held")
        name = self.client.volumes(scan)[0].name
        self.page.wait(f"document.querySelector(`tr[data-volume='{name}']`)")
        self.assertEqual(self.page.evaluate("document.querySelectorAll('[data-verb]').length"), 0)
        self.page.evaluate(f"document.querySelector(`tr[data-volume='{name}'] input`).focus()")
        self.page.key("Delete")
        time.sleep(0.2)
        self.assertIsNone(self.page.evaluate("document.querySelector('dialog')"))


class Owners(unittest.TestCase):
    """Volumes of another, and a viewer that logs in with a token that may only look."""

    def test_whose_a_volume_is(self):
        with tempfile.TemporaryDirectory(prefix="octavo-web-owners-") as folder:
            table, secrets = os.path.join(folder, "tokens"), {}
            for name, role in (("ada", "operator"), ("bob", "operator"), ("vera", "viewer")):
                secrets[name] = os.path.join(folder, name)
                subprocess.run([os.path.join(BUILD, "bin", "octavo"), "token", "add", "--file", table, "--name", name, "--role", role, "--project", name + "s", "--secret-file", secrets[name]],
                               check=True, capture_output=True, timeout=60)
            daemon = Daemon("--security.tokens", table, "--device.frame_pool_bytes", str(64 << 20))
            self.addCleanup(daemon.remove)
            with octavo.Client(daemon.address, token_file=secrets["ada"]) as ada:
                scan = ada.submit_scan(octavo.simulated(1, fast=True), octavo.raster(16, 8, volumes=1), samples=256, title="hers").name
                ada.wait(scan)
                name = ada.volumes(scan)[0].name
            browser = Chromium()
            self.addCleanup(browser.close)
            for who in ("bob", "vera"):
                viewer = Viewer(daemon.address, "--token-file", secrets[who])
                self.addCleanup(viewer.stop)
                page = browser.open(viewer.url, fresh=True)
                page.wait("document.querySelector('.link.up')")
                page.evaluate("location.hash = '#held'")
                page.wait(f"document.querySelector(`tr[data-volume='{name}'] .owner`)?.textContent === 'of ada (project adas)'")
                if who == "vera":
                    self.assertEqual(page.evaluate("document.querySelectorAll('button[data-verb]').length"), 0)
                    self.assertIn("octavod lets vera only look", page.evaluate("document.querySelector('.held .bar').innerText"))
                    continue
                page.click(f"tr[data-volume='{name}'] input")
                page.click("button[data-verb='discard']:not(:disabled)")
                page.wait("document.querySelector('dialog .changes')?.innerText.includes('belongs to ada (project adas)')")
                page.evaluate("document.querySelector('dialog button.danger').click()")
                page.wait("/belongs to ada .*the caller is bob/.test(document.querySelector('.toasts').innerText)")


class Restart(unittest.TestCase):
    def setUp(self):
        self.browser = Chromium()
        self.addCleanup(self.browser.close)

    def test_daemon_and_viewer_end_and_come_back(self):
        daemon = Daemon()
        viewer = Viewer(daemon.address)
        port = viewer.port
        again = None
        try:
            with daemon.client() as client:
                client.submit_scan(octavo.simulated(3), octavo.raster(64, 16, volumes=0), samples=512, rate_hz=20000)
            viewer.enter()
            page = self.browser.open(viewer.invitation())
            page.wait("Number(document.querySelector('#enface canvas')?.dataset.sequence) > 3")
            daemon.kill()
            for _ in range(3):  # the library's text is another one for each
                status, answer = viewer.call("VolumeService/CommitVolume", options=dict(destination="x"), validate_only=True)
                self.assertEqual((status, answer["error"]["reason"]), (503, "UNAVAILABLE"))
                self.assertRegex(answer["error"]["message"], r"^octavod does not answer: (?!null)\w")
            page.wait("document.querySelector('.banner')?.textContent.includes('does not answer')")
            self.assertFalse(page.evaluate("document.querySelector('#enface canvas').hidden"))  # the last picture stays
            again = Daemon("--listen.tcp", daemon.address, directory=daemon.directory)
            page.wait("!document.querySelector('.banner') && document.querySelector('.link.up')")
            with again.client() as client:
                client.submit_scan(octavo.simulated(4), octavo.raster(64, 16, volumes=0), samples=512, rate_hz=20000, title="after")
            page.wait("document.querySelector('.bar select').innerText.includes('after') && Number(document.querySelector('#enface .counters').dataset.shown) > 2")
            viewer.stop()
            page.wait("document.querySelector('.banner')?.textContent.includes('No connection to octavo web')")
            viewer = Viewer(daemon.address, "--listen", f"127.0.0.1:{port}")
            # Its sessions ended with it: the page says what to do.
            page.wait("document.querySelector('.outside')")
            page.evaluate(f"location.href = {json.dumps(viewer.url)}; location.reload()")
            page.wait("Number(document.querySelector('#enface canvas')?.dataset.sequence) > 3")
        finally:
            viewer.stop()
            if again:
                again.kill()
                again.remove()
            daemon.remove()


@unittest.skipUnless(REVIEW, "OCTAVO_REVIEW names no folder for pictures")
class Pictures(PageTest):
    def test_pages_in_both_themes(self):
        os.makedirs(REVIEW, exist_ok=True)
        scan = self.scan(ascans=256, bscans=128, volumes=3, samples=1024, title="mouse, left eye")
        for theme in ("dark", "light"):
            self.page.evaluate(f"localStorage.setItem('octavo-theme', '{theme}'); location.reload()")
            self.page.wait(f"document.documentElement.dataset.theme === '{theme}' && document.querySelector('.link.up')")
            for width, height in ((1366, 768), (820, 1180)):
                self.page.resize(width, height)
                self.go("live")
                self.painted(BSCAN, scan)
                time.sleep(1)
                self.page.screenshot(os.path.join(REVIEW, f"live_{theme}_{width}.png"))
                for page in ("signal", "scan"):
                    self.go(page)
                    time.sleep(1.5)
                    self.page.screenshot(os.path.join(REVIEW, f"{page}_{theme}_{width}.png"))
                self.go("held")
                self.page.wait("[...document.querySelectorAll('img.thumbnail')].filter(e => e.complete && e.naturalWidth > 0).length >= 3")
                self.page.click("tbody tr input")
                time.sleep(0.5)
                self.page.screenshot(os.path.join(REVIEW, f"held_{theme}_{width}.png"))
                for verb in ("commit", "discard"):
                    self.page.click(f"button[data-verb='{verb}']")
                    self.page.wait("document.querySelector('dialog')?.open")
                    time.sleep(0.3)
                    self.page.screenshot(os.path.join(REVIEW, f"{verb}_{theme}_{width}.png"))
                    self.page.key("Escape")
                    self.page.wait("!document.querySelector('dialog')")
                self.page.click("tbody tr input")


if __name__ == "__main__":
    unittest.main()
