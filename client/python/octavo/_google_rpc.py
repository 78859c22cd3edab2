"""google.rpc for the stubs, which import it by that name: from googleapis-common-protos; where that is not installed, or in part, the copies
that are built with this package take its place."""

import importlib
import sys

for _name in ("status_pb2", "error_details_pb2"):
    try:
        importlib.import_module(f"google.rpc.{_name}")
    except ImportError:
        _module = importlib.import_module(f"octavo._vendor.google.rpc.{_name}")
        setattr(sys.modules.setdefault("google.rpc", sys.modules["octavo._vendor.google.rpc"]), _name, _module)
        sys.modules[f"google.rpc.{_name}"] = _module
