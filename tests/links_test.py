#!/usr/bin/env python3
"""The targets of references in the documents exist: relative links with their anchors, paths in
backticks, programs in command lines. "Life of a block" in server/README.md names the whole path;
README.md stays short."""

import glob
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOP = (".ci", "client", "deploy", "docker", "gpu", "proto", "server", "tests")
# A record of the past: its paths are those of its day.
HISTORY = ("tests/bench/RESULTS.md",)
MOST_README_LINES = 150

LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+)\)")
BACKTICKS = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"\.?[\w-][\w.*-]*(?:/[\w.*-]+)+/?")
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)


def documents():
    """Paths of all Markdown files of ours."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        names = listed.stdout.split("\n")
    else:  # an unpacked archive
        names = ["README.md"] + [os.path.relpath(os.path.join(folder, name), ROOT) for top in TOP
                                 for folder, _, files in os.walk(os.path.join(ROOT, top)) for name in files if name.endswith(".md")]
    return [name for name in names if name and os.path.isfile(os.path.join(ROOT, name))]


def anchors(text):
    """The anchors that GitHub makes from a document's headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.M)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-") for heading in headings}


def link_problems(path, text, read):
    problems = []
    for target in LINK.findall(BACKTICKS.sub("", FENCE.sub("", text))):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue  # a link to another site
        name, _, anchor = target.partition("#")
        full = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
        if full.startswith(".."):
            problems.append(f"{path}: the link {target} leads out of the repository")
        elif not os.path.exists(os.path.join(ROOT, full)):
            if full.split("/")[0] not in TOP or os.path.isdir(os.path.join(ROOT, full.split("/")[0])):  # the image is built without docker/
                problems.append(f"{path}: the link {target} leads to {full}, which is not there")
        elif anchor and anchor not in anchors(read(full) if name else text):
            problems.append(f"{path}: {full} has no heading for the link {target}")
    return problems


def there(name):
    return bool(glob.glob(os.path.join(ROOT, name))) if "*" in name else os.path.exists(os.path.join(ROOT, name))


def path_problems(path, text):
    """The problems of paths in backticks, from the root or from the document's folder, and of
    programs of ours in command lines."""
    if path in HISTORY:
        return []
    folder = os.path.dirname(path)
    told = [name for name in BACKTICKS.findall(FENCE.sub("", text)) if PATH.fullmatch(name)]
    for block in re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S):
        told += [word for line in block.splitlines() for word in line.split("#")[0].split()[:1] if PATH.fullmatch(word)]
    problems = []
    for name in told:
        first = name.split("/")[0]
        if first in TOP:
            if os.path.isdir(os.path.join(ROOT, first)) and not there(name):
                problems.append(f"{path} names {name}, which is not there")
        elif folder and os.path.isdir(os.path.join(ROOT, folder, first)) and not there(os.path.join(folder, name)):
            problems.append(f"{path} names {name}, which is not in {folder}")
    return problems


def block_problems(text):
    """The ten stops name the whole path."""
    parts = text.split("\n## Life of a block\n", 1)
    section = parts[1].split("\n## ", 1)[0] if len(parts) == 2 else ""
    names = re.findall(r"`((?:gpu|server|client)/[\w/.]+)`", section)
    stops = re.findall(r"^(\d+)\. ", section, re.M)
    problems = [] if stops == [str(n) for n in range(1, 11)] else [f"server/README.md: 'Life of a block' has {len(stops)} stops, not ten"]
    if len(names) < 10:
        problems.append(f"server/README.md: 'Life of a block' names {len(names)} files; is it still the whole path?")
    return problems


def length_problems(text):
    lines = text.count("\n")
    return [f"README.md has {lines} lines; allowed {MOST_README_LINES}"] if lines > MOST_README_LINES else []


def self_check():
    """Each rule detects its own problems, and nothing else."""
    read = {"README.md": "# One\n## What it is, and for *whom*\n", "tests/README.md": "# Tests\n"}.get
    planted = [
        link_problems("README.md", "[a](server/none.md)", read),
        link_problems("server/README.md", "[a](none.md)", read),
        link_problems("README.md", "![a](client/none.png)", read),
        link_problems("README.md", "[a](../elsewhere.md)", read),
        link_problems("README.md", "[a](tests/README.md#none)", read),
        link_problems("README.md", "# One\n[a](#two)", read),
        path_problems("README.md", "`server/none.cc`"),
        path_problems("README.md", "`server/*_none.cc`"),
        path_problems("tests/README.md", "`bench/none.cc`"),
        path_problems("README.md", "```sh\ndeploy/none --flag   # text\n```\n"),
        block_problems("\n## Life of a block\n`gpu/none.cc`\n"),
        block_problems("no section"),
        length_problems("\n" * (MOST_README_LINES + 1)),
    ]
    fine = [
        link_problems("tests/README.md", "[a](../README.md#what-it-is-and-for-whom) [b](https://none.example/x.md) `[c](none.md)`", read),
        link_problems("README.md", "# One\n[a](#one) [b](tests)", read),
        path_problems("README.md", "`tests/links_test.py` `tests/*_test.py` `volumes/none` `build/default/bin/octavod` `a / b`"),
        path_problems("tests/README.md", "`bench/RESULTS.md` `server/README.md` `tests/bench/`"),
        path_problems("README.md", "```sh\ntests/run --none\nbuild/none\n```\n```cpp\n#include \"client/none.h\"\n```\n"),
        path_problems(HISTORY[0], "`server/none.cc`"),
        length_problems("\n" * MOST_README_LINES),
    ]
    return [f"self-check: rule {i} sees nothing" for i, found in enumerate(planted) if not found] + [p for found in fine for p in found]


def main():
    texts = {}

    def read(path):
        if path not in texts:
            with open(os.path.join(ROOT, path)) as file:
                texts[path] = file.read()
        return texts[path]

    problems = self_check()
    names = documents()
    for path in names:
        problems += link_problems(path, read(path), read) + path_problems(path, read(path))
    problems += block_problems(read("server/README.md")) + length_problems(read("README.md"))
    print("\n".join(problems) if problems else f"{len(names)} documents point to what is there")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
