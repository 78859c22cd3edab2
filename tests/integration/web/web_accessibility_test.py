"""axe-core finds nothing serious on any page, in either theme. It comes from npm; without npm or its registry the test is skipped
(web_page_test.py checks names and contrast everywhere)."""

import os
import shutil
import subprocess
import unittest

from harness import BUILD, octavo
from web_page_test import PageTest

AXE = "4.14.1"
# Only what harms: hints about best practice are for people to judge.
RUN = """axe.run(document, {resultTypes: ["violations"]}).then(result => result.violations.filter(v => ["serious", "critical"].includes(v.impact))
    .map(v => `${v.id}: ${v.nodes.map(n => n.html.slice(0, 120)).join(" | ")}`))"""


def axe():
    """The text of axe-core; skips the test where it cannot be had."""
    npm, work = shutil.which("npm"), os.path.join(BUILD, "axe")
    path = os.path.join(work, "node_modules", "axe-core", "axe.min.js")
    if not os.path.exists(path):
        if npm is None:
            raise unittest.SkipTest("no npm, which fetches axe-core")
        os.makedirs(work, exist_ok=True)
        if subprocess.run([npm, "install", "--no-audit", "--no-fund", "--prefix", work, f"axe-core@{AXE}"], capture_output=True, timeout=200).returncode != 0:
            raise unittest.SkipTest("npm cannot fetch axe-core")
    with open(path) as file:
        return file.read()


class Accessibility(PageTest):
    def test_no_serious_finding(self):
        text = axe()
        held = self.client.volumes(self.scan(volumes=2))[0].name
        for theme in ("dark", "light"):
            self.page.evaluate(f"localStorage.setItem('octavo-theme', '{theme}'); location.reload()")
            self.page.wait(f"document.documentElement.dataset.theme === '{theme}' && document.querySelector('.link.up')")
            self.page.evaluate(text + "; true")  # by the debugger, whom no Content-Security-Policy binds
            scan = self.client.submit_scan(octavo.simulated(3), octavo.raster(32, 8, volumes=0), samples=256, rate_hz=3000)
            for page, there in (("live", "#enface canvas[data-sequence]"), ("signal", ".plot"), ("scan", ".plan .good"), ("jobs", ".empty-page"), ("server", "#memory svg"), ("held", "img.thumbnail")):
                self.go(page)
                self.page.wait(f"document.querySelector({there!r})")
                self.assertEqual(self.page.evaluate(RUN), [], (theme, page))
            self.client.cancel(scan.name)
            # It sees what it is there to see.
            self.page.evaluate("document.body.append(document.createElement('button'))")
            self.assertTrue(any(found.startswith("button-name") for found in self.page.evaluate(RUN)))
            self.page.evaluate("document.body.lastChild.remove()")
            for verb in ("commit", "discard"):
                self.page.evaluate(f"(() => {{ const box = document.querySelector(`tr[data-volume='{held}'] input`); if (!box.checked) box.click(); }})()")
                self.page.click(f"button[data-verb='{verb}']:not(:disabled)")
                self.page.wait("document.querySelector('dialog')?.open")
                self.assertEqual(self.page.evaluate(RUN), [], (theme, verb))
                self.page.key("Escape")
                self.page.wait("!document.querySelector('dialog')")


del PageTest  # its own tests run in their file

if __name__ == "__main__":
    unittest.main()
