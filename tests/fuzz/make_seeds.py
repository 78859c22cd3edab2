#!/usr/bin/env python3
"""Writes the first inputs of the fuzz targets for requests, lists, the hand-over, rings and files below a folder, one folder for each
target. Needs protoc and openssl. Usage: make_seeds.py FOLDER"""

import json
import os
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
PROTO = os.path.join(SOURCE, "proto")


def encode(message, text, package="octavo.v1", files=None):
    files = files or [f"octavo/v1/{name}" for name in sorted(os.listdir(os.path.join(PROTO, "octavo", "v1"))) if name.endswith(".proto")]
    return subprocess.run(["protoc", "-I", PROTO, f"--encode={package}.{message}", *files], input=text.encode(), stdout=subprocess.PIPE, check=True).stdout


def number_of(name):
    """As NumberOfRequest in request_types.h."""
    number = 5381
    for byte in name.encode():
        number = (number * 33 + byte) & 0xFFFFFFFF
    return (number ^ number >> 16) & 0xFFFF


# -- requests

RASTER = "raster {ascans_per_bscan: 16 bscans_per_volume: 8 volumes: 2 extent_x_mm: 2 extent_y_mm: 1 bidirectional: true flyback_records: 2}"
ACQUISITION = "acquisition {samples_per_record: 1024 raw_type: RAW_TYPE_U12P record_rate_hz: 100000 records_per_block: 64 channels: 1 record_average: 2 adc_bits: 12}"
PROCESSING = ("processing {background {mode: MODE_ROLLING window_records: 64 group_records: 8} k_linearisation {wavelength_nm {values: [800, 810, 820]}} dispersion {a2: 1 a3: -0.5} "
              "window_values: [1, 0.5, 1] fft_length: 2048 depth: 100 levels {lo: -10 hi: 60} refractive_index: 1.3 fixed_pattern_noise: FIXED_PATTERN_NOISE_MEAN}")


def scan(source, pattern=RASTER, more=""):
    return f'title: "eye" labels {{key: "eye" value: "left"}} {source} {ACQUISITION} pattern {{{pattern}}} {more}'


SCANS = {
    "simulated": scan("simulated {seed: 7 centre_wavelength_nm: 840 bandwidth_nm: 50 noise_counts: 2 layers {depth_um: 200 reflectivity: 0.5} scatterers: 10}"),
    "replay": scan('replay {path: "/data/a.raw" rate_hz: 1000 loops: 2 header_bytes: 16}',
                   "repeated_raster {raster {ascans_per_bscan: 8 bscans_per_volume: 4 extent_x_mm: 1 extent_y_mm: 1} repeat {count: 3 period: 2 strategy: STRATEGY_PACK}}"),
    "push": scan("push {credit_blocks: 8 idle_timeout {seconds: 10}}", "radial {ascans_per_bscan: 16 bscans_per_volume: 6 radius_end_mm: 1 angle_end_deg: 180}"),
    "ring": scan("ring {slots: 8 idle_timeout {seconds: 10} restart_grace {seconds: 5} producer_waits: true}", "spiral {ascans_per_ring: 32 rings: 4 outer_radius_mm: 1}"),
    "camera": scan('camera {id: "cam-1" pixel_format: "Mono12p" width: 2048 height: 512 exposure_us: 10 gain: 1 frame_rate_hz: 100 buffers: 8}',
                   "lissajous {ascans_per_row: 32 rows: 16 extent_x_mm: 1 extent_y_mm: 1 cycles_x: 3 cycles_y: 4 phase_x_deg: 90}"),
    "freeform": scan("simulated {}", "freeform {x_mm: [0, 1, 2, 3] y_mm: [0, 0, 1, 1] ascans_per_bscan: 2} rotation_deg: 30 offset_x_mm: 1 telecentric_warp {galvo_lens_spacing_mm: 50 scale_rad_per_deg: 0.03}"),
    "kept": scan("simulated {}", more=PROCESSING + ' products {mip: true aip: true preview_rate_hz: 20} retention {mode: RETENTION_MODE_LIVE keep_last: 4 on_full: ON_FULL_DROP_NEW ttl {seconds: 60} '
                 'auto_commit {destination: "out.ome.zarr" chunk: [32, 32, 32] codec: CODEC_ZSTD}} device: "devices/0" spread {count: 2 striped: true} '
                 'queue {name: "a" insert: INSERT_APPEND} markers {name: "stim" at: AT_RECORD every: 100} chains {name: "small" operations {resize {shape: [8, 8, 8]}}}'),
}
OPERATIONS = ("operations {gaussian {sigma: [1, 1, 1]}} operations {crop {start: [0, 0, 0] count: [4, 4, 4]}} operations {reduce {kind: REDUCE_KIND_MAX axes: 0}} "
              "operations {affine {matrix: [1, 0, 0, 1] offset: [0, 0] sampling: SAMPLING_LINEAR}} operations {select {above {otsu {}}}}")
JOBS = {
    "reprocess": 'reprocess {volume: "volumes/1" processing {fft_length: 512} operations {array {slab {axis: 2 begin: 1 end: 4}}}}',
    "tomography": 'tomography {file {path: "/data/p.h5" projections: "exchange/data"} angles_rad: [0, 1, 2] center {search_method: METHOD_VO} reconstruction {algorithm: ALGORITHM_SIRT iterations: 10} '
                  "preparation {rings {removal_method: METHOD_SORTING sorting_window: 21} bin_rows: 2}}",
    "push": "tomography {push {} try_centers {begin: 10 end: 20 step: 0.5}}",
    "projection": 'projection {input: "volumes/1" adjoint: true angles_rad: [0, 1, 2] axis_pixels: 3.5 columns: 8 interpolation: INTERPOLATION_CUBIC pixel_size: 2 mask_ratio: 0.5 place: RESULT_PLACE_DISK}',
    "autofocus": 'dispersion_autofocus {volume: "volumes/1"}',
    "k_calibration": 'k_calibration {volume: "volumes/1"}',
    "import": 'volume_import {path: "/data/a.npy" format: INPUT_FORMAT_NPY axes: ["z", "y", "x"] spacing_um {key: "x" value: 2} dtype: DTYPE_F32 raw {dtype: DTYPE_U16 shape: [2, 3, 4]}}',
}


def requests():
    yield from ((f"scan_{name}", "SubmitScanRequest", f'request_id: "r-{name}" spec {{{spec}}}') for name, spec in SCANS.items())
    yield "plan", "PlanScanRequest", f"spec {{{SCANS['kept']}}}"
    yield "waveform", "PlanWaveformRequest", f"spec {{{SCANS['simulated']}}} first_sample: 5"
    yield "update", "UpdateScanRequest", 'name: "scans/1" update_mask {paths: "dispersion"} processing {dispersion {a2: 1}}'
    yield from ((f"job_{name}", "SubmitJobRequest", f'request_id: "j" spec {{title: "t" priority: 3 {spec}}}') for name, spec in JOBS.items())
    yield "create", "CreateBufferRequest", 'type {dtype: DTYPE_F32 lanes: 2} shape: [2, 3, 4] placement {devices: "devices/0"} labels {key: "a" value: "b"} ttl {seconds: 5} request_id: "r"'
    yield "write", "WriteBufferRequest", 'header {name: "buffers/1" target {replica: 1} byte_offset: 8 total_bytes: 24 type {dtype: DTYPE_U8 lanes: 1} shape: 24 crc32c: 5 lease_token: "t"}'
    yield "write_data", "WriteBufferRequest", 'data: "0123456789"'
    yield "write_unknown_type", "WriteBufferRequest", 'header {name: "buffers/1" type {dtype: 259 lanes: 1}}'
    yield "read", "ReadBufferRequest", 'name: "buffers/1" selector {stacked: true} start: [0, 0] count: [1, 2] chunk_bytes: 65536'
    yield "apply", "ApplyOpRequest", f'input: "buffers/1" output: "buffers/2" request_id: "a" {OPERATIONS} operations {{combine {{kind: KIND_ADD other: "buffers/3"}}}}'
    yield "update_buffer", "UpdateBufferRequest", 'name: "buffers/1" labels {key: "a" value: "b"} update_mask {paths: ["labels", "ttl"]} ttl {seconds: 60}'
    yield "commit_buffer", "CommitBufferRequest", 'name: "buffers/1" axes: ["y", "x"] spacing_um: [1, 2] title: "t" options {destination: "a.npy" pyramid_levels: 2} request_id: "c" wait {seconds: 1}'
    yield "import_buffer", "ImportBufferRequest", 'kind: IMPORT_KIND_HOST_MEMFD type {dtype: DTYPE_U16 lanes: 1} shape: [4, 4] byte_size: 32 device: "devices/0" session_secret: "s" request_id: "i"'
    yield "commit", "CommitVolumeRequest", 'name: "volumes/1" options {destination: "a.ome.zarr" chunk: [32, 32, 32] shard: [64, 64, 64] pyramid_um: [10, 20]} wait {nanos: 5}'
    yield "derive", "DeriveVolumeRequest", 'name: "volumes/1" request_id: "d" operations {array {median {size: 3}}} operations {array {flip {axes: 0}}}'
    yield "volume", "ReadVolumeRequest", 'name: "volumes/1" start: [0, 0, 0] count: [1, 1, 1] downsample: 4 downsampling: DOWNSAMPLING_MEAN window {lo: 0 hi: 9} chunk_bytes: 1048576'
    yield "render", "RenderVolumeRequest", 'name: "volumes/1" rendering: RENDERING_MAX axis: AXIS_Z encoding: ENCODING_PNG image {max_width: 512 colour_map: COLOUR_MAP_VIRIDIS} begin: 1 end: 5'
    yield "subscribe", "SubscribeRequest", 'parent: "scans/1" products: [PRODUCT_MIP] encoding: ENCODING_JPEG image {max_width: 100} max_rate_hz: 10 chunk_bytes: 65536'
    yield "register", "RegisterTilesRequest", 'tiles {name: "buffers/1" spacing_um {y: 1 x: 1} stack {}} stage_um {y: 0 x: 0} stage_um {y: 0 x: 90}'
    yield "stitch", "StitchTilesRequest", 'tiles {name: "buffers/1" grid {tile_y: 8 tile_x: 8}} position_um {y: 0 x: 0} request_id: "s"'
    yield "overlap", "FindZOverlapRequest", 'fixed: "buffers/1" moving: "buffers/2" slicing_interval_um: 100 spacing_z_um: 5'
    yield "stack", "StackSectionsRequest", 'sections {name: "buffers/1"} sections {name: "buffers/2" position_um {z: 100}} spacing_um {z: 5 y: 1 x: 1} request_id: "s"'
    yield "resample", "ResampleTilesRequest", 'tiles {name: "buffers/1"} target_um {z: 0 y: 2 x: 2} request_id: "r"'
    yield "export", "ExportRequest", 'name: "volumes/1" accept: [EXPORT_KIND_HOST_MEMFD] lease_token: "t"'
    yield "pushed", "PushRequest", 'scan: "scans/1" first_record: 5 records: 2 markers {name: "m" record: 1} data: "0123456789abcdef"'
    yield "projections", "PushProjectionsRequest", 'job: "jobs/1" data: "0123456789abcdef"'
    yield "import_volume", "ImportVolumeRequest", f'title: "t" {JOBS["import"]} wait {{seconds: 2}} request_id: "i"'
    yield "lease", "AcquireLeaseRequest", 'resource: "buffers/1" session_secret: "s" ttl {seconds: 5} wait {seconds: 1} holder: "me"'
    yield "list", "ListVolumesRequest", 'parent: "scans/1" page_size: 10 filter: "bytes > 5" order_by: "name"'


def request_seeds():
    for name, message, text in requests():
        try:
            yield name, struct.pack("<H", number_of(message)) + encode(message, text)
        except subprocess.CalledProcessError:
            raise SystemExit(f"{name}: {message} has no such fields: {text}")


# -- lists

def list_seeds():
    texts = [
        (0, 'state = RUNNING AND title = "eye*"', "create_time desc, name"), (1, 'bytes >= 1000 labels:eye -state = HELD', "bytes desc"),
        (1, 'create_time > "2026-01-01T00:00:00Z" OR NOT (name = "volumes/1")', ""), (2, "progress.fraction < 0.5 done_time:*", "title"), (3, "replicas.device:\"devices/0\" shape:64", "byte_size"),
        (4, "name:*", "name desc"), (5, "done = true (kind = COMMIT OR kind = DERIVE)", "progress.done_bytes"), (6, 'client = "a\\"b\\*"', ""), (7, "fence > 5", "fence"), (8, "memory_total_bytes > 1e9", ""),
        (9, 'id = "*cam*"', ""), (0, "labels.eye != 'left'", "labels.eye"), (1, "ttl > 1.5s", ""), (0, "(" * 20 + "name:*" + ")" * 20, ""),
    ]
    volume = encode("Volume", 'name: "volumes/1" parent: "scans/1" labels {key: "eye" value: "left"} shape: [4, 5, 64]')
    for i, (kind, text, order) in enumerate(texts):
        yield str(i), bytes([kind]) + struct.pack("<h", 10) + text.encode() + b"\0" + order.encode() + b"\0\0" + (volume if kind == 1 else b"")


# -- hand-over

def hand(message, text):
    return encode(message, text, "octavo.handoff.v1", ["octavo/handoff/v1/handoff.proto"])


def packets(*parts):
    return b"".join(bytes([flags]) + struct.pack("<H", len(data)) + data for flags, data in parts)


def hello(purpose, oldest=1, newest=1):
    return hand("ClientMessage", f"request: 1 hello {{versions {{oldest: {oldest} newest: {newest}}} purpose: {purpose}}}")


def handoff_server_seeds():
    def present(digit, more=""):
        return hand("ClientMessage", f'request: 2 present {{ticket: "{str(digit) * 32}" {more}}}')
    follow = {1: 'take {volume: "volumes/1" have: "00"}', 2: 'forget {memory: ["a", "b"]}', 3: "end {}", 4: "publish {}", 5: "end {}"}
    for kind, purpose in enumerate(("MEMORY", "FEED", "RING", "IMPORT", "FILE"), 1):
        descriptor = int(kind >= 4)
        yield purpose.lower(), packets((0, hello(f"PURPOSE_{purpose}")), (descriptor, present(kind, 'have: "0123" most: 3 every: true')),
                                       (0, hand("ClientMessage", f"request: 3 grant: 1 {follow[kind]}")), (0, hand("ClientMessage", "request: 4 grant: 1 end {}")))
    yield "refused", packets((0, hello("PURPOSE_MEMORY")), (0, present(6)), (0, present(1)), (0, present(1)), (0, present(7)), (1, present(2)))
    yield "release", packets((0, hello("PURPOSE_MEMORY")), (0, present(1)), (0, hand("ClientMessage", 'grant: 1 release {name: "exports/1"}')))
    yield "versions", packets((0, hello("PURPOSE_MEMORY", 2, 9)))
    yield "many", packets((0, hello("PURPOSE_IMPORT")), (3, present(4)), (2, present(4)), (5, present(4)))


def handoff_client_seeds():
    welcome = hand("ServerMessage", "request: 1 welcome {version: 1 versions {oldest: 1 newest: 1}}")

    def exported(request, memory, mapped=4096, offset=0, size=64, kind="HOST_MEMFD", dtype="U16"):
        return hand("ServerMessage", f'request: {request} grant: 1 exported {{name: "exports/{request}" resource: "volumes/1" memory: "{memory}" generation: 1 kind: MEMORY_KIND_{kind} '
                                     f'device_uuid: "host-0" mapped_bytes: {mapped} byte_offset: {offset} byte_size: {size} dtype: DTYPE_{dtype} lanes: 1 shape: [2, 4, 4] digest: "d"}}')
    refused = hand("ServerMessage", 'request: 2 refused {code: 9 reason: "EXPORT_REVOKED" message: "gone" field: "name" values {name: "exports" value: "2"}}')
    revoked = hand("ServerMessage", 'revoked {name: "exports/2" grace {seconds: 5}}')
    yield "memory", b"\0" + packets((0, welcome), (3, exported(2, "0a")), (0, revoked), (0, exported(3, "0a", offset=64)), (5, exported(4, "0b", 8192, 4096, 4096)))
    yield "short", b"\0" + packets((0, welcome), (3, exported(2, "0a", 8192, 0, 8192)), (0, refused))
    yield "kinds", b"\0" + packets((0, welcome), (3, exported(2, "0a", kind="CUDA_VMM")), (3, exported(3, "0b", dtype="UNSPECIFIED")), (3, exported(4, "0c", size=0)))
    yield "refused", b"\0" + packets((0, hand("ServerMessage", 'refused {code: 12 reason: "PROTOCOL_VERSION" message: "no" versions {oldest: 2 newest: 2}}')))
    yield "lent", b"\1" + packets((0, welcome), (0, hand("ServerMessage", 'request: 2 grant: 4 imported {name: "buffers/1" kind: MEMORY_KIND_HOST_MEMFD mapped_bytes: 4096 version: 1}')),
                                  (0, hand("ServerMessage", "request: 3 grant: 4 published {version: 2}")), (0, hand("ServerMessage", 'import_ended {name: "buffers/1" why: WHY_RELEASED}')),
                                  (0, hand("ServerMessage", "request: 4 grant: 4 ended {}")))
    yield "ring", b"\2" + packets((0, welcome), (7, hand("ServerMessage", "grant: 1 ring {byte_size: 16384 attachment: 1}")))
    yield "ring_refused", b"\2" + packets((0, welcome), (0, hand("ServerMessage", 'refused {code: 7 reason: "TICKET_UNKNOWN" message: "no such ticket"}')))


# -- rings

def ring_seeds():
    right = b"\x02\x02\x00\x0f\x01\x02\x00\x0f\x12\x02\x00\x01\x00\x01\x0a" + b"\0" * 16
    yield "right", b"\0\x1f\0" + right
    yield "overrun", b"\0\x9f\1\x40\0" + b"\x12\x22\x02\x00\x00\x00\x0f" + b"\x1a" + struct.pack("<QQ", 900, 5) + b"\x00\x0f"
    yield "words", b"\0\x1f\0" + b"\x05" + struct.pack("<Q", 0) + b"\x06" + struct.pack("<Q", 2**63) + b"\x07" + struct.pack("<I", 2) + b"\x09" + struct.pack("<q", 77) + b"\x04\x00\x0f"
    yield "too_many", b"\0\x1f\0" + b"\x03" + struct.pack("<Q", 2**40) + b"\x00\x0f\x0c\x0d\x02\x00"
    yield "failed", b"\0\x1f\0" + b"\x02\x0ethe laser is off\x2a" + b"\0" * 16 + b"\x00\x00"
    yield "scribbled", b"\2\x1f\0" + struct.pack("<Q", 4711) + (b"\x02\x00\x0f\x01" * 12)
    facts = struct.pack("<QIIQQQQIIIIIIQ", 0x474E49524F54434F, 1, 0, 0, 12288, 16384, 0, 4, 8, 16, 8, 2, 1, 100)
    yield "mapped", b"\3\x05\x00\x01" + facts
    yield "wrapped", b"\3\x05\x00\x01" + struct.pack("<QIIQQQQIIIIIIQ", 0, 1, 0, 0, 2**64 - 64, 12288, 0, 1, 8, 16, 8, 2, 1, 100)


# -- samples

def packed_seeds():
    some = bytes(range(1, 200, 7))
    for high in (0, 0x80):
        yield f"one_{high}", bytes([high]) + struct.pack("<H", 33) + some
        yield f"camera_{high}", bytes([high | 1]) + struct.pack("<H", 34) + some
        yield f"lanes_{high}", bytes([high | 2]) + struct.pack("<H", 40) + bytes([0x17, 7]) + struct.pack("<H", 12) + some
    yield "ids", b"\3" + b"".join(b"\0" + struct.pack("<H", n) for n in (65530, 65531, 65535, 1, 2, 65534, 4))
    yield "wide_ids", b"\3" + b"".join(b"\1" + struct.pack("<Q", n) for n in (0, 1, 5, 2**62, 2**63, 2**64 - 1))


# -- files

def config_seeds():
    with open(os.path.join(SOURCE, "deploy", "octavod.toml")) as file:
        lines = file.read().splitlines()
    # Without the explanations, which a fuzzer would only mix up, and with what they switch off.
    shown = [line.lstrip("#").split("  #")[0].rstrip() for line in lines if not line.startswith("# ")]
    yield "all", ("\n".join(line for line in shown if line) + "\n").encode()
    yield "few", b'[listen]\ntcp = ["127.0.0.1:1", "[::1]:2"]\n[quota]\nexceptions = ["anna scans=2 jobs=10", "role:admin watches=64"]\nroots = "anna=/a,*=/b"\n[drain]\nseconds = 1.5e1\n'
    yield "strings", b'log.level = "debug"\n[storage]\nroots = [\'/a,b\', """/c""", "\\u00e9"]\n'
    yield "flag", b"=session.heartbeat_seconds=0.5"
    yield "list_flag", b"=listen.tcp= 127.0.0.1:1 , [::1]:2,"
    yield "tables", b"[a]\n[[b]]\n[=\na = }\n"


def certificate(folder, name, *more, issuer=None):
    key, pem = os.path.join(folder, f"{name}.key"), os.path.join(folder, f"{name}.pem")
    sign = ["-CA", os.path.join(folder, f"{issuer}.pem"), "-CAkey", os.path.join(folder, f"{issuer}.key")] if issuer else []
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", pem, "-days", "20000", *more, *sign],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    with open(pem, "rb") as file, open(key, "rb") as other:
        return file.read(), other.read()


def security_seeds():
    yield "table", (b'\0[certificates]\n"cn:anna" = { role = "operator", project = "retina" }\n"uri:spiffe://lab/m-2" = { role = "viewer", name = "m-2" }\n'
                    b'["certificates"."sha256:' + b"ab" * 32 + b'"]\nrole = "none"\n')
    yield "names", b'\4"dns:a.example" = { role = "admin" }\n"email:a@b" = { role = "viewer" }\n'
    token = {"id": "0a1b2c3d", "sha256": "ab" * 32, "name": "anna", "role": "operator", "project": "retina", "created": "2026-11-27T10:00:00Z", "expires": "2027-11-27"}
    yield "tokens", b'\1{"octavo_tokens":1}\n' + json.dumps(token).encode() + b"\n" + json.dumps({**token, "id": "0a1b2c3e"}).encode() + b"\n"
    yield "token", b"\5" + json.dumps(token).encode() + b"\n"
    with tempfile.TemporaryDirectory() as folder:
        authority, _ = certificate(folder, "ca", "-subj", "/CN=authority")
        server, key = certificate(folder, "server", "-subj", "/CN=microscope/O=lab", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE",
                                  "-addext", "extendedKeyUsage=serverAuth", issuer="ca")
        client, _ = certificate(folder, "client", "-utf8", "-subj", "/CN=ann\u00e9/CN=second", "-addext", "subjectAltName=URI:spiffe://lab/m,email:a@b.example,DNS:c.example", issuer="ca")
        der = subprocess.run(["openssl", "x509", "-outform", "DER"], input=client, stdout=subprocess.PIPE, check=True).stdout
    yield "pem", b"\2" + client + authority
    yield "der", b"\6" + der
    yield "tls", b"\3" + server + authority + b"\0" + key + b"\0" + authority
    yield "plain_tls", b"\3" + server + b"\0" + key + b"\0"
    grant = {"name": "grants/1", "object": "scans/1", "grantee": "bob", "owner": "ada", "project": "retina", "created_unix_ns": 1, "expires_unix_ns": 1_900_000_000_000_000_000}
    lines = [grant, {**grant, "name": "grants/2", "object": "", "grantee": "cn:Anna Berg", "owner": "uid:1000", "project": ""}]
    yield "grants", b"\7\0" + json.dumps({"format": "octavo grants 1", "server_id": "a1b2c3d4", "grants": lines}).encode()
    yield "grant_lines", b"\7\1" + ",\n".join(map(json.dumps, lines)).encode()
    yield "grants_of_another_server", b"\7\0" + json.dumps({"format": "octavo grants 1", "server_id": "e5", "grants": lines}).encode()


def state_seeds():
    record = '{"id":"c-1","state":"begun","path":"/a/b","bytes":5}'
    yield "journal", b"\0" + b"00000000 {}\nno line\n\n12345678 [1]"
    yield "records", b"\1" + "\n".join((record, '{"id":"c-1","state":"done"}', "[]", '{"a":[[[{}]]]}', "{")).encode()
    lines = ['{"at_risk":"volumes/1","title":"t","scan":"scans/1","bytes":67108864}', '{"at_risk":"volumes/here","bytes":-1}', '{"safe":"volumes/2"}', '{"lost":"volumes/1","reason":"disk full"}',
             '{"at_risk":"volumes/3","bytes":1e99,"title":5}', '{"torn']
    yield "drain", b"\2" + "\n".join(lines).encode()
    yield "spill", b"\4voxels" + b"\0" + b'{"octavo_spill":1,"about":{"volume":"volumes/1"},"bytes":SIZE,"block":1048576,"crc32c":[CRC]}'
    yield "empty_spill", b"\4" + b"\0" + b'{"about":{},"bytes":0,"block":1048576,"crc32c":[]}'
    record = {"version": 1, "id": "a-1", "scan": "scans/a-2", "owner": "ada", "project": "retina", "role": "operator", "early_deaths": 2, "early": True, "begun_unix_ns": 5}
    request = encode("SubmitScanRequest", f'request_id: "r" spec {{{SCANS["simulated"]} on_restart: ON_RESTART_RESUME}}')
    yield "resume", b"\6" + json.dumps(record).encode() + b"\0" + request
    yield "resume_copy", b"\6" + json.dumps({**record, "id": "a-3"}).encode() + b"\0" + request
    yield "damaged_resume", b"\5ORS1" + struct.pack("<II", 0, 1 << 31) + b"{}"
    yield "damaged_spill", b"\3" + b"x" * 40 + struct.pack("<QI", 8, 0) + b"OSP1"


SEEDS = {
    "request_fuzz": request_seeds, "list_query_fuzz": list_seeds, "handoff_server_fuzz": handoff_server_seeds, "handoff_client_fuzz": handoff_client_seeds, "ring_fuzz": ring_seeds,
    "packed_samples_fuzz": packed_seeds, "config_fuzz": config_seeds, "security_files_fuzz": security_seeds, "state_files_fuzz": state_seeds,
}

if __name__ == "__main__":
    for target, seeds in SEEDS.items():
        folder = os.path.join(sys.argv[1], target)
        os.makedirs(folder, exist_ok=True)
        for name, data in seeds():
            with open(os.path.join(folder, f"seed_{name}"), "wb") as file:
                file.write(data)
