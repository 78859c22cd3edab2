"""The Node client as users install it: its files and its dependencies, in a folder of the build."""

import fcntl
import glob
import json
import os
import re
import shutil
import subprocess

from harness import BUILD, SOURCE


def install(test):
    """(node, folder). Skips the test if there is no Node or the packages are not
    available."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        test.skipTest("no npm or no node")
    client, work = os.path.join(SOURCE, "client", "node"), os.path.join(BUILD, "examples", "node")
    os.makedirs(work, exist_ok=True)
    with open(work + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests beside this one use the folder, too
        for file in [*glob.glob(os.path.join(client, "*.mjs")), *(os.path.join(client, name) for name in ("package.json", ".npmrc"))]:
            target = os.path.join(work, os.path.basename(file))
            shutil.copy(file, target + ".new")
            os.replace(target + ".new", target)
        install_packages(test, npm, work)
    return node, work


def install_packages(test, npm, work):
    with open(os.path.join(work, "package.json")) as package:
        wanted = json.load(package)["dependencies"]
    test.assertTrue(all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in wanted.values()), wanted)

    def installed(name):
        try:
            with open(os.path.join(work, "node_modules", name, "package.json")) as package:
                return json.load(package)["version"]
        except FileNotFoundError:
            return None

    if {name: installed(name) for name in wanted} != wanted:
        if subprocess.run([npm, "install", "--no-audit", "--no-fund"], cwd=work, capture_output=True, timeout=200).returncode != 0:
            test.skipTest("npm install failed: @grpc/grpc-js cannot be had")
