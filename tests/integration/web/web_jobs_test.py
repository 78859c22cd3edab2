"""The page Jobs in a real browser: the list, progress, residual, live slice, trial axes, results, and what is submitted from it."""

import base64
import json
import os
import re
import time
import unittest

import numpy as np

from chromium import Chromium
from harness import Daemon, DaemonTest, octavo, until
from octavo.v1 import job_pb2
from tomography.tomography_test import shepp_logan
from web_accessibility_test import RUN, axe
from web_server_test import rows
from web_page_test import REVIEW, SIZES, PageTest, shown
from web_viewer import Viewer

DONE, FAILED, CANCELLED = job_pb2.JOB_STATE_DONE, job_pb2.JOB_STATE_FAILED, job_pb2.JOB_STATE_CANCELLED
READY = octavo.preparation(already_sinograms=True)
SLICE = "#slice canvas"


class JobTest(PageTest):
    def sinograms(self, name, size=96, count=60, rows=1, axis=None, half=None, noise=0.0):
        """A file of projections [angle, row, column] of one object; gives the angles."""
        angles = np.linspace(0, np.pi, count, endpoint=False)
        _, sinogram = shepp_logan(size, angles, (size - 1) / 2 if axis is None else axis, half)
        sinogram = sinogram + np.random.default_rng(3).normal(0, noise * sinogram.max(), sinogram.shape).astype(np.float32)
        np.save(os.path.join(self.daemon.root, name), np.repeat(sinogram[:, None, :], rows, axis=1))
        return angles

    def endless(self, **more):
        """A job that goes on until it is cancelled."""
        if not os.path.exists(os.path.join(self.daemon.root, "endless.npy")):  # another one may be reading it
            self.sinograms("endless.npy", rows=3)
        angles = np.linspace(0, np.pi, 60, endpoint=False)
        return self.client.submit_job(octavo.tomography("endless.npy", algorithm="sirt", iterations=1000000, angles=angles, prepare=READY), **more).name

    def tearDown(self):
        for job in self.client.jobs(filter="state = QUEUED OR state = RUNNING"):
            self.client.cancel_job(job.name)
            self.client.wait_job(job.name, check=False)
        super().tearDown()

    def show(self, job, state=None):
        self.go(job)
        self.page.wait(f"document.querySelector(`{self.card(job)}`) && document.querySelector('.details')?.dataset.job === {json.dumps(job)}" + (f" && document.querySelector('.details').dataset.state === '{state}'" if state else ""), what=f"{job} is shown {state or ''}")

    def text(self, selector):
        return self.page.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''").replace("\n", " ")

    def card(self, job):
        return f"a.card[data-job='{job}']"

    def points(self):
        return self.page.evaluate("Number(document.querySelector('#curve .plot')?.dataset.points ?? 0)")

    def window(self):
        return [float(v) for v in self.page.evaluate("[...document.querySelectorAll('#slice [role=slider]')].map(e => e.getAttribute('aria-valuenow'))")]

    def trials(self, **more):
        """A job that tries nine axes, of which the fifth is the true one."""
        angles = self.sinograms("tries.npy", count=120, axis=45.25, half=34, noise=0.02)
        work = octavo.tomography("tries.npy", angles=angles, prepare=READY, try_centers=(41.25, 49.25, 1))
        return self.client.submit_job(work, title="tries", labels={"who": "me"}, **more).wait()


class Running(JobTest):
    def test_a_job_appears_progresses_and_its_residual_falls(self):
        self.go("jobs")
        job = self.endless(title="converging", labels={"who": "me"})
        self.page.wait(f"document.querySelector(`{self.card(job)}`)?.innerText.includes('running')")
        self.page.click(self.card(job))
        told = re.compile(r"converging.*running.*tomography · devices/0 · [\d.]+ [KM]iB.*reconstructs, [\d.]+( k)? of 1.00 M iterations, \d+ %")
        until(lambda: told.search(self.text(self.card(job))), 30)
        self.page.wait("Number(document.querySelector('#curve .plot')?.dataset.points) > 3")
        first = self.points()
        until(lambda: self.points() > first + 20)
        self.assertRegex(self.page.evaluate("document.querySelector('#curve .plot').getAttribute('aria-label')"), r"norm of the residual of \d+ steps, the last [\d.e-]+")
        self.assertIn("who me", self.text(".details .facts"))
        self.assertIn("sirt", self.text("[aria-label=Plan]").lower())
        # The slice as it converges.
        self.page.wait(f"Number(document.querySelector('{SLICE}')?.dataset.sequence) > 1")
        before = self.page.evaluate(f"document.querySelector('{SLICE}').dataset.sequence")
        self.page.wait(f"Number(document.querySelector('{SLICE}').dataset.sequence) > {int(before) + 2}")
        self.assertIn("not final", self.text("#slice"))
        self.assertGreater(self.grey(SLICE).std(), 10)  # with a contrast that shows it

    def test_the_curve_has_all_steps_although_the_daemon_tells_the_last_256(self):
        job = self.endless()  # a short one may be done before the page has seen its first steps
        self.show(job, "RUNNING")
        until(lambda: self.points() > 512)
        self.client.cancel_job(job)
        end = self.client.wait_job(job, check=False)
        self.assertEqual(len(end.history), 256)
        self.show(job, "CANCELLED")
        self.assertGreater(self.points(), 512)
        self.assertLessEqual(self.points(), end.step_count)

    def test_the_slice_is_that_of_the_volume(self):
        angles = self.sinograms("slices.npy", rows=3)
        job = self.client.submit_job(octavo.tomography("slices.npy", algorithm="fbp", angles=angles, prepare=READY)).wait()
        volume = self.client.read(job.volume_names[0])
        self.show(job.name, "DONE")
        self.painted(SLICE, job.name)

        def is_slice(index):
            grey = self.grey(SLICE)[..., 0]
            return grey.shape == volume[index].shape and np.abs(grey - shown(volume[index], *self.window())).max() <= 2  # the window is told with four digits

        until(lambda: is_slice(1))
        self.page.choose("#slice .plane input", 2)
        until(lambda: is_slice(2))
        self.assertEqual(self.text("#slice .plane output"), "2 of 3")

    def test_planes_across_y_and_x_are_those_of_the_volume(self):
        angles = self.sinograms("planes.npy", rows=5)
        job = self.client.submit_job(octavo.tomography("planes.npy", algorithm="fbp", angles=angles, prepare=READY, columns=(4, 90))).wait()
        volume = self.client.read(job.volume_names[0])
        self.show(job.name, "DONE")
        self.painted(SLICE, job.name)

        def is_plane(expected):
            grey, window = self.grey(SLICE)[..., 0], self.window()  # there is none until the first picture of the axis
            return len(window) == 2 and grey.shape == expected.shape and np.abs(grey - shown(expected, *window)).max() <= 2

        self.assertEqual(self.page.evaluate("[...document.querySelectorAll('#slice header option')].map(e => e.value)"), ["Z", "Y", "X"])
        for axis, cut, name in ((1, "Y", "Plane across y"), (2, "X", "Plane across x"), (0, "Z", "Slice")):
            self.page.choose("#slice header select", cut)
            count = volume.shape[axis]
            until(lambda: is_plane(np.take(volume, count // 2, axis)))
            self.assertEqual((self.text("#slice h2"), self.text("#slice .plane output")), (name, f"{count // 2} of {count}"))
            self.page.choose("#slice .plane input", 1)
            until(lambda: is_plane(np.take(volume, 1, axis)))

    def test_planes_across_y_come_with_the_volume(self):
        job = self.endless()
        self.show(job, "RUNNING")
        self.painted(SLICE, job)
        self.page.choose("#slice header select", "Y")
        self.page.wait("document.querySelector('#slice .empty')?.textContent === 'Planes across y and x are shown when the volume is complete.'")
        self.page.choose("#slice header select", "Z")
        self.painted(SLICE, job)

    def test_trials_and_other_jobs_have_one_axis(self):
        job = self.trials()
        self.show(job.name, "DONE")
        self.painted(SLICE, job.name)
        self.assertEqual(self.page.evaluate("document.querySelectorAll('#slice header select').length"), 0)

    def test_a_slice_as_jpeg_has_the_values_of_the_volume(self):
        running = self.endless()
        angles = self.sinograms("jpeg.npy", rows=3)
        job = self.client.submit_job(octavo.tomography("jpeg.npy", algorithm="fbp", angles=angles, prepare=READY))
        web = self.viewer.socket()

        def values(view, parent):
            """A frame's values, and the least and the greatest that it can tell."""
            web.open(view, parent, "BSCAN", "Z", 1, encoding="JPEG")
            header, data = web.frame()
            while header["view"] != view:
                web.acknowledge(header)
                header, data = web.frame()
            self.assertTrue(header["jpeg"])
            lo, hi = header["schema"]["display"]["lo"], header["schema"]["display"]["hi"]
            grey = self.page.evaluate(f"""(async () => {{
                const bytes = Uint8Array.from(atob("{base64.b64encode(data).decode()}"), letter => letter.charCodeAt(0));
                const picture = await createImageBitmap(new Blob([bytes]));
                const context = new OffscreenCanvas(picture.width, picture.height).getContext("2d");
                context.drawImage(picture, 0, 0);
                return [...context.getImageData(0, 0, picture.width, picture.height).data].filter((_, i) => i % 4 === 0);
            }})()""")
            return lo + np.reshape(grey, header["schema"]["shape"]) / 255 * (hi - lo), lo, hi

        live, lo, hi = values(0, running)
        self.assertGreater(((live > lo + 0.05 * (hi - lo)) & (live < hi - 0.05 * (hi - lo))).mean(), 0.2)  # not black and white alone
        self.client.cancel_job(running)
        told, lo, hi = values(1, job.wait().name)
        exact = np.clip(self.client.read(job.volume_names[0])[1].astype(float), lo, hi)
        self.assertLess(np.abs(told - exact).mean() / (hi - lo), 0.03)

    def test_a_job_that_waits_says_for_what(self):
        self.endless(title="before")
        job = self.endless(title="behind")
        other = self.endless(title="last")
        self.show(job, "QUEUED")
        self.page.wait(f"document.querySelector(`{self.card(other)}`)?.innerText.includes('number 2 in the queue')")
        self.assertRegex(self.text(self.card(job)), r"next in the queue; .+")
        self.assertEqual(self.page.evaluate("[...document.querySelectorAll('.job-list h2')].map(e => e.innerText.replace(/\\s+/g, ' '))")[:2], ["Running 1", "Waiting 2"])
        until(lambda: "next in the queue; " + self.client.job(job).reason in self.text(".details"), 30)  # the list is told first

    def test_cancel_asks(self):
        job = self.endless(title="to be cancelled")
        self.show(job, "RUNNING")
        self.page.click(".details header .danger")
        self.page.wait("document.querySelector('dialog')?.open && document.activeElement.textContent === 'Let it run'")
        self.page.key("Escape")
        self.page.wait("!document.querySelector('dialog')")
        self.assertNotEqual(self.client.job(job).state, CANCELLED)
        self.page.click(".details header .danger")
        self.page.wait("document.querySelector('dialog')?.open")
        self.page.click("dialog button.danger")
        self.page.wait("document.querySelector('.details').dataset.state === 'CANCELLED'")
        self.assertEqual(self.client.job(job).state, CANCELLED)
        self.page.wait("!document.querySelector('.details header .danger')")

    def test_a_failed_job_shows_its_reason(self):
        np.save(os.path.join(self.daemon.root, "nothing.npy"), np.random.default_rng(1).normal(1, 0.1, (100, 1, 128)).astype(np.float32))
        job = self.client.submit_job(octavo.tomography("nothing.npy", angles=np.linspace(0, np.pi, 100, endpoint=False), center="auto", center_doubt="fail", prepare=READY)).name
        end = self.client.wait_job(job, check=False)
        self.assertEqual(end.state, FAILED)
        self.show(job, "FAILED")
        self.assertEqual(self.page.evaluate("document.querySelector('.details [role=alert]').textContent"), f"It has failed: {end.reason}")
        self.page.wait(f"document.querySelector(`{self.card(job)}`)?.innerText.includes({json.dumps(end.reason)})")

    def test_no_such_job(self):
        self.go("jobs/none")
        self.page.wait("document.querySelector('.empty-page')?.textContent.includes('none')")

    def test_with_the_keyboard_alone(self):
        jobs = [self.client.submit_job(octavo.tomography("keys.npy", angles=self.sinograms("keys.npy"), prepare=READY), title=f"number {i}").wait().name for i in range(3)]
        self.show(jobs[0])
        self.page.wait(f"document.querySelector(`{self.card(jobs[2])}`)?.innerText.includes('done')")  # and stays in its section
        self.page.wait(f"(e => e && (e.focus(), document.activeElement === e))(document.querySelector(`{self.card(jobs[2])}`))")
        self.page.key("ArrowDown")
        self.assertEqual(self.page.evaluate("document.activeElement.dataset.job"), jobs[1])
        self.assertEqual(self.page.evaluate("getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement).outlineWidth"), "solid2px")
        self.page.key("Enter")
        self.page.wait(f"document.querySelector('.details')?.dataset.job === '{jobs[1]}'")
        self.assertEqual(self.page.evaluate("document.querySelector('a.card[aria-current]').dataset.job"), jobs[1])


class Results(JobTest):
    def test_volumes_lead_to_held(self):
        job = self.client.submit_job(octavo.tomography("held.npy", angles=self.sinograms("held.npy", rows=2), prepare=READY), title="to be held").wait()
        (name,) = job.volume_names
        self.show(job.name, "DONE")
        self.page.click(f"[data-result='{name}'] a[href^='#held']")
        self.page.wait(f"document.activeElement?.closest('tr')?.dataset.volume === '{name}'")
        # And from there to the job.
        self.page.click(f"tr[data-volume='{name}'] a")
        self.page.wait(f"document.querySelector('.details')?.dataset.job === '{job.name}'")
        self.client.discard(name)
        self.page.wait(f"document.querySelector(`[data-result='{name}']`).innerText.includes('no longer in memory')")

    def test_the_report_of_a_search_and_the_scores_of_its_axes(self):
        angles = self.sinograms("search.npy", axis=50.3, half=36)
        job = self.client.submit_job(octavo.tomography("search.npy", angles=angles, center="vo", prepare=READY), title="search").wait()
        found = job.tomography
        self.show(job.name, "DONE")
        self.page.wait("document.querySelector('[aria-label=Results] .plot')")
        self.assertEqual(self.page.evaluate("Number(document.querySelector('[aria-label=Results] .plot').dataset.points)"), len(found.tried_centers))
        words = self.text("[aria-label=Results] .facts")
        self.assertAlmostEqual(float(re.search(r"rotation axis column ([\d.]+)", words)[1]), found.centers[0], delta=1e-4)
        self.assertIn("found by Vo's method", words)
        self.assertIn("algorithm filtered back projection (FBP)", words)
        # Another axis than the one that was found.
        self.page.choose("[aria-label=Results] input", "50.5")
        self.page.evaluate("[...document.querySelectorAll('[aria-label=Results] button')].find(e => e.textContent.startsWith('Reconstruct')).click()")
        self.page.wait("document.querySelector('dialog .plan .good')")
        self.page.click("dialog button.primary")

        def made():
            return [j for j in self.client.jobs() if list(j.spec.message.tomography.center.pixels) == [50.5]]

        until(made)
        (again,) = made()
        work = again.spec.message.tomography
        self.assertEqual((work.center.search_method, again.spec.title, len(work.angles_rad)), (0, "search", 60))
        self.client.wait_job(again.name)

    def test_the_estimate_of_an_autofocus(self):
        scan = self.client.submit_scan(octavo.simulated(seed=3, fast=True), octavo.raster(24, 8), samples=512, retention=dict(hold_raw=True))
        self.client.wait(scan.name)
        (raw,) = [v for v in self.client.volumes(scan.name) if v.raw]
        job = self.client.submit_job(octavo.dispersion_autofocus(raw.name, ascans=32, only_a2=True), title="focus").wait()
        self.show(job.name, "DONE")
        self.page.wait("document.querySelector('[aria-label=Results] .facts')")
        words = self.text("[aria-label=Results]")
        self.assertAlmostEqual(float(re.search(r"sharpness ([\d.e+-]+)", words)[1]) / job.dispersion.sharpness, 1, delta=1e-4)
        self.assertAlmostEqual(float(re.search(r"a2 ([\d.e+-]+) rad/sample²", words)[1]), job.dispersion.a2, delta=1e-4 * abs(job.dispersion.a2))
        self.page.wait("Number(document.querySelector('#curve .plot')?.dataset.points) > 3")
        self.assertIn("Sharpness", self.text("#curve h2"))

    def test_submitted_again_with_other_fields(self):
        job = self.client.submit_job(octavo.tomography("again.npy", angles=self.sinograms("again.npy", rows=4), prepare=READY), title="first", priority=3).wait()
        self.show(job.name, "DONE")
        self.page.evaluate("[...document.querySelectorAll('.details > header button')].find(e => e.textContent.startsWith('Submit again')).click()")
        self.page.wait("document.querySelector('dialog .plan .good')")
        self.page.choose("dialog .field input", "second")
        spec = json.loads(self.page.evaluate("document.querySelector('dialog textarea').value"))
        self.assertEqual(spec["priority"], 3)
        spec["tomography"]["rows"] = {"begin": 1, "end": 99}
        self.page.choose("dialog textarea", json.dumps(spec))
        self.page.wait("document.querySelector('#job-problem').textContent.includes('rows')")  # the server's words
        self.assertTrue(self.page.evaluate("document.querySelector('dialog button.primary').disabled"))
        self.page.choose("dialog textarea", "{")
        self.page.wait("document.querySelector('#job-problem').textContent.startsWith('no JSON')")
        spec["tomography"]["rows"] = {"begin": 1, "end": 3}
        self.page.choose("dialog textarea", json.dumps(spec))
        self.page.wait("document.querySelector('dialog .plan .good') && !document.querySelector('dialog button.primary').disabled")
        self.page.click("dialog button.primary")
        until(lambda: [j for j in self.client.jobs() if j.spec.title == "second"])
        (second,) = [j for j in self.client.jobs() if j.spec.title == "second"]
        end = self.client.wait_job(second.name)
        self.assertEqual((self.client.volume(end.volume_names[0]).shape[0], second.spec.priority), (2, 3))
        self.page.wait(f"document.querySelector('.details')?.dataset.job === '{second.name}'")  # the page goes on to it

    def test_a_series_is_told_and_submitted(self):
        job = self.client.submit_job(octavo.tomography("series.npy", angles=self.sinograms("series.npy"), prepare=READY, series=(20, 10)), title="windows").wait()
        self.assertEqual(len(job.volume_names), 5)
        self.show(job.name, "DONE")
        self.assertIn("series volumes of 20 projections, one every 10", self.text(".details .facts"))
        self.page.wait("document.querySelector('[aria-label=Results] .facts')")
        self.assertIn("volumes of the series 5 of 5", self.text("[aria-label=Results]"))
        self.assertEqual(self.page.evaluate("document.querySelectorAll('[data-result]').length"), 5)
        self.page.evaluate("[...document.querySelectorAll('.details > header button')].find(e => e.textContent.startsWith('Submit again')).click()")
        self.page.wait("document.querySelector('dialog .plan .good')")
        first, second = "dialog [aria-label='Projections a volume']", "dialog [aria-label='Projections from one volume to the next']"
        self.assertEqual(self.page.evaluate(f"[document.querySelector(`{first}`).value, document.querySelector(`{second}`).value]"), ["20", "10"])
        self.assertNotIn('"series":', self.page.evaluate("document.querySelector('dialog textarea').value"))
        for field, value, words in ((first, "many", "Projections a volume is 'many'; allowed a whole number from 1 on"), (first, "0", "Projections a volume is '0'; allowed"),
                                    (second, "1.5", "Projections from one volume to the next is '1.5'; allowed"), (first, "", "is empty, and one every 10 is given"), (first, "61", "series")):  # the last words are the server's
            before = self.page.evaluate(f"document.querySelector(`{field}`).value")
            self.page.choose(field, value)
            self.page.wait(f"document.querySelector('#job-problem').textContent.includes({json.dumps(words)})")
            self.assertTrue(self.page.evaluate("document.querySelector('dialog button.primary').disabled"))
            self.assertEqual(self.page.evaluate("[...document.querySelectorAll('dialog .series [aria-invalid=true]')].length"), 0 if value == "61" else 1)
            self.page.choose(field, before)
        self.page.wait("document.querySelector('#job-problem').textContent === ''")
        self.page.choose(first, "30")
        self.page.choose(second, "")
        self.page.choose("dialog .field input", "thirds")
        self.page.wait("document.querySelector('dialog .plan')?.innerText.includes('2 volumes of 30 projections each') && !document.querySelector('dialog button.primary').disabled")
        self.page.click("dialog button.primary")
        until(lambda: [j for j in self.client.jobs() if j.spec.title == "thirds"])
        (again,) = [j for j in self.client.jobs() if j.spec.title == "thirds"]
        series = again.spec.message.tomography.series
        self.assertEqual((series.projections, series.step), (30, 30))
        self.assertEqual(len(self.client.wait_job(again.name).volume_names), 2)
        # Without numbers it is one volume.
        self.show(again.name, "DONE")
        self.page.evaluate("[...document.querySelectorAll('.details > header button')].find(e => e.textContent.startsWith('Submit again')).click()")
        self.page.wait("document.querySelector('dialog .plan .good')")
        self.page.choose(first, "")
        self.page.choose(second, "")
        self.page.choose("dialog .field input", "whole")
        self.page.wait("!document.querySelector('dialog .plan')?.innerText.includes('series') && !document.querySelector('dialog button.primary').disabled")
        self.page.click("dialog button.primary")
        until(lambda: [j for j in self.client.jobs() if j.spec.title == "whole"])
        (whole,) = [j for j in self.client.jobs() if j.spec.title == "whole"]
        self.assertFalse(whole.spec.message.tomography.HasField("series"))
        self.client.wait_job(whole.name)


class Trials(JobTest):
    def all_tiles(self):
        self.page.wait("document.querySelector('.tiles')?.dataset.complete === '1'", seconds=100)  # beside a job that keeps the device
        self.page.drawn()
        return self.page.evaluate("[...document.querySelectorAll('.tiles li')].map(e => [Number(e.dataset.axis), Number(e.dataset.score)])")

    def test_axes_side_by_side_with_their_scores_and_a_click_reconstructs(self):
        job = self.trials()
        slices = self.client.read(job.volume_names[0])
        self.show(job.name, "DONE")
        tiles = self.all_tiles()
        self.assertEqual([axis for axis, _ in tiles], [41.25 + i for i in range(9)])

        def spread(image):
            smooth = np.lib.stride_tricks.sliding_window_view(image.astype(np.float64), (5, 5)).mean((2, 3))
            at = np.arange(len(smooth)) - (len(smooth) - 1) / 2
            inside = (np.hypot(at[:, None], at[None, :]) <= 0.95 * len(smooth) / 2)[:-1, :-1]
            length = np.hypot(np.diff(smooth, axis=0)[:, :-1], np.diff(smooth, axis=1)[:-1])[inside]
            return length.mean() / np.sqrt((length ** 2).mean())

        np.testing.assert_allclose([score for _, score in tiles], [spread(one) for one in slices], rtol=1e-5)
        self.assertEqual(self.page.evaluate("[...document.querySelectorAll('.tiles .best')].map(e => Number(e.dataset.axis))"), [45.25])
        # Pixels: all tiles with one contrast.
        ordered = np.sort(slices.astype(np.float64), axis=None)
        lo, hi = (ordered[int(np.floor(part * (ordered.size - 1) + 0.5))] for part in (0.002, 0.998))
        for i in (0, 4, 8):
            grey = self.grey(f".tiles li:nth-child({i + 1}) canvas")[..., 0]
            np.testing.assert_allclose(grey, shown(slices[i], lo, hi), atol=1)
        # A click asks, with the server's plan, and changes nothing by itself.
        before = len(self.client.jobs())
        self.page.click(".tiles li:nth-child(5) button")
        self.page.wait("document.querySelector('dialog .plan .good')")
        dialog = self.text("dialog")
        self.assertIn("Reconstruct with the axis at column 45.25?", dialog)
        self.assertTrue(all(step in dialog for step in self.client.plan_job(octavo.tomography("tries.npy", angles=np.linspace(0, np.pi, 120, endpoint=False), prepare=READY, center=45.25)).plan.strip().split("\n")), dialog)
        self.page.key("Escape")
        self.page.wait("!document.querySelector('dialog')")
        self.assertEqual(len(self.client.jobs()), before)
        self.page.click(".tiles li:nth-child(5) button")
        self.page.wait("document.querySelector('dialog .plan .good')")
        self.page.click("dialog button.primary")
        until(lambda: len(self.client.jobs()) == before + 1)
        made = self.client.jobs()[0]
        work = made.spec.message.tomography
        self.assertEqual((list(work.center.pixels), work.HasField("try_centers"), made.spec.title, made.spec.labels["who"], work.file.path, work.preparation.already_sinograms),
                         ([45.25], False, "tries", "me", "tries.npy", True))
        self.assertEqual(list(work.angles_rad), list(job.spec.tomography.angles_rad))
        end = self.client.wait_job(made.name)
        np.testing.assert_allclose(self.client.read(end.volume_names[0])[0], slices[4], atol=1e-5 * np.abs(slices[4]).max())
        self.page.wait(f"document.querySelector('.details')?.dataset.job === '{made.name}'")

    def test_an_end_of_the_range_is_told_and_slices_that_are_gone(self):
        angles = self.sinograms("edge.npy", count=120, axis=45.25, half=34, noise=0.02)
        job = self.client.submit_job(octavo.tomography("edge.npy", angles=angles, prepare=READY, try_centers=(46.25, 49.25, 1))).wait()
        self.show(job.name, "DONE")
        self.assertEqual(len(self.all_tiles()), 4)
        self.assertIn("at an end of the range", self.text("[aria-label='Trial axes']"))
        self.client.discard(job.volume_names[0])
        self.page.wait("document.querySelector(`[aria-label='Trial axes']`).innerText.includes('no longer in memory')")

    def test_with_the_keyboard_the_slice_follows(self):
        job = self.trials()
        self.show(job.name, "DONE")
        self.all_tiles()
        self.page.evaluate("document.querySelector('.tiles li:nth-child(2) button').focus()")
        self.page.wait("document.querySelector('#slice .plane output').textContent === '1 of 9'")
        self.page.key("Tab")
        self.page.wait("document.querySelector('#slice .plane output').textContent === '2 of 9'")
        self.page.key("Enter")
        self.page.wait("document.querySelector('dialog')?.innerText.includes('43.25')")
        self.page.key("Escape")


class Habits(JobTest):
    def jobs(self):
        """One of each state that there is to see; the trial is shown."""
        trial = self.trials()
        np.save(os.path.join(self.daemon.root, "nothing.npy"), np.random.default_rng(1).normal(1, 0.1, (100, 1, 128)).astype(np.float32))
        doubtful = octavo.tomography("nothing.npy", angles=np.linspace(0, np.pi, 100, endpoint=False), center="auto", center_doubt="fail", prepare=READY)
        failed = self.client.submit_job(doubtful, title="no axis").name
        self.client.wait_job(failed, check=False)
        running = self.endless(title="a rather long title of a reconstruction that somebody made of a tooth")
        waiting = self.endless(title="next")
        return {"trial": trial.name, "failed": failed, "running": running, "waiting": waiting}

    def there(self, kind):
        return {"trial": "document.querySelector('.tiles')?.dataset.complete === '1'", "running": f"document.querySelector('#curve .plot') && document.querySelector('{SLICE}[data-sequence]')",
                "failed": "document.querySelector('.details [role=alert]')", "waiting": "document.querySelector('.details [role=status]')"}[kind]

    def test_names_contrast_and_places(self):
        jobs = self.jobs()
        for theme in ("dark", "light"):
            self.dress(theme)
            for kind, job in jobs.items():
                self.show(job)
                self.page.wait(self.there(kind), seconds=100)
                self.assertEqual(self.nameless(), [], kind)
                self.assertEqual(self.hardly_legible(), [], (theme, kind))
        for width, height in SIZES:
            self.page.resize(width, height)
            for kind, job in jobs.items():
                self.show(job)
                self.page.wait(self.there(kind), seconds=100)
                time.sleep(0.3)
                self.assertEqual(self.badly_placed(), [], (kind, width, height))

    def test_no_serious_finding_of_axe(self):
        text, jobs = axe(), self.jobs()
        for theme in ("dark", "light"):
            self.dress(theme)
            self.page.evaluate(text + "; true")
            for kind, job in jobs.items():
                self.show(job)
                self.page.wait(self.there(kind), seconds=100)
                self.assertEqual(self.page.evaluate(RUN), [], (theme, kind))
            self.show(jobs["trial"])
            self.page.click(".tiles li:nth-child(5) button")
            self.page.wait("document.querySelector('dialog .plan .good')")
            self.assertEqual(self.page.evaluate(RUN), [], theme)
            self.page.key("Escape")

    @unittest.skipUnless(REVIEW, "OCTAVO_REVIEW names no folder for pictures")
    def test_pictures(self):
        os.makedirs(REVIEW, exist_ok=True)
        jobs = self.jobs()
        for theme in ("dark", "light"):
            self.dress(theme)
            for width, height in ((1366, 768), (820, 1180)):
                self.page.resize(width, height)
                for kind, job in jobs.items():
                    self.show(job)
                    self.page.wait(self.there(kind), seconds=100)
                    time.sleep(1)
                    self.page.screenshot(os.path.join(REVIEW, f"jobs_{kind}_{theme}_{width}.png"))
                self.show(jobs["trial"])
                self.page.wait(self.there("trial"), seconds=100)
                self.page.click(".tiles li:nth-child(5) button")
                self.page.wait("document.querySelector('dialog .plan .good')")
                time.sleep(0.3)
                self.page.screenshot(os.path.join(REVIEW, f"jobs_submit_{theme}_{width}.png"))
                self.page.key("Escape")
                self.page.wait("!document.querySelector('dialog')")


class ReadOnly(JobTest):
    viewer_flags = ("--read-only",)

    def test_nothing_is_offered_that_changes_anything(self):
        job = self.trials()
        self.show(job.name, "DONE")
        self.page.wait("document.querySelector('.tiles')?.dataset.complete === '1'")
        self.assertEqual(self.page.evaluate("document.querySelectorAll('.tiles button, .details > header button').length"), 0)
        running = self.endless()
        self.show(running, "RUNNING")
        self.assertEqual(self.page.evaluate("document.querySelectorAll('.details > header button').length"), 0)


class Wire(DaemonTest):
    """One watch for each job, whatever the number of pages."""

    def test_one_watch_for_all_viewers(self):
        viewer = Viewer(self.daemon.address)
        self.addCleanup(viewer.stop)
        viewer.enter()
        np.save(os.path.join(self.daemon.root, "wire.npy"), np.ones((30, 1, 48), np.float32))
        work = octavo.tomography("wire.npy", algorithm="sirt", iterations=1000000, angles=np.linspace(0, 3, 30), prepare=READY)
        jobs = [self.client.submit_job(work, title=title).name for title in ("runs", "waits")]
        sockets = [viewer.socket() for _ in range(10)]
        for i, web in enumerate(sockets):
            web.look(jobs[i % 2])
        for i, web in enumerate(sockets):
            told = web.text("job")
            self.assertEqual((told["name"], told["job"]["title"], told["fresh"]), (jobs[i % 2], ("runs", "waits")[i % 2], True))
        self.assertEqual(viewer.status()["job_watches"], 2)
        # Each step once, and in order; all of them, where no more than 256 came between two answers of the daemon.
        steps = []
        while len(steps) < 300:
            told = sockets[0].text("job")
            if told["fresh"]:  # octavo-web was away for longer than it keeps steps
                self.assertEqual(len(told["steps"]), 4096)
                steps.clear()
            steps += [step["step"] for step in told["steps"]]
        self.assertTrue((np.diff(steps) > 0).all())
        self.assertLessEqual(told["job"]["step_count"] - steps[-1], 1)
        self.client.cancel_job(jobs[1])
        self.client.cancel_job(jobs[0])
        for i, web in enumerate(sockets):
            while (told := web.text("job"))["job"]["state"] != "CANCELLED":
                self.assertEqual(told["name"], jobs[i % 2])
        sockets[0].look()
        for web in sockets[1:]:
            web.close()
        until(lambda: viewer.status()["job_watches"] == 0)
        sockets[0].look("jobs/none")
        self.assertIn("none", sockets[0].text("job")["gone"])


class Restart(unittest.TestCase):
    def test_a_daemon_that_is_killed_and_comes_back(self):
        browser = Chromium()
        self.addCleanup(browser.close)
        daemon = Daemon()
        self.addCleanup(daemon.remove)
        viewer = Viewer(daemon.address)
        self.addCleanup(viewer.stop)
        np.save(os.path.join(daemon.root, "kept.npy"), np.ones((30, 1, 48), np.float32))
        work = octavo.tomography("kept.npy", algorithm="sirt", iterations=1000000, angles=np.linspace(0, 3, 30), prepare=READY)
        page = browser.open(viewer.url)
        page.wait("document.querySelector('.link.up')")
        page.evaluate("location.hash = '#jobs'")
        page.wait("document.querySelector('.empty-page')?.textContent.includes('No job')")
        with daemon.client() as client:
            job = client.submit_job(work, title="lost").name
        page.evaluate(f"location.hash = '#{job}'")
        page.wait("Number(document.querySelector('#curve .plot')?.dataset.points) > 3")
        until(lambda: rows(daemon).get(job) == "RUNNING")  # written down
        daemon.kill()
        page.wait("document.querySelector('.banner')?.textContent.includes('does not answer')")
        self.assertTrue(page.evaluate("document.querySelector('#curve .plot') !== null"))  # what was seen stays
        again = Daemon("--listen.tcp", daemon.address, directory=daemon.directory)
        self.addCleanup(again.remove)
        page.wait("!document.querySelector('.banner') && document.querySelector('.details')?.dataset.state === 'LOST'")
        words = page.evaluate("document.querySelector('.details').innerText").replace("\n", " ")
        self.assertIn("This job was lost with the server: the server died before its end; it was running.", words)
        self.assertIn("found lost", words)
        self.assertNotIn("ran for", words)
        # The steps that this viewer has seen stay; nothing is offered that would begin, end or watch it.
        self.assertEqual(page.evaluate("[document.querySelector('#curve .plot') !== null, document.querySelectorAll('.details > header button').length, document.querySelectorAll('#slice').length]"), [True, 0, 0])
        page.wait("document.querySelector('.job-list').innerText.includes('lost with the server')")  # the list comes by itself, maybe later
        self.assertRegex(page.evaluate("document.querySelector('.job-list').innerText").replace("\n", " "), r"^Of earlier runs of the server 1 lost lost with the server .*the server died")
        with again.client() as client:
            job = client.submit_job(work, title="after").name
            page.wait(f"document.querySelector(`a.card[data-job='{job}']`)?.innerText.includes('running')")
            page.click(f"a.card[data-job='{job}']")
            page.wait("Number(document.querySelector('#curve .plot')?.dataset.points) > 3")
            client.cancel_job(job)
            page.wait("document.querySelector('.details').dataset.state === 'CANCELLED'")
        self.assertEqual(page.problems, [])
        again.kill()


del PageTest, JobTest, DaemonTest  # they have no tests of their own

if __name__ == "__main__":
    unittest.main()
