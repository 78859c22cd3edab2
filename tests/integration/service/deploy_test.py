"""The files for administrators: the systemd unit, the image, the composition and the alerts agree
with the program and with each other. No test here needs Docker or a running systemd."""

import configparser
import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import unittest
import urllib.request

import h5py
import numpy as np
import yaml

from harness import BUILD, SOURCE, Daemon, octavo

OCTAVOD = os.path.join(BUILD, "bin", "octavod")


def read(*path):
    with open(os.path.join(SOURCE, *path)) as file:
        return file.read()


def configuration_keys():
    """Every key, as octavod --help lists it."""
    text = subprocess.run([OCTAVOD, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"--([a-z]+\.[a-z_]+)", text))


def environment_names():
    return {"OCTAVO_" + key.upper().replace(".", "_") for key in configuration_keys()}


def instructions(text):
    """Returns [(instruction, arguments)] of a Dockerfile, without comments and with joined
    continuation lines."""
    joined = re.sub(r"\\\n", " ", "\n".join(line for line in text.split("\n") if not line.startswith("#")))
    return [(word.upper(), rest.strip()) for word, _, rest in (line.strip().partition(" ") for line in joined.split("\n")) if word]


def sent_to_build(path, ignore):
    """Whether .dockerignore lets a file through: the last matching line decides."""
    out = False
    for line in ignore.split("\n"):
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        back, pattern = pattern.startswith("!"), pattern.lstrip("!")
        parts = path.split("/")
        prefixes = ["/".join(parts[:i]) for i in range(1, len(parts) + 1)]
        if any(fnmatch.fnmatch(p, pattern) or (pattern.startswith("**/") and fnmatch.fnmatch(p.split("/")[-1], pattern[3:])) for p in prefixes):
            out = not back
    return not out


def dockerfile_problems(text, ignore, names):
    problems, defaults, stages, current = [], {}, [], None

    def expand(value):
        for name in re.findall(r"\$\{(\w+)\}", value):
            if name not in defaults:
                problems.append(f"FROM {value}: no ARG {name} before it")
        return re.sub(r"\$\{(\w+)\}", lambda m: defaults.get(m.group(1), "?"), value)

    settings = {}  # stage: {instruction: last arguments}, inherited ones included
    for word, rest in instructions(text):
        if word == "ARG" and current is None:
            name, _, value = rest.partition("=")
            defaults[name] = value
        elif word == "FROM":
            match = re.fullmatch(r"(\S+) AS (\S+)", rest)
            if not match:
                problems.append(f"FROM {rest}: a stage without a name")
                continue
            base = expand(match.group(1))
            if base not in stages and "/" not in base:
                problems.append(f"FROM {rest}: {base} is neither a stage nor an image with its registry, which buildah needs")
            if base not in stages and not re.search(r":[\w.-]*\d", base):
                problems.append(f"FROM {rest}: the image {base} is not pinned to a version")
            current = match.group(2)
            settings[current] = dict(settings.get(base, {}))
            stages.append(current)
        elif word in ("COPY", "ADD"):
            flags = [w for w in rest.split() if w.startswith("--")]
            sources = [w for w in rest.split() if not w.startswith("--")][:-1]
            origin = next((f.split("=", 1)[1] for f in flags if f.startswith("--from=")), None)
            if origin is not None:
                if origin not in stages:
                    problems.append(f"COPY {rest}: there is no stage {origin}")
                continue
            for source in sources:
                if not os.path.exists(os.path.join(SOURCE, source)):
                    problems.append(f"COPY {rest}: {source} is not in the repository")
                elif not sent_to_build(source, ignore):
                    problems.append(f"COPY {rest}: .dockerignore holds {source} back")
        elif word == "RUN":
            if re.search(r"apt(-get)? +(-\S+ +)*install", rest):
                problems.append(f"RUN {rest}: packages come from deploy/install-deps")
        elif word == "ENV":
            for name in re.findall(r"(OCTAVO_\w+)=", rest):
                if name not in names:
                    problems.append(f"ENV {name}: no configuration key")
        if current is not None:
            settings[current][word] = rest
    final = settings.get(stages[-1], {}) if stages else {}
    if not re.fullmatch(r"[1-9]\d*(:[1-9]\d*)?", final.get("USER", "")):
        problems.append(f"the image runs as {final.get('USER', 'root')}; wanted a numeric user that is not root")
    if '"/usr/bin/octavo"' not in final.get("HEALTHCHECK", "") or '"health"' not in final.get("HEALTHCHECK", ""):
        problems.append("HEALTHCHECK is not octavo health")
    if not final.get("ENTRYPOINT", "").startswith('["/usr/bin/octavod"'):
        problems.append("ENTRYPOINT is not octavod in its exec form: signals would not arrive")
    return problems


def unit_of(text):
    parser = configparser.ConfigParser(strict=False, interpolation=None, dict_type=MultiDict)
    parser.optionxform = str
    parser.read_string(text)
    return parser


class MultiDict(dict):
    """configparser's dictionary that joins the values of a repeated key, as systemd does."""

    def __setitem__(self, key, value):
        if isinstance(value, list) and key in self:
            self[key].extend(value)
        else:
            super().__setitem__(key, value)


class Unit(unittest.TestCase):
    def setUp(self):
        self.text = read("deploy", "octavod.service")
        self.service = unit_of(self.text)["Service"]
        self.environment = dict(pair.split("=", 1) for pair in shlex.split(self.service["Environment"]))

    def test_it_supervises(self):
        self.assertEqual(self.service["Type"], "notify")
        self.assertGreaterEqual(int(self.service["WatchdogSec"]), 40)  # the daemon itself waits 30 s for a stalled scan
        self.assertEqual(self.service["Restart"], "on-failure")
        drain = float(re.search(r"^seconds = (\S+)", read("deploy", "octavod.toml"), re.M).group(1))
        self.assertGreater(float(self.service["TimeoutStopSec"]), drain + 5)
        self.assertEqual(self.service["LimitMEMLOCK"], "infinity")
        self.assertNotIn("MemoryDenyWriteExecute", self.service)  # CUDA compiles at run time
        self.assertNotIn("PrivateDevices", self.service)          # would hide the GPU
        self.assertEqual(self.service["User"], read("deploy", "octavo.sysusers.conf").split()[1])

    def test_it_reloads(self):
        self.assertEqual(self.service["ExecReload"], '/bin/sh -c "kill -HUP $MAINPID"')

    def test_systemd_finds_the_user(self):
        (name,) = [name for name in os.listdir(os.path.join(SOURCE, "deploy")) if "sysusers" in name]
        self.assertTrue(name.endswith(".conf"), "systemd-sysusers reads nothing else")
        self.assertIn(f"deploy/{name} in /etc/sysusers.d", self.text)
        if shutil.which("systemd-sysusers") is None:
            self.skipTest("no systemd-sysusers")
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "etc", "sysusers.d"))
            shutil.copy(os.path.join(SOURCE, "deploy", name), os.path.join(root, "etc", "sysusers.d"))
            done = subprocess.run(["systemd-sysusers", "--root", root], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(root, "etc", "passwd")) as users:
                self.assertRegex(users.read(), r"(?m)^octavo:")

    def test_what_it_says_octavod_takes(self):
        self.assertLessEqual(set(self.environment), environment_names())
        # systemd makes the directories of the environment writable.
        state = {"/var/lib/" + name for name in self.service["StateDirectory"].split()}
        self.assertLessEqual({self.environment["OCTAVO_STATE_DIR"], self.environment["OCTAVO_STORAGE_ROOTS"]}, state)
        self.assertEqual(os.path.dirname(self.environment["OCTAVO_LISTEN_UNIX"]), "/run/" + self.service["RuntimeDirectory"])
        # The command line starts with the file that is installed as /etc/octavo/octavod.toml.
        command = shlex.split(self.service["ExecStart"])
        self.assertEqual(command[0], "/usr/bin/octavod")
        flags = [os.path.join(SOURCE, "deploy", "octavod.toml") if word == "/etc/octavo/octavod.toml" else word for word in command[1:]]
        daemon = Daemon(*flags)
        try:
            with daemon.client() as client:
                self.assertTrue(client.health())
        finally:
            self.assertEqual(daemon.stop(), 0)
            daemon.remove()

    @unittest.skipIf(shutil.which("systemd-analyze") is None, "no systemd-analyze")
    def test_systemd_understands_it_and_calls_it_hardened(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "octavod.service")
            with open(path, "w") as file:
                file.write(self.text.replace("/usr/bin/octavod", OCTAVOD))
            verify = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=60)
            told = [line for line in verify.stderr.splitlines() if "octavod.service" in line or folder in line]
            self.assertEqual((verify.returncode, told), (0, []), verify.stderr)
            security = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", path], capture_output=True, text=True, timeout=60)
            self.assertEqual(security.returncode, 0, security.stdout[-300:])  # exposure of at most 2.0 of 10


    @unittest.skipIf(shutil.which("systemd-analyze") is None or shutil.which("strace") is None, "no systemd-analyze or no strace")
    def test_its_filter_of_system_calls_lets_a_day_of_work_pass(self):
        def members(name):
            out = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True).stdout
            lines = {line.strip() for line in out.splitlines()[1:]} - {""}
            return {line for line in lines if line[0] not in "@#"}.union(*(members(line) for line in lines if line[0] == "@"))

        with tempfile.TemporaryDirectory() as folder:
            trace, root = os.path.join(folder, "trace"), os.path.join(folder, "data")
            os.makedirs(root)
            end, begin = os.pipe()
            process = subprocess.Popen(
                ["strace", "-f", "-o", trace, OCTAVOD, "--listen.tcp", "127.0.0.1:0", "--metrics.listen", "127.0.0.1:0", "--storage.roots", root, "--state.dir",
                 os.path.join(folder, "state"), "--ready-fd", str(begin)], pass_fds=[begin], stderr=subprocess.PIPE, text=True,
                env={**os.environ, "NOTIFY_SOCKET": os.path.join(folder, "notify"), "WATCHDOG_USEC": "1000000", "ASAN_OPTIONS": "detect_leaks=0"})
            os.close(begin)
            with os.fdopen(end) as line:
                ready = line.readline()
            if not ready:
                self.skipTest(f"strace may not trace here: {process.communicate()[1][-200:]}")
            ready = json.loads(ready)
            with octavo.Client(ready["tcp"][0]) as client, octavo.Client("unix:" + ready["unix"]) as local:
                scan = client.submit_scan(octavo.simulated(1), octavo.raster(64, 16, volumes=3), samples=256, rate_hz=5000)
                self.assertTrue(list(client.subscribe(scan.name, encoding="jpeg", image=dict(scale_bar=True))))
                client.wait(scan.name)
                first, second, third = (v.name for v in client.volumes(scan.name))
                client.commit(first, "first", "zarr")
                client.commit(second, "second", "npy")
                self.assertEqual(local.read(third).shape, (16, 64, 128))
                with h5py.File(os.path.join(root, "scan.h5"), "w") as file:  # another process inspects it
                    file["exchange/data"] = np.ones((8, 2, 16), np.float32)
                    file["exchange/theta"] = np.linspace(0, 180, 8)
                client.plan_job(octavo.tomography("scan.h5"))
            urllib.request.urlopen(f"http://{ready['metrics']}/metrics", timeout=10).read()
            os.kill(ready["pid"], signal.SIGTERM)
            process.communicate(timeout=60)
            with open(trace, errors="replace") as lines:
                calls = {match.group(1) for match in (re.match(r"\d+ +(?:<\.\.\. )?(\w+)(?:\(| resumed)", line) for line in lines) if match}
        self.assertGreater(len(calls), 40)
        self.assertIn("sendto", calls)
        self.assertIn("prctl", calls)  # the call of octavo-probe
        # In the order of the lines: one with ~ takes away what those before it allow.
        allowed = set()
        for name in self.service["SystemCallFilter"].split():
            allowed = allowed - members(name[1:]) if name[0] == "~" else allowed | members(name)
        self.assertEqual(calls - allowed, set())


class WebUnit(unittest.TestCase):
    def setUp(self):
        self.text = read("deploy", "octavo-web.service")
        self.service = unit_of(self.text)["Service"]

    def test_it_reaches_the_daemon_as_an_operator(self):
        daemon = unit_of(read("deploy", "octavod.service"))["Service"]
        environment = dict(pair.split("=", 1) for pair in shlex.split(daemon["Environment"]))
        self.assertIn(f"--address unix:{environment['OCTAVO_LISTEN_UNIX']} web", self.service["ExecStart"])
        self.assertEqual(self.service["Group"], daemon["Group"])  # of the socket
        self.assertNotEqual(self.service["User"], daemon["User"])  # who would be an admin
        users = read("deploy", "octavo.sysusers.conf").splitlines()
        self.assertTrue(any(line.startswith(f"u {self.service['User']} ") for line in users))
        self.assertIn(f"m {self.service['User']} {daemon['Group']}", users)
        self.assertNotIn("MemoryDenyWriteExecute", self.service)  # JavaScript is compiled at run time

    def test_the_flags_that_it_advises_are_flags(self):
        advised = set(re.findall(r"--[a-z-]+", re.search(r'"OCTAVO_WEB_FLAGS=([^"]+)"', self.text).group(1)))
        known = set(re.findall(r"--[a-z-]+", subprocess.run([os.path.join(BUILD, "bin", "octavo"), "web", "--help"], capture_output=True, text=True, check=True).stdout))
        self.assertGreaterEqual(len(advised), 4)
        self.assertLessEqual(advised, known)

    @unittest.skipIf(shutil.which("systemd-analyze") is None, "no systemd-analyze")
    def test_systemd_understands_it_and_calls_it_hardened(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "octavo-web.service")
            with open(path, "w") as file:
                file.write(self.text.replace("/usr/bin/octavo", os.path.join(BUILD, "bin", "octavo")))
            verify = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=60)
            told = [line for line in verify.stderr.splitlines() if "octavo-web.service" in line or folder in line]
            self.assertEqual(told, [], verify.stderr)
            security = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", path], capture_output=True, text=True, timeout=60)
            self.assertEqual(security.returncode, 0, security.stdout[-300:])  # exposure of at most 2.0 of 10


class Image(unittest.TestCase):
    def setUp(self):
        self.text, self.ignore = read("docker", "Dockerfile"), read(".dockerignore")

    def test_the_dockerfile(self):
        self.assertEqual(dockerfile_problems(self.text, self.ignore, environment_names()), [])

    def test_the_check_sees_what_it_is_there_to_see(self):
        names = environment_names()
        for good, bad in (("COPY gpu gpu", "COPY gpuu gpu"), ("COPY gpu gpu", "COPY .git gpu"), ("--from=build-cpu /out/bin/", "--from=builder /out/bin/"),
                          ("debian:12-slim", "debian:latest"), ("USER 10001:10001", "USER root"), ("USER 10001:10001", ""), ('"health"', '"info"'),
                          ("OCTAVO_LISTEN_TCP", "OCTAVO_LISTEN_TPC"), ("RUN deploy/install-deps", "RUN apt-get install -y g++"),
                          ('ENTRYPOINT ["/usr/bin/octavod"]', "ENTRYPOINT octavod"), ("ARG BASE=docker.io/library/debian:12-slim", ""), ("FROM runtime AS cpu", "FROM runtimes AS cpu")):
            self.assertIn(good, self.text)
            self.assertNotEqual(dockerfile_problems(self.text.replace(good, bad), self.ignore, names), [], bad)

    def test_the_list_of_packages_has_what_the_programs_load(self):
        listed = subprocess.run([os.path.join(SOURCE, "deploy", "install-deps"), "--daemon", "--list"], capture_output=True, text=True, check=True).stdout.split()
        if shutil.which("dpkg-query") is None:
            self.skipTest("no dpkg-query")
        missing = []
        essential = {"libc6", "libgcc-s1", "libstdc++6", "zlib1g"}
        # Direct dependencies only, because each package declares its own.
        for program in ("octavod", "octavo-probe", "octavo"):
            dump = subprocess.run(["objdump", "-p", os.path.join(BUILD, "bin", program)], capture_output=True, text=True, check=True).stdout
            for library in re.findall(r"NEEDED +(\S+)", dump):
                path = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
                if re.match(r"lib(asan|ubsan|tsan|lsan)\.so", library):
                    self.skipTest(f"{program} is built with a sanitizer, which brings libraries of its own: {library}")
                where = re.search(rf"^\s*{re.escape(library)} \(.*x86-64.*\) => (\S+)", path, re.M)
                if where is None:
                    continue
                owner = ""
                for name in (where.group(1), os.path.realpath(where.group(1)), where.group(1).replace("/lib/", "/usr/lib/", 1)):
                    found = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True)
                    if found.returncode == 0:
                        owner = found.stdout.split(":")[0]
                        break
                if owner not in set(listed) | essential:
                    missing.append(f"{program} loads {library} of {owner}")
        self.assertEqual(missing, [])


class Probe(unittest.TestCase):
    """octavod reads no HDF5 file without octavo-probe beside it."""

    def test_whatever_ships_octavod_ships_it(self):
        for path, ships in ((("docker", "Dockerfile"), r"cp .*/bin/octavod\b"), (("deploy", "CMakeLists.txt"), r"install\(TARGETS .*\boctavod\b"),
                            (("deploy", "uninstall"), r"/bin/\{.*octavod\b"), (("deploy", "octavod.service"), r"Install: .*octavod\b")):
            lines = [line for line in read(*path).splitlines() if re.search(ships, line)]
            self.assertTrue(lines, path)
            for line in lines:
                self.assertIn("octavo-probe", line, path)

    def test_a_bundle_of_octavod_has_it(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([os.path.join(SOURCE, "deploy", "bundle"), folder, BUILD, "octavod"], check=True, capture_output=True)
            self.assertEqual(sorted(os.listdir(os.path.join(folder, "bin"))), ["octavo-probe", "octavod"])


class Composition(unittest.TestCase):
    def setUp(self):
        self.compose = yaml.safe_load(read("docker", "compose.yaml"))

    def test_every_file_it_names_is_there(self):
        self.assertEqual(sorted(self.compose["services"]), ["grafana", "octavod", "prometheus"])
        octavod = self.compose["services"]["octavod"]
        context = os.path.normpath(os.path.join("docker", octavod["build"]["context"]))
        self.assertEqual(context, ".")
        self.assertTrue(os.path.isfile(os.path.join(SOURCE, octavod["build"]["dockerfile"])))
        self.assertEqual(octavod["build"]["target"], "${OCTAVO_VARIANT:-cpu}")
        for variant in ("cpu", "cuda"):
            self.assertRegex(read("docker", "Dockerfile"), rf"(?m)^FROM runtime AS {variant}$")
        for name, service in self.compose["services"].items():
            for volume in service["volumes"]:
                source = volume.split(":")[0]
                if source.startswith("."):
                    self.assertTrue(os.path.exists(os.path.join(SOURCE, "docker", source)), source)
                else:
                    self.assertIn(source, self.compose["volumes"])
            self.assertTrue(all(port.startswith("127.0.0.1:") for port in service["ports"]), name)  # the page has no login
            self.assertEqual((service["read_only"], service["cap_drop"]), (True, ["ALL"]))
        for name in ("prometheus", "grafana"):
            self.assertRegex(self.compose["services"][name]["image"], r"^docker\.io/.*:v?\d+\.\d+\.\d+$")
        self.assertLessEqual(set(octavod["environment"]), environment_names())
        # Only the composition, never the image, declares that its ports are safe without TLS and
        # login.
        self.assertEqual(octavod["environment"]["OCTAVO_SECURITY_INSECURE"], "true")
        self.assertNotRegex(read("docker", "Dockerfile"), r"(?m)^(ENV|    OCTAVO)[^#]*SECURITY")
        grace = float(octavod["stop_grace_period"].rstrip("s"))
        drain, spill = (float(octavod["environment"][f"OCTAVO_DRAIN_{key}"]) for key in ("SECONDS", "SPILL_SECONDS"))
        self.assertGreater(spill, 0)  # Docker cannot be asked to wait
        self.assertGreater(grace, 2 * drain + spill + 10)
        # Prometheus waits for the image's own health check.
        self.assertEqual(self.compose["services"]["prometheus"]["depends_on"]["octavod"]["condition"], "service_healthy")
        overlay = yaml.safe_load(read("docker", "compose.cuda.yaml"))
        self.assertLessEqual(set(overlay["services"]), set(self.compose["services"]))

    def test_grafana_finds_prometheus_and_the_dashboard(self):
        mounts = {v.split(":")[1]: os.path.normpath(os.path.join(SOURCE, "docker", v.split(":")[0])) for v in self.compose["services"]["grafana"]["volumes"]
                  if v.startswith(".")}
        with open(mounts["/etc/grafana/provisioning/datasources/octavo.yml"]) as file:
            (source,) = yaml.safe_load(file)["datasources"]
        self.assertEqual((source["type"], source["url"], source["isDefault"]), ("prometheus", "http://prometheus:9090", True))
        with open(mounts["/etc/grafana/provisioning/dashboards/octavo.yml"]) as file:
            (provider,) = yaml.safe_load(file)["providers"]
        self.assertTrue(os.path.isfile(os.path.join(mounts[provider["options"]["path"]], "octavo.json")))

    def test_the_old_composer_takes_it(self):
        """docker-compose 1.29 of Debian 12 checks the files without a Docker engine."""
        if shutil.which("docker-compose") is None:
            self.skipTest("no docker-compose (Debian package docker-compose)")
        for files in (["compose.yaml"], ["compose.yaml", "compose.cuda.yaml"]):
            named = [word for file in files for word in ("-f", os.path.join(SOURCE, "docker", file))]
            done = subprocess.run(["docker-compose", *named, "config", "--quiet"], capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_prometheus_finds_octavod(self):
        config = yaml.safe_load(read("docker", "prometheus.yml"))
        (target,) = config["scrape_configs"][0]["static_configs"][0]["targets"]
        host, port = target.split(":")
        self.assertIn(host, self.compose["services"])
        self.assertIn(f"OCTAVO_METRICS_LISTEN=0.0.0.0:{port}", read("docker", "Dockerfile"))
        mounted = {os.path.basename(v.split(":")[1]): v.split(":")[0] for v in self.compose["services"]["prometheus"]["volumes"]}
        for rules in config["rule_files"]:
            self.assertIn(rules, mounted)
        self.assertIn("prometheus.yml", mounted)

    def test_alerts_name_metrics_that_there_are(self):
        rules = yaml.safe_load(read("deploy", "prometheus-rules.yml"))
        config = yaml.safe_load(read("docker", "prometheus.yml"))
        daemon = Daemon()
        try:  # before any event: every series that an alert uses must exist already, or its first increase would raise no alert
            page = urllib.request.urlopen(f"http://{daemon.metrics}/metrics", timeout=10).read().decode()
        finally:
            daemon.stop()
            daemon.remove()
        families = dict(re.findall(r"^# TYPE (\S+) (\S+)", page, re.M))
        named = 0
        for rule in (rule for group in rules["groups"] for rule in group["rules"]):
            self.assertIn("summary", rule["annotations"])
            self.assertIn(rule["labels"]["severity"], ("info", "warning", "critical"))
            for metric, labels in re.findall(r"\b(octavo_\w+|up)\b(?:\{([^}]*)\})?", rule["expr"]):
                named += 1
                if metric == "up":
                    self.assertIn(re.search(r'job="(\w+)"', labels).group(1), [job["job_name"] for job in config["scrape_configs"]])
                    continue
                self.assertIn(metric, families, rule["alert"])
                self.assertEqual(families[metric] == "counter", "increase(" in rule["expr"] or "rate(" in rule["expr"], rule["alert"])
                for label, values in re.findall(r'(\w+)=~?"([^"]*)"', labels):
                    for value in values.split("|"):
                        self.assertRegex(page, rf'(?m)^{metric}\{{[^}}]*{label}="{value}"', rule["alert"])
        self.assertGreater(named, 5)


if __name__ == "__main__":
    unittest.main()
