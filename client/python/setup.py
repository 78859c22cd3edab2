"""Generates the stubs of the protos while the package is built, so that the installed package is
complete."""

import atexit
import os
import shutil
import sys
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stubs  # noqa: E402


class BuildWithStubs(build_py):
    def run(self):
        super().run()
        stubs.generate(stubs.HERE if self.editable_mode else self.build_lib)


class SourcesWithProtos(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        for name in ("stubs.py", "build_backend.py"):
            shutil.copy(os.path.join(stubs.HERE, name), base_dir)
        for path in stubs.files():
            os.makedirs(os.path.dirname(os.path.join(base_dir, "proto", path)), exist_ok=True)
            shutil.copy(os.path.join(stubs.PROTOS, path), os.path.join(base_dir, "proto", path))


# Leave no files in the source tree, where a later build would find them.
scratch = tempfile.mkdtemp(prefix="octavo-build-")
atexit.register(shutil.rmtree, scratch, ignore_errors=True)
setup(cmdclass={"build_py": BuildWithStubs, "sdist": SourcesWithProtos},
      options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}})
