"""Loads the generated modules and looks for each name of the list (languages_test.py, Python)."""

import importlib
import json
import os
import sys

import grpc
from google.protobuf import message as base

sys.path[0] = os.environ["PYTHONPATH"]  # the generated code, not this folder

problems = []
channel = grpc.insecure_channel("127.0.0.1:1")
for kind, module, path, full_name, names in json.load(open(sys.argv[1])):
    try:
        at = importlib.import_module(module)
        if kind == "service":
            if at.DESCRIPTOR.services_by_name[path[0]].full_name != full_name:
                problems.append(f"{full_name}: another service")
            code = importlib.import_module(module + "_grpc")
            stub, servicer = getattr(code, path[0] + "Stub")(channel), getattr(code, path[0] + "Servicer")
            for name in names:
                getattr(stub, name), getattr(servicer, name)
            continue
        scope = at
        for name in path:
            scope, outer = getattr(scope, name), scope
        if scope.DESCRIPTOR.full_name != full_name:
            problems.append(f"{full_name}: {'.'.join(path)} is {scope.DESCRIPTOR.full_name}")
        if kind == "enum":
            for name, number in names.items():
                if getattr(outer, name) != number or scope.Value(name) != number:
                    problems.append(f"{full_name}.{name} is not {number}")
            continue
        one = scope()
        for name in names:
            getattr(one, name)
            getattr(scope, name.upper() + "_FIELD_NUMBER")
            if hasattr(base.Message, name):
                problems.append(f"{full_name}.{name} hides what every message has")
    except (ImportError, AttributeError, KeyError, TypeError) as error:
        problems.append(f"{full_name}: {error}")
print("\n".join(problems))
sys.exit(1 if problems else 0)
