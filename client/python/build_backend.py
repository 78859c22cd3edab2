"""The build backend for pip: setuptools' backend, which requires grpcio-tools if there is no
protoc."""

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F401,F403

import stubs


def _tools():
    return [] if stubs.has_protoc() else ["grpcio-tools"]


def get_requires_for_build_wheel(config_settings=None):
    return build_meta.get_requires_for_build_wheel(config_settings) + _tools()


def get_requires_for_build_editable(config_settings=None):
    return build_meta.get_requires_for_build_editable(config_settings) + _tools()
