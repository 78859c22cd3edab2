#!/usr/bin/env python3
"""Writes proto/MIGRATION.md: every call, message, field and value of the contract before its revision (before.binpb) that has
another name or place now, by comparison of the two descriptor sets. What a comparison cannot know stands in MOVED.
`--write` brings the page up to date; without it, the page is checked."""

import os
import sys

from google.protobuf import descriptor_pb2

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)

import breaking  # noqa: E402
import lint  # noqa: E402

PAGE = os.path.join(ROOT, "proto", "MIGRATION.md")
PACKAGE = "octavo.v1."

# Old element → (new element or "", what to do). Elements of the contract are named without the package.
MOVED = {
    "SourceService": ("IngestService", ""),
    "BufferService.Export": ("ExportService.Export", ""),
    "BufferService.RevokeExport": ("ExportService.RevokeExport", ""),
    "BufferService.ListExports": ("ExportService.ListExports", ""),
    "Time": ("", "a `google.protobuf.Timestamp`, with a field `…_monotonic_ns` beside it where intervals matter"),
    "ErrorDetail": ("", "`google.rpc.ErrorInfo`: `metadata` has the numbers and `field`; `google.rpc.BadRequest` has the field, too"),
    "RpcStatus": ("", "`google.rpc.Status`"),
    "Scalar": ("Dtype", "the values without SCALAR_ have DTYPE_"),
    "DType": ("Dtype", ""),
    "BufferEvent": ("WatchBuffersResponse", ""),
    "BufferEvent.Kind": ("WatchBuffersResponse.Kind", ""),
    "ExportTicket": ("ExportResponse", "without `byte_offset`: the array begins with the memory's first byte"),
    "Info": ("GetInfoResponse", ""),
    "Info.Backend": ("GetInfoResponse.Backend", ""),
    "Info.StorageRoot": ("GetInfoResponse.StorageRoot", ""),
    "Info.SourceKind": ("GetInfoResponse.SourceKind", ""),
    "Memory": ("GetMemoryResponse", ""),
    "Memory.Holder": ("GetMemoryResponse.Holder", ""),
    "Memory.TierUse": ("GetMemoryResponse.TierUse", ""),
    "CommitProgress": ("CommitVolumeResponse", ""),
    "Operation": ("VolumeOperation", ""),
    "Frame.offset": ("SubscribeResponse.offset", ""),
    "Frame.total_bytes": ("SubscribeResponse.total_bytes", ""),
    "Frame.crc32c": ("SubscribeResponse.crc32c", ""),
    "Frame.data": ("SubscribeResponse.data", ""),
    "WriteBufferRequest.Header.has_crc32c": ("", "set `crc32c`, or leave it unset"),
    "UpdateBufferRequest.set_labels": ("UpdateBufferRequest.update_mask", "name `labels` in it"),
    "UpdateBufferRequest.set_ttl": ("UpdateBufferRequest.update_mask", "name `ttl` in it"),
    "PlanScanRequest.waveform": ("ScanService.PlanWaveform", "a call of its own"),
    "PlanScanRequest.first_sample": ("PlanWaveformRequest.first_sample", ""),
    "PlanScanRequest.odd_volume": ("PlanWaveformRequest.odd_volume", ""),
    "PlanScanRequest.plot": ("ScanService.PlotWaveform", "a call of its own"),
    "PlanScanResponse.waveform": ("PlanWaveformResponse.waveform", ""),
    "PlanScanResponse.plot_png": ("PlotWaveformResponse.png", ""),
    "Camera.offset_x": ("Camera.offset_x", "`optional`: 0 is an offset, unset keeps the camera's own"),
    "Camera.offset_y": ("Camera.offset_y", "likewise"),
    "CommitOptions.uncompressed": ("CommitOptions.codec", "CODEC_NONE"),
    "SubscribeRequest.resume": ("", "set `from_sequence`, or leave it unset"),
    "SubscribeRequest.index_set": ("", "set `index`, or leave it unset"),
}
NEGATED = {"ArrayOperation.Resize.no_anti_aliasing", "Products.no_mip", "TomographyPreparation.no_logarithm", "TomographyPreparation.Rings.keep_scale",
           "TomographyPreparation.Rings.no_wavelet_padding", "SubscribeRequest.no_preview"}


def short(name):
    return name.lstrip(".").removeprefix(PACKAGE)


def type_of(field):
    return short(field.type_name) if field.type_name else descriptor_pb2.FieldDescriptorProto.Type.Name(field.type)[5:].lower()


def _scope(enum):
    """What stands before the names of an enum's values: the message that it is in."""
    return enum.rsplit(".", 1)[0] + "." if "." in enum else ""


class Comparison:
    """Rows (old, new, what to do) by kind of element."""

    def __init__(self, before, after):
        self.rows = {"Calls": [], "Messages": [], "Fields": [], "Enums and their values": []}
        self.messages, self.enums, self.services = breaking._elements(before)
        self.new_messages, self.new_enums, self.new_services = breaking._elements(after)
        self._calls()
        self._messages()
        self._enums()

    def _say(self, kind, old, new="", what=""):
        if old in MOVED:
            new, what = MOVED[old]
        elif not new and not what:
            raise SystemExit(f"{old} is gone, and MOVED in {os.path.relpath(__file__, ROOT)} does not say where to")
        self.rows[kind].append((old, new, what))

    def _calls(self):
        for name, service in sorted(self.services.items()):
            old = short(name)
            if name not in self.new_services:
                self._say("Calls", old)
            now = self.new_services.get(PACKAGE + MOVED.get(old, (old,))[0])
            methods = {method.name: method for method in now.method} if now is not None else {}
            for method in service.method:
                one = methods.get(method.name)
                if one is None:
                    self._say("Calls", f"{old}.{method.name}")
                elif one.output_type != method.output_type and MOVED.get(short(method.output_type), ("",))[0] != short(one.output_type):
                    part = next((field.name for field in self.new_messages[one.output_type.lstrip(".")].field
                                 if field.type_name == method.output_type), "")
                    self._say("Calls", f"{old}.{method.name} → {short(method.output_type)}", f"{short(now.name)}.{method.name} → {short(one.output_type)}",
                              f"`{part}` of the answer" if part else "")

    def _messages(self):
        for name, message in sorted(self.messages.items()):
            if message.options.map_entry:
                continue
            if name not in self.new_messages:
                self._say("Messages", short(name))
                continue
            new = {field.number: field for field in self.new_messages[name].field}
            named = {field.name: field for field in new.values()}
            for field in message.field:
                self._field(short(name), field, new.get(field.number), named.get(field.name))

    def _field(self, scope, old, same_number, same_name):
        label = f"{scope}.{old.name}"
        renamed_type = same_name is not None and type_of(same_name) != type_of(old) and MOVED.get(type_of(old), ("",))[0] != type_of(same_name)
        if same_name is not None and not renamed_type:
            if same_name.proto3_optional and not old.proto3_optional:
                self._say("Fields", label, label, "`optional`: unset stands for what the flag beside it was for")
            return
        if old.name.endswith("_set") and label not in MOVED:
            self._say("Fields", label, "", f"set `{old.name[:-4]}`, or leave it unset")
        elif label in MOVED or same_number is None:
            self._say("Fields", label)
        else:
            what = "the opposite; unset = true" if label in NEGATED else ""
            if type_of(same_number) != type_of(old):
                what = f"`{type_of(same_number)}` for {type_of(old)}"
            self._say("Fields", label, f"{scope}.{same_number.name}", what)

    def _enums(self):
        for name, enum in sorted(self.enums.items()):
            old = short(name)
            if name not in self.new_enums:
                self._say("Enums and their values", old)
            now = self.new_enums.get(PACKAGE + MOVED.get(old, (old,))[0])
            by_name = {}
            prefix = now.value[0].name[:-len("UNSPECIFIED")]
            for value in now.value:
                by_name[value.name] = by_name[value.name.removeprefix(prefix)] = value
            by_number = {value.number: value for value in now.value}
            for value in enum.value:
                if value.name in {one.name for one in now.value} and by_number.get(value.number, value).name == value.name:
                    continue
                one = next((by_name[word] for word in self._words(value.name) if word in by_name), by_number.get(value.number))
                self._say("Enums and their values", f"{_scope(old)}{value.name} = {value.number}",
                          f"{_scope(MOVED.get(old, (old,))[0])}{one.name} = {one.number}")

    @staticmethod
    def _words(name):
        """A value's name, and without what once stood for a prefix or kept it apart from another."""
        yield name
        for prefix in ("BUFFER_", "JOB_", "REDUCE_", "PART_", "RESIZE_", "RAW_", "VOLUME_", "TIFF_", "LEASE_", "PROJECTION_", "RESULT_ON_", "SCALAR_"):
            yield name.removeprefix(prefix)
        yield name.removesuffix("_FILTER")
        yield name.removesuffix("_RAYS")
        if name.endswith("_UNSPECIFIED"):
            yield "UNSPECIFIED"


def page():
    with open(os.path.join(HERE, "before.binpb"), "rb") as file:
        before = descriptor_pb2.FileDescriptorSet.FromString(file.read()).file
    folder = os.path.join(ROOT, "proto")
    names = sorted(os.path.join("octavo/v1", name) for name in os.listdir(os.path.join(folder, "octavo/v1")))
    made = Comparison(before, lint.compiled(folder, names).file)
    lines = ["# From the contract before", "",
             "`octavo.v1` was revised once, before anybody outside depended on it. This page says where each call, message, field and value",
             "went. `tests/proto/migration.py --write` makes it by comparison of the two descriptor sets; a test checks it. A value's new",
             "name carries that of its enum; [README.md](README.md) has the conventions. Numbers of fields and values were used again: a program",
             "that was built with the stubs before has to be built again; it would be misunderstood, not refused.", ""]
    for kind, rows in made.rows.items():
        lines += [f"## {kind}", "| before | now | what else |", "|---|---|---|"]
        lines += [f"| `{old}` | {f'`{new}`' if new else '–'} | {what} |" for old, new, what in rows]
        lines.append("")
    return "\n".join(lines)


def main():
    wanted = page()
    if "--write" in sys.argv:
        with open(PAGE, "w") as file:
            file.write(wanted)
    else:
        with open(PAGE) as file:
            if file.read() != wanted:
                sys.exit(f"{os.path.relpath(PAGE, ROOT)} is not up to date; run tests/proto/migration.py --write")
    print(f"{wanted.count(chr(10) + '| `')} rows")


if __name__ == "__main__":
    main()
