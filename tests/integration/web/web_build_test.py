"""What is committed under client/web/dist is what the sources make, is small, has its licences, and runs on Debian's Node."""

import filecmp
import gzip
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
import urllib.request

from harness import BUILD, SOURCE
from web_viewer import SERVER, Viewer, node

WEB = os.path.join(SOURCE, "client", "web")
DIST = os.path.join(WEB, "dist")
OCTAVO = os.path.join(BUILD, "bin", "octavo")


def files(folder):
    return sorted(os.path.relpath(os.path.join(where, name), folder) for where, _, names in os.walk(folder) for name in names)


class Dist(unittest.TestCase):
    def test_the_page_is_small_and_names_no_other_host(self):
        self.assertEqual({"octavo-web.mjs", "LICENSES.txt", "page/index.html", "page/page.js"} - set(files(DIST)), set())
        packed = sum(len(gzip.compress(open(os.path.join(DIST, name), "rb").read(), 9)) for name in files(DIST) if name.startswith("page/"))
        self.assertLessEqual(packed, 150_000)
        for name in files(DIST):
            if name.startswith("page/"):
                with open(os.path.join(DIST, name)) as file:
                    outside = {url for url in re.findall(r"https?://[\w.-]+", file.read())}
                self.assertLessEqual(outside, {"http://www.w3.org"}, name)  # names of XML, not addresses

    def test_every_package_of_the_bundles_has_its_licence(self):
        with open(os.path.join(DIST, "LICENSES.txt")) as file:
            listed = dict(re.findall(r"^==== (\S+) (\d\S*) \(", file.read(), re.M))
        with open(os.path.join(WEB, "package.json")) as file:
            wanted = json.load(file)["devDependencies"]
        for name in ("@grpc/grpc-js", "@grpc/proto-loader", "ws", "preact", "uplot"):
            self.assertEqual(listed.get(name), wanted[name])
        self.assertTrue(all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values()), wanted)

    def test_the_sources_make_it_bit_for_bit(self):
        npm, found = shutil.which("npm"), node()
        if npm is None:
            self.skipTest("no npm")
        version = [int(part) for part in subprocess.run([found, "-p", "process.versions.node"], capture_output=True, text=True).stdout.split(".")]
        if version < [20, 19]:
            self.skipTest(f"Node is {'.'.join(map(str, version))}, and Vite needs 20.19")
        work = os.path.join(BUILD, "web")
        os.makedirs(work, exist_ok=True)
        for name in ("src", "dist"):
            shutil.rmtree(os.path.join(work, name), ignore_errors=True)
        shutil.copytree(os.path.join(WEB, "src"), os.path.join(work, "src"))
        for name in ("build", "licences.mjs", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts"):
            shutil.copy(os.path.join(WEB, name), work)
        made = subprocess.run([os.path.join(work, "build")], capture_output=True, text=True, timeout=280)
        if made.returncode != 0 and re.search(r"npm (ERR!|error).*(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|network)", made.stderr):
            self.skipTest("npm cannot reach its registry")
        self.assertEqual(made.returncode, 0, made.stderr[-2000:])
        self.assertEqual(files(os.path.join(work, "dist")), files(DIST))
        _, different, errors = filecmp.cmpfiles(os.path.join(work, "dist"), DIST, files(DIST), shallow=False)
        self.assertEqual((different, errors), ([], []), "run client/web/build and commit dist")

    def test_it_runs_on_the_node_that_there_is(self):
        version = subprocess.run([node(), "--version"], capture_output=True, text=True).stdout.strip()
        viewer = Viewer("127.0.0.1:9")
        self.addCleanup(viewer.stop)
        viewer.enter()
        self.assertEqual(viewer.socket().text("hello")["version"], 2)
        self.assertEqual(viewer.stop(), 0)
        if not version.startswith("v18."):
            self.skipTest(f"it runs on Node {version[1:]}; Debian 12 has 18, which is not here")


class Command(unittest.TestCase):
    """octavo web."""

    def run_with(self, *flags, **environment):
        return subprocess.run([OCTAVO, "--address", "127.0.0.1:9", "web", *flags], capture_output=True, text=True, timeout=60, env={**os.environ, **environment})

    def test_it_starts_the_viewer(self):
        for found in (node(), None):  # by name, and by the PATH
            viewer = Viewer("127.0.0.1:9", program=[OCTAVO, "web"], environment={"OCTAVO_NODE": found} if found else {"OCTAVO_NODE": ""})
            self.addCleanup(viewer.stop)
            self.assertIn("<title>Octavo</title>", urllib.request.urlopen(viewer.base + "/", timeout=20).read().decode())
            self.assertEqual(viewer.stop(), 0)
            self.assertIn(f"octavod at 127.0.0.1:9; open in a browser, this address works once:\n{viewer.url}\n", viewer.output)

    def test_flags_reach_it(self):
        done = self.run_with("--listen", "0.0.0.0:0")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("--listen: is '0.0.0.0:0'", done.stderr)
        viewer = Viewer("127.0.0.1:9", "--read-only", "--host", "a.lab", "--host", "b.lab", program=[OCTAVO, "web"])
        self.addCleanup(viewer.stop)
        viewer.enter()
        self.assertTrue(viewer.socket(host=f"b.lab:{viewer.port}", origin=f"http://b.lab:{viewer.port}").text("hello")["read_only"])

    def test_without_node_it_says_what_to_do(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_with(PATH=folder, OCTAVO_NODE="")
            self.assertEqual(done.returncode, 1)
            self.assertIn("no program node is on the PATH; install it (Debian: apt-get install nodejs)", done.stderr)
            old = os.path.join(folder, "node")
            for text, words in (("#!/bin/sh\necho v16.20.2\n", "is Node v16.20.2; wanted is Node 18 or later"), ("#!/bin/sh\nexit 3\n", "is no Node that can be run")):
                with open(old, "w") as file:
                    file.write(text)
                os.chmod(old, 0o755)
                done = self.run_with(PATH=folder, OCTAVO_NODE="")
                self.assertEqual(done.returncode, 1)
                self.assertIn(words, done.stderr)
            self.assertEqual(self.run_with(OCTAVO_NODE="/none").returncode, 1)

    def test_an_installation_has_all_that_it_needs(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["cmake", "--install", os.path.join(BUILD, "client", "web"), "--prefix", folder], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            os.makedirs(os.path.join(folder, "bin"))
            shutil.copy(OCTAVO, os.path.join(folder, "bin"))
            viewer = Viewer("127.0.0.1:9", program=[os.path.join(folder, "bin", "octavo"), "web"])
            self.addCleanup(viewer.stop)
            viewer.enter()
            self.assertEqual(files(os.path.join(folder, "share", "octavo", "web")), files(DIST))
            self.assertIn("octavo/v1/stream.proto", files(os.path.join(folder, "share", "octavo", "proto")))


if __name__ == "__main__":
    unittest.main()
