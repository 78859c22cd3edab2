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
    "ImageOptions.jpeg_quality": ("ImageOptions.quality", "of WEBP, too"),
    "BufferEvent": ("WatchBuffersResponse", ""),
    "BufferEvent.Kind": ("WatchBuffersResponse.Kind", ""),
    "ExportTicket": ("ExportResponse", "without `byte_offset`: the array begins with the memory's first byte"),
    "ArrayOperation.Copy": ("ArrayOperation.CopyParameters", ""),
    "ArrayOperation.Fill": ("ArrayOperation.FillParameters", ""),
    "ArrayOperation.Crop": ("ArrayOperation.CropParameters", ""),
    "ArrayOperation.Scale": ("ArrayOperation.ScaleParameters", ""),
    "ArrayOperation.Combine": ("ArrayOperation.CombineParameters", ""),
    "ArrayOperation.Reduce": ("ArrayOperation.ReduceParameters", ""),
    "ArrayOperation.Project": ("ArrayOperation.ProjectParameters", ""),
    "ArrayOperation.Slab": ("ArrayOperation.SlabParameters", ""),
    "ArrayOperation.Percentile": ("ArrayOperation.PercentileParameters", ""),
    "ArrayOperation.Histogram": ("ArrayOperation.HistogramParameters", ""),
    "ArrayOperation.Fft": ("ArrayOperation.FftParameters", ""),
    "ArrayOperation.Resize": ("ArrayOperation.ResizeParameters", ""),
    "ArrayOperation.Flip": ("ArrayOperation.FlipParameters", ""),
    "ArrayOperation.Transpose": ("ArrayOperation.TransposeParameters", ""),
    "ArrayOperation.Combine.Kind": ("ArrayOperation.CombineParameters.Kind", ""),
    "Info": ("GetInfoResponse", ""),
    "Info.Backend": ("GetInfoResponse.Backend", ""),
    "Info.StorageRoot": ("GetInfoResponse.StorageRoot", "`mode` and `use` are enums"),
    "Info.SourceKind": ("GetInfoResponse.SourceKind", ""),
    "Memory": ("GetMemoryResponse", ""),
    "Memory.Holder": ("GetMemoryResponse.Holder", "`what` is `kind`, an enum"),
    "Memory.TierUse": ("GetMemoryResponse.TierUse", ""),
    "CommitProgress": ("Operation", "`progress` and `commit`; WatchOperation streams them"),
    "VolumeService.CommitVolume": ("VolumeService.CommitVolume", "one answer, with the operation, instead of a stream"),
    "CommitVolumeRequest.check_only": ("CommitVolumeRequest.validate_only", ""),
    "DeriveVolumeRequest.asynchronous": ("DeriveVolumeRequest.wait", "0, and WaitOperation later"),
    "Operation": ("VolumeOperation", ""),
    "Operation.reprocess": ("JobSpec.reprocess", "SubmitJob; the operations that followed are `ReprocessJob.operations`"),
    "Reprocess": ("ReprocessJob", "a job, with `volume` and `operations`"),
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
    "ListBuffersRequest.owner": ("ListBuffersRequest.filter", '`client = "..."`'),
    "ListBuffersRequest.states": ("ListBuffersRequest.filter", "`state = READY OR state = PARTIAL`"),
    "ListBuffersRequest.labels": ("ListBuffersRequest.filter", '`labels.eye = "OD" AND ...`'),
    "ListBuffersRequest.origin": ("ListBuffersRequest.filter", '`origin = "volumes/..."`'),
    "ListJobsRequest.states": ("ListJobsRequest.filter", "`state = QUEUED OR state = RUNNING`"),
    "ListLeasesRequest.resource": ("ListLeasesRequest.filter", '`resource = "volumes/..."`'),
    "ListExportsRequest.of": ("ListExportsRequest.filter", '`resource = "volumes/..."`'),
    "Camera.offset_x": ("Camera.offset_x", "`optional`: 0 is an offset, unset keeps the camera's own"),
    "Camera.offset_y": ("Camera.offset_y", "likewise"),
    "CommitOptions.uncompressed": ("CommitOptions.codec", "CODEC_NONE"),
    "CommitResult.uri": ("CommitResult.path", "it is a path, no URI"),
    "ExportResponse.nonce": ("ExportResponse.ticket", "named as in OpenRingResponse and on the hand-over wire"),
    "ExportStatus.of": ("ExportStatus.resource", "named as in LeaseGrant"),
    "OpenRingResponse.socket": ("OpenRingResponse.socket_path", "named as in ExportResponse"),
    "ScanSpec.request_id": ("SubmitScanRequest.request_id", "beside the spec, which does not repeat it"),
    "JobSpec.request_id": ("SubmitJobRequest.request_id", "beside the spec, which does not repeat it"),
    "HoldVolumeRequest.release": ("VolumeService.ReleaseVolume", "a call of its own"),
    "HoldVolumeRequest.lease_token": ("ReleaseVolumeRequest.lease_token", ""),
    "Volume.scan": ("Volume.parent", "jobs/<id> for what a job made, also of a scan's spectra: the volume in `derived_from` has the scan"),
    "Volume.job": ("Volume.parent", ""),
    "ListVolumesRequest.scan": ("ListVolumesRequest.parent", "takes jobs/<id>, too"),
    "SubscribeRequest.scan": ("SubscribeRequest.parent", "takes jobs/<id>, too"),
    "Frame.scan": ("Frame.parent", ""),
    "Frame.event": ("Frame.event", "`ScanEvent` for string; its `text` is the old one"),
    "Frame.scan_event": ("Frame.event", ""),
    "Placement.devices": ("Placement.devices", "`devices/<n>` for n"),
    "Replica.device": ("Replica.device", "`devices/<n>` for n"),
    "AdmissionReport.Item.what": ("AdmissionReport.Item.kind", "an enum; the name of a chain is in `chain`"),
    "AdmissionReport.Holder.what": ("AdmissionReport.Holder.kind", "an enum"),
    "TomographyReport.center_method": ("TomographyReport.center_source", "an enum"),
    "Measurement.name": ("Measurement.figure", "an enum"),
    "SubscribeRequest.resume": ("", "set `from_sequence`, or leave it unset"),
    "SubscribeRequest.index_set": ("", "set `index`, or leave it unset"),
}
# What is no part of octavo.v1.
WIRE = """## The hand-over wire
The hand-over socket spoke JSON without a version. It speaks `octavo.handoff.v1` now (`proto/octavo/handoff/v1/handoff.proto`), in
protobuf's binary form, one message a packet as before. A client says `Hello` first, with its versions and its purpose; a packet of JSON
as the first message is refused (`PROTOCOL`), and the connection ends.

| before | now | what else |
|---|---|---|
| – | `Hello`, `Welcome` | the first message, and its answer |
| `re` | `request` | a number; 0 = none |
| `{"ticket", "have"}` | `Present.ticket`, `have` | a ticket of another purpose is refused (`TICKET_KIND`) |
| `{"ticket", "most", "every"}` | `Present.most`, `every` | `most` is `optional` |
| `{"grant", "take", "have"}` | `Take.volume`, `have` |  |
| `{"grant", "release"}`, `{"released"}` | `Release.name`, `Released.name` |  |
| `{"grant", "forget"}`, `{"forgotten"}` | `Forget.memory`, `Forgotten.count` | the answer counts the ids that the server knew |
| `{"grant", "end": true}`, `{"ended"}` | `End`, `Ended` |  |
| `{"export", "of", …}` | `Export.name`, `resource`, … | `kind` and `dtype` (`scalar`) are enums |
| `{"revoked", "grace_seconds"}` | `Revoked.name`, `grace` | a `google.protobuf.Duration` |
| `{"scan", "most"}` | `FeedOpened` |  |
| `{"index", "sealed_ns", "skipped", …}` | `FeedVolume` | `sealed_monotonic_ns`; the export is in `exported` |
| `{"scan_ended", "skipped"}` | `FeedEnded.scan`, `skipped` |  |
| `{"ring": {"bytes", "attachment"}}` | `Ring.byte_size`, `attachment` |  |
| `{"error": {"code", "reason", "field", "message", "numbers"}}` | `Refused` | `code` is a number of `google.rpc.Code`; `values` for `numbers`; `versions` where a connection is refused |
"""
# Fields that have another name or type: old → (new, what to do).
RENAMED = {
    "AcquireLeaseRequest.seconds": ("AcquireLeaseRequest.ttl", "`google.protobuf.Duration` for double"),
    "AcquireLeaseRequest.wait_seconds": ("AcquireLeaseRequest.wait", "`google.protobuf.Duration` for double"),
    "AdmissionReport.seconds_to_disk_full": ("AdmissionReport.time_to_disk_full", "`google.protobuf.Duration` for double"),
    "AdmissionReport.seconds_to_memory_full": ("AdmissionReport.time_to_memory_full", "`google.protobuf.Duration` for double"),
    "AdmissionReport.seconds_to_spill_full": ("AdmissionReport.time_to_spill_full", "`google.protobuf.Duration` for double"),
    "Angiography.method": ("Angiography.contrast_method", ""),
    "ApplyOpRequest.ttl_seconds": ("ApplyOpRequest.ttl", "`google.protobuf.Duration` for double"),
    "ArrayOperation.Resize.no_anti_aliasing": ("ArrayOperation.ResizeParameters.anti_aliasing", "the opposite; unset = true"),
    "ArrayOperation.Resize.nearest": ("ArrayOperation.ResizeParameters.sampling", "SAMPLING_NEAREST for true"),
    "Buffer.create_time": ("Buffer.create_time", "`google.protobuf.Timestamp` for Time"),
    "Buffer.expires_seconds": ("Buffer.expire_time", "`google.protobuf.Timestamp` for double"),
    "Buffer.private": ("Buffer.is_private", ""),
    "Camera.frame_timeout_s": ("Camera.frame_timeout", "`google.protobuf.Duration` for double"),
    "ClientSession.expires_seconds": ("ClientSession.expire_time", "`google.protobuf.Timestamp` for double"),
    "ClientSession.opened": ("ClientSession.create_time", "`google.protobuf.Timestamp` for Time"),
    "ClientSession.seen": ("ClientSession.last_seen_time", "`google.protobuf.Timestamp` for Time"),
    "CommitResult.seconds": ("CommitResult.elapsed", "`google.protobuf.Duration` for double"),
    "CreateBufferRequest.private": ("CreateBufferRequest.is_private", ""),
    "CreateBufferRequest.ttl_seconds": ("CreateBufferRequest.ttl", "`google.protobuf.Duration` for double"),
    "DeviceStatus.limbo_bytes": ("DeviceStatus.detached_bytes", ""),
    "ElementType.scalar": ("ElementType.dtype", "`Dtype` for Scalar"),
    "ExportStatus.create_time": ("ExportStatus.create_time", "`google.protobuf.Timestamp` for Time"),
    "ExportStatus.limbo": ("ExportStatus.detached", ""),
    "Frame.acquired": ("Frame.acquire_time", "`google.protobuf.Timestamp` for Time"),
    "Frame.display": ("Frame.display_levels", ""),
    "Frame.published": ("Frame.publish_time", "`google.protobuf.Timestamp` for Time"),
    "Job.created": ("Job.create_time", "`google.protobuf.Timestamp` for Time"),
    "Job.ended": ("Job.end_time", "`google.protobuf.Timestamp` for Time"),
    "Job.eta_seconds": ("Job.eta", "`google.protobuf.Duration` for double"),
    "Job.kind": ("Job.kind", "`JobKind` for string"),
    "Job.log": ("Job.log_lines", ""),
    "Job.log_count": ("Job.log_lines_total", ""),
    "Job.reason_code": ("Job.reason_code", "`Reason` for string"),
    "Job.stage": ("Job.stage", "`JobStage` for string"),
    "Job.started": ("Job.start_time", "`google.protobuf.Timestamp` for Time"),
    "JobLogLine.seconds": ("JobLogLine.elapsed", "`google.protobuf.Duration` for double"),
    "JobSpec.ttl_seconds": ("JobSpec.ttl", "`google.protobuf.Duration` for double"),
    "JobStep.seconds": ("JobStep.elapsed", "`google.protobuf.Duration` for double"),
    "JobStep.stage": ("JobStep.stage", "`JobStage` for string"),
    "LeaseGrant.expires_seconds": ("LeaseGrant.expire_time", "`google.protobuf.Timestamp` for double"),
    "MeasureRequest.seconds": ("MeasureRequest.duration", "`google.protobuf.Duration` for double"),
    "Measurement.seconds_per_round": ("Measurement.round_duration", "`google.protobuf.Duration` for double"),
    "OpenRingResponse.expires_seconds": ("OpenRingResponse.expire_time", "`google.protobuf.Timestamp` for double"),
    "OpenSessionResponse.expiry_seconds": ("OpenSessionResponse.expiry", "`google.protobuf.Duration` for double"),
    "OpenSessionResponse.heartbeat_seconds": ("OpenSessionResponse.heartbeat_interval", "`google.protobuf.Duration` for double"),
    "Products.no_mip": ("Products.mip", "the opposite; unset = true"),
    "Push.idle_timeout_s": ("Push.idle_timeout", "`google.protobuf.Duration` for double"),
    "PushedProjections.idle_timeout_s": ("PushedProjections.idle_timeout", "`google.protobuf.Duration` for double"),
    "ReadBufferRequest.count": ("ReadBufferRequest.count", "`int64` for uint64"),
    "ReadBufferRequest.start": ("ReadBufferRequest.start", "`int64` for uint64"),
    "RenewLeaseRequest.seconds": ("RenewLeaseRequest.ttl", "`google.protobuf.Duration` for double"),
    "Retention.ttl_seconds": ("Retention.ttl", "`google.protobuf.Duration` for double"),
    "Retention.ttl_warning_seconds": ("Retention.ttl_warning", "`google.protobuf.Duration` for double"),
    "Ring.idle_timeout_s": ("Ring.idle_timeout", "`google.protobuf.Duration` for double"),
    "Ring.restart_grace_s": ("Ring.restart_grace", "`google.protobuf.Duration` for double"),
    "RotationCenter.method": ("RotationCenter.search_method", ""),
    "Scan.created": ("Scan.create_time", "`google.protobuf.Timestamp` for Time"),
    "Scan.ended": ("Scan.end_time", "`google.protobuf.Timestamp` for Time"),
    "Scan.reason_code": ("Scan.reason_code", "`Reason` for string"),
    "Scan.started": ("Scan.start_time", "`google.protobuf.Timestamp` for Time"),
    "ScanEvent.time": ("ScanEvent.event_time", "`google.protobuf.Timestamp` for Time"),
    "SubscribeRequest.no_preview": ("SubscribeRequest.preview", "the opposite; unset = true"),
    "TomographyPreparation.Rings.keep_scale": ("TomographyPreparation.Rings.rescale_columns", "the opposite; unset = true"),
    "TomographyPreparation.Rings.method": ("TomographyPreparation.Rings.removal_method", ""),
    "TomographyPreparation.Rings.no_wavelet_padding": ("TomographyPreparation.Rings.wavelet_padding", "the opposite; unset = true"),
    "TomographyPreparation.no_logarithm": ("TomographyPreparation.logarithm", "the opposite; unset = true"),
    "TomographyReport.center_check_method": ("TomographyReport.center_check_method", "`RotationCenter.Method` for string"),
    "TomographyReport.stop": ("TomographyReport.stop", "`TomographyReport.Stop` for string"),
    "UpdateBufferRequest.ttl_seconds": ("UpdateBufferRequest.ttl", "`google.protobuf.Duration` for double"),
    "Volume.acquired_begin": ("Volume.acquire_begin_time", "`google.protobuf.Timestamp` for Time"),
    "Volume.acquired_end": ("Volume.acquire_end_time", "`google.protobuf.Timestamp` for Time"),
    "Volume.expires_seconds": ("Volume.expire_time", "`google.protobuf.Timestamp` for double"),
    "Volume.held_seconds": ("Volume.hold_time", "`google.protobuf.Timestamp` for double"),
    "Volume.moving": ("Volume.moving", "`VolumeMove` for string"),
    "Volume.quantity": ("Volume.quantity", "`Quantity` for string"),
}
MOVED.update(RENAMED)


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
                if one is None or f"{old}.{method.name}" in MOVED:
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
            if name not in self.new_messages or short(name) in MOVED:
                self._say("Messages", short(name))
                for field in message.field:
                    if f"{short(name)}.{field.name}" in MOVED:
                        self._say("Fields", f"{short(name)}.{field.name}")
                continue
            named = {field.name: field for field in self.new_messages[name].field}
            for field in message.field:
                self._field(short(name), field, named.get(field.name))

    def _field(self, scope, old, same_name):
        label = f"{scope}.{old.name}"
        renamed_type = same_name is not None and type_of(same_name) != type_of(old) and MOVED.get(type_of(old), ("",))[0] != type_of(same_name)
        if same_name is not None and not renamed_type:
            if same_name.proto3_optional and not old.proto3_optional:
                self._say("Fields", label, label, "`optional`: unset stands for what the flag beside it was for")
            return
        if old.name.endswith("_set") and label not in MOVED:
            self._say("Fields", label, "", f"set `{old.name[:-4]}`, or leave it unset")
        else:
            self._say("Fields", label)

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
    return "\n".join(lines) + "\n" + WIRE


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
