"""octavo recon as a beamline uses it: several scans with one command, settings in a file, an axis
that is found."""

import json
import os
import shutil
import signal
import subprocess
import unittest
import warnings

import h5py
import numpy as np

from harness import BUILD, Daemon, DaemonTest, octavo, until
from pictures import decode_png

HERE = os.path.dirname(os.path.abspath(__file__))
SIZE, ROWS, ANGLES = 64, 3, np.linspace(0, np.pi, 60, endpoint=False)
FLAT, DARK = 20000, 100


def counts(axis):
    """Projections [angle, row, column] of two discs, as a camera would count them, with this axis."""
    s, theta = np.arange(SIZE) - axis, ANGLES[:, None]
    lines = np.zeros((len(ANGLES), ROWS, SIZE))
    for row in range(ROWS):
        for x, y, radius in ((0, 0, 20), (6 + row, -9, 6)):
            d = s[None, :] - (x * np.cos(theta) - y * np.sin(theta))
            lines[:, row] += 0.02 * 2 * np.sqrt(np.maximum(radius ** 2 - d ** 2, 0))
    noise = np.random.default_rng(7).normal(0, 20, lines.shape)
    return np.round(DARK + (FLAT - DARK) * np.exp(-lines) + noise).astype(np.uint16)


class ReconCommand(DaemonTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = cls.daemon.root
        os.mkdir(os.path.join(cls.root, "results"))
        cls.axes = {"a": 29.4, "b": 31.5, "c": 34.75}
        for name, axis in cls.axes.items():
            with h5py.File(os.path.join(cls.root, f"{name}.h5"), "w") as file:
                file["exchange/data"] = counts(axis)
                file["exchange/data_white"] = np.full((2, ROWS, SIZE), FLAT, np.uint16)
                file["exchange/data_dark"] = np.full((2, ROWS, SIZE), DARK, np.uint16)
                file["exchange/theta"] = np.rad2deg(ANGLES)
        with h5py.File(os.path.join(cls.root, "own.nxs"), "w") as file:
            entry = file.create_group("entry/tomo_entry")
            entry["definition"] = "NXtomo"
            detector = entry.create_group("instrument/detector")
            flat, dark = np.full((1, ROWS, SIZE), FLAT, np.uint16), np.full((1, ROWS, SIZE), DARK, np.uint16)
            detector["data"] = np.concatenate([counts(29.4), flat, dark])
            detector["image_key"] = np.array([0] * len(ANGLES) + [1, 2], np.int32)
            detector["x_rotation_axis_pixel_position"] = 29.25
            entry["sample/rotation_angle"] = np.concatenate([np.rad2deg(ANGLES), [180, 180]])
            entry["sample/rotation_angle"].attrs["units"] = "degree"

    def recon(self, *arguments, code=0):
        done = self.command("recon", *arguments, check=False)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done

    def scans(self, *arguments, code=0):
        """The objects that --json prints, one a scan."""
        done = self.command("--json", "recon", *arguments, check=False)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    def here(self, name, text=None):
        path = os.path.join(self.daemon.directory, name)
        if os.path.exists(path):
            os.remove(path)
        if text is not None:
            with open(path, "w") as file:
                file.write(text)
        return path

    def remove_results(self, name):
        """With the metadata beside it."""
        for file in os.listdir(os.path.join(self.root, "results")):
            if file.startswith(name):
                os.remove(os.path.join(self.root, "results", file))

    def plan(self, *arguments):
        return self.recon(*arguments, "--plan").stdout

    def test_a_night_of_scans(self):
        done = self.recon("a.h5", "b.h5", "c.h5", "--output-dir", "results", "--format", "npy")
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 4, done.stdout)
        self.assertRegex(lines[0], r"^scan +slices x size +axis +seconds +warnings +where$")
        for (name, axis), line in zip(self.axes.items(), lines[1:]):
            self.assertRegex(line, rf"^{name}\.h5 +{ROWS} x {SIZE} x {SIZE} +(\d+\.\d+) \(pairs, \+- [0-9.e-]+ columns\) +\d+\.\d +0 +\S+/results/{name}\.npy$")
            self.assertAlmostEqual(float(line.split()[6]), axis, delta=0.3)
            made = np.load(os.path.join(self.root, "results", f"{name}.npy"))
            job = self.client.wait_job(self.client.submit_job(octavo.tomography(f"{name}.h5", center="auto")).name)
            np.testing.assert_array_equal(made, self.client.read(job.volumes()[0]))
        # What exists is refused, and the rest is made; or it is left out.
        self.remove_results("b.npy")
        made, error = self.scans("a.h5", "b.h5", "c.h5", "--output-dir", "results", "--format", "npy", code=1)
        self.assertEqual([scan["state"] for scan in made], ["failed", "done", "failed"])
        self.assertIn("[DESTINATION_EXISTS]", error)
        self.assertIn("--skip-existing leaves this scan out", error)
        self.remove_results("b.npy")
        made, _ = self.scans("a.h5", "b.h5", "c.h5", "--output-dir", "results", "--format", "npy", "--skip-existing")
        self.assertEqual([(scan["scan"], scan["state"]) for scan in made], [("a.h5", "exists"), ("b.h5", "done"), ("c.h5", "exists")])
        self.assertEqual((made[1]["slices"], made[1]["size"], made[1]["axis_method"], made[1]["warnings"]), (ROWS, [SIZE, SIZE], "pairs", []))
        self.assertLess(made[1]["axis_uncertainty"], 0.4)
        self.assertEqual(made[1]["path"], os.path.join(self.root, "results", "b.npy"))
        self.assertIn("exists", self.recon("a.h5", "--output-dir", "results", "--format", "npy", "--skip-existing").stdout)

    def test_only_the_results_of_the_scan_are_skipped(self):
        os.makedirs(os.path.join(self.root, "night2"), exist_ok=True)
        shutil.copy(os.path.join(self.root, "b.h5"), os.path.join(self.root, "night2", "a.h5"))
        for kind in (("--format", "npy"), (), ("--ngff", "0.4"), ("--tiff-stack",), ("--format", "hdf5")):
            with self.subTest(kind=kind):
                place = "other-" + "".join(kind).replace("-", "")
                os.mkdir(os.path.join(self.root, place))
                flags = ("--output-dir", place, "--rows", "0:1", "--center", "29.4", *kind)
                made, _ = self.scans("a.h5", *flags)
                self.assertEqual(made[0]["state"], "done")
                for same in ("a.h5", os.path.join(self.root, "night2", "..", "a.h5")):
                    self.assertEqual(self.scans(same, *flags, "--skip-existing")[0][0]["state"], "exists")
                for scan in ("night2/a.h5", os.path.join(self.root, "night2", "a.h5")):
                    made, error = self.scans(scan, *flags, "--skip-existing", code=1)
                    self.assertEqual(made[0]["state"], "failed")
                    self.assertIn(f"exists and is not skipped, because it is another result: it was made of 'a.h5', and this scan is '{scan}'; it is left", made[0]["problem"])
                    self.assertIn(made[0]["problem"], error)
                made, _ = self.scans("a.h5", *flags[:4], *kind, "--prepare-only", "--skip-existing", code=1)
                self.assertIn("it holds slices, and prepared sinograms are wanted", made[0]["problem"])
        # Half turns, and sinograms where slices are wanted.
        np.save(os.path.join(self.root, "full.npy"), np.ones((72, 1, 8), np.float32))
        os.mkdir(os.path.join(self.root, "halves"))
        flags = ("full.npy", "--angles", "0:355:72", "--transmissions", "--center", "middle", "--output-dir", "halves", "--format", "npy")
        self.scans(*flags, "--half-turn", "first")
        self.assertEqual(self.scans(*flags, "--half-turn", "first", "--skip-existing")[0][0]["state"], "exists")
        for half, words in ((("--half-turn", "second"), "its half_turn is FIRST, and SECOND is wanted"), ((), "its half_turn is FIRST, and ALL is wanted")):
            self.assertIn(words, self.scans(*flags, *half, "--skip-existing", code=1)[0][0]["problem"])

    def test_only_whole_results_are_skipped(self):
        flags = ("a.h5", "b.h5", "--output-dir", "whole", "--rows", "0:2")
        kinds = {("--format", "npy"): ".npy", ("--format", "zarr"): ".zarr", ("--format", "tiff", "--tiff-stack"): "", ("--format", "hdf5"): ".h5"}
        for kind, ending in kinds.items():
            self.scans(*flags, *kind)
            made, _ = self.scans(*flags, *kind, "--skip-existing")
            self.assertEqual([scan["state"] for scan in made], ["exists", "exists"], kind)
        place = os.path.join(self.root, "whole")

        def refused(name, kind, *words):
            """The scan a is not skipped and not replaced, and b is."""
            there = self.tree(os.path.join(place, name))
            made, error = self.scans(*flags, *kind, "--skip-existing", code=1)
            self.assertEqual([scan["state"] for scan in made], ["failed", "exists"])
            for word in ("exists and is not skipped, because it is not known to be whole: ", *words, "remove it, or give another --output-dir"):
                self.assertIn(word, made[0]["problem"])
                self.assertIn(word, error)
            self.assertEqual(self.tree(os.path.join(place, name)), there)

        def largest(name):
            files = [os.path.join(at, file) for at, _, files in os.walk(os.path.join(place, name)) for file in files if file != ".octavo-manifest.json"]
            return max(files, key=os.path.getsize)

        for kind, ending in kinds.items():
            path = os.path.join(place, "a" + ending)
            with self.subTest(kind=kind, what="cut short"):
                victim = path if os.path.isfile(path) else largest("a" + ending)
                size = os.path.getsize(victim)
                os.truncate(victim, size - 1)
                refused("a" + ending, kind, f"{victim} has {size - 1} bytes; written were {size}")
            with self.subTest(kind=kind, what="removed in part"):
                os.remove(victim)
                if os.path.isdir(path):
                    refused("a" + ending, kind, f"{victim} is missing")
                    os.remove(os.path.join(path, ".octavo-manifest.json"))
                    refused("a" + ending, kind, "a" + ending + " has no .octavo-manifest.json")
                    shutil.rmtree(path)
                    os.mkdir(path)
                    refused("a" + ending, kind, "is an empty folder")
                    os.rmdir(path)
                    open(path, "w").close()
                    refused("a" + ending, kind, "is a file; a result in this format is a folder")
                else:
                    refused("a" + ending, kind, f"{path} is missing")  # its metadata are there
                    os.remove(path + ".json")
                    open(path, "w").close()
                    refused("a" + ending, kind, f"{path} has no a{ending}.json beside it")
                    with open(path + ".json", "w") as side:
                        side.write("{}")
                    refused("a" + ending, kind, f"{path}.json does not say how many bytes a{ending} has")

    def tree(self, path):
        return sorted((at, tuple(sorted(files))) for at, _, files in os.walk(path)) or os.path.exists(path) and os.path.getsize(path)

    def test_one_that_fails_stops_no_other(self):
        names = ("none.h5", "a.h5", "b.h5")
        made, error = self.scans(*names, "--samples", "u8", code=1)
        self.assertEqual([scan["state"] for scan in made], ["failed", "done", "done"])
        self.assertIn("octavo: none.h5:\noctavo: tomography.file.path: no file 'none.h5' under", error)
        self.assertIn("no file 'none.h5'", made[0]["problem"])
        self.assertEqual([os.path.basename(scan.get("path", "")) for scan in made], ["", "a.zarr", "b.zarr"])  # in the root
        made, _ = self.scans(*names, "--output-dir", "results", "--format", "hdf5", "--stop-on-error", "--jobs-at-a-time", "1", code=1)
        self.assertEqual([scan["state"] for scan in made], ["failed", "not begun", "not begun"])
        self.assertFalse(os.path.exists(os.path.join(self.root, "results", "a.h5")))
        made, error = self.scans("a.h5", "b.h5", "--output-dir", "a.h5", code=1)
        self.assertEqual([scan["state"] for scan in made], ["failed", "failed"])
        self.assertIn("which is a file; allowed are folders", error)
        self.assertEqual(self.recon("a.h5", "--output-dir", "stacks", "--tiff-stack").stdout.split()[-1], os.path.join(self.root, "stacks", "a"))
        self.assertEqual(len([name for name in os.listdir(os.path.join(self.root, "stacks", "a")) if name.endswith(".tif")]), ROWS)

    def test_the_axis_is_the_files_or_found(self):
        for name, flags, source, wanted in (("own.nxs", (), "file", 29.25), ("own.nxs", ("--center", "auto"), "pairs", 29.4), ("a.h5", (), "pairs", 29.4),
                                            ("a.h5", ("--center", "middle"), "middle", 31.5), ("own.nxs", ("--center", "middle"), "file", 29.25),
                                            ("a.h5", ("--center", "30"), "given", 30), ("a.h5", ("--tomopy", "--algorithm", "sirt", "--iterations", "2"), "middle", 31.5),
                                            ("own.nxs", ("--center-doubt", "fail", "--center-row", "1"), "file", 29.25),
                                            ("a.h5", ("--center-doubt", "fail", "--center-row", "0"), "pairs", 29.4)):
            with self.subTest(name, flags=flags):
                out = self.recon(name, *flags, "--png", self.here("slice.png")).stdout
                self.assertRegex(out, rf"axis at column [0-9.]+ \({source}[,)]")
                self.assertAlmostEqual(float(out.split("axis at column ")[1].split()[0].rstrip(",")), wanted, delta=0.3)
                self.assertEqual("columns)" in out, source == "pairs", out)  # the uncertainty
        # Ends of the search and its doubts do not matter where the file says the axis.
        self.assertIn("axis: is found (opposite projections)", self.plan("a.h5"))
        self.assertIn("axis: 29.25, as the file says", self.plan("own.nxs"))
        self.assertIn("warning: ", self.recon("own.nxs", "--center", "39", "--png", self.here("slice.png")).stdout)

    def test_settings_in_a_file(self):
        settings = self.here("night.toml", 'algorithm = "sirt"\niterations = 7\nrings = ["sorting", "large"]\nmin = 0\ncenter = 30.5\n'
                                           'outliers = [3, 500]\nmedian = true\nflats-in-time = false\nlabel = ["beam=2-BM"]\n')
        flags = ("--algorithm", "sirt", "--iterations", "7", "--rings", "sorting", "large", "--min", "0", "--center", "30.5", "--outliers", "3,500", "--median",
                 "--label", "beam=2-BM")
        self.assertEqual(self.plan("a.h5", "--config", settings), self.plan("a.h5", *flags))
        self.assertEqual(self.plan("--config", settings, "a.h5", "--iterations", "9"), self.plan("a.h5", *flags[:3], "9", *flags[4:]))
        # Written, and read again.
        written = self.here("written.toml")
        self.recon(*flags, "--write-config", written)
        with open(written) as file:
            text = file.read()
        for line in ('algorithm = "sirt"', "iterations = 7", 'rings = ["sorting", "large"]', "outliers = [3, 500]", "median = true", "# bin = <whole number>",
                     '# file = ["...", ...]', "# sirt, mlem: default 100; cgls: 20; tv: 200", "# flats-in-time = true"):
            self.assertIn(line + "\n", text.replace("'", '"'))
        self.assertNotIn("write-config = ", text)
        self.assertEqual(self.plan("a.h5", "--config", written), self.plan("a.h5", *flags))
        done = self.recon("--write-config", written, code=2)
        self.assertIn("which exists; allowed is a new file", done.stderr)
        self.recon("a.h5", "b.h5", "--config", written, "--bin", "2", "--title", 'quotes " and \\ ', "--output-dir", "both", "--write-config", self.here("both.toml"))
        self.assertIn("binning: 1 projections x 2 rows x 2 columns", self.plan("--config", os.path.join(self.daemon.directory, "both.toml")))
        # Flags of the command line win over those that exclude them.
        done = self.recon("a.h5", "--config", settings, "--try-centers", "28:31:1", "--rows", "1", "--png", self.here("tries.png"))
        self.assertIn("center is left out, because --try-centers is given", done.stderr)
        self.assertIn("axes from column 28 to 31 tried", done.stdout)
        night = self.here("dir.toml", 'output-dir = "results"\nformat = "nrrd"\nskip-existing = true\njobs-at-a-time = 1\n')
        self.assertIn("results/a.nrrd", self.recon("a.h5", "--config", night).stdout)
        self.assertIn("output-dir is left out, because --png is given", self.recon("a.h5", "--config", night, "--png", self.here("x.png")).stderr)

    def test_settings_that_a_flag_replaces_are_left_out(self):
        settings = self.here("sirt.toml", 'algorithm = "sirt"\niterations = 7\nsubsets = 2\nmin = 0\ncenter = "auto"\ncenter-row = 1\ncenter-doubt = "fail"\n'
                                          'samples = "u8"\nwindow = "0:0.02"\n')
        shared = ("--min", "0", "--samples", "u8", "--window", "0:0.02")
        search = ("--center", "auto", "--center-row", "1", "--center-doubt", "fail")
        for flags, same, lines in ((("--algorithm", "fbp"), (*shared[2:], *search), ("left out, because --algorithm fbp is given: iterations = 7, min = 0, subsets = 2",)),
                                   (("--algorithm", "mlem"), (*shared, *search, "--iterations", "7", "--subsets", "2"), ()),
                                   (("--center", "30"), (*shared, "--algorithm", "sirt", "--iterations", "7", "--subsets", "2"),
                                    ("left out, because --center 30 is given: center-doubt = fail, center-row = 1",)),
                                   (("--samples", "f16"), (*search, "--min", "0", "--algorithm", "sirt", "--iterations", "7", "--subsets", "2"),
                                    ("left out, because --samples f16 is given: window = 0:0.02",)),
                                   (("--tomopy",), (*shared[2:], "--algorithm", "sirt", "--iterations", "7"),
                                    ("left out, because --tomopy is given: center = auto, center-doubt = fail, center-row = 1, min = 0, subsets = 2",)),
                                   (("--prepare-only",), (*shared[2:], *search),
                                    ("left out, because --prepare-only is given: algorithm = sirt, iterations = 7, min = 0, subsets = 2",)),
                                   (("--algorithm", "fbp", "--samples", "f32", "--center", "middle"), (),
                                    ("because --algorithm fbp is", "because --center middle is", "because --samples f32 is"))):
            with self.subTest(flags=flags):
                done = self.recon("a.h5", "--config", settings, *flags, "--plan")
                self.assertEqual(done.stdout, self.plan("a.h5", *flags, *same))
                told = [line for line in done.stderr.splitlines() if line.startswith("octavo: ")]
                self.assertEqual(len(told), max(1, len(lines)) if lines else 0, done.stderr)
                for line in lines:
                    self.assertIn(line, done.stderr)
        # Settings that need one that is left out go with it, in one note.
        others = ("--center", "30")
        for text, flags, same, line in (('dynamic-flats = true\nflat-components = 2\n', ("--median",), (), ", line 1: dynamic-flats is left out, because --median is given; with it: flat-components = 2"),
                                        ('most-row-drift = 3\nrow-drift = true\ndynamic-flats = true\nflat-components = 2', ("--flats-in-time",), (),
                                         ", line 3: dynamic-flats is left out, because --flats-in-time is given; with it: flat-components = 2"),
                                        ('follow = true\nfollow-count = 9\nfollow-timeout = 5\nfollow-partial = true\n', (), (),
                                         ", line 1: follow is left out, because --plan is given; with it: follow-count = 9, follow-partial = true, follow-timeout = 5"),
                                        (f'preview-row = 1\npreview-only = true\npreview = "{self.here("nowhere")}"\n', (), (),
                                         ", line 3: preview is left out, because --plan is given; with it: preview-only = true, preview-row = 1"),
                                        ('window = "0:1"\nsamples = "u8"\n', ("--samples", "f16"), (), ": left out, because --samples f16 is given: window = 0:1")):
            with self.subTest(text=text):
                path = self.here("needs.toml", text)
                done = self.recon("a.h5", *others, *flags, "--config", path, "--plan", code=1 if "row-drift" in text else 0)
                self.assertEqual([line for line in done.stderr.splitlines() if "left out" in line], [f"octavo: {path}{line}"])
                if "row-drift" not in text:
                    self.assertEqual(done.stdout, self.plan("a.h5", *others, *flags))
        # A flag by hand that needs it is a mistake, and what the file lacks is no flag's doing.
        components = self.here("needs.toml", "dynamic-flats = true\n")
        self.assertIn("requires --dynamic-flats", self.recon("a.h5", "--config", components, "--median", "--flat-components", "2", "--plan", code=2).stderr)
        self.assertIn("requires --dynamic-flats", self.recon("a.h5", "--config", self.here("needs.toml", "flat-components = 2\n"), "--median", "--plan", code=2).stderr)
        # What the command line says itself must fit, and what the file says must fit together.
        self.assertIn("--subsets", self.recon("a.h5", "--config", settings, "--algorithm", "fbp", "--subsets", "2", "--plan", code=2).stderr)
        odd = self.here("odd.toml", 'algorithm = "fbp"\niterations = 7\n')
        self.assertIn("--iterations", self.recon("a.h5", "--config", odd, "--plan", code=2).stderr)
        self.assertIn("FBP", self.plan("a.h5", "--config", odd, "--algorithm", "fbp"))
        self.assertIn("allowed auto, cgls", self.recon("a.h5", "--config", settings, "--algorithm", "gridrec", "--plan", code=2).stderr)
        # What is left out is not written.
        written = self.here("fbp.toml")
        self.recon("--config", settings, "--algorithm", "fbp", "--write-config", written)
        with open(written) as file:
            self.assertIn("# iterations = <whole number>\n", file.read())

    def test_settings_that_are_wrong(self):
        for text, words in (('algoritm = "fbp"', ("line 1: there is no setting 'algoritm'; did you mean algorithm?",)),
                            ('iterations = "many"', ("line 1: iterations is \"many\"; allowed a whole number",)),
                            ("iterations = 2.5", ("iterations is '2.5'; allowed a whole number",)),
                            ("iterations = [1, 2]", ("iterations is the list [1, 2]; allowed a whole number",)),
                            ("median = \"yes\"", ("median is \"yes\"; allowed true, false",)),
                            ("algorithm = true", ("algorithm is 'true'; allowed text in quotes",)),
                            ('\nalgorithm = "gridrecc"', ("line 2: ", "--algorithm: is 'gridrecc'; allowed auto, cgls, fbp")),
                            ('rings = ["sorting", 3]', ("'rings' is a list of several kinds",)),
                            ("[recon]\nbin = 2", ("line 1: 'recon' is a table", "a file of tomopy-cli needs a name that ends in .conf")),
                            ("this is no TOML", ("is no TOML", "a file of tomopy-cli needs a name that ends in .conf")),
                            ("bin = 2\nbin = 4", ("line 2",)),
                            ("outliers = [3]", ("outliers",)),
                            ("config = \"x\"", ("there is no setting 'config'",)),
                            ("bin = 1979-05-27", ("is a date or a time",))):
            with self.subTest(text):
                path = self.here("wrong.toml", text + "\n")
                done = self.recon("a.h5", "--config", path, code=2)
                for word in (path, *words):
                    self.assertIn(word, done.stderr)
        self.assertIn("cannot be read: No such file", self.recon("a.h5", "--config", self.here("none.toml"), code=2).stderr)
        self.assertIn("is a folder", self.recon("a.h5", "--config", self.root, code=2).stderr)

    def test_files_of_tomopy_cli(self):
        """As `tomopy init` writes it, and as somebody edits it."""
        with open(os.path.join(HERE, "tomopy_init.conf")) as file:
            initial = file.read()
        path = self.here("tomopy.conf", initial)
        done = self.recon("a.h5", "--config", path, "--plan")
        for words in ("reconstruction-algorithm = gridrec is algorithm = auto\n", "gridrec-filter = parzen is filter = parzen\n", "rotation-axis-auto = read_auto: ",
                      "flat-correction-method = standard is median = true", ": no effect here: ", " nsino-per-chunk = 256, ", "save-format = tiff is format = tiff\n", "save-format = tiff is tiff-stack = true\n",
                      ": done otherwise: save-folder = {file_name_parent}_rec: "):
            self.assertIn(words, done.stderr)
        self.assertNotIn("not supported", done.stderr)
        for line in ("axis: is found (opposite projections)", "2 flat (median)", "FBP"):
            self.assertIn(line, done.stdout)
        edited = initial
        for old, new in (("rotation-axis = -1.0", "rotation-axis = 29.9"), ("rotation-axis-auto = read_auto", "rotation-axis-auto = manual"), ("binning = 0", "binning = 1"),
                         ("reconstruction-type = try", "reconstruction-type = full"), ("remove-stripe-method = none", "remove-stripe-method = vo-all"),
                         ("file-name = .", "file-name = a.h5"), ("end-row = -1", "end-row = 2")):
            self.assertIn(old, edited)
            edited = edited.replace(old, new, 1)
        path = self.here("tomopy.conf", edited)
        done = self.recon("--config", path, "--plan")
        for line in ("axis: 30.4\n", "2 rows x 2 columns", "rows 0 to 1,", "rings: all stripe"):
            self.assertIn(line, done.stdout)
        self.assertIn("axis: 33\n", self.recon("--config", path, "--center", "33", "--plan").stdout)
        out = self.recon("--config", path, "--output-dir", "results").stdout
        self.assertRegex(out, r"a\.h5 +1 x 32 x 32 +30\.40 \(given\)")
        # Axes are tried around the given one, or, where there is no picture of them, that one counts.
        tries = self.here("tries.conf", edited.replace("reconstruction-type = full", "reconstruction-type = try").replace("binning = 1", "binning = 0"))
        self.assertIn("axes from column 19.9 to 39.4 tried", self.recon("--config", tries, "--png", self.here("tries.png")).stdout)
        done = self.recon("--config", tries, "--output-dir", "tries")
        self.assertIn("try-centers is left out, because --output-dir is given", done.stderr)
        self.assertIn(" 29.90 (given) ", done.stdout)
        path = self.here("tomopy.conf", edited.replace("remove-stripe-method = vo-all", "remove-stripe-method = ti").replace("reverse = False", "reverse = True"))
        done = self.recon("--config", path, "--plan", code=2)
        self.assertIn("remove-stripe-method is 'ti'; allowed none, fw, vo-all", done.stderr)
        self.assertIn("reverse is 'True'; allowed False", done.stderr)
        done = self.recon("--config", path, "--rings", "sorting", "--plan", code=2)  # settles the other one
        self.assertIn("not supported, the result would differ: reverse is 'True'; allowed False", done.stderr)
        self.assertIn("--accept-differences goes on without it", done.stderr)
        self.assertNotIn("'ti'", done.stderr)
        done = self.recon("--config", path, "--accept-differences", "--plan")
        for words in ("not supported, the result will differ: reverse is 'True'", "not supported, the result will differ: remove-stripe-method is 'ti'; allowed"):
            self.assertIn(words, done.stderr)
        self.assertNotIn("rings", done.stdout)
        done = self.recon("--config", path, "--rings", "sorting", "--angles", "177:0:60", "--plan")
        self.assertIn("left out, because --rings is given: remove-stripe-method = ti\n", done.stderr)
        self.assertIn("left out, because --angles is given: reverse = True\n", done.stderr)
        path = self.here("tomopy.conf", initial.replace("binning = 0", "binning = 9").replace("blocked-views = False", "blocked-views = True"))
        done = self.recon("a.h5", "--config", path, "--accept-differences", "--plan", code=2)  # no value of tomopy-cli's
        self.assertIn("binning is '9'; allowed 0, 1, 2", done.stderr)
        # A flag in place of the algorithm leaves out what belongs to that.
        path = self.here("tomopy.conf", initial)
        done = self.recon("a.h5", "--config", path, "--algorithm", "sirt", "--iterations", "5", "--plan")
        self.assertIn("left out, because --algorithm is given: reconstruction-algorithm = gridrec\n", done.stderr)
        self.assertIn("left out, because --algorithm sirt is given: gridrec-filter = parzen, gridrec-padding = True\n", done.stderr)
        self.assertNotIn("is algorithm = ", done.stderr)
        self.assertIn("SIRT", done.stdout)
        # Its names in TOML, beside Octavo's own, which win.
        path = self.here("mixed.toml", 'rotation-axis = 30.5\nbinning = 1\nbin = 1\nreconstruction-mask = false\n')
        done = self.recon("a.h5", "--config", path, "--plan")
        self.assertIn("rotation-axis = 30.5 is center = 31: the middle of the binned column", done.stderr)
        self.assertNotIn("binning", done.stdout)
        self.assertIn("line 3", self.recon("--config", self.here("odd.conf", "[general]\nverbose = True\nno equals sign\n"), code=2).stderr)
        twice = "[rec]\nrotation-axis = 33.5\nrotation-axis-auto = manual\nrotation-axis = 20\n"
        self.assertIn("line 4: 'rotation-axis' stands in line 2, too; allowed is once\n",
                      self.recon("--config", self.here("odd.conf", twice), code=2).stderr)
        elsewhere = "[file-reading]\nnsino = 0.5\n[correct]\nnsino = 9\n[general]\nnsino = 0.25\n"
        self.assertIn("line 6: 'nsino' stands in line 2, too; allowed is once\n", self.recon("--config", self.here("odd.conf", elsewhere), code=2).stderr)
        # What it does not have, or what belongs to another command.
        flag = self.recon("--config", self.here("odd.conf", "[rec]\nfilter = hann\n"), code=2).stderr
        self.assertIn("line 2: tomopy-cli has no setting 'filter'; did you mean fw-filter, gridrec-filter, lprec-fbp-filter? "
                      "(--filter is a flag: give it beside --config, or in a file in TOML)", flag)
        self.assertIn("line 1: tomopy-cli has no setting 'binnin'; did you mean binning?\n", self.recon("--config", self.here("odd.conf", "binnin = 1\n"), code=2).stderr)
        other = self.here("odd.conf", "[correct]\nold-data = x\nnone = None\n[convert]\nfile-name = y\n[rec]\nverbose = True\n")
        self.assertIn(": no effect here, of other commands of tomopy-cli: [correct] old-data, [convert] file-name\n", self.recon("a.h5", "--config", other, "--plan").stderr)
        mosaic = self.here("odd.conf", "file-type = mosaic\n")
        self.assertIn("not supported, the result would differ: file-type is 'mosaic'; allowed standard", self.recon("a.h5", "--config", mosaic, "--plan", code=2).stderr)
        self.recon("a.h5", "--config", mosaic, "--accept-differences", "--plan")
        self.assertIn("rotation-axis is 'nan'; allowed a number", self.recon("--config", self.here("odd.conf", "[rec]\nrotation-axis = nan\n"), code=2).stderr)

    def test_phase_retrieval_of_tomopy_cli(self):
        """Against the filter of tomopy.retrieve_phase, TomoPy 1.15.2, in NumPy: on its own frequencies, half a step beside, and on those of the transform."""
        def retrieved(tomo, pixel_um, distance_mm, energy, alpha, half_step):
            pixel, distance = pixel_um * 1e-4, distance_mm / 10  # as tomopy-cli calls it, in cm
            wavelength = 2 * 3.14159265359 * 6.58211928e-19 * 299792458e+2 / energy
            padded = np.pad(tomo, ((0, 0), (126, 127), (96, 96)), "edge")

            def frequencies(count):
                n = count - 1
                return np.fft.fftshift(np.arange(-n, count, 2) * 0.5 / (n * pixel)) if half_step else np.fft.fftfreq(count, pixel)
            factor = 1 / (wavelength * distance * np.add.outer(*(frequencies(count) ** 2 for count in padded.shape[1:])) / (4 * np.pi) + alpha)
            return np.fft.ifft2(np.fft.fft2(padded) * factor / factor.max()).real[:, 126:-127, 96:-96]

        with h5py.File(os.path.join(self.root, "a.h5")) as file:
            light = (file["exchange/data"][...].astype(float) - DARK) / (FLAT - DARK)
        for at, (pixel, distance, energy, alpha) in enumerate(((1.17, 60, 20, 0.001), (0.69, 250, 35, 2e-4), (3, 900, 12.5, 0.02))):
            path = self.here("phase.conf", "[retrieve-phase]\nretrieve-phase-method = paganin\n"
                             f"pixel-size = {pixel}\npropagation-distance = {distance}\nenergy = {energy}\nretrieve-phase-alpha = {alpha}\n[minus]\nminus-log = False\n")
            done = self.recon("a.h5", "--config", path, "--prepare-only", "-o", f"phase{at}.npy")
            self.assertIn(f"retrieve-phase-method = paganin is phase = [{pixel}, {distance}, {energy}, ", done.stderr)
            made = np.load(os.path.join(self.root, f"phase{at}.npy")).swapaxes(0, 1)
            wanted = retrieved(light, pixel, distance, energy, alpha, False)
            self.assertGreater(np.abs(light - wanted).max(), 0.01, "the filter does something")
            self.assertLess(np.abs(made - wanted).max(), 3e-4)
            self.assertLess(np.abs(made - retrieved(light, pixel, distance, energy, alpha, True)).max(), 0.1 * np.abs(light - wanted).max())
        binned = self.here("phase.conf", "retrieve-phase-method = paganin\nbinning = 1\nenergy = 30\n")
        self.assertIn("phase retrieval (Paganin): delta/beta 25.3303, 60 mm, 30 keV\n", self.plan("a.h5", "--config", binned))
        done = self.recon("a.h5", "--config", binned, "--phase", "1,50,20,100", "--plan")
        self.assertIn("left out, because --phase is given: retrieve-phase-method = paganin\n", done.stderr)
        done = self.recon("a.h5", "--config", self.here("phase.conf", "retrieve-phase-method = paganin\nretrieve-phase-alpha = 0\n"), "--plan", code=2)
        self.assertIn("not supported, the result would differ: retrieve-phase-alpha is '0'; allowed 2.54e-08 to 2.53, where delta / beta is 1e6 to 0.01,", done.stderr)

    def test_values_of_tomopy_cli_of_the_wrong_type(self):
        """Each one is refused, also where it has no effect, where a flag is given in its place, and whatever differences are accepted."""
        with open(os.path.join(HERE, "tomopy_init.conf")) as file:
            initial = file.read()
        for key, right, wrong, allowed in (("nsino", "0.5", "abc", "a number from 0 to 1"), ("nsino", "0.5", "1.5", "a number from 0 to 1"),
                                           ("energy", "20", "high", "a number above 0"), ("ti-nblock", "0", "1.5", "a whole number from 0"),
                                           ("verbose", "False", "0", "True, False"), ("sample-material", "Fe", "Wood", "Air, Al,"),
                                           ("sinogram-max-value", "inf", "large", "a number, inf"), ("binning", "0", "two", "0, 1, 2"),
                                           ("reconstruction-algorithm", "gridrec", "gridrecc", "art, astrasart, ")):
            path = self.here("wrong.conf", initial.replace(f"\n{key} = {right}\n", f"\n{key} = {wrong}\n"))
            for flags in ((), ("--accept-differences",), ("--algorithm", "fbp", "--center-row", "2", "--bin", "2")):
                with self.subTest(key=key, wrong=wrong, flags=flags):
                    done = self.recon("a.h5", "--config", path, "--plan", *flags, code=2)
                    self.assertIn(f"{path}: {key} is '{wrong}'; allowed {allowed}", done.stderr)
                    self.assertEqual(done.stdout, "")
        path = self.here("wrong.toml", 'nsino = "abc"\nverbose = 3\n')
        done = self.recon("a.h5", "--config", path, "--plan", code=2)
        for words in ("nsino is 'abc'; allowed a number from 0 to 1", "verbose is '3'; allowed True, False"):
            self.assertIn(words, done.stderr)

    def test_mistakes_with_several_files(self):
        os.makedirs(os.path.join(self.root, "again"), exist_ok=True)
        for flags, words in ((("a.h5", "again/a.h5"), "'a.h5' and 'again/a.h5' would both be written to 'a.zarr'"),
                             (("a.h5", "a.h5"), "would both be written"),
                             (("a.h5", "b.h5", "-o", "x.npy"), "--output: is of one file; 2 are given"),
                             (("a.h5", "b.h5", "--png", "x.png"), "--png: is of one file; 2 are given"),
                             (("a.h5", "b.h5", "--try-centers", "1:2:1"), "--try-centers: is of one file"),
                             (("a.h5", "b.h5", "--request-id", "x"), "--request-id: is of one file"),
                             (("a.h5", "-o", "x.npy", "--output-dir", "results"), "excludes"),
                             (("a.h5", "--png", "x.png", "--output-dir", "results"), "excludes"),
                             (("a.h5", "--skip-existing"), "--skip-existing: is of several files, or of --output-dir"),
                             (("a.h5", "b.h5", "--jobs-at-a-time", "0"), "--jobs-at-a-time"),
                             (("--output-dir", "results"), "file is required"),
                             ((), "file is required")):
            with self.subTest(flags=flags):
                self.assertIn(words, self.recon(*flags, code=2).stderr)
        os.mkdir(os.path.join(self.root, "empty"))
        self.assertIn("'empty' is a folder without a scan: it holds nothing", self.recon("empty", "a.h5", "--output-dir", "results", "--format", "mat", code=2).stderr)
        self.assertFalse(os.path.exists(os.path.join(self.root, "results", "a.mat")), "nothing begins before all names are clear")
        self.assertIn("lies outside", self.recon("/etc/hosts", "--output-dir", "results", code=1).stderr)
        self.assertEqual(self.recon("a.h5", "b.h5", "--plan").stdout.count("fits devices/"), 2)
        done = subprocess.run([os.path.join(BUILD, "bin", "octavo"), "--address", "127.0.0.1:1", "recon", "a.h5", "b.h5", "c.h5"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(done.stderr.count("is octavod running"), 1, done.stderr)

    def test_the_evidence_of_the_axis(self):
        def shown(*flags, code=0):
            """What the command says of the picture, and the picture."""
            path = self.here("axis.png")
            done = self.command("--json", "recon", "a.h5", *flags, "--axis-png", path, check=False)
            self.assertEqual(done.returncode, code, done.stderr)
            told = next(value for value in map(json.loads, reversed(done.stdout.splitlines())) if "axis_png" in value)
            self.assertEqual(told["axis_png"], path)
            with open(path, "rb") as file:
                return told, decode_png(file.read())

        def unlike(picture):
            """How far the third tile, the difference, is from the grey of none."""
            height, width = picture.shape[:2]
            tile = picture[height - 12 - 40:height - 12 - 8, 2 * width // 3 + 60:width - 60].astype(float)
            return np.abs(tile - 127.5).mean()

        told, right = shown("--center", "auto", "-o", "evidence.npy")
        self.assertEqual(told["opposite_projections"], [0, 59])
        self.assertLess(abs(told["opposite_least_at"]), 0.5)
        self.assertTrue(os.path.exists(os.path.join(self.root, "evidence.npy")), "the result is written as without the picture")
        # An axis that is wrong: the picture shows it, and tells where the right one is.
        told, wrong = shown("--center", "33.4", "--png", self.here("slice.png"))
        self.assertAlmostEqual(told["opposite_least_at"], 29.4 - 33.4, delta=0.5)
        self.assertGreater(told["opposite_difference"], 0.1)
        self.assertGreater(unlike(wrong), 1.5 * unlike(right))
        self.assertEqual(right.shape[1], 960)
        # Bins, and columns that are cut off: the numbers stay those of the detector.
        told, _ = shown("--center", "32.4", "--bin", "2", "--columns", "3:", "--rows", "0:2", "--png", self.here("slice.png"))
        self.assertAlmostEqual(told["opposite_least_at"], 29.4 - 32.4, delta=0.6)
        # Several groups of rows, in one picture above the projections.
        spec = json.dumps({"tomography": {"center": {"search_method": "METHOD_PAIRS", "along_rows": "ALONG_ROWS_LINE"}}})
        _, line = shown("--json-spec", spec, "--png", self.here("slice.png"))
        self.assertGreater(line.shape[0], right.shape[0] + 200)
        self.assertEqual(self.client.volumes(states=["held"]), [])
        done = self.recon("a.h5", "--center", "auto", "--png", self.here("slice.png"), "--axis-png", self.here("axis.png"))
        self.assertIn(f"{self.here('axis.png')}  evidence of the axis: projections 0 and 59, 177.00 degrees apart, differ by 0.", done.stdout)
        # Of a job that an axis in doubt ended, too: that is when people need it.
        np.save(os.path.join(self.root, "noise.npy"), np.random.default_rng(5).normal(0, 1, (60, 2, 64)).astype(np.float32))
        done = self.command("recon", "noise.npy", "--angles", "0:177:60", "--sinograms", "--center", "auto", "--center-doubt", "fail", "-o", "noise_slices.npy",
                            "--axis-png", self.here("axis.png"), check=False)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("The axis", done.stdout)
        self.assertIn("axis.png  evidence of the axis: projections 0 and 59, 177.00 degrees apart", done.stdout)
        self.assertFalse(os.path.exists(os.path.join(self.root, "noise_slices.npy")))
        # Too few angles for a pair, and none of the search.
        done = self.recon("a.h5", "--projections", "0:30", "--center", "29", "--png", self.here("slice.png"), "--axis-png", self.here("axis.png"), code=1)
        self.assertIn("there is no evidence of the axis", done.stderr)
        # An axis far off: the least lies at the end of what was compared, or the two hardly overlap.
        for center, end, about, words in ((36.4, False, True, "differ by 0."), (46.4, True, True, "least at the end of what was compared, -12.00 columns from it: the axis may lie farther off"),
                                          (60.4, False, False, "apart, hardly overlap about it, and least about -")):
            with self.subTest(center=center):
                told, _ = shown("--center", str(center), "--png", self.here("slice.png"))
                self.assertEqual(told["opposite_least_at_end"], end)
                self.assertEqual(told["opposite_difference"] is not None, about)
                out = self.recon("a.h5", "--center", str(center), "--png", self.here("slice.png"), "--axis-png", self.here("axis.png")).stdout
                self.assertIn(words, out)
                self.assertNotIn("nan", out)
        np.save(os.path.join(self.root, "wide.npy"), np.random.default_rng(5).normal(1, 0.1, (60, 2, 240)).astype(np.float32))
        wide = ("recon", "wide.npy", "--angles", "0:177:60", "--sinograms", "--center", "0", "--png", self.here("slice.png"), "--axis-png", self.here("axis.png"))
        told = json.loads(self.command("--json", *wide).stdout.splitlines()[-1])
        self.assertEqual([told["opposite_difference"], told["opposite_least_at"], told["opposite_least_at_end"]], [None, None, False])
        self.assertIn("177.00 degrees apart, hardly overlap about it, nor up to 12 columns from it\n", self.command(*wide).stdout)
        for same in (self.here("axis.png"), os.path.join(self.daemon.directory, ".", "axis.png"), os.path.relpath(self.here("axis.png"))):
            self.assertIn("the same file as --png", self.recon("a.h5", "--axis-png", self.here("axis.png"), "--png", same, code=2).stderr)
        here = self.here("axis.png", "")
        os.symlink(here, self.here("link.png"))
        os.link(here, self.here("hard.png"))
        for name in ("link.png", "hard.png"):
            self.assertIn("the same file as --png", self.recon("a.h5", "--axis-png", here, "--png", os.path.join(self.daemon.directory, name), code=2).stderr)
        for flag in ("--png", "--axis-png"):
            self.assertIn(f"{flag}: is empty; allowed is the name of a file", self.recon("a.h5", flag, "", code=2).stderr)
        self.assertRegex(self.recon("a.h5", "--follow", "--axis-png", self.here("axis.png"), "-o", "followed.npy", code=2).stderr, "--(follow|axis-png) excludes --(follow|axis-png)")
        for flags, words in ((("--series", "30"), "excludes"), (("--try-centers", "28:30:1"), "excludes"), (("b.h5",), "--axis-png: is of one file"),
                             (("--prepare-only",), "--axis-png: is of an axis; --prepare-only needs none"), (("--no-wait", "-o", "x.npy"), "excludes")):
            with self.subTest(flags=flags):
                self.assertIn(words, self.recon("a.h5", *flags, "--axis-png", self.here("axis.png"), code=2).stderr)
        self.assertIn("which cannot be written here", self.recon("a.h5", "--axis-png", "/nowhere/axis.png", code=2).stderr)

    def test_a_series_of_volumes(self):
        alone = {}
        for i in range(3):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", octavo.OctavoWarning)  # half of the angles
                job = self.client.wait_job(self.client.submit_job(octavo.tomography("a.h5", center=29.4, projections=(15 * i, 15 * i + 30))))
            alone[i] = self.client.read(job.volume_names[0])
            self.client.discard(job.volume_names[0])
        flags = ("a.h5", "--center", "29.4", "--series", "30:15")
        for name, paths in (("time/part.npy", [f"time/part_{i:04}.npy" for i in range(3)]), ("time/{index:02}/x.npy", [f"time/{i:02}/x.npy" for i in range(3)])):
            done = self.recon(*flags, "-o", name)
            self.assertEqual(sorted(done.stdout.splitlines()[-3:]), [os.path.join(self.root, path) for path in paths])
            for i, path in enumerate(paths):
                np.testing.assert_array_equal(np.load(os.path.join(self.root, path)), alone[i])
        # A destination that is taken: that one stays held.
        for file in os.listdir(os.path.join(self.root, "time")):  # with the metadata beside it
            if file.startswith(("part_0000", "part_0002")):
                os.remove(os.path.join(self.root, "time", file))
        done = self.recon(*flags, "-o", "time/part.npy", code=1)
        self.assertIn("1 of 3 volumes were not written", done.stderr)
        self.assertIn("time/part_0001.npy", done.stdout + done.stderr)
        self.assertEqual([volume.index for volume in self.client.volumes(states=["held"])], [1])
        self.client.discard(self.client.volumes(states=["held"])[0].name)
        # Without an output they are held; without a step they follow each other. OME-Zarr has two endings.
        done = self.recon("a.h5", "--center", "29.4", "--series", "30")
        held = self.client.volumes(states=["held"])
        self.assertEqual([volume.labels["series.first_projection"] for volume in held], ["0", "30"])
        for volume in held:
            self.assertIn(volume.name, done.stdout)
            self.client.discard(volume.name)
        self.recon("a.h5", "--center", "29.4", "--series", "60", "-o", "time/whole.ome.zarr")
        self.assertTrue(os.path.isdir(os.path.join(self.root, "time", "whole_0000.ome.zarr")))
        self.assertIn("series: 3 volumes of 30 projections each, a new one every 15", self.recon(*flags, "--plan", "-o", "time/plan.npy").stdout)
        job = json.loads(self.command("--json", "recon", *flags, "-o", "time/later.npy", "--no-wait").stdout)["name"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", octavo.OctavoWarning)
            self.assertEqual(len(self.client.wait_commit(job).commits), 3)
        ended = json.loads(self.command("--json", "recon", *flags, "-o", "time/json.npy").stdout.splitlines()[-1])
        self.assertEqual((len(ended["commits"]), ended["tomography"]["series_volumes"]), (3, 3))
        self.assertEqual(self.client.volumes(states=["held"]), [])
        for value, more, words in (("0", (), "--series: is '0'; allowed PROJECTIONS or PROJECTIONS:STEP, whole numbers from 1 on"),
                                   ("30:0", (), "--series: is '30:0'"), ("30:1:2", (), "--series: is '30:1:2'"), ("x", (), "--series: is 'x'"),
                                   ("30", ("--png", "x.png"), "--png"), ("30", ("--output-dir", "results"), "--output-dir"),
                                   ("30", ("--try-centers", "28:30:1"), "--try-centers"), ("30", ("b.h5",), "--series: is of one file; 2 are given")):
            with self.subTest(value=value, more=more):
                self.assertIn(words, self.recon("a.h5", "--series", value, *more, code=2).stderr)
        self.assertIn("is 61, and the job uses 60 projections; allowed 1 to 60", self.recon("a.h5", "--center", "29.4", "--series", "61", code=1).stderr)

    def test_an_interrupt_keeps_what_is_done(self):
        for name, shape in (("quick", (60, 1, 8)), ("long1", (60, 8, 256)), ("long2", (60, 8, 256))):
            np.save(os.path.join(self.root, f"{name}.npy"), np.ones(shape, np.float32))
        os.mkdir(os.path.join(self.root, "stopped"))
        flags = ("quick.npy", "long1.npy", "long2.npy", "--angles", "0:177:60", "--sinograms", "--center", "middle", "--output-dir", "stopped", "--format", "npy")
        process = subprocess.Popen([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, "--json", "recon", *flags, "--algorithm", "sirt",
                                    "--iterations", "20000", "--jobs-at-a-time", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until(lambda: os.path.exists(os.path.join(self.root, "stopped", "quick.npy")))
        until(lambda: any(job.spec.tomography.file.path == "long1.npy" and job.state == 2 for job in self.client.jobs()))
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
        states = [json.loads(line)["state"] for line in out.splitlines()]
        self.assertEqual(process.returncode, 130, error)
        self.assertEqual(states, ["done", "cancelled", "not begun"])
        self.assertFalse(os.path.exists(os.path.join(self.root, "stopped", "long2.npy")))
        self.assertEqual([job for job in self.client.jobs() if job.state in (1, 2, 3)], [])
        # The night goes on.
        made, _ = self.scans(*flags, "--skip-existing")
        self.assertEqual([scan["state"] for scan in made], ["exists", "done", "done"])

    def begun(self, *arguments):
        return subprocess.Popen([os.path.join(BUILD, "bin", "octavo"), "--address", self.daemon.address, "--json", "recon", *arguments], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def jobs_that_write(self, destination, states=(1, 2)):
        return [job for job in self.client.jobs() if job.spec.commit and job.spec.commit.destination == destination and job.state in states]

    def killed(self, *arguments, destination):
        """The job of a client that was killed once it had submitted it."""
        process = self.begun(*arguments)
        until(lambda: self.jobs_that_write(destination))
        process.kill()
        process.communicate()
        return self.jobs_that_write(destination)[0]

    def test_a_client_that_was_killed_leaves_a_job(self):
        np.save(os.path.join(self.root, "wide.npy"), np.ones((60, 8, 256), np.float32))
        endless = octavo.tomography("wide.npy", angles=ANGLES, algorithm="sirt", iterations=1000000, center=127.5, prepare=octavo.preparation(already_sinograms=True))
        flags = ("--angles", "0:177:60", "--sinograms", "--center", "middle", "--rows", "0:1", "--output-dir", "killed", "--format", "npy")
        result = os.path.join(self.root, "killed", "wide.npy")
        blocker = self.client.submit_job(endless)  # has the device, so that the others wait in the queue
        until(lambda: self.client.job(blocker.name).state == 2)
        left = self.killed("wide.npy", *flags, destination="killed/wide.npy")
        again = self.begun("wide.npy", "--skip-existing", *flags)
        self.assertIn(f"{left.name} of an earlier call makes 'killed/wide.npy': waits for it", again.stderr.readline())
        self.client.cancel_job(blocker.name)
        out, error = again.communicate(timeout=60)
        self.assertEqual(again.returncode, 0, error)
        made = json.loads(out)
        self.assertEqual((made["state"], made["job"], made["path"]), ("done", left.name, result))
        self.assertEqual(np.load(result).shape, (1, 256, 256))
        self.assertEqual(len(self.jobs_that_write("killed/wide.npy", states=range(8))), 1)
        made, _ = self.scans("wide.npy", "--skip-existing", *flags)
        self.assertEqual(made[0]["state"], "exists")
        os.remove(result)
        os.remove(result + ".json")

        # An interrupt ends the waiting alone; a cancelled job is made again; that of another file is told.
        blocker = self.client.submit_job(endless)
        until(lambda: self.client.job(blocker.name).state == 2)
        left = self.killed("wide.npy", *flags, destination="killed/wide.npy")
        whole = [os.path.join(self.root, "killed") if flag == "killed" else flag for flag in flags]  # the same places by other names
        again = self.begun(os.path.join(self.root, ".", "wide.npy"), "--skip-existing", *whole)
        self.assertIn("waits for it", again.stderr.readline())
        again.send_signal(signal.SIGINT)
        out, error = again.communicate(timeout=60)
        self.assertEqual(again.returncode, 130, error)
        self.assertEqual(json.loads(out)["state"], "running")
        self.assertIn(f"{left.name} goes on", error)
        self.assertIn(self.client.job(left.name).state, (1, 2))
        os.makedirs(os.path.join(self.root, "folder"))
        os.symlink("../wide.npy", os.path.join(self.root, "folder", "wide.npy"))
        made, error = self.scans("folder/wide.npy", "--skip-existing", *flags, code=1)
        self.assertIn(f"{left.name} makes 'killed/wide.npy' of something else", made[0]["problem"])
        again = self.begun("wide.npy", "--skip-existing", *flags)
        self.assertIn("waits for it", again.stderr.readline())
        self.client.cancel_job(left.name)
        self.client.cancel_job(blocker.name)
        out, error = again.communicate(timeout=60)
        self.assertEqual(again.returncode, 0, error)
        self.assertIn(f"{left.name} was cancelled: the scan is made again", error)
        made = json.loads(out)
        self.assertEqual(made["state"], "done")
        self.assertNotEqual(made["job"], left.name)
        self.assertTrue(os.path.exists(result))


class ADaemonThatDies(unittest.TestCase):
    def test_each_scan_has_a_reason(self):
        daemon = Daemon()
        self.addCleanup(daemon.remove)
        names = ("one.npy", "two.npy", "three.npy")
        for name in names:
            np.save(os.path.join(daemon.root, name), np.ones((60, 8, 256), np.float32))
        os.mkdir(os.path.join(daemon.root, "results"))
        process = subprocess.Popen([os.path.join(BUILD, "bin", "octavo"), "--address", daemon.address, "--json", "recon", *names, "--angles", "0:177:60", "--sinograms",
                                    "--center", "middle", "--algorithm", "sirt", "--iterations", "1000000", "--output-dir", "results"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with daemon.client() as client:
            until(lambda: len(client.jobs()) == 2)
            until(lambda: any(job.state == 2 for job in client.jobs()))
        daemon.kill()
        out, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 3, error)
        made = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([(scan["scan"], scan["state"]) for scan in made], list(zip(names, ("failed", "failed", "not begun"))))
        for scan in made:
            self.assertTrue(scan["problem"], scan)
            self.assertIn(f"octavo: {scan['scan']}:", error)
        self.assertIn("three.npy: not begun, because the server does not answer any more\n", error)


if __name__ == "__main__":
    unittest.main()
