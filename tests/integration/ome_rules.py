"""The rules of OME-Zarr 0.5 for the metadata of a multiscales group (https://ngff.openmicroscopy.org/0.5), as far as a group without
labels, plates or bioformats2raw can break them. problems(path) lists what is wrong."""

import json
import math
import os
import re

SPACE_UNITS = {"angstrom", "attometer", "centimeter", "decimeter", "exameter", "femtometer", "foot", "gigameter", "hectometer", "inch", "kilometer", "megameter", "meter",
               "micrometer", "mile", "millimeter", "nanometer", "parsec", "petameter", "picometer", "terameter", "yard", "yoctometer", "yottameter", "zeptometer", "zettameter"}
TIME_UNITS = {"attosecond", "centisecond", "day", "decisecond", "exasecond", "femtosecond", "gigasecond", "hectosecond", "hour", "kilosecond", "megasecond", "microsecond",
              "millisecond", "minute", "nanosecond", "petasecond", "picosecond", "second", "terasecond", "yoctosecond", "yottasecond", "zeptosecond", "zettasecond"}


def _number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _transformation_problems(where, transformations, rank):
    if not isinstance(transformations, list) or not transformations:
        return [f"{where}: no coordinateTransformations"]
    found = []
    kinds = [t.get("type") for t in transformations]
    if kinds not in (["scale"], ["scale", "translation"]):
        found.append(f"{where}: transformations {kinds}; allowed are one scale, then at most one translation")
    for t in transformations:
        values = t.get(t.get("type"))
        if not isinstance(values, list) or len(values) != rank or not all(map(_number, values)):
            found.append(f"{where}: {t.get('type')} {values} is not {rank} numbers")
        elif t["type"] == "scale" and min(values) <= 0:
            found.append(f"{where}: scale {values}")
    return found


def _axes_problems(axes):
    found = []
    if not isinstance(axes, list) or not 2 <= len(axes) <= 5:
        return ["2 to 5 axes"]
    names, kinds = [a.get("name") for a in axes], [a.get("type") for a in axes]
    if len(set(names)) != len(names) or not all(isinstance(n, str) and n for n in names):
        found.append(f"axes names {names}")
    if not 2 <= kinds.count("space") <= 3:
        found.append("2 or 3 axes of space")
    if kinds.count("time") > 1 or len([k for k in kinds if k not in ("space", "time")]) > 1:
        found.append("at most one axis of time, at most one channel or custom axis")
    order = [0 if k == "time" else 2 if k == "space" else 1 for k in kinds]
    if order != sorted(order):
        found.append(f"axes in the order {kinds}; allowed time, channel, space")
    for axis in axes:
        units = {"space": SPACE_UNITS, "time": TIME_UNITS}.get(axis.get("type"))
        if "unit" in axis and units is not None and axis["unit"] not in units:
            found.append(f"unit {axis['unit']}")
    return found


def problems(path, load=lambda path: json.load(open(os.path.join(path, "zarr.json")))):
    """The violations of the rules by the group at `path`. `load(path)` returns the metadata of a
    node."""
    group = load(path)
    found = []
    if group.get("zarr_format") != 3 or group.get("node_type") != "group":
        found.append("the group is no group of Zarr v3")
    ome = group.get("attributes", {}).get("ome")
    if not isinstance(ome, dict):
        return found + ["no attribute ome"]
    if ome.get("version") != "0.5":
        found.append(f"version {ome.get('version')}")
    multiscales = ome.get("multiscales")
    if not isinstance(multiscales, list) or not multiscales:
        return found + ["no multiscales"]
    for multiscale in multiscales:
        axes = multiscale.get("axes")
        wrong = _axes_problems(axes)
        found += wrong
        if "version" in multiscale:
            found.append("version in multiscales, which is 0.4's place")
        datasets = multiscale.get("datasets")
        if wrong or not isinstance(datasets, list) or not datasets:
            found += [] if wrong else ["no datasets"]
            continue
        rank, shapes, types, scales = len(axes), [], set(), []
        if "coordinateTransformations" in multiscale:
            found += _transformation_problems("multiscales", multiscale["coordinateTransformations"], rank)
        for dataset in datasets:
            where = f"dataset {dataset.get('path')}"
            if not isinstance(dataset.get("path"), str) or dataset["path"].startswith("/") or ".." in dataset["path"].split("/"):
                found.append(f"{where}: path")
                continue
            bad = _transformation_problems(where, dataset.get("coordinateTransformations"), rank)
            found += bad
            try:
                array = load(os.path.join(path, dataset["path"]))
            except OSError:
                found.append(f"{where}: no array there")
                continue
            if array.get("zarr_format") != 3 or array.get("node_type") != "array":
                found.append(f"{where}: no array of Zarr v3")
            if array.get("dimension_names") != [axis["name"] for axis in axes]:
                found.append(f"{where}: dimension_names {array.get('dimension_names')}")
            if len(array.get("shape", [])) != rank:
                found.append(f"{where}: rank")
            shapes.append(array.get("shape", []))
            types.add(array.get("data_type"))
            if not bad:
                scales.append(dataset["coordinateTransformations"])
        if any(big < small for a, b in zip(shapes, shapes[1:]) for big, small in zip(a, b)):
            found.append(f"datasets are not ordered from the largest to the smallest: {shapes}")
        if len(types) > 1:
            found.append(f"datasets of several types: {types}")
        # This is not a rule, but a viewer needs it to align a pyramid of means: a centre moves by
        # half of the voxel's growth.
        if len(scales) == len(datasets) > 1:
            first = scales[0][0]["scale"]
            for transformations in scales:
                offset = transformations[1]["translation"] if len(transformations) > 1 else [0] * rank
                exact = [(s - s0) / 2 for s, s0 in zip(transformations[0]["scale"], first)]
                if any(abs(o - e) > 1e-12 * max(1, abs(e)) for o, e in zip(offset, exact)):
                    found.append(f"translation {offset} where {exact} is exact")
    for channel in ome.get("omero", {}).get("channels", []):
        if not re.fullmatch("[0-9A-Fa-f]{6}", channel.get("color", "")):
            found.append(f"colour {channel.get('color')}")
        window = channel.get("window", {})
        if not all(_number(window.get(key)) for key in ("min", "max", "start", "end")):
            found.append(f"window {window}")
    return found
