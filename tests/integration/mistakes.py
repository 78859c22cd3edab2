"""The table of mistakes: typical errors of new users, and the words that the answer must contain.

A table is a list of rows; each file of rows is a separate test (mistakes_of_*_test.py). To add a
mistake, add a row: a command line, or for Python a function with the client as its argument, and
the words. With OCTAVO_MISTAKES=FILE the test appends the rows and their answers to FILE as a
Markdown table.
"""

import dataclasses
import os
import shlex
import subprocess
import warnings
from typing import Callable, Tuple, Union

from harness import BUILD

SILENT = ("Traceback", "terminate called", "Segmentation")


@dataclasses.dataclass(frozen=True)
class Row:
    """call   a command line without the program's name, with {names} that the test fills in, or a function of the client
    words  all of them are in the answer: output and errors of a program, the exception and the warnings of a function
    code   exit code of a program; None: any
    input  standard input
    """

    call: Union[str, Callable]
    words: Tuple[str, ...]
    code: Union[int, None] = 2
    name: str = ""  # a function's name, for the transcript


def row(call, *words, code=2, name=""):
    return Row(call, words, code, name)


class Mistakes:
    """A mixin for unittest.TestCase: runs rows, and records the answers."""

    def transcribe(self, call, answer):
        path = os.environ.get("OCTAVO_MISTAKES")
        if path:
            text = " / ".join(line.strip() for line in answer.strip().splitlines())
            with open(path, "a") as file:
                file.write(f"| `{call}` | {text.replace('|', chr(92) + '|')} |\n")

    def judge(self, call, answer, words):
        self.transcribe(call, answer)
        for each in SILENT:
            self.assertNotIn(each, answer)
        for each in words:
            self.assertIn(each, answer)

    def program(self, program, rows, names=None, before=(), timeout=60, environment=None):
        """Runs `program` with each row's arguments behind `before`."""
        for one in rows:
            line = one.call.format(**(names or {}))
            with self.subTest(line):
                done = subprocess.run([os.path.join(BUILD, "bin", program), *before, *shlex.split(line)], capture_output=True, text=True, timeout=timeout,
                                      stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
                answer = done.stdout + done.stderr
                self.judge(f"{program} {one.call}", answer, one.words)
                if one.code is not None:
                    self.assertEqual(done.returncode, one.code, answer)

    def calls(self, rows, *arguments):
        """Calls each row's function with `arguments`; the answer is its exception and its warnings."""
        for one in rows:
            with self.subTest(one.name):
                answer = ""
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    try:
                        one.call(*arguments)
                    except Exception as error:  # any exception is the answer
                        answer = f"{type(error).__name__}: {error}"
                answer += "".join(f"\n{warning.category.__name__}: {warning.message}" for warning in caught)
                self.judge(one.name, answer, one.words)
