#!/usr/bin/env python3
"""Compares the list of reasons that clients read (proto/ERRORS.md) with gpu/base/reason.h;
`--write` updates it."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER, PAGE = ROOT / "gpu/base/reason.h", ROOT / "proto/ERRORS.md"
INTRODUCTION = """# Reasons

Every error carries a `google.rpc.ErrorInfo`: a stable `reason` for programs, and values in its `metadata`. The message is for
people. Scans and jobs end with such a reason, too (`reason_code`). An error without a reason of its own has the name of its
status code instead. This page lists `gpu/base/reason.h`; `tests/reasons_test.py --write` makes it.
"""


def page():
    text = re.search(r"#define OCTAVO_REASONS\(X\)(.*?)\n\n|#define OCTAVO_REASONS\(X\)(.*?)\nenum", HEADER.read_text(), re.DOTALL).group(0)
    text = re.sub(r"\s*\\\n\s*", " ", text)
    text = re.sub(r'"\s+"', "", text)  # a meaning may continue on the next line
    lines = [INTRODUCTION]
    for heading, entry in re.findall(r'/\* (.*?) \*/|X\((k\w+,\s*"\w+",\s*"(?:[^"\\]|\\.)*")\)', text):
        if heading:
            lines += [f"## {heading}", "| reason | meaning |", "|---|---|"]
        else:
            _, name, meaning = re.fullmatch(r'(k\w+),\s*"(\w+)",\s*"(.*)"', entry).groups()
            lines.append(f"| `{name}` | {meaning} |")
    return "\n".join(line if not line.startswith("## ") else "\n" + line for line in lines).replace("\n\n\n", "\n\n") + "\n"


def main():
    wanted = page()
    names = re.findall(r"^\| `(\w+)` \|", wanted, re.MULTILINE)
    declared = re.findall(r"\bX\(k", HEADER.read_text())
    if len(names) != len(declared) or len(set(names)) != len(names):
        sys.exit(f"{HEADER.relative_to(ROOT)} declares {len(declared)} reasons, {len(set(names))} different ones are read")
    if "--write" in sys.argv:
        PAGE.write_text(wanted)
    elif not PAGE.exists() or PAGE.read_text() != wanted:
        sys.exit(f"{PAGE.relative_to(ROOT)} is not what {HEADER.relative_to(ROOT)} says; run tests/reasons_test.py --write")
    print(f"{len(names)} reasons")


if __name__ == "__main__":
    main()
