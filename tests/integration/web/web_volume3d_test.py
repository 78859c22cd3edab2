"""The page 3-D in a real browser, whose WebGL the processor draws: the pictures are those of the voxels as ReadVolume gives them.

OCTAVO_REVIEW=<folder> keeps pictures of the page, in both themes and two sizes, to be looked at.
"""

import json
import os
import re
import struct
import time
import unittest
import warnings

import numpy as np

from chromium import Chromium
from harness import octavo, until
from web_accessibility_test import RUN, axe
from web_page_test import PageTest, REVIEW

SMALL = (640, 560)  # few pixels: the processor draws them
VIEW = ".stage.scene canvas"
STATE = ".load-state"
SPACING = {"x": 10, "y": 10, "z": 10}
# Keeps the contexts of the page, and how its reads ended, for tests to look at.
SPY = """
window.contexts = []; window.reads = [];
window.waiting = new Set();  // what is to be done with the next frame
const [request, cancel] = [window.requestAnimationFrame, window.cancelAnimationFrame];
window.requestAnimationFrame = (call) => { const id = request((time) => { window.waiting.delete(id); call(time); }); window.waiting.add(id); return id; };
window.cancelAnimationFrame = (id) => { window.waiting.delete(id); cancel(id); };
const getContext = HTMLCanvasElement.prototype.getContext;
HTMLCanvasElement.prototype.getContext = function (kind, ...more) {
    const made = getContext.call(this, kind, ...more);
    if (kind === "webgl2" && made) window.contexts.push({context: made, loss: made.getExtension("WEBGL_lose_context")});
    return made;
};
const fetched = window.fetch;
window.fetch = (address, options) => {
    if (String(address).includes("/voxels?")) window.reads.push({address: String(address), signal: options.signal});
    return fetched(address, options);
};
"""


def smooth(shape, seed=1, lo=0, hi=255):
    """Numbers without order, that change slowly from voxel to voxel."""
    values = np.random.default_rng(seed).normal(size=shape)
    for _ in range(2):
        for axis in range(3):
            values = (np.roll(values, 1, axis) + values + np.roll(values, -1, axis)) / 3
    return lo + (hi - lo) * (values - values.min()) / (values.max() - values.min())


def between(planes, rows, columns):
    """Planes [..., row, column] at places in voxels, linear between their middles and constant beyond the outermost."""
    def along(values, places, axis):
        places = np.clip(places - 0.5, 0, values.shape[axis] - 1)
        first = np.minimum(np.floor(places).astype(int), values.shape[axis] - 1)
        part = (places - first).reshape([-1 if i == axis % values.ndim else 1 for i in range(values.ndim)])
        return np.take(values, first, axis) * (1 - part) + np.take(values, np.minimum(first + 1, values.shape[axis] - 1), axis) * part

    return along(along(planes.astype(float), rows, -2), columns, -1)


class Volume3dTest(PageTest):
    webgl = True
    script = SPY

    def setUp(self):
        super().setUp()
        self.page.command("Page.addScriptToEvaluateOnNewDocument", source=self.script)
        self.page.evaluate("location.reload()")
        self.page.wait("window.contexts && document.querySelector('.link.up')")
        self.page.resize(*SMALL)

    def put(self, array, axes="zyx", spacing=None, title="phantom", **more):
        """A held volume of these voxels."""
        name = f"{title}_{len(os.listdir(self.daemon.root))}.npy"
        np.save(os.path.join(self.daemon.root, name), array)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", octavo.OctavoWarning)  # of lengths that nobody gave
            return self.client.import_volume(name, axes=axes, title=title, **({"spacing_um": spacing or SPACING} if spacing != {} else {"allow_unknown_spacing": True}), **more).name

    def open(self, name, **more):
        self.go(f"3d/{name.split('/')[1]}")
        self.still(name, **more)

    def still(self, name=None, level=1, seconds=120):
        """Waits until all that will be loaded is there, and the fine picture of it."""
        of = f"view.dataset.volume === {json.dumps(name)} &&" if name else ""
        self.page.wait(f"""(() => {{ const view = document.querySelector("{VIEW}"), state = document.querySelector("{STATE}");
            return view && {of} window.waiting.size === 0 && state.dataset.loading === "0" && state.dataset.level === "{level}" && view.dataset.factor === "{level}" && view.dataset.quality === "still"; }})()""", seconds=seconds, what=f"{name} is shown, still and at level {level}")

    def changed(self, act):
        """Does something, and waits for the fine picture that comes of it."""
        before = int(self.page.evaluate(f"document.querySelector('{VIEW}').dataset.drawn"))
        act()
        self.page.wait(f"(() => {{ const view = document.querySelector('{VIEW}'); return Number(view.dataset.drawn) > {before} && view.dataset.quality === 'still'; }})()", seconds=120)
        self.still()

    def choose(self, label, value):
        self.page.evaluate(f"""(() => {{ for (const e of document.querySelectorAll(".volume3d label")) if (e.firstChild.textContent.trim() === {json.dumps(label)}) e.querySelector("select, input").id = "chosen"; }})()""")
        self.page.choose("#chosen", value)
        self.page.evaluate("document.querySelector('#chosen').removeAttribute('id')")

    def slide(self, label, value):
        self.page.choose(f"input[aria-label='{label}']", value)

    def window(self, lo, hi):
        """Sets the contrast to stored units of a volume without levels."""
        for _ in range(2):  # an end that would pass the other one is refused: the other order, then
            for end, value in (("Darkest", lo), ("Brightest", hi)):
                self.page.choose(f"input[type=number][aria-label^='{end}']", value)
        self.page.wait(f"""[...document.querySelectorAll("input.wide")].every((e, i) => Math.abs(Number(e.value) - [{lo}, {hi}][i]) < 1e-4 * Math.max(1, Math.abs({hi})))""")

    def along(self, axis):
        self.changed(lambda: self.page.click(f"button[data-view='{axis}']"))

    def places(self, count, spacing, side):
        """Where the middles of the picture's pixels lie: voxels from the volume's begin. side: 0 = down, 1 = to the right."""
        um, width = self.page.evaluate("(() => { const bar = document.querySelector('.scale-bar'); return [Number(bar.dataset.um), parseFloat(bar.style.width)]; })()")
        pixels, room = self.page.evaluate(f"(() => {{ const view = document.querySelector('{VIEW}'), box = view.getBoundingClientRect(); return [[view.height, box.height], [view.width, box.width]]; }})()")[side]
        return (np.arange(pixels) + 0.5 - pixels / 2) * room / pixels * um / width / spacing + count / 2

    def expected(self, projection, spacing=(10, 10)):
        """What a view shows: values on the page's pixels, and which of them are of the volume. projection: places → values."""
        rows, columns = (self.places(n, um, side) for side, (n, um) in enumerate(zip(projection.shape[-2:], spacing)))
        inside = ((rows >= 0) & (rows < projection.shape[-2]))[:, None] & ((columns >= 0) & (columns < projection.shape[-1]))
        return between(projection, rows, columns), inside

    def same(self, values, inside, lo, hi):
        grey = self.grey(VIEW)[..., 0].astype(float)
        level = np.clip((values - lo) / (hi - lo), 0, 1) * 255
        edge = np.zeros_like(inside)  # a pixel on the volume's edge may round to either side
        edge[1:-1, 1:-1] = inside[1:-1, 1:-1] & inside[:-2, 1:-1] & inside[2:, 1:-1] & inside[1:-1, :-2] & inside[1:-1, 2:]
        self.assertGreater(edge.sum(), 2000)
        difference = np.abs(grey - level)[edge]
        gain = 255 / (hi - lo)
        self.assertLess(difference.max(), 1 + 1.5 * gain)  # textures are interpolated at 256 places between two voxels
        self.assertLess(difference.mean(), 0.6 + 0.3 * gain)
        self.assertEqual(grey[~(inside | np.roll(inside, 1, 0) | np.roll(inside, -1, 0) | np.roll(inside, 1, 1) | np.roll(inside, -1, 1))].max(initial=0), 0)
        return grey


class Pixels(Volume3dTest):
    def test_projections_window_and_colours(self):
        volume = np.round(smooth((48, 56, 64))).astype(np.uint8)
        name = self.put(volume)
        volume = self.client.read(name)
        self.open(name)
        self.along("z")
        self.window(40, 230)
        self.changed(lambda: self.window(30, 240))
        most, inside = self.expected(volume)  # of each plane, then the largest
        maximum = self.same(most.max(axis=0), inside, 30, 240)
        self.assertGreater(maximum.std(), 3)
        # The window: twice as narrow around the middle, twice the contrast.
        self.changed(lambda: self.window(100, 200))
        self.same(most.max(axis=0), inside, 100, 200)
        # Along the other axes, with z down.
        self.along("y")
        values, within = self.expected(volume.transpose(1, 0, 2))
        self.same(values.max(axis=0), within, 100, 200)
        self.along("x")
        values, within = self.expected(volume.transpose(2, 0, 1))
        self.same(values.max(axis=0), within, 100, 200)
        self.along("z")
        # The average, whose own contrast is another one until somebody sets it.
        self.changed(lambda: self.choose("Picture", "average"))
        average = self.same(most.mean(axis=0), inside, 100, 200)
        self.changed(lambda: self.choose("Picture", "shaded"))
        shaded = self.grey(VIEW)[..., 0].astype(float)
        for one, other in ((maximum, average), (average, shaded), (maximum, shaded)):
            self.assertGreater(np.abs(one - other)[inside].mean(), 5)
        self.assertEqual(shaded[~inside].max(), 0)
        self.changed(lambda: self.slide("Opacity", 0.1))
        self.assertLess(self.grey(VIEW)[..., 0][inside].mean(), shaded[inside].mean())  # thinner, so darker
        self.changed(lambda: self.choose("Picture", "maximum"))
        self.changed(lambda: self.choose("Colours", "viridis"))
        self.assertEqual(tuple(self.grey(VIEW)[inside].max(axis=0))[2] > 100, True)
        self.assertGreater(len(np.unique(self.grey(VIEW).reshape(-1, 3), axis=0)), 30)

    def test_the_clip_box_removes_what_is_outside(self):
        volume = np.round(smooth((64, 64, 64))).astype(np.uint8)
        name = self.put(volume)
        self.open(name)
        self.along("z")
        self.window(0, 255)
        self.changed(lambda: self.slide("Clip box: z to", 20))
        values, inside = self.expected(volume)
        self.same(values[:20].max(axis=0), inside, 0, 255)
        self.changed(lambda: self.slide("Clip box: z from", 40))  # past the other end, which makes way
        self.same(values[40:41].max(axis=0), inside, 0, 255)
        self.changed(lambda: self.slide("Clip box: z to", 64))
        self.same(values[40:].max(axis=0), inside, 0, 255)
        self.changed(lambda: self.slide("Clip box: x from", 32))
        columns = self.places(64, 10, 1)
        self.same(values[40:].max(axis=0), inside & (columns >= 32), 0, 255)
        self.changed(lambda: self.page.click(".clip button"))
        self.same(values.max(axis=0), inside, 0, 255)

    def slice_pixels(self, plane):
        return self.grey(f"[data-plane='{plane}'] canvas")[..., 0]

    def test_slices_are_the_planes_of_the_volume(self):
        volume = np.round(smooth((40, 64, 52))).astype(np.uint8)
        name = self.put(volume)
        self.open(name)
        self.changed(lambda: self.window(0, 255))
        planes = {"z": lambda i: volume[i], "y": lambda i: volume[:, i], "x": lambda i: volume[:, :, i].copy()}
        for axis, middle in (("z", 20), ("y", 32), ("x", 26)):
            np.testing.assert_array_equal(self.slice_pixels(axis), planes[axis](middle))
            self.slide(f"Slice across {axis}", 7)
            until(lambda: np.array_equal(self.slice_pixels(axis), planes[axis](7)))
            self.assertIn("7 of", self.page.evaluate(f"document.querySelector(\"[data-plane='{axis}'] output\").textContent"))

        def is_oblique(expected):
            rows, columns, data = self.page.pixels("[data-plane='oblique'] canvas")
            seen = np.frombuffer(data, np.uint8).reshape(rows, columns, 4)[1:-1, 1:-1, 0]  # the outermost pixels may round to beside the volume
            return seen.shape == expected[1:-1, 1:-1].shape and np.abs(seen - expected[1:-1, 1:-1]).max() <= 1.5

        # The oblique plane, where it is not oblique: between the two planes in the middle.
        for turn, expected in ((0, (volume[19].astype(float) + volume[20]) / 2), (90, ((volume[:, :, 25].astype(float) + volume[:, :, 26]) / 2).T[:, ::-1])):
            self.slide("Oblique plane: turn", turn)
            until(lambda: is_oblique(expected))
        self.slide("Oblique plane: turn", 0)
        self.slide("Oblique plane: offset from the middle", -100)
        until(lambda: is_oblique((volume[9].astype(float) + volume[10]) / 2))
        # The value below the pointer, and a click that moves the other planes.
        where = self.page.place("[data-plane='z'] canvas", ((30 + 0.5) / 52, (50 + 0.5) / 64))
        self.page.mouse("mouseMoved", *where)
        self.page.wait(f"document.querySelector(\"[data-plane='z'] .under\")?.textContent.startsWith('x 30, y 50, z 7: {volume[7, 50, 30]}')")
        self.page.click("[data-plane='z'] canvas", ((30 + 0.5) / 52, (50 + 0.5) / 64))
        until(lambda: np.array_equal(self.slice_pixels("x"), planes["x"](30)) and np.array_equal(self.slice_pixels("y"), planes["y"](50)))
        # In the scene: along z the plane across z is seen as it is.
        self.changed(lambda: self.choose("Picture", "slices"))
        self.along("z")
        for axis in "xy":
            self.page.evaluate(f"[...document.querySelectorAll('.controls [type=checkbox]')]['xyz'.indexOf('{axis}')].click()")
        self.page.wait("document.querySelectorAll('.plane-edge').length === 1")
        self.changed(lambda: self.window(0, 250))
        values, inside = self.expected(volume[7])
        self.same(values, inside, 0, 250)

    def test_the_oblique_plane_across_the_view(self):
        volume = np.round(smooth((48, 48, 48))).astype(np.uint8)
        self.open(self.put(volume))
        self.along("y")
        self.page.evaluate("[...document.querySelectorAll('.controls button')].find(e => e.textContent === 'Across the view').click()")
        self.page.wait("document.querySelector(\"[data-plane='oblique'].plane-edge\")")
        self.assertEqual(self.page.evaluate("[...document.querySelectorAll(\"[aria-label^='Oblique plane']\")].map(e => e.getAttribute('aria-valuetext'))"), ["0°", "90°", "0 µm"])

    def test_sixteen_bits_tell_neighbours_apart(self):
        volume = np.full((40, 40, 40), 30000, np.uint16)
        volume[:, 20:, :] = 30001
        volume[0, 0, 0], volume[-1, -1, -1] = 0, 65535
        name = self.put(volume)
        self.open(name)
        self.choose("Voxels", 16)
        self.still()
        self.changed(lambda: self.window(29999.5, 30001.5))
        grey = self.slice_pixels("z")
        self.assertEqual((set(np.unique(grey[:20])), set(np.unique(grey[20:]))), ({64}, {191}))
        self.along("z")
        _, inside = self.expected(volume[20])
        view = self.grey(VIEW)[..., 0]
        rows = self.places(40, 10, 0)
        for part, wanted in ((rows < 19, 64), (rows > 21, 191)):
            seen = view[inside & part[:, None]]
            self.assertGreater((seen == wanted).mean(), 0.95)  # the two odd voxels are the others
        where = self.page.place("[data-plane='z'] canvas", (0.5, 0.9))
        self.page.mouse("mouseMoved", *where)
        self.page.wait("document.querySelector(\"[data-plane='z'] .under\")?.textContent.endsWith(': 30001')")
        # Eight bits do it, too: the server is asked again, for the window alone.
        self.choose("Voxels", 8)
        self.still()
        until(lambda: (set(np.unique(self.slice_pixels("z")[:20])), len(np.unique(self.slice_pixels("z")))) != (set(), 1))
        low, high = self.slice_pixels("z")[:20].max(), self.slice_pixels("z")[20:].min()
        self.assertLess(low + 60, high)

    def test_a_narrow_window_of_floats_is_read_anew(self):
        volume = smooth((80, 70, 72), lo=-1000, hi=1000).astype(np.float32)
        name = self.put(volume)
        self.open(name)
        first = self.page.evaluate("window.reads.at(-1).address")
        self.assertIn("lo=", first)
        self.window(-5, 5)
        self.page.wait(f"window.reads.at(-1).address !== {json.dumps(first)}")
        self.still()
        lo, hi = (float(re.search(rf"{end}=([-\d.e]+)", self.page.evaluate("window.reads.at(-1).address")).group(1)) for end in ("lo", "hi"))
        self.assertTrue(-20 < lo <= -5 and 5 <= hi < 20, (lo, hi))
        expected = np.clip((volume[40].astype(float) + 5) / 10 * 255, 0, 255)
        until(lambda: np.abs(self.slice_pixels("z") - expected).max() <= 255 * (hi - lo) / 255 / 10 * 0.5 + 1)
        # With 16 bits, read as they are.
        self.choose("Voxels", 16)
        self.still()
        until(lambda: np.abs(self.slice_pixels("z") - expected).max() <= 1)
        self.assertNotIn("lo=", self.page.evaluate("window.reads.at(-1).address"))

    def test_other_types(self):
        """Each is shown by its numbers: the server's window, or 16 bits made by the page, of magnitudes where they are complex."""
        rng = np.random.default_rng(3)
        for dtype in ("i1", "i2", "f2", "f8", "c8"):
            values = smooth((30, 34, 38), lo=-90, hi=90)
            volume = (values * np.exp(2j * np.pi * rng.random(values.shape)) if dtype == "c8" else values).astype(dtype)
            shown = np.abs(volume) if dtype == "c8" else volume.astype(float)
            name = self.put(volume, title=f"type_{dtype}")
            self.open(name)
            self.window(-80, 80)
            expected = np.clip((shown[15] + 80) / 160 * 255, 0, 255)
            for bits in (8,) if dtype == "i1" else (8, 16):
                if dtype != "i1":
                    self.choose("Voxels", bits)
                with self.subTest(dtype=dtype, bits=bits):
                    self.still()
                    until(lambda: self.slice_pixels("z").shape == expected.shape and np.abs(self.slice_pixels("z") - expected).max() <= (1.1 if bits == 16 else 2.6), seconds=30)
            self.choose("Voxels", 8) if dtype != "i1" else None
            if dtype == "c8":
                self.assertIn("magnitude", self.page.evaluate(f"document.querySelector('{STATE}').innerText"))
            self.client.discard(name)


class Space(Volume3dTest):
    def test_levels_come_one_after_the_other(self):
        volume = np.round(smooth((160, 132, 140))).astype(np.uint8)
        name = self.put(volume)
        self.page.evaluate(f"""window.levels = []; setInterval(() => {{ const level = document.querySelector("{VIEW}")?.dataset.factor; if (level && level !== window.levels.at(-1)) window.levels.push(level); }}, 5)""")
        self.page.evaluate(f"window.shown = []; new MutationObserver(() => {{ const level = document.querySelector('{STATE}')?.dataset.level; if (level && level !== '0' && level !== window.shown.at(-1)) window.shown.push(level); }}).observe(document.body, {{subtree: true, childList: true, attributes: true}})")
        self.open(name)
        self.assertEqual(self.page.evaluate("window.shown"), ["4", "2", "1"])  # 40, 80, 160 voxels a side
        reads = [dict(pair.split("=") for pair in address.split("?")[1].split("&")) for address in self.page.evaluate("window.reads.map(read => read.address)")]
        self.assertEqual([(read["downsample"], read["method"]) for read in reads], [("4", "max"), ("2", "max"), ("1", "max")])
        self.assertEqual(self.page.evaluate(f"document.querySelector('{STATE} span').textContent").strip(), "All 160 × 132 × 140 voxels are shown.")
        self.changed(lambda: self.window(0, 255))
        np.testing.assert_array_equal(self.grey("[data-plane='z'] canvas")[..., 0], volume[80])
        # Means, where the picture is an average; the full level serves both.
        self.changed(lambda: self.choose("Picture", "average"))
        reads = self.page.evaluate("window.reads.slice(3).map(read => read.address)")
        self.assertEqual([re.search(r"downsample=(\d+)&method=(\w+)", address).groups() for address in reads], [("4", "mean"), ("2", "mean")])
        # By choice no finer than 80 a side.
        self.choose("Detail", 128)
        self.page.wait(f"document.querySelector('{STATE}').dataset.level === '2'")
        self.assertIn("Shown are 80 × 66 × 70 of 160 × 132 × 140 voxels: as chosen.", self.page.evaluate(f"document.querySelector('{STATE}').innerText"))

    def test_a_new_choice_ends_the_read(self):
        first, second = (self.put(np.round(smooth((150, 150, 150), seed)).astype(np.uint8), title=f"v{seed}") for seed in (1, 2))
        self.go(f"3d/{first.split('/')[1]}")
        self.page.wait("window.reads.some(read => read.address.includes('downsample=2'))")
        self.page.choose(".volume3d .bar select", second)
        self.still(second)
        at_once = self.page.evaluate(f"window.reads.filter(read => read.address.includes({json.dumps(first)})).at(-1).signal.aborted")
        self.assertTrue(at_once or self.page.evaluate(f"window.reads.filter(read => read.address.includes({json.dumps(first)})).length") == 3)
        self.changed(lambda: self.window(0, 255))
        np.testing.assert_array_equal(self.grey("[data-plane='z'] canvas")[..., 0], self.client.read(second)[75])

    def test_true_proportions(self):
        volume = np.full((24, 40, 64), 200, np.uint8)  # z, y, x
        self.open(self.put(volume, spacing={"x": 5, "y": 15, "z": 30}))
        self.changed(lambda: self.window(0, 255))
        um, width = self.page.evaluate("(() => { const bar = document.querySelector('.scale-bar'); return [Number(bar.dataset.um), parseFloat(bar.style.width)]; })()")
        for axis, across, down in (("z", 320, 600), ("y", 320, 720), ("x", 600, 720)):
            self.along(axis)
            bright = self.grey(VIEW)[..., 0] > 100
            columns, rows = np.flatnonzero(bright.any(axis=0)), np.flatnonzero(bright.any(axis=1))
            self.assertAlmostEqual((columns[-1] - columns[0] + 1) * um / width, across, delta=2 * um / width, msg=axis)
            self.assertAlmostEqual((rows[-1] - rows[0] + 1) * um / width, down, delta=2 * um / width, msg=axis)
        box = self.page.evaluate("(() => { const b = document.querySelector(\"[data-plane='y'] canvas\").getBoundingClientRect(); return b.width / b.height; })()")
        self.assertAlmostEqual(box, 320 / 720, delta=0.02)
        labels = self.page.evaluate("[...document.querySelectorAll('.overlay text')].map(e => e.textContent)")
        self.assertEqual(sorted(labels), ["y 600 µm", "z 720 µm"])

    def test_without_lengths(self):
        self.open(self.put(np.round(smooth((20, 30, 40))).astype(np.uint8), spacing={}))
        self.assertIsNone(self.page.evaluate("document.querySelector('.scale-bar')"))
        self.assertEqual(sorted(self.page.evaluate("[...document.querySelectorAll('.overlay text')].map(e => e.textContent)")), ["x 40 voxels", "y 30 voxels", "z 20 voxels"])
        self.along("z")
        self.changed(lambda: self.window(0, 1))
        bright = self.grey(VIEW)[..., 0] > 100
        columns, rows = np.flatnonzero(bright.any(axis=0)), np.flatnonzero(bright.any(axis=1))
        self.assertAlmostEqual((columns[-1] - columns[0] + 1) / (rows[-1] - rows[0] + 1), 40 / 30, delta=0.03)

    def test_turning_moving_zooming(self):
        name = self.put(np.round(smooth((64, 64, 64))).astype(np.uint8))
        self.open(name)
        self.along("z")
        first = self.grey(VIEW)
        start = self.page.place(".stage.scene", (0.5, 0.5))
        # While the mouse turns it, the picture is coarse, if only for a moment; then it is fine again.
        self.page.evaluate(f"""(() => {{ const view = document.querySelector('{VIEW}'); window.coarse = [];
            new MutationObserver(() => view.dataset.quality === 'moving' && window.coarse.push(view.width)).observe(view, {{attributes: true}}); }})()""")
        self.page.mouse("mousePressed", *start)
        self.page.mouse("mouseMoved", start[0] + 40, start[1] + 10)
        moving = self.page.wait("window.coarse.at(-1)")
        self.assertLessEqual(moving, first.shape[1] / 2 + 1)
        self.page.mouse("mouseReleased", start[0] + 40, start[1] + 10)
        self.page.wait(f"document.querySelector('{VIEW}').dataset.quality === 'still'")
        self.assertEqual(self.grey(VIEW).shape, first.shape)
        self.assertGreater(np.abs(self.grey(VIEW).astype(int) - first).mean(), 3)
        # Shift moves it, without a turn.
        self.along("z")
        np.testing.assert_array_equal(self.grey(VIEW), first)
        def shift():
            for kind, by in (("mousePressed", 0), ("mouseMoved", 1), ("mouseReleased", 1)):
                self.page.mouse(kind, start[0] + 30 * by, start[1] + 20 * by, modifiers=8)

        self.changed(shift)
        np.testing.assert_allclose(self.grey(VIEW)[20:, 30:].astype(int), first[:-20, :-30], atol=4)  # interpolated from places nearby
        # The wheel, and then the standard view.
        self.changed(lambda: self.page.command("Input.dispatchMouseEvent", type="mouseWheel", x=start[0], y=start[1], deltaX=0, deltaY=-100))
        wide = lambda: (self.grey(VIEW)[..., 0] > 0).mean()
        self.assertGreater(wide(), 1.2 * (first[..., 0] > 0).mean())
        self.changed(lambda: self.page.click(".views button"))
        standard = self.grey(VIEW)
        # By touch: one finger turns, two zoom.
        x, y = start

        def touch(*steps):
            for kind, points in zip(("touchStart", "touchMove", "touchEnd"), (*steps, [])):
                self.page.command("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": a, "y": b, "id": i} for i, (a, b) in enumerate(points)])

        self.changed(lambda: touch([(x, y)], [(x + 50, y)]))
        turned = self.grey(VIEW)
        self.assertGreater(np.abs(turned.astype(int) - standard).mean(), 2)
        self.changed(lambda: touch([(x - 20, y), (x + 20, y)], [(x - 40, y), (x + 40, y)]))
        self.assertGreater(wide(), 1.5 * (turned[..., 0] > 0).mean())

    def test_with_the_keyboard_alone(self):
        name = self.put(np.round(smooth((32, 32, 32))).astype(np.uint8))
        self.go("held")
        self.page.wait(f"/^(?!acquiring)./.test(document.querySelector(`tr[data-volume='{name}'] .status`)?.innerText ?? '')", what=f"{name} is no longer being made")
        self.page.evaluate(f"document.querySelector(`tr[data-volume='{name}'] input`).focus()")
        self.page.key("3")
        self.page.wait(f"location.hash === '#3d/{name.split('/')[1]}'")
        self.still(name)
        for _ in range(30):
            self.page.key("Tab")
            if self.page.evaluate("document.activeElement.matches('.stage.scene')"):
                break
        self.assertEqual(self.page.evaluate("getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement).outlineWidth"), "solid2px")
        pictures = [self.grey(VIEW)]
        for keys in (("z",), ("ArrowRight",), ("ArrowUp",), ("+",), ("-", "x"), (".",)):
            self.changed(lambda: [self.page.key(key) for key in keys])
            pictures.append(self.grey(VIEW))
        for one, other in zip(pictures, pictures[1:]):
            self.assertGreater(np.abs(one.astype(int) - other).mean(), 0.5)
        self.changed(lambda: self.page.key("0"))
        np.testing.assert_array_equal(self.grey(VIEW), pictures[0])
        self.page.key("Tab")
        self.assertEqual(self.page.evaluate("document.activeElement.getAttribute('aria-label')"), "Slice across z")
        self.page.key("ArrowRight")
        self.page.wait("document.querySelector(\"[data-plane='z'] output\").textContent === '17 of 0 … 31'")

    def test_from_held_with_the_button(self):
        name = self.put(np.round(smooth((16, 16, 16))).astype(np.uint8))
        self.go("held")
        self.page.click(f"tr[data-volume='{name}'] input")
        self.page.click(".open-3d:not(:disabled)")
        self.still(name)
        # The page comes back to it.
        self.go("live")
        self.page.wait(f"!document.querySelector('{VIEW}')")
        self.page.wait("window.contexts.at(-1).context.isContextLost()", what="the memory of its device is given back")
        self.page.evaluate("document.querySelector(\"nav a[href='#3d']\").click()")
        self.still(name)

    def test_a_snapshot_says_what_it_shows(self):
        name = self.put(np.round(smooth((32, 32, 32))).astype(np.uint8), title="tooth")
        self.open(name)
        folder = os.path.join(self.daemon.directory, "downloads3d")
        os.makedirs(folder, exist_ok=True)
        context = self.browser.command("Target.getTargetInfo", targetId=self.page.target)["targetInfo"]["browserContextId"]
        self.browser.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder, browserContextId=context)
        self.page.click(f"{STATE} button")
        until(lambda: any(file.endswith(".png") for file in os.listdir(folder)))
        (file,) = os.listdir(folder)
        with open(os.path.join(folder, file), "rb") as opened:
            data = opened.read()
        length = struct.unpack(">I", data[33:37])[0]
        keyword, rest = data[41:41 + length].split(b"\0", 1)
        about = json.loads(rest[4:].decode())
        self.assertEqual((keyword, about["volume"], about["title"], about["picture"], about["level"], about["shape"]), (b"Octavo", name, "tooth", "maximum", 1, [32, 32, 32]))
        self.assertLess(about["darkest"], about["brightest"])
        um, width = self.page.evaluate("(() => { const bar = document.querySelector('.scale-bar'); return [Number(bar.dataset.um), parseFloat(bar.style.width)]; })()")
        self.assertAlmostEqual(about["um_per_pixel"], um / width, delta=0.01 * um / width)
        self.assertFalse(about["coarse"])


class Trouble(Volume3dTest):
    flags = ("--device.frame_pool_bytes", str(64 << 20), "--spill.host_bytes", str(64 << 20))

    def test_the_graphics_device_is_lost_and_comes_back(self):
        name = self.put(np.round(smooth((40, 40, 40))).astype(np.uint8))
        self.open(name)
        before = self.grey(VIEW)
        self.page.evaluate("window.contexts.at(-1).loss.loseContext()")
        self.page.wait("document.querySelector('.no-graphics [role=alert]')?.textContent.includes('WebGL context lost')")
        self.page.wait("document.querySelector('.server-picture img').naturalWidth === 40", what="the server's picture is there")
        self.page.choose(".server-picture select", "plane")
        self.page.wait("document.querySelector('.server-picture img').src.includes('rendering=plane') && document.querySelector('.server-picture img').naturalWidth === 40")
        self.page.evaluate("window.contexts.at(-1).loss.restoreContext()")
        self.still(name)
        np.testing.assert_array_equal(self.grey(VIEW), before)
        # It may not come back by itself: then a button takes another one.
        self.page.evaluate("window.contexts.at(-1).loss.loseContext()")
        self.page.wait("document.querySelector('.no-graphics')")
        self.page.click(".no-graphics > button")
        self.still(name)
        np.testing.assert_array_equal(self.grey(VIEW), before)

    def test_discarded_while_it_is_shown(self):
        name = self.put(np.round(smooth((40, 40, 40))).astype(np.uint8))
        self.open(name)
        picture = self.grey(VIEW)
        self.client.discard(name)
        self.page.wait("document.querySelector('.volume3d .banner')?.textContent.startsWith('This volume was discarded by a client.')")
        np.testing.assert_array_equal(self.grey(VIEW), picture)  # what was loaded can be looked at
        self.along("z")
        self.page.evaluate("location.reload()")
        self.page.wait("document.querySelector('.empty-page')?.textContent.includes('was discarded by a client. Choose another one.')")

    def test_discarded_while_it_is_read(self):
        name = self.put(np.round(smooth((150, 150, 150))).astype(np.uint8))
        self.go(f"3d/{name.split('/')[1]}")
        self.page.wait("window.reads.length > 0")
        self.client.discard(name)
        self.page.wait("document.querySelector('.volume3d .banner, .empty-page')?.textContent.match(/discarded|There is no volume/)")

    def test_spilled(self):
        volume = np.round(smooth((40, 40, 40))).astype(np.uint8)
        name = self.put(volume)
        self.client.spill(name, "host")
        self.open(name)
        self.changed(lambda: self.window(0, 255))
        np.testing.assert_array_equal(self.grey("[data-plane='z'] canvas")[..., 0], volume[20])

    def test_what_is_no_volume_in_space(self):
        self.client.submit_scan(octavo.simulated(7, fast=True), octavo.raster(8, 4, volumes=1), samples=64, retention=dict(hold_raw=True))
        until(lambda: any(v.raw and v.state == 2 for v in self.client.volumes()))
        raw = next(v.name for v in self.client.volumes() if v.raw)
        self.go(f"3d/{raw.split('/')[1]}")
        self.page.wait("document.querySelector('.empty-page')?.textContent.includes('raw spectra')")
        self.go("3d/none")
        self.page.wait("document.querySelector('.empty-page')?.textContent.includes('There is no volume volumes/none')")

    def test_an_empty_server(self):
        self.go("3d")
        self.page.wait("document.querySelector('.empty-page')?.textContent.includes('No volume is held')")


class Limited(Volume3dTest):
    """A graphics device that takes 80 voxels a side, as large volumes meet them."""

    script = SPY + """
const parameter = WebGL2RenderingContext.prototype.getParameter;
WebGL2RenderingContext.prototype.getParameter = function (name) { return name === this.MAX_3D_TEXTURE_SIZE ? 80 : parameter.call(this, name); };
"""

    def test_the_finest_level_that_fits(self):
        self.open(self.put(np.round(smooth((160, 40, 40))).astype(np.uint8)), level=2)
        self.assertIn("Shown are 80 × 20 × 20 of 160 × 40 × 40 voxels: this browser's graphics take at most 80 voxels a side.", self.page.evaluate(f"document.querySelector('{STATE}').innerText"))


class Without(PageTest):
    """A browser without WebGL."""

    def test_the_picture_is_the_server_s(self):
        np.save(os.path.join(self.daemon.root, "plain.npy"), np.round(smooth((24, 30, 36))).astype(np.uint8))
        name = self.client.import_volume("plain.npy", axes="zyx", spacing_um=SPACING).name
        self.go(f"3d/{name.split('/')[1]}")
        self.page.wait("document.querySelector('.no-graphics [role=alert]')?.textContent.includes('no WebGL 2')")
        self.page.wait("document.querySelector('.server-picture img').naturalWidth === 36 && document.querySelector('.server-picture img').naturalHeight === 30")
        self.page.choose(".server-picture label:nth-of-type(2) select", "x")
        self.page.wait("document.querySelector('.server-picture img').naturalHeight === 24")
        self.client.discard(name)
        self.page.choose(".server-picture select", "mean")
        self.page.wait("document.querySelector('.volume3d').innerText.includes('discarded')")


class Habits(Volume3dTest):
    def test_names_contrast_and_places(self):
        name = self.put(np.round(smooth((48, 48, 48))).astype(np.uint8), title="a rather long title of a volume that somebody made")
        text = axe()
        for theme in ("dark", "light"):
            self.page.evaluate(f"localStorage.setItem('octavo-theme', '{theme}'); location.hash = '#3d/{name.split('/')[1]}'; location.reload()")
            self.page.wait(f"document.documentElement.dataset.theme === '{theme}' && document.querySelector('.link.up')")
            self.page.evaluate(text + "; true")
            for width, height in ((1366, 768), (1024, 768), (820, 1180), (768, 1024)):
                self.page.resize(width, height)
                self.page.wait(f"document.querySelector('{STATE}')?.dataset.level === '1'", seconds=60)
                for mode in ("shaded", "maximum"):
                    self.choose("Picture", mode)
                    time.sleep(0.3)
                    self.assertEqual(self.badly_placed(), [], (theme, width, mode))
                self.assertEqual(self.hardly_legible(), [], (theme, width))
            self.assertEqual(self.nameless(), [], theme)
            self.assertEqual(self.page.evaluate(RUN), [], theme)


@unittest.skipUnless(REVIEW, "OCTAVO_REVIEW names no folder for pictures")
class Pictures(Volume3dTest):
    def test_pages_in_both_themes(self):
        os.makedirs(REVIEW, exist_ok=True)
        z, y, x = np.mgrid[0:96, 0:128, 0:128] / 128
        volume = 40 + np.random.default_rng(1).normal(0, 8, z.shape)
        surface = 0.2 + 0.05 * np.sin(7 * x) + 0.03 * np.cos(9 * y)
        for depth, value in ((0, 150), (0.12, 110), (0.2, 90)):
            volume += value * np.exp(-((z - surface - depth) / 0.012) ** 2)
        volume += 190 * (np.hypot(z - 0.5, y - 0.5 - 0.1 * np.sin(8 * x)) < 0.03)
        name = self.put(np.clip(volume, 0, 255).astype(np.uint8), title="mouse, left eye", spacing={"x": 12, "y": 12, "z": 6})
        for theme in ("dark", "light"):
            self.page.evaluate(f"localStorage.setItem('octavo-theme', '{theme}'); location.hash = '#3d/{name.split('/')[1]}'; location.reload()")
            self.page.wait(f"document.documentElement.dataset.theme === '{theme}' && document.querySelector('.link.up')")
            for width, height in ((1366, 768), (820, 1180)):
                self.page.resize(width, height)
                for mode in ("maximum", "average", "shaded", "cut", "slices"):
                    self.choose("Picture", mode)
                    time.sleep(0.5)
                    self.still(name, seconds=300)
                    self.page.screenshot(os.path.join(REVIEW, f"3d_{mode}_{theme}_{width}.png"))
                self.choose("Picture", "maximum")


del PageTest  # its own tests run in their file

if __name__ == "__main__":
    unittest.main()
