"""The scans that octavo recon takes for a pattern or a folder: which they are, in which order, what is left out, and what is refused."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
import zlib

import numpy as np

from harness import BUILD, Daemon, DaemonTest

COUNT, SIZE = 24, 16
FLAGS = ("--angles", f"0:{180 - 180 / COUNT:g}:{COUNT}", "--transmissions", "--center", "7.5", "--format", "npy")


def tiff(path, values):
    """A page of f32, as small as TIFF allows."""
    rows, columns = values.shape
    data = values.astype("<f4").tobytes()
    entries = [(256, 4, 1, columns), (257, 4, 1, rows), (258, 3, 1, 32), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8), (277, 3, 1, 1), (278, 4, 1, rows),
               (279, 4, 1, len(data)), (339, 3, 1, 3)]
    with open(path, "wb") as file:
        file.write(b"II*\0" + (8 + len(data)).to_bytes(4, "little") + data + len(entries).to_bytes(2, "little"))
        for tag, kind, count, value in entries:
            file.write(tag.to_bytes(2, "little") + kind.to_bytes(2, "little") + count.to_bytes(4, "little") + value.to_bytes(4, "little"))
        file.write(bytes(4))


class ReconNames(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = cls.daemon.root
        os.makedirs(os.path.join(cls.root, "results"))

    def setUp(self):
        self.place = os.path.join(self.root, "scans")
        os.mkdir(self.place)

    def tearDown(self):
        shutil.rmtree(self.place)
        super().tearDown()

    def scan(self, *names):
        for name in names:
            values = np.random.default_rng(zlib.crc32(name.encode())).uniform(0.5, 1, (COUNT, 2, SIZE)).astype(np.float32)
            path = os.path.join(self.place, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            np.save(path, values)

    def write(self, *names):
        for name in names:
            with open(os.path.join(self.place, name), "w") as file:
                file.write("not a scan\n")

    def stack(self, name, count=COUNT):
        folder = os.path.join(self.place, name)
        os.makedirs(folder, exist_ok=True)
        for i in range(count):
            tiff(os.path.join(folder, f"p{i}.tif"), np.full((2, SIZE), 0.5 + i / 100))

    def recon(self, *arguments, code=0):
        done = self.command("recon", *arguments, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def planned(self, *names, flags=FLAGS):
        """The scans that a batch would make, in its order, and the error stream."""
        done = self.recon(*names, *flags, "--plan")
        return [line for line in done.stdout.splitlines() if line.startswith(("scans", "/", "two", "results"))], done.stderr

    def refused(self, *names, flags=FLAGS):
        done = self.recon(*names, *flags, "--plan", code=2)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def test_a_pattern_makes_a_batch_in_natural_order(self):
        self.scan("s10.npy", "s9.npy", "s1.npy", "t2.npy", ".hidden.npy", "deep/s3.npy")
        self.write("notes.txt", "s2.npy.bak")
        done = self.recon("scans/s*.npy", *FLAGS, "--output-dir", "results")
        lines = done.stdout.splitlines()
        self.assertRegex(lines[0], r"^scan +slices x size +axis +seconds +warnings +where$")
        self.assertEqual([line.split()[0] for line in lines[1:]], ["scans/s1.npy", "scans/s9.npy", "scans/s10.npy"])
        self.assertEqual([line.split()[-1] for line in lines[1:]], [os.path.join(self.root, "results", f"s{i}.npy") for i in (1, 9, 10)])
        self.assertEqual(done.stderr.count("left out"), 0, done.stderr)
        # The same as with the names themselves.
        self.recon("scans/s9.npy", *FLAGS, "--output-dir", "named")
        np.testing.assert_array_equal(np.load(os.path.join(self.root, "named", "s9.npy")), np.load(os.path.join(self.root, "results", "s9.npy")))
        for pattern, wanted in (("scans/*.npy", ["s1", "s9", "s10", "t2"]), ("scans/s?.npy", ["s1", "s9"]), ("scans/[st][12]*.npy", ["s1", "s10", "t2"]),
                                ("scans/*/*.npy", ["deep/s3"]), ("scans/../scans/s1*.npy", ["../scans/s1", "../scans/s10"])):
            with self.subTest(pattern=pattern):
                self.assertEqual(self.planned(pattern)[0], [f"scans/{name}.npy" for name in wanted])
        here = os.path.join(self.place, "t*.npy")
        self.assertEqual(self.planned(here)[0], [os.path.join(self.place, "t2.npy")])
        # One match is a batch, too: the results of a pattern do not depend on how many it finds.
        self.assertEqual(self.planned("scans/t*.npy")[0], ["scans/t2.npy"])
        self.assertIn("--output: is of one file; 'scans/t*.npy' is a pattern, whose results go to --output-dir", self.refused("scans/t*.npy", "-o", "x.npy"))
        # Several patterns, each scan once, in the order of the patterns.
        self.assertEqual(self.planned("scans/t*.npy", "scans/s9.npy", "scans/*9.npy", "scans/s1*.npy")[0], [f"scans/{name}.npy" for name in ("t2", "s9", "s1", "s10")])
        # In a file of settings.
        path = os.path.join(self.daemon.directory, "night.toml")
        with open(path, "w") as file:
            file.write('file = ["scans/s?.npy"]\n')
        self.assertEqual(self.planned("--config", path)[0], ["scans/s1.npy", "scans/s9.npy"])
        objects = [json.loads(line) for line in self.command("--json", "recon", "scans/s?.npy", *FLAGS, "--output-dir", "json").stdout.splitlines()]
        self.assertEqual([(one["scan"], one["state"]) for one in objects], [("scans/s1.npy", "done"), ("scans/s9.npy", "done")])

    def test_a_folder_of_scans(self):
        self.scan("b10.npy", "b2.npy", ".cache.npy")
        self.write("notes.txt", "b2.txt")
        os.mkdir(os.path.join(self.place, "sub"))
        for name in ("scans", "scans/", self.place):
            with self.subTest(name=name):
                self.assertEqual(self.planned(name)[0], [os.path.join(name, one) for one in ("b2.npy", "b10.npy")])
        done = self.recon("scans/", *FLAGS)  # to the root, as with several names
        self.assertEqual([line.split()[-1] for line in done.stdout.splitlines()[1:]], [os.path.join(self.root, name) for name in ("b2.npy", "b10.npy")])
        for name in ("b2.npy", "b10.npy"):
            os.remove(os.path.join(self.root, name))
            os.remove(os.path.join(self.root, name + ".json"))
        # Each ending, in any case; whether they can be read is the server's to say.
        self.write("c.h5", "d.nxs", "e.hdf5", "f.HDF", "g.dat")
        os.mkdir(os.path.join(self.place, "h.zarr"))
        done = self.command("--json", "recon", "scans", *FLAGS, check=False)
        self.assertEqual([json.loads(line)["scan"] for line in done.stdout.splitlines()],
                         [f"scans/{name}" for name in ("b2.npy", "b10.npy", "c.h5", "d.nxs", "e.hdf5", "f.HDF", "h.zarr")])
        self.assertEqual(done.returncode, 1)
        self.assertIn("--png: is of one file; 'scans' is a folder of scans", self.refused("scans", "--png", "x.png"))
        for name in ("b2.npy", "b10.npy"):
            os.remove(os.path.join(self.root, name))
            os.remove(os.path.join(self.root, name + ".json"))

    def test_a_folder_of_tiff_is_one_scan(self):
        self.stack("night1")
        self.write("night1/log.txt")
        self.assertNotIn("scans/night1\n", self.recon("scans/night1", *FLAGS[:-2], "--plan").stdout)  # no batch: no names
        self.recon("scans/night1", *FLAGS[:-2], "-o", "stack.npy")
        self.assertEqual(np.load(os.path.join(self.root, "stack.npy")).shape, (2, SIZE, SIZE))
        # Several of them by a pattern, and files of pages only where the pattern says so.
        self.stack("night10")
        self.stack("night9")
        os.mkdir(os.path.join(self.place, "night2"))
        made, error = self.planned("scans/night*")
        self.assertEqual(made, ["scans/night1", "scans/night9", "scans/night10"])
        self.assertIn("octavo: 'scans/night*': left out: scans/night2 (a folder without TIFF files)\n", error)
        self.assertIn("matches no scan, only scans/night1/log.txt (no scan by its name), scans/night1/p0.tif, scans/night1/p1.tif, scans/night1/p2.tif, scans/night1/p3.tif "
                      f"and {COUNT - 4} more (of TIFF, perhaps a part of a scan", self.refused("scans/night1/*"))
        done = self.recon("scans/night1/p1?.tif", *FLAGS, "--output-dir", "results", code=1)
        self.assertEqual(len(done.stdout.splitlines()), 11)
        # Both kinds in one folder are nobody's guess; files that flags name are no scans.
        self.scan("night9/a.npy", "night9/b.npy")
        error = self.refused("scans/night9")
        for words in (f"'scans/night9' is a folder with {COUNT} TIFF files (p0.tif, p1.tif, p2.tif, p3.tif and {COUNT - 4} more) and 2 other scans (a.npy, b.npy); allowed is",
                      "such as 'scans/night9/*.h5'"):
            self.assertIn(words, error)
        os.remove(os.path.join(self.place, "night9", "b.npy"))
        np.save(os.path.join(self.place, "night9", "a.npy"), np.linspace(0, 172.5, COUNT))
        self.assertIn("24 projections", self.recon("scans/night9", "--angles-file", "scans/night9/a.npy", *FLAGS[2:-2], "--plan").stdout)

    def test_what_is_left_out(self):
        self.scan("a.npy", "b.npy", "c_rec.npy", "flat.npy")
        self.recon("scans/a.npy", *FLAGS, "-o", "scans/a_slices.npy")  # beside its scan
        self.recon("scans/a.npy", *FLAGS[:-2], "-o", "scans/a_slices.zarr")
        self.recon("scans/a.npy", *FLAGS[:-2], "-o", "scans/a_slices04.zarr", "--ngff", "0.4")
        self.recon("scans/a.npy", *FLAGS[:-2], "-o", "scans/a_slices.h5")
        self.recon("scans/a.npy", *FLAGS[:-2], "-o", "scans/a_tiff", "--format", "tiff", "--tiff-stack")
        self.recon("scans/b.npy", *FLAGS[:3], "--prepare-only", "-o", "scans/b_lines.npy")
        self.recon("scans/b.npy", *FLAGS[:3], "--prepare-only", "--no-log", "-o", "scans/b_light.h5")
        lines, light = "sinograms that Octavo prepared, which need --sinograms", "transmissions of Octavo, which need --transmissions"
        for name in ("scans", "scans/*", "scans/*.*"):
            with self.subTest(name=name):
                made, error = self.planned(name)
                self.assertEqual(made, ["scans/a.npy", "scans/b.npy", "scans/b_light.h5", "scans/flat.npy"])
                for word in ("a_slices.h5", "a_slices.npy", "a_slices.zarr", "(a result of Octavo)", "c_rec.npy (by its name a result)", f"b_lines.npy ({lines})"):
                    self.assertIn(word, error)
        made, error = self.planned("scans/*", flags=("--angles", "0:172.5:24", "--sinograms", "--center", "7.5"))
        self.assertEqual(made, [f"scans/{name}.npy" for name in ("a", "b", "b_lines", "flat")])
        self.assertIn(f"b_light.h5 ({light})", error)
        made, _ = self.planned("scans/*.npy", "--flats", "scans/flat.npy", flags=("--angles", "0:172.5:24", "--no-log", "--center", "7.5"))
        self.assertEqual(made, ["scans/a.npy", "scans/b.npy"])
        # What is named is taken, by its name or by a pattern that says so.
        self.assertEqual(self.planned("scans/*_rec.npy")[0], ["scans/c_rec.npy"])
        self.assertIn("24 projections", self.recon("scans/c_rec.npy", *FLAGS[:-2], "--plan").stdout)
        # A file of another program of the same ending beside it is no reason.
        with open(os.path.join(self.place, "a.npy.json"), "w") as file:
            json.dump({"software": "another 1.0"}, file)
        self.assertEqual(self.planned("scans/a.npy", "scans/a.n*")[0], ["scans/a.npy"])
        # Nothing but these.
        for name in ("a.npy", "b.npy", "flat.npy", "b_light.h5"):
            os.remove(os.path.join(self.place, name))
        self.assertIn("'scans/a*' is a pattern that matches no scan, only scans/a_slices.h5, scans/a_slices.npy, scans/a_slices.zarr, scans/a_slices04.zarr and 1 more "
                      "(a result of Octavo), scans/a.npy.json (no scan by its name)", self.refused("scans/a*"))
        self.assertRegex(self.refused("scans"), r"'scans' is a folder without a scan: it holds .*\(a result of Octavo\), .*c_rec.npy \(by its name a result\).* 1 folder \(a_tiff\); allowed are scans")

    def test_names_that_look_like_patterns(self):
        self.scan("s[1].npy", "s1.npy", "what?.npy", "a*b.npy", "axb.npy")
        for name in ("s[1].npy", "what?.npy", "a*b.npy"):
            out = self.recon(f"scans/{name}", *FLAGS[:-2], "--plan").stdout
            self.assertIn("24 projections", out)
            self.assertNotIn(name, out)  # one scan, no batch
        self.assertEqual(self.planned("scans/s\\[*.npy")[0], ["scans/s[1].npy"])
        self.assertEqual(self.planned("scans/a*.npy")[0], ["scans/a*b.npy", "scans/axb.npy"])

    def test_what_is_refused(self):
        self.scan("s1.npy")
        os.mkdir(os.path.join(self.place, "empty"))
        for names, words in ((("scans/x*.npy",), f"'scans/x*.npy' is a pattern that matches no scan below the server's replay roots {self.root}"),
                             (("scans/*.npy", "scans/y[12]"), "'scans/y[12]' is a pattern that matches no scan below"),
                             (("scans/**/s1.npy",), "'scans/**/s1.npy' has the part **; allowed are * ? [...], each within one folder"),
                             (("scans/empty",), "'scans/empty' is a folder without a scan: it holds nothing; allowed are scans (*.h5, "),
                             (("/nowhere/*.h5",), "'/nowhere/*.h5' is a pattern that matches no scan on this computer. The server at 127.0.0.1:"),
                             (("scans/*.npy", "--follow", "-o", "x.npy"), "--follow: is of one scan; 'scans/*.npy' is a pattern")):
            with self.subTest(names=names):
                self.assertIn(words, self.recon(*names, code=2).stderr if "--follow" in names else self.refused(*names))
        self.write("empty/readme.md")
        os.mkdir(os.path.join(self.place, "empty", "more"))
        self.assertIn("it holds 1 other file (readme.md), 1 folder (more); allowed", self.refused("scans/empty"))
        # Names that no server answers for.
        lost = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--address", "127.0.0.1:1", "recon", "scans/*.npy", *FLAGS], capture_output=True, text=True, timeout=60)
        self.assertEqual(lost.returncode, 3, lost.stderr)
        self.assertIn("is octavod running", lost.stderr)
        # Two scans of one name would be one result, as with names.
        self.scan("deep/s1.npy")
        self.assertIn("'scans/s1.npy' and 'scans/deep/s1.npy' would both be written to", self.refused("scans/s*.npy", "scans/*/s1.npy"))


class RootsElsewhere(unittest.TestCase):
    """Of a server whose roots this computer does not see."""

    def test_patterns_are_looked_up_here(self):
        with tempfile.TemporaryDirectory() as gone:
            near, far = os.path.join(gone, "near"), os.path.join(gone, "far")
            os.mkdir(near)
            os.mkdir(far)
            daemon = Daemon(replay_roots=[near, far])
            try:
                os.rename(far, far + "-away")
                for name in ("a1.npy", "a2.npy"):
                    np.save(os.path.join(near, name), np.full((COUNT, 1, SIZE), 0.7, np.float32))

                def recon(*names):
                    return subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--address", daemon.address, "recon", *names, *FLAGS[:-2], "--plan"], capture_output=True, text=True,
                                          timeout=60)
                done = recon("a?.npy")
                self.assertEqual([line for line in done.stdout.splitlines() if line.endswith(".npy")], ["a1.npy", "a2.npy"])
                told = f"the server at {daemon.address} lists no files, so patterns are looked up on this computer, and its replay roots {far} are not folders here"
                self.assertIn(f"octavo: 'a?.npy': {told}\n", done.stderr)
                done = recon("b*.npy")
                self.assertEqual(done.returncode, 2)
                self.assertIn(f"'b*.npy' is a pattern that matches no scan: {told}; allowed are the names of scans, one by one", done.stderr)
                os.rename(near, near + "-away")
                # A name with brackets goes to the server as it is, which says that it has none.
                done = recon("b[1].npy")
                self.assertEqual(done.returncode, 1)
                self.assertIn("tomography.file.path: 'b[1].npy' lies outside the replay roots", done.stderr)
                done = recon("folder")
                self.assertIn("tomography.file.path: 'folder' lies outside the replay roots", done.stderr)
            finally:
                daemon.stop()
                daemon.remove()


if __name__ == "__main__":
    unittest.main()
