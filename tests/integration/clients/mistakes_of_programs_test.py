"""The table of mistakes with the programs octavo and octavod: every mistake gets an answer, and the
answer names the correct form."""

import dataclasses
import os
import tempfile
import unittest

import h5py
import numpy as np

from harness import DaemonTest, octavo
from mistakes import Mistakes, row
from web_viewer import node

GEOMETRY = "--ascans 16 --bscans 8 --volumes 1"
SIMULATED = f"scan submit --source simulated --fast {GEOMETRY} --samples 256"

SOURCES = [
    row(f"scan submit {GEOMETRY}", "--source: is not given; allowed simulated, replay, push, camera, ring", "--path FILE, which means replay"),
    row(f"scan plan {GEOMETRY}", "--source: is not given"),
    row(f"scan submit --fast {GEOMETRY}", "--source: is not given", "--fast is for --source simulated"),
    row(f"scan submit --camera x {GEOMETRY}", "--source: is not given", "--camera is for --source camera"),
    row(f"scan submit --source simulator {GEOMETRY}", "--source: is 'simulator'; allowed simulated, replay, push, camera, ring; did you mean simulated?"),
    row(f"scan submit --source simulated --path {{raw}} --samples 256 {GEOMETRY}", "--path: is for replay; the source is simulated (--source)"),
    row(f"scan submit --path {{raw}} --samples 256 --fast {GEOMETRY}", "--fast: is for simulated; the source is replay (--path)"),
    row(f"scan submit --path {{raw}} --samples 256 --seed 3 {GEOMETRY}", "--seed: is for simulated; the source is replay (--path)"),
    row(f"scan submit --source simulated --loops 3 {GEOMETRY}", "--loops: is for replay; the source is simulated (--source)"),
    row(f"scan submit --source push --samples 256 --exposure 3 {GEOMETRY}", "--exposure: is for camera; the source is push (--source)"),
    row(f"scan submit --source replay --samples 256 {GEOMETRY}", "--path: is not given; the source replay needs a file"),
    row(f"scan submit --path {{raw}} {GEOMETRY}", "--samples: is not given; a raw file does not say how long its records are", "16 to 65536"),
    row(f"scan submit --source push {GEOMETRY}", "--samples: is not given; the source push needs it"),
    row(f"scan submit --source ring {GEOMETRY}", "--samples: is not given; the source ring needs it"),
    row(f"scan submit --json-spec {{spec}} --loops 2 {GEOMETRY}", "--loops: is for replay; the source is simulated (--json-spec)"),
    row("scan submit --json-spec {raw}", "--json-spec: {raw} is no ScanSpec"),
    row("scan submit --json-spec {none}", "--json-spec: cannot read {none}; allowed are a file, or JSON itself, which begins with {{"),
    row("scan submit --json-spec '{{\"simulatd\": {{}}}}'", "--json-spec: is no ScanSpec: there is no simulatd; allowed title, labels, ", "; did you mean simulated?"),
    row("scan submit --json-spec '{{\"pattern\": {{\"raster\": {{\"ascans\": 3}}}}}}'", "there is no pattern.raster.ascans; allowed ascans_per_bscan, bscans_per_volume"),
    row("scan submit --json-spec '{{\"processing\": {{\"window\": \"HANN\"}}}}'", "processing.window is 'HANN'; allowed WINDOW_KIND_RECT, WINDOW_KIND_HANN"),
    row("scan submit --json-spec '{{\"chains\": [{{\"operations\": [{{\"mipp\": {{}}}}]}}]}}'", "there is no chains[0].operations[0].mipp; allowed copy, fill", "did you mean mip?"),
    row("scan submit --json-spec '{{\"simulated\": }}'", "--json-spec: is no ScanSpec: "),
    row("scan submit --json-spec '{{\"simulated\": {{}}}}' --loops 2", "--loops: is for replay; the source is simulated (--json-spec)"),
    row("job submit --json-spec {none}", "--json-spec: cannot read {none}"),
    row("job submit --json-spec '{{\"tomografy\": {{}}}}'", "--json-spec: is no JobSpec", "tomografy"),
]

VIEWER = [
    row("web --listen 8050", "--listen: is '8050'; allowed HOST:PORT"),
    row("web --listen 0.0.0.0:0", "--listen: is '0.0.0.0:0', which other computers can reach", "--tls-cert", "--insecure"),
    row("--token-file {raw} web", "--token-file: is '{raw}', which holds no token"),
    row("--ca-file {raw} web", "--ca-file: is '{raw}', which holds none; allowed is a PEM file with certificates"),
    row("--ca-file {none} info", "--ca-file: is '{none}', which cannot be read"),
    row("--cert-file {raw} info", "--key-file: is not given, and --cert-file is; a certificate and its key belong together"),
    row("--key-file {raw} info", "--cert-file: is not given, and --key-file is"),
    row("--cert-file {raw} --key-file {raw} info", "--ca-file: is not given, and --cert-file is"),
    row("web --tls-cert {raw}", "--tls-key: is not given; --tls-cert and --tls-key belong together"),
    row("web --tls-cert {none} --tls-key {none}", "--tls-cert: is '{none}'; allowed a PEM file that can be read"),
    row("web --host 'a b'", "--host: is 'a b'; allowed the name or address of a host, without a port"),
    row("web --read-onyl", "--read-onyl", "--read-only"),
]

SCANS = [
    row(f"{SIMULATED} --dtype float", "--dtype: is 'float'; allowed u8, i8, u16, f16, f32, c64"),
    row(f"{SIMULATED} --dtype int64", "--dtype: is 'int64'; allowed u8"),
    row(f"{SIMULATED} --dtype f64", "--dtype: is 'f64'; allowed u8, i8, u16, f16, f32, c64\n"),
    row(f"{SIMULATED} --window haning", "--window: is 'haning'; allowed rect, hann, hamming, gauss, blackman, flat-top; did you mean hann?"),
    row(f"{SIMULATED} --seed -1", "--seed: is '-1'; allowed are whole numbers from 0 on"),
    row(f"{SIMULATED} --seed 99999999999999999999", "--seed: is '99999999999999999999'; allowed are whole numbers from 0 on; this one is too large"),
    row(f"scan submit --path {{raw}} --samples 256 --header-bytes -5 {GEOMETRY}", "--header-bytes: is '-5'; allowed are whole numbers from 0 on"),
    row(f"{SIMULATED} --value dB", "--value: is 'dB'; allowed db, magnitude, power, real, complex"),
    row(f"{SIMULATED} --interp spline", "--interp: is 'spline'; allowed linear, cubic, lanczos"),
    row(f"{SIMULATED} --background static", "--background: is 'static'; allowed none, rolling, bscan"),
    row(f"{SIMULATED} --raw-type uint32", "--raw-type: is 'uint32'; allowed u8, u16, i16, f32, u12p, u12-packed"),
    row(f"{SIMULATED} --mode continuous", "--mode: is 'continuous'; allowed live, capture"),
    row(f"{SIMULATED} --on-full spill", "--on-full: is 'spill'; allowed stop-at-volume, drop-new, spill-host, spill-disk; did you mean spill-host?"),
    row(f"{SIMULATED} --disposition commit", "--disposition: is 'commit'; allowed ask, auto-commit, auto-discard"),
    row(f"{SIMULATED} --format dicom", "--format: is 'dicom'; allowed bin, hdf5, mat, nifti, npy, nrrd, tiff, zarr"),
    row(f"{SIMULATED} --format npy", "--format: is for --disposition auto-commit"),
    row(f"{SIMULATED} --destination a", "--destination: is for --disposition auto-commit"),
    row(f"{SIMULATED} --on-tier-full drop-new", "--on-tier-full: is for --on-full spill-host, spill-disk"),
    row(f"{SIMULATED} --poly 1,2", "--poly: and --k poly go together"),
    row(f"{SIMULATED} --k poly", "--poly: and --k poly go together"),
    row(f"{SIMULATED} --k none --interp cubic", "--interp: belongs to the k-linearisation, and --k none switches that off"),
    row(f"scan submit --source push --samples 256 --interp lanczos {GEOMETRY}", "--interp: belongs to the k-linearisation, and the scan has none; --k asks for one"),
    row(f"{SIMULATED} --disposition auto-commit --destination a.nii --format npy", "--format: is npy, and 'a.nii' ends as files of nifti do"),
    row(f"{SIMULATED} --disposition auto-commit --destination a/{{{{index:05}}}}.nii.gz",
        "--destination: is 'a/{{index:05}}.nii.gz', and compressed files (.nii.gz) are not written: give the name without .gz"),
    row(f"{SIMULATED} --disposition auto-commit --destination a.png", "--destination: is 'a.png', and files that end in .png are not written"),
    row(f"{SIMULATED} --disposition auto-commit --destination sub/", "--destination: is 'sub/', a folder; allowed are names of files, such as sub/{{index:05}}"),
    row(f"{SIMULATED} --k polynomial", "--k: is 'polynomial', no file that can be read; allowed none, source, poly"),
    row(f"{SIMULATED} --k {{words}}", "--k: is '{words}', which holds something that is no number behind 2 numbers; allowed is a text file of wavelengths in nm"),
    row(f"{SIMULATED} --k {{outside}}/whole.npy", "--k: is '{outside}/whole.npy', a .npy file; allowed is a text file of wavelengths in nm", "np.savetxt writes one"),
    row(f"{SIMULATED} --background none --window-records 64", "--window-records: is for --background rolling"),
    row(f"{SIMULATED} --label mouse", "--label: 'mouse' is not key=value"),
    row(f"{SIMULATED} --pattern rasta", "--pattern: is 'rasta'; allowed raster, repeated-raster", "did you mean raster?"),
    row(f"{SIMULATED} --cycles 7,5", "--cycles: is for lissajous; the pattern is raster"),
    row(f"{SIMULATED} --repeats 3", "--repeats: is for repeated-raster, repeated-radial; the pattern is raster"),
    row(f"{SIMULATED} --pattern spiral --flyback 3", "--flyback: is for raster, repeated-raster, radial, repeated-radial, freeform; the pattern is spiral"),
    row(f"{SIMULATED} --radius 1,2", "--radius: is for radial, repeated-radial, spiral; the pattern is raster"),
    row(f"{SIMULATED} --warp-factor 3", "--warp-factor: is for --warp angular"),
    row("scan submit --source simulated --pattern freeform", "--points: is not given; the pattern freeform needs a file"),
    row("scan submit --source simulated --ascans 100000 --bscans 100000", "pattern.raster.bscans_per_volume", "allowed", code=1),
    row(f"{SIMULATED} --levels=5,5", "processing.levels", "(--levels)", code=1),
    row(f"{SIMULATED} --rate nan", "acquisition.record_rate_hz", "(--rate)", code=1),
    row(f"scan submit --path {{raw}} --samples 256 --rate nan {GEOMETRY}", "rate_hz", "--rate", code=1),
    row(f"{SIMULATED} --a2 inf", "processing.dispersion", "--a2", code=1),
    row(f"{SIMULATED} --extent-y -3", "extent_y_mm", "(--extent-y)", code=1),
    row(f"{SIMULATED} --pattern spiral --radius=3,1", "radius_mm", "(--radius)", code=1),
    row(f"{SIMULATED} --queue 'No Queue'", "queue.name: is 'No Queue'; allowed are 1 to 63 of a-z 0-9 _ . -", code=1),
    row(f"{SIMULATED} --keep-last 3", "retention.keep_last: is for LIVE scans", "--keep-last", code=1),
    row(f"{SIMULATED} --device devices/7", "devices/7", "(--device)", code=1),
    row(f"{SIMULATED} --device 7", "devices/7", "(--device)", code=1),
    row(f"{SIMULATED} --label 'Bad Key=1'", "(--label)", code=1),
]

ROOTS = "the replay roots {root} (storage.replay_roots of the server's configuration)"
FILES = [
    row(f"scan submit --path none.u16 --samples 256 {GEOMETRY}", f"replay.path: no file 'none.u16' under {ROOTS}",
        "there is no 'none.u16' on this computer either, in the present folder", code=1),
    row(f"scan submit --path {{outside}}/a.png {GEOMETRY}", "--path: is '{outside}/a.png', a PNG picture; allowed are .npy files and files of raw numbers"),
    row(f"scan submit --path {{outside}}/a.py {GEOMETRY}", "--path: is '{outside}/a.py', a text file; allowed are .npy files"),
    row(f"scan submit --path {{outside}}/a.png --samples 256 {GEOMETRY}", "replay.path: '{outside}/a.png' is a PNG picture", "give replay.header_bytes", code=1),
    row(f"scan submit --path tomo.h5 --samples 256 {GEOMETRY}", "replay.path: 'tomo.h5' is an HDF5 file; allowed are .npy files and files of raw numbers", code=1),
    row(f"scan plan --path {{outside}}/whole.npy {GEOMETRY}",
        "warning: The file's own shape is 16 x 8 records, B-scans of 8 A-scans; the pattern has 8 B-scans of 16 A-scans: are bscans_per_volume and ascans_per_bscan exchanged?",
        "--ascans", code=0),
    row(f"scan plan --path {{outside}}/few.npy --adc-bits 8 {GEOMETRY}", "warning: The file holds 100 records; the scan takes 128: it ends early",
        "adc_bits is 8, which are samples of 0 to 255", code=0),
    row(f"scan submit --path {{outside}}/none.u16 --samples 256 {GEOMETRY}", f"replay.path: '{{outside}}/none.u16' lies outside {ROOTS}", code=1),
    row(f"scan submit --path {{outside}}/odd.u16 --samples 256 {GEOMETRY}",
        "octavo: replay.path: '{outside}/odd.u16' holds 1001 bytes: 1 records of 512 bytes (256 samples of u16) and 489 bytes more. Allowed are whole records",
        f"  it was read here, to be pushed, since the server does not reach it: replay.path: '{{outside}}/odd.u16' lies outside {ROOTS}", code=1),
    row(f"scan submit --path {{outside}}/short.npy {GEOMETRY}", "octavo: replay.path: '{outside}/short.npy'", "its header says", "it was read here", code=1),
    row(f"scan submit --path {{outside}}/odd.npy {GEOMETRY}", "odd.npy' is no .npy file that can be replayed: it has no NumPy magic", "it was read here", code=1),
    row(f"scan submit --path {{outside}} --samples 256 {GEOMETRY}", "octavo: replay.path: '{outside}' is no regular file", "it was read here", code=1),
    row(f"scan plan --path {{outside}}/none.u16 --samples 256 {GEOMETRY}", f"lies outside {ROOTS}", code=1),
    row("recon {outside}/odd.u16 --png {outside}/x.png", f"tomography.file.path: '{{outside}}/odd.u16' lies outside {ROOTS}",
        "'{outside}/odd.u16' is here, and the server reads files below its replay roots alone: copy it there", "octavo recon --follow", "octavo.recon(...)", code=1),
    row("recon {outside}/odd.u16 --plan", "'{outside}/odd.u16' is here, and the server reads files below its replay roots alone", code=1),
    row("volume read volumes/none -o {none}/x.npy", "--output: is '{none}/x.npy', which cannot be written here: No such file or directory; make its folder"),
    row("volume read volumes/none -o {outside}/b.nii", "--output: is '{outside}/b.nii', and a volume is read into a .npy file; allowed are names that end in .npy",
        "octavo volume commit"),
    row("volume read volumes/none -o {outside}/b.png", "--output: is '{outside}/b.png', and a volume is read into a .npy file"),
    row("volume read volumes/none -o {outside}", "--output: is '{outside}', which cannot be written here: Is a directory"),
    row(f"scan plan --source simulated {GEOMETRY} --plot {{none}}/x.png", "--plot: is '{none}/x.png', which cannot be written here"),
    row(f"scan plan --source simulated {GEOMETRY} --waveform {{none}}/x.csv", "--waveform: is '{none}/x.csv', which cannot be written here"),
    row("recon none.h5 --png {outside}/x.png", f"tomography.file.path: no file 'none.h5' under {ROOTS}", code=1),
]

COMMANDS = [
    row("", "octavo: a command is missing; allowed: scan, volume, buffer, mosaic, job, operation, recon"),
    row("scna submit", "octavo: 'scna' is no command; did you mean scan?", "allowed: scan, volume"),
    row("reconstruct x.h5", "octavo: 'reconstruct' is no command; did you mean recon?"),
    row("submit --source simulated", "octavo: 'submit' is no command", "allowed: scan, volume"),
    row("scan submt", "octavo scan: 'submt' is no command; did you mean submit?"),
    row("volume", "octavo volume: a command is missing; allowed: list"),
    row("volume show a b", "octavo volume show: 'b' is one word too many"),
    row("volume show", "octavo volume show: volume is required"),
    row("scan submit --source simulated --ascan 64", "octavo scan submit: there is no flag --ascan; did you mean --ascans?", "octavo scan submit --help"),
    row("scan submit --source simulated --ascan=64", "there is no flag --ascan=64; did you mean --ascans?"),
    row("scan submit -path x", "there is no flag -path; did you mean --path?"),
    row("scan submit --source simulated --bananas", "octavo scan submit: there is no flag --bananas\n"),
    row("lease release", "octavo lease release: token or --fence is required"),
    row("lease release --fence 0", "--fence: "),
    row("lease release --fence many", "--fence: "),
    row("lease release 0123 --fence 3", "excludes"),
    row("grant", "octavo grant: a command is missing; allowed: add, list, revoke"),
    row("grant add --to bob", "octavo grant add: object or --all is required"),
    row("grant add --all", "--to is required"),
    row("grant add scans/x --all --to bob", "excludes"),
    row("grant add sessions/x --to bob", "sessions/x", code=1),
    row("grant add --all --to bob --for 7", "--for: is '7'; allowed is a time with its unit (s, min, h, d) from 1s to 365d, such as 7d"),
    row("grant add --all --to bob --for 2y", "--for: is '2y'; allowed is a time with its unit"),
    row("grant add --all --to bob --for 366d", "--for: is '366d'; allowed is a time with its unit"),
    row("grant add --all --to bob --for -1d", "--for"),
    row("grant add --all --to loopback", "grantee: is 'loopback', which is no identity", "(--to)", code=1),
    row("grant add --all --to 'bob:'", "grantee: is 'bob:'; allowed the name of a principal", "(--to)", code=1),
    row("grant add --all --to bob", "a grant is of a caller with an identity, and this one is loopback", "[NO_IDENTITY]", code=1),
    row("grant add scans/none --to bob", "no scan scans/none", code=1),
    row("grant list --filter 'nobody = 3'", "filter", code=1),
    row("grant revoke grants/none", "name: there is no grant 'grants/none' (taken back, ended, or never granted); allowed are the names that ListGrants tells (octavo grant list) [GRANT_ENDED]", code=1),
    row("grant revoke", "octavo grant revoke: name is required"),
    row("token add --file {outside}/tokens --name loopback --role viewer", "--name: is 'loopback'; allowed 1 to 64 of", "not loopback and remote"),
    row("storage", "octavo storage: a command is missing; allowed: probe"),
    row("storage prob", "octavo storage: 'prob' is no command; did you mean probe?"),
    row("storage probe --bytes 1", "--bytes: "),
    row("token", "octavo token: a command is missing; allowed: add, list, revoke"),
    row("token add --file {outside}/tokens --name anna", "--role is required"),
    row("token add --file {outside}/tokens --role viewer", "--name is required"),
    row("token add --name anna --role viewer", "--file is required"),
    row("token add --file {outside}/tokens --name anna --role root", "--role: is 'root'; allowed viewer, operator, admin"),
    row("token add --file {outside}/tokens --name anna --role none", "--role: is 'none'; allowed viewer, operator, admin"),
    row("token add --file {outside}/tokens --name 'an na' --role viewer", "--name: is 'an na'; allowed 1 to 64 of A-Z a-z 0-9 . _ @ -"),
    row("token add --file {outside}/tokens --name anna --role viewer --project a/b", "--project: is 'a/b'; allowed 1 to 64 of"),
    row("token add --file {outside}/tokens --name anna --role viewer --days 0", "--days: "),
    row("token add --file {outside}/tokens --name anna --role viewer --expires 2027-02-30", "--expires: is '2027-02-30'; allowed is a time (UTC)"),
    row("token add --file {outside}/tokens --name anna --role viewer --expires 2020-01-01", "--expires: is '2020-01-01', which is over"),
    row("token add --file {outside}/tokens --name anna --role viewer --expires 2099-01-01 --days 3", "excludes"),
    row("token add --file {none}/tokens --name anna --role viewer", "--file: {none}/tokens: cannot be made: No such file or directory", code=1),
    row("token add --file {outside}/odd.u16 --name anna --role viewer", "--file: {outside}/odd.u16: has mode 0644, so that others may read or change it", code=1),
    row("token add --file {outside} --name anna --role viewer", "--file: {outside}: is no regular file", code=1),
    row("token list --file {none}", "--file: {none}: cannot be opened: No such file or directory", code=1),
    row("token list --file {outside}/odd.u16", "has mode 0644", "allowed is 0600 (chmod 600)", code=1),
    row("token revoke --file {none} 01234567", "--file: {none}: cannot be opened: No such file or directory", code=1),
    row("token revoke --file {none}", "id is required"),
    row("storage probe --bytes many", "--bytes: "),
    row("storage probe /nowhere", "root: '/nowhere' is no storage root of this server", code=1),
    row("storage probe --device nope", "device: is 'nope'; allowed are devices/0", code=1),
    row("volume list --parents scans/x", "there is no flag --parents; did you mean --parent?"),
    row("--adress localhost:1 health", "there is no flag --adress; did you mean --address?"),
    row(f"{SIMULATED} --fast=maybe", "--fast: is 'true,maybe'; allowed are true and false"),
    row(f"{SIMULATED} --depth many", "--depth: is 'many'; allowed are whole numbers from 0 on"),
    row(f"{SIMULATED} --depth -3", "--depth: is '-3'; allowed are whole numbers from 0 on"),
    row(f"{SIMULATED} --depth 1.5", "--depth: is '1.5'; allowed are whole numbers from 0 on"),
    row(f"{SIMULATED} --depth 5000000000", "--depth: is '5000000000'; allowed are whole numbers from 0 on; this one is too large"),
    row(f"{SIMULATED} --rate fast", "--rate: is 'fast'; allowed are numbers"),
    row(f"{SIMULATED} --levels 5", "--levels"),
    row("volume show volumes/none", "no volume", code=1),
    row("volume show nope", "volume: 'nope' does not say its kind; allowed is volumes/<id>: volumes/nope"),
    row("scan show nope", "scan: 'nope' does not say its kind; allowed is scans/<id>: scans/nope"),
    row("volume list --parent nope", "--parent: 'nope' does not say its kind; allowed is scans/<id> or jobs/<id>: scans/nope or jobs/nope"),
    row("--timeout -1 info", "--timeout: is -1; allowed are seconds above 0, at most 1e6"),
    row("--timeout 0 info", "--timeout: is 0; allowed are seconds above 0"),
    row("--timeout nan info", "--timeout: is nan; allowed are seconds above 0"),
    row("--timeout soon info", "--timeout: is 'soon'; allowed are numbers"),
    row("volume derive volumes/none --mip w", "--mip: has the axis 'w'; allowed x, y, z"),
    row("volume derive volumes/none --mip z --slab z=1:2", "excludes --slab"),
    row("volume derive volumes/none --slab z", "--slab: is 'z'; allowed is AXIS=BEGIN:END"),
    row("volume derive volumes/none --mean z=9:3", "--mean: ends at 3; allowed > 9"),
    row("volume derive volumes/none --min z=1:x", "--min: has the number 'x'; allowed are whole numbers from 0 on"),
    row("volume derive volumes/none --mip z", "no volume volumes/none", code=1),
    row("volume derive volumes/none --crop 1,2,3", "--crop"),
    row("volume derive volumes/none", "octavo volume derive: an operation: is not given; allowed --angiography, --doppler"),
    row("volume derive volumes/none --half-window 3 --mip z", "--half-window requires --doppler"),
    row("volume png volumes/none -o {outside}/x.png --format jpeg", "--format: is jpeg, and '{outside}/x.png' ends as files of png do; change one of them"),
    row("volume png volumes/none --quality 0", "--quality: is '0'; allowed are whole numbers from 1 to 100"),
    row("volume png volumes/none --max-width 0", "--max-width: is '0'; allowed are whole numbers from 1 on"),
    row("volume png volumes/none -o {outside}/x.png --levels 20,60", "no volume volumes/none", code=1),
    row("volume commit my/dest volumes/none", "volume: is 'my/dest', and the destination is 'volumes/none'; the volume comes first"),
    row("volume commit volumes/none --format dicom", "--format: is 'dicom'; allowed bin, hdf5, mat, nifti, npy, nrrd, tiff, zarr"),
    row("volume commit volumes/none --codec lz4", "--codec: is 'lz4'; allowed blosc-lz4, blosc-zstd, gzip, zstd"),
    row("volume commit volumes/none first.nii --format npy", "--format: is npy, and 'first.nii' ends as files of nifti do; change one of them"),
    row("volume commit volumes/none first.NII --format npy", "--format: is npy, and 'first.NII' ends as files of nifti do"),
    row("volume commit volumes/none x.nii.gz", "destination: is 'x.nii.gz', and compressed files (.nii.gz) are not written", ".zarr, .npy, .nrrd, .nii, .tif"),
    row("volume commit volumes/none x.NII.GZ", "destination: is 'x.NII.GZ', and compressed files (.NII.GZ) are not written"),
    row("volume commit volumes/none x.nii.gz --format nifti", "destination: is 'x.nii.gz', and compressed files (.nii.gz) are not written"),
    row("volume commit volumes/none x.png", "destination: is 'x.png', and files that end in .png are not written; allowed are names that end in .zarr, .npy",
        "names without an ending", "(--format sets the format)"),
    row("volume commit volumes/none a/x.dcm", "files that end in .dcm are not written"),
    row("volume commit volumes/none x.h5py", "files that end in .h5py are not written"),
    row("volume commit volumes/none eye.v2", "no volume volumes/none", code=1),
    row("volume commit volumes/none run.2026-11-22", "no volume volumes/none", code=1),
    row("volume commit volumes/none x.png --format npy", "no volume volumes/none", code=1),
    row("volume commit volumes/none first.npy --tiff-stack", "--tiff-stack: is for tiff, and 'first.npy' ends as files of npy do"),
    row("volume commit volumes/none sub/ --format npy", "destination: is 'sub/', a folder; allowed are names of files, such as sub/{{index:05}}"),
    row("volume commit volumes/none a.npy --chunk 1,2,3", "--chunk: is for zarr, hdf5; the format is npy"),
    row("volume commit volumes/none a.nii --chunk 1,2,3", "--chunk: is for zarr, hdf5; the format is nifti"),
    row("volume commit volumes/none a --tiff-stack --chunk 1,2,3", "--chunk: is for zarr, hdf5; the format is tiff"),
    row("volume commit volumes/none a.h5 --shard 1,2,3", "--shard: is for zarr; the format is hdf5"),
    row("volume commit volumes/none a.nii --zstd 3", "--zstd: is for zarr; the format is nifti"),
    row("volume commit volumes/none a --zstd 3 --codec gzip", "--zstd: is the level of zstd; --codec is gzip, whose level is --level"),
    row("volume commit volumes/none a --codec gzip --raw", "--raw: says that nothing is compressed; --codec is gzip"),
    row("volume commit volumes/none a --zstd 3 --raw", "--zstd: is the level of zstd; --raw says that nothing is compressed"),
    row("volume commit scans/abc a.nii", "volume: 'scans/abc' is a scan; its volumes: octavo volume list --parent scans/abc"),
    row("volume show jobs/abc", "volume: 'jobs/abc' is a job; its volumes: octavo job show jobs/abc"),
    row("volume show buffers/abc", "volume: 'buffers/abc' is a buffer; allowed is a volume, volumes/...", "octavo buffer show buffers/abc shows this one"),
    row("scan show buffers/abc", "scan: 'buffers/abc' is a buffer; allowed is a scan", "octavo buffer show buffers/abc shows this one"),
    row("buffer", "octavo buffer: a command is missing; allowed: list, show, put, get, apply, commit, destroy"),
    row("buffer show nope", "buffer: 'nope' does not say its kind; allowed is buffers/<id>: buffers/nope"),
    row("buffer get volumes/x", "buffer: 'volumes/x' is a volume; allowed is a buffer, buffers/... (octavo buffer list); octavo volume show volumes/x shows this one"),
    row("buffer get buffers/x -o {outside}/b.nii", "--output: is '{outside}/b.nii'", "names that end in .npy"),
    row("buffer show buffers/1a2b-3c4d", "buffers/1a2b-3c4d", code=1),
    row("buffer put {none}", "file: '{none}' cannot be read here: No such file or directory"),
    row("buffer put {outside}/odd.u16", "file: '{outside}/odd.u16' is no .npy file: it has no NumPy magic"),
    row("buffer put {outside}/short.npy", "file: '{outside}/short.npy' holds", "its header says"),
    row("buffer apply buffers/x --operation '{{\"mipp\": {{}}}}'", "--operation: is no ArrayOperation: there is no mipp; allowed copy, fill", "did you mean mip?"),
    row("buffer apply buffers/x", "--operation is required"),
    row("mosaic", "octavo mosaic: a command is missing; allowed: register, stitch, overlap, stack, resample"),
    row("mosaic stack buffers/x --spacing-um 1", "--positions is required"),
    row("mosaic stack scans/x --spacing-um 1 --positions {outside}/odd.u16", "sections: 'scans/x' is a scan; allowed is a volume, volumes/..."),
    row("mosaic stack buffers/x --spacing-um 1,2 --positions {outside}/odd.u16", "--spacing-um: has to be one number, or z,y,x"),
    row("mosaic stack buffers/x --spacing-um 1 --positions {none}", "--positions: {none} cannot be read, or is empty"),
    row("mosaic stack buffers/x --spacing-um 1 --positions {none} --blend hat", "--blend: is 'hat'; allowed"),
    row("mosaic resample buffers/x --spacing-um 1 --depth 1 --to-um 1,2", "--to-um: has to be one number, or z,y,x"),
    row("mosaic resample buffers/x --spacing-um 1", "--to-um is required"),
    row("mosaic resample buffers/x --spacing-um 1 --to-um 2", "--tile: or --depth is missing: --tile Y,X for tiles side by side, --depth PLANES"),
    row("mosaic resample buffers/x --spacing-um 1 --to-um 2 --depth 1 --tile 4,4", "--depth excludes --tile"),
    row("buffer apply scans/x --operation '{{\"flip\": {{}}}}'", "input: 'scans/x' is a scan; allowed is a volume, volumes/... (octavo volume list), and a buffer, buffers/..."),
    row("scan show volumes/x", "scan: 'volumes/x' is a volume; allowed is a scan, scans/... (octavo scan list); octavo volume show volumes/x shows this one"),
    row("scan cancel jobs/x", "scan: 'jobs/x' is a job; allowed is a scan, scans/... (octavo scan list); octavo job show jobs/x shows this one"),
    row("job show volumes/x", "job: 'volumes/x' is a volume; allowed is a job, jobs/... (octavo job list)"),
    row("volume list --parent volumes/x", "--parent: 'volumes/x' is a volume; allowed is a scan, scans/... (octavo scan list), and a job, jobs/..."),
    row("watch --parent volumes/x", "--parent: 'volumes/x' is a volume; allowed is a scan"),
    row("watch --index -1 --product bscan", "--index: is '-1'; allowed are whole numbers from 0 on"),
    row("watch --slab 20,40 --product aip", "--slab: is for --product mip; the product is aip"),
    row("watch --slab 20,x", "--slab: is '20,x'; allowed are whole numbers"),
    row("watch --slab 20", "--slab"),
    row("watch --index 3", "--index: is for --product bscan, spectrum and ascan; the product is mip"),
    row("watch --percentiles 0.01 0.998", "--percentiles: is 0.01 0.998, which look like fractions; percentiles are 0 to 100: 1 99.8 for these"),
    row("watch --percentiles 99 1", "--percentiles: is 99 1; allowed 0 <= LO < HI <= 100"),
    row("convert {none} conv.nii.gz", "destination: is 'conv.nii.gz', and compressed files (.nii.gz) are not written", ".zarr, .npy, .nrrd, .nii, .tif, .tiff, .mat"),
    row("convert {none} conv", "'conv' has no ending that tells a format; allowed are .zarr, .npy", code=1),
    row("job autofocus scans/abc", "volume: 'scans/abc' is a scan; its volumes: octavo volume list --parent scans/abc"),
    row("convert {none} b.nii --format npy", "--format: is npy, and 'b.nii' ends as files of nifti do"),
    row("convert {none} b/", "destination: is 'b/', a folder"),
    row("--token-file {none} info", "--token-file: is '{none}', which cannot be read (No such file or directory); allowed is a file with one token"),
    row("--token-file {raw} info", "--token-file: is '{raw}', which holds no token; allowed is a file with one token, as octavo token add makes it"),
    row("--token-file {outside} info", "--token-file: is '{outside}', which"),
    row("--address localhost info", "--address: is 'localhost' without a port; allowed are host:port (octavod listens on 50051) and unix:/path"),
    row("--address http://localhost:50051 info", "--address: is 'http://localhost:50051'; allowed are host:port", "without http://"),
    row("watch --product mips", "--product: is 'mips'; allowed mip, aip, bscan, angiogram, spectrum, ascan; did you mean mip?"),
    row("watch --png-dir {outside} --colour-map jet", "--colour-map: is 'jet'; allowed gray, gray-inverted, viridis"),
    row("--address 127.0.0.1:1 --timeout 2 info", "is octavod running, and at 127.0.0.1:1?", code=3),
]

RECON = "recon {tomo} --png {outside}/x.png"
RANGE = "allowed one index, or begin:end:step in whole numbers, end above begin"
RECONSTRUCTIONS = [
    row(f"{RECON} --center 290:300", "--center: is '290:300'; allowed a column, or auto, pairs, vo, entropy, phase, middle; --try-centers begin:end:step tries several"),
    row(f"{RECON} --center centre", "--center: is 'centre'; allowed a column, or auto, pairs, vo, entropy, phase, middle"),
    row(f"{RECON} --center inf", "--center: is 'inf'; allowed a column"),
    row(f"{RECON} --center 500", "tomography.center.pixels", "allowed -0.5 to 31.5", code=1),
    row(f"{RECON} --center 15 --center-doubt fail", "--center-doubt: is of a search: --center auto, pairs, vo, entropy, phase, or stitching without --overlap"),
    row(f"{RECON} --center 15 --try-centers 10:20:1", "--center excludes --try-centers"),
    row(f"{RECON} --center 15 --center-row 1", "--center-row: is of a search"),
    row(f"{RECON} --center middle --center-row 1", "--center-row: is of a search"),
    row(f"{RECON} --center-row 5", "tomography.center.row", "--center-row", code=1),
    row(f"{RECON} --try-centers 10:20", "--try-centers: is '10:20'; allowed begin:end:step in columns"),
    row(f"{RECON} --try-centers 20:10:1", "--try-centers: is '20:10:1'; allowed begin:end:step in columns, end not below begin"),
    row(f"{RECON} --try-centers 10:20:0", "--try-centers: is '10:20:0'; allowed", "step above 0"),
    row(f"{RECON} --try-centers 10:20:0.001", "at most 1024 axes"),
    row(f"{RECON} --try-centers 10:nan:1", "--try-centers: is '10:nan:1'; allowed"),
    row(f"{RECON} --rows 1:0", f"--rows: is '1:0'; {RANGE}"),
    row(f"{RECON} --rows 0:0", f"--rows: is '0:0'; {RANGE}"),
    row(f"{RECON} --rows=-1", f"--rows: is '-1'; {RANGE}"),
    row(f"{RECON} --rows 0:2:0", "--rows: is '0:2:0'; allowed", "step from 1 on"),
    row(f"{RECON} --rows 0.5:2", f"--rows: is '0.5:2'; {RANGE}"),
    row(f"{RECON} --rows 0:1:1:1", f"--rows: is '0:1:1:1'; {RANGE}"),
    row(f"{RECON} --rows 0:5000000000", f"--rows: is '0:5000000000'; {RANGE}"),
    row(f"{RECON} --rows 0:9", "tomography.rows", "allowed", code=1),
    row(f"{RECON} --projections 8:4", f"--projections: is '8:4'; {RANGE}"),
    row(f"{RECON} --angles 0:180", "--angles: is '0:180'; allowed first:last:count"),
    row(f"{RECON} --angles 0:180:1e18", "--angles: is '0:180:1e18'; allowed first:last:count, degrees and a whole number from 1 to 1000000"),
    row(f"{RECON} --angles 0:inf:8", "--angles: is '0:inf:8'; allowed"),
    row(f"{RECON} --angles 0:180:8 --radians", "--angles excludes --radians"),
    row(f"{RECON} --radians --degrees", "excludes"),
    row(f"{RECON} --angles 0:180:12 --degrees", "excludes"),
    row(f"{RECON} --transmissions --flats x.npy", "excludes"),
    row(f"{RECON} --radians", "tomography.file.angle_unit", "--degrees, --radians", code=1),
    row("recon counts.npy --angles 0:165:12 --png {outside}/x.png", "without flat fields", "ignore_fields: --transmissions", "already_sinograms: --sinograms",
        "preparation.logarithm: --no-log", code=1),
    row("recon {tomo} --png {none}/x.png", "--png: is '{none}/x.png', which cannot be written here: No such file or directory; make its folder"),
    row("recon {tomo} --png {outside}", "--png: is '{outside}', which cannot be written here: Is a directory"),
    row(f"{RECON} --phase 0,1,2,3", "tomography.preparation.phase.pixel_size_um", "is 0; allowed", "(--phase)", code=1),
    row(f"{RECON} --phase 0.001,1e6,1,1e6", "tomography.preparation.phase", "smooths over", "allowed up to 8192", code=1),
    row(f"{RECON} --phase 1,2,3,inf", "tomography.preparation.phase.delta_beta", code=1),
    row(f"{RECON} --phase 1,2,3", "--phase"),
    row(f"{RECON} --outliers 1e20,5", "--outliers: is '1e+20,5'; allowed WINDOW,DIFFERENCE with an odd window of 3 to 15"),
    row(f"{RECON} --outliers 4,5", "--outliers: is '4,5'; allowed WINDOW,DIFFERENCE with an odd window of 3 to 15"),
    row(f"{RECON} --overlap 5", "--overlap: is of --stitch-left and --stitch-right"),
    # 0 stands for "not given" in the contract, and is not what its user means.
    *(row(f"{RECON} --algorithm sirt {flag} 0", f"{flag}: is '0'; allowed are whole numbers from 1 on") for flag in ("--iterations", "--subsets", "--size")),
    *(row(f"{RECON} {flag} {value}", f"{flag}: is '{value}'; allowed are numbers above 0")
      for flag, value in (("--cutoff", "0"), ("--relaxation", "0"), ("--fourier-accuracy", "-1"), ("--overlap", "0"))),
    row(f"{RECON} --phase 1,1e300,20,3", "tomography.preparation.phase.distance_mm: is 1e+300; allowed 0.001 to 1e+06 (millimetres: 2 m is 2000)", code=1),
    row(f"{RECON} --stitch-left --overlap 1e300", "tomography.preparation.stitching.overlap", "allowed 2 to", code=1),
    row(f"{RECON} --stitch-left --stitch-right", "excludes"),
    row(f"{RECON} --algorithm gridrec", "--algorithm: is 'gridrec'; allowed auto, cgls, fbp, fourier, mlem, sirt, tv", "gridrec is another program's name of auto"),
    row(f"{RECON} --filter shepp", "--filter: is 'shepp'; allowed", "did you mean shepp-logan?"),
    row(f"{RECON} --rings vo-all", "--rings: is 'vo-all'; allowed all, dead, large, sorting, wavelet"),
    row(f"{RECON} --iterations 50", "--iterations: is for sirt, mlem, cgls, tv; the algorithm is auto"),
    row(f"{RECON} --algorithm tv", "--tv-weight: is not given with --algorithm tv; allowed a number above 0"),
    row(f"{RECON} --tv-weight 0.1", "--tv-weight: is for tv; the algorithm is auto"),
    row(f"{RECON} --algorithm tv --tv-weight -1", "tomography.reconstruction.tv_weight: is -1; allowed above 0", "(--tv-weight)", code=1),
    row(f"{RECON} --prepare-only --algorithm sirt", "--algorithm: is of a reconstruction; --prepare-only makes none"),
    row(f"{RECON} --prepare-only --center 30", "--center: is '30' with --prepare-only, which needs no axis; allowed a method that searches it"),
    row(f"{RECON} --phase-method farago", "--phase-method requires --phase"),
    row(f"{RECON} --config /dev/zero", "--config: /dev/zero is a device or a pipe; allowed is a file"),
    row(f"{RECON} --air 20,20", "tomography.preparation.air_right: is 20 beside air_left = 20; allowed up to 12", code=1),
    row(f"{RECON} --beam-hardening 0,1", "tomography.preparation.beam_hardening[0]: is 0; allowed a number above 0", "(--beam-hardening)", code=1),
    row(f"{RECON} --dynamic-flats --flat-components 9", "tomography.preparation.dynamic_flats.components: is 9; allowed 0 to 8", "dynamic_flats.components: --flat-components", code=1),
    row(f"{RECON} --dynamic-flats --flat-components 0", "--flat-components: is '0'; allowed 1 to 8, or without it those that exceed noise"),
    row(f"{RECON} --row-drift --most-row-drift 0", "--most-row-drift: is '0'; allowed above 0 to 64, or without it 5"),
    row(f"{RECON} --flat-components 2", "--flat-components requires --dynamic-flats"),
    row(f"{RECON} --row-drift --most-row-drift 70", "tomography.preparation.row_drift.most_rows: is 70; allowed are above 0 to 64", "most_rows: --most-row-drift", code=1),
    row(f"{RECON} --most-row-drift 2", "--most-row-drift requires --row-drift"),
    row(f"{RECON} --algorithm fbp --fourier-accuracy 1e-3", "--fourier-accuracy: is for fourier; the algorithm is fbp"),
    row(f"{RECON} --algorithm sirt --filter hann", "--filter: is for fbp, fourier, auto; the algorithm is sirt"),
    row(f"{RECON} --algorithm cgls --relaxation 0.5", "--relaxation: is for sirt; the algorithm is cgls"),
    row(f"{RECON} --algorithm sirt --iterations 9 --relaxation 3", "relaxation", "above 0, below 2", code=1),
    row(f"{RECON} --format npy", "--format: says how to write --output, and --output is not given"),
    row(f"{RECON} -o x.nii --format npy", "--format: is npy, and 'x.nii' ends as files of nifti do"),
    row(f"{RECON} -o x/", "--output: is 'x/', a folder"),
    row(f"{RECON} -o x.npy --chunk 1,2,3", "--chunk: is for zarr, hdf5; the format is npy"),
    row(f"{RECON} -o result", "--output: is 'result'; allowed a name that ends in .zarr, .npy"),
    row(f"{RECON} --cutoff -1", "--cutoff: is '-1'; allowed are numbers above 0"),
    row(f"{RECON} --air 40,0", "tomography.preparation.air_left", "--air", code=1),
    row(f"{RECON} --air 4", "--air"),
    row(f"{RECON} --not-finite nan", "tomography.preparation.not_finite_value", "--not-finite", code=1),
    row("recon {tomo} counts.npy -o x.npy", "--output: is of one file; 2 are given"),
    row("recon {tomo} {tomo}", "would both be written to 'tomo.zarr'; give each a call with its own --output-dir"),
    row("recon {tomo} --output-dir x --format tif", "--format: is 'tif'; allowed", "tiff"),
    row("recon {tomo} --skip-existing", "--skip-existing: is of several files, or of --output-dir; this is one file"),
    row("recon {tomo} --jobs-at-a-time 0", "--jobs-at-a-time", "allowed"),
    row("recon", "file is required"),
    row("recon {tomo} --accept-differences", "--accept-differences requires --config"),
    row("recon {tomo} --config {none}", "--config: {none} cannot be read: No such file or directory"),
    row("recon {tomo} --config {raw}", "--config: {raw}", "allowed is TOML, key = value"),
    row("recon {tomo} --write-config {raw}", "--write-config: is '{raw}', which exists; allowed is a new file"),
    row("recon {tomo} --write-config {none}/x.toml", "--write-config: is '{none}/x.toml', which cannot be written: No such file or directory"),
    row("recon {tomo} --slice 3", "--slice requires --png"),
    row("recon {tomo} --follow-count 3", "--follow-count requires --follow"),
    row("recon {tomo} --follow --plan", "--plan excludes --follow"),
    row("recon {none}/x.npy --follow", "is .npy", "allowed HDF5, Zarr, or a folder of TIFF files", code=1),
    row("recon {none}/x.h5 --follow --follow-timeout 1", "nothing new for 1 s (--follow-timeout): {none}/x.h5 is not there yet", code=1),
    row("recon {tomo} --preview-only", "--preview-only requires --preview"),
    row("recon {tomo} --preview {raw}", "--preview: is '{raw}', which cannot be a folder here"),
    row(f"{RECON} --samples i8", "--samples: is 'i8'; allowed f16, f32, u16, u8"),
    row(f"{RECON} --samples f16 --window 0:1", "--window: is of --samples u8 and u16; f16 holds the values themselves"),
    row(f"{RECON} --samples u8 --window 1:0", "--window: is '1:0'; allowed LOW:HIGH, finite numbers, high above low"),
    row(f"{RECON} --samples u8 --window 0:1e300", "tomography.samples.high: is 1e+300; allowed", "--window", code=1),
    row("recon {tomo} --no-wait", "--no-wait requires --output"),
    row("recon {tomo} -o link.npy", "{root}/link.npy: File exists (a link to 'nothing.npy', which is not followed)", "[DESTINATION_EXISTS] (--output)", code=1),
    row("recon {tomo} --png {outside}/link.png", "--png: is '{outside}/link.png', which cannot be written here: it is a link to a file that is not there; give another name"),
    row(f"{RECON} --algorithm sirt --stop-change 5", "tomography.reconstruction.stop_change: is 5; allowed 0 (never) to 1", "(--stop-change)", code=1),
    row(f"{RECON} --algorithm cgls --stop-residual 2", "tomography.reconstruction.stop_residual: is 2; allowed 0 (never) to 1", "(--stop-residual)", code=1),
    # The answers name the fields of the contract, and these flags.
    row("recon {tomo} --series 40 -o x.npy", "tomography.series.projections: is 40", "(--series)", code=1),
    row("recon {tomo} --series 70000", "tomography.series.projections: is 70000; allowed 1 to 65535", "(--series)", code=1),
    row("recon {tomo} {tomo} --tile-columns 0,20 --tile-search 1000", "tomography.mosaic.search: is 1000; allowed", "(--tile-search)", code=1),
    row("recon {tomo} {tomo} --tile-columns 0,1e7", "first_column", "allowed", "--tile-columns", code=1),
    row("recon {tomo} counts.npy --tile-columns 0,20 --flats -,none.npy --angles 0:165:12", "flats", ": --flats", code=1),
    row(f"{RECON} --priority 500", "priority: is 500; allowed -100 to 100", "(--priority)", code=1),
    row(f"{RECON} --group " + 129 * "g", "group: has 129 bytes; allowed 128", "(--group)", code=1),
    row(f"{RECON} -o x.npy --codec gzip", "codec: is given, and the format is npy; allowed with zarr", "(--codec)", code=1),
    row("recon {tomo} -o x.npy --codec gzip --no-wait", "commit.codec: is given, and the format is npy; allowed with zarr", "(--codec)", code=1),
    row("recon {tomo} --output-dir d --format hdf5 --codec zstd", "commit.codec: is ZSTD; allowed for hdf5 is GZIP", "(--codec)", code=1),
    row("recon {tomo} --output-dir ../x", "commit.destination", "holds '..'", "(--output-dir)", code=1),
    row(f"{RECON} -o x_{{{{name}}}}.npy", "'{{name}}' is no template field; allowed are {{scan}} {{index}} {{index:05}} {{title}} {{date}}", "(--output)", code=1),
    row("recon {tomo} -o x_{{scan.npy --no-wait", "'{{scan.npy' is no template field; allowed are {{scan}} {{index}}", "(--output)", code=1),
    row(f"{RECON} -o x}}}}.npy", "has a '}}' without a '{{'", "(--output)", code=1),
    row("recon {tomo} --output-dir d_{{scam}}", "'{{scam}}' is no template field; allowed are {{scan}}", "(--output-dir)", code=1),
    row("recon counts.npy --png {outside}/x.png", "angles are not given", "(--angles, --angles-file)", code=1),
    row(f"{RECON} --stitch-left --center 15", "tomography.center.pixels: is given with stitching, where the overlap says where the axis is", "--center", code=1),
    row(f"{RECON} --stitch-left --center auto", "tomography.center.search_method: is given with stitching", "--center", code=1),
    row("recon {tomo} -o ../x.npy", "destination", "holds '..'; allowed are paths below {root}", code=1),
]

# The rows follow valid values of --listen.tcp, --metrics.listen, --state.dir and --storage.roots, but for
# those that they give themselves.
DAEMON = [
    row("--storage.roots {none}", "octavod cannot start", "error=\"storage.roots: '{none}' is missing; mount or make it, or set storage.create_roots = true\"", code=1),
    row("--storage.roots {raw}", "error=\"storage.roots: '{raw}' is no directory\"", code=1),
    row("--listen.tcp {taken}", "error=\"listen.tcp: cannot listen on {taken}: another program uses it; allowed is a free port, or 0 for any\"", code=1),
    row("--metrics.listen {taken}", "error=\"metrics.listen: cannot listen on {taken}: another program uses it; allowed is a free port, 0 for any, or none\"",
        code=1),
    row("--listen.unix {raw}", "error=\"listen.unix: {raw} is there and no socket\"", code=1),
    row("--state.dir {state}", "error=\"state.dir: another octavod uses {state}; give this one its own\"", code=1),
    row("--device.backend gpu", "octavod: device.backend: is 'gpu'; allowed auto, host, cuda"),
    row("--device.host_for_jobs maybe", "octavod: device.host_for_jobs: is 'maybe'; allowed true, false"),
    row("--device.host_for_jobs_bytes -1", "octavod: device.host_for_jobs_bytes: is '-1'; allowed a whole number of bytes, 0 to 1125899906842624"),
    row("--device.host_for_jobs_bytes 4096", "device.host_for_jobs_bytes: is 4096, but there is no devices/host: device.host_for_jobs is false; "
        "allowed 0, or device.host_for_jobs = true"),
    row("--device.memory_fraction 60", "octavod: device.memory_fraction: is '60'; allowed 0.05 to 0.95"),
    row("--drain.seconds -1", "octavod: drain.seconds: is '-1'; allowed 0 to 3600"),
    row("--log.level verbose", "octavod: log.level: is 'verbose'; allowed debug, info, warning, error"),
    row("--listen.tcp 50051", "octavod: listen.tcp: is '50051'; allowed host:port"),
    row("--listen.tcp 0.0.0.0:0", "listen.tcp", "security.insecure"),
    row("--listen.loopback_role root", "octavod: listen.loopback_role: is 'root'; allowed none, viewer, operator, admin"),
    row("--security.tokens {none}", "octavod cannot start", "security.tokens: {none}: cannot be opened: No such file or directory", code=1),
    row("--security.tokens {outside}/odd.u16", "octavod cannot start", "security.tokens: {outside}/odd.u16: has mode 0644", "allowed is 0600", code=1),
    row("--storage.root {root}", "octavod: there is no flag --storage.root; did you mean --storage.roots?"),
    row("--verbose", "octavod: there is no flag --verbose (octavod --help lists all)"),
    row("--config {none}", "octavod: {none}: no such file"),
    row("--config ''", "octavod: --config: is ''; allowed is the path of a file"),
    row("--drain.seconds 3 --drain.seconds 4", "octavod: --drain.seconds: is given more than once, with '3' and '4'; give it once, the parts of a list with commas"),
    row("--storage.replay_roots {root} --storage.replay_roots {none}", "octavod: --storage.replay_roots: is given more than once, with '{root}' and '{none}'"),
    row("--history.dir off", "octavod: history.dir: is 'off'; did you mean none? (./off is a file or folder of that name)"),
    row("--device.memory_bytes 999999999999999", "octavod cannot start", "error=\"device.memory_bytes: asks for 999999999999999 bytes of devices/0; allowed 1 to ", code=1),
    row("--config {toml}", "octavod: storage.rots: is no configuration key ({toml}, line 2); did you mean storage.roots?"),
]


class Programs(DaemonTest, Mistakes):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.names = {name: os.path.join(cls.daemon.root, f"{name}.txt") for name in ("raw", "spec", "words", "none")}
        cls.names.update(tomo="tomo.h5", root=cls.daemon.root, taken=cls.daemon.address, state=os.path.join(cls.daemon.directory, "state"),
                         toml=os.path.join(cls.daemon.root, "octavod.toml"))
        with open(cls.names["toml"], "w") as file:
            file.write("[storage]\nrots = ['/data']\n")
        cls.names["outside"] = outside = os.path.join(cls.daemon.directory, "outside")
        os.mkdir(outside)
        for name in ("odd.u16", "odd.npy"):
            with open(os.path.join(outside, name), "wb") as file:
                file.write(bytes(1001))
        np.save(os.path.join(outside, "whole.npy"), np.random.default_rng(1).integers(0, 4000, (16, 8, 256), np.uint16))
        np.save(os.path.join(outside, "few.npy"), np.random.default_rng(2).integers(0, 4000, (100, 256), np.uint16))
        octavo.write_png(os.path.join(outside, "a.png"), np.random.default_rng(3).random((64, 64)))
        with open(os.path.join(outside, "a.py"), "w") as file:
            file.write("print('no records')\n" * 64)
        with h5py.File(os.path.join(cls.daemon.root, "tomo.h5"), "w") as file:
            file["exchange/data"] = np.full((12, 2, 32), 900, np.uint16)
        np.save(os.path.join(outside, "short.npy"), np.zeros((128, 256), np.uint16))
        os.truncate(os.path.join(outside, "short.npy"), 4096)
        np.arange(256 * 256, dtype="<u2").tofile(cls.names["raw"])
        with open(cls.names["spec"], "w") as file:
            file.write('{"simulated": {"seed": 1}, "acquisition": {"samples_per_record": 256}}')
        with open(cls.names["words"], "w") as file:
            file.write("840\n841\nnm\n")

    def filled_in(self, rows):
        return [dataclasses.replace(one, words=tuple(words.format(**self.names) for words in one.words)) for one in rows]

    def octavo(self, rows):
        self.program("octavo", self.filled_in(rows), self.names, before=["--address", self.daemon.address])
        self.assertEqual((self.client.scans(), [v for v in self.client.volumes() if v.parent]), ([], []))

    def test_sources(self):
        self.octavo(SOURCES)

    def test_scans(self):
        self.octavo(SCANS)

    def test_files(self):
        self.octavo(FILES)

    def test_the_viewer(self):
        node()  # octavo web looks for it first
        self.octavo(VIEWER)

    def test_commands_and_flags(self):
        self.octavo(COMMANDS)
        for address, words in (("localhost", "OCTAVO_ADDRESS: is 'localhost' without a port; allowed are host:port"), ("http://a:1", "without http://"), *(
                (bad, f"OCTAVO_ADDRESS: is '{bad}'; allowed host:port with port 1 to 65535, or unix:/path")
                for bad in ("127.0.0.1:99999", "127.0.0.1:65536", "127.0.0.1:0", "127.0.0.1:abc", "127.0.0.1:", ":50051", "unix:", "unix://", "127.0.0.1:50051 ",
                            "::1:50051", "dns:///localhost", "dns:///localhost:99999", "ipv4:127.0.0.1:1,127.0.0.1:99999"))):
            self.program("octavo", [row("info", words)], environment={"OCTAVO_ADDRESS": address})

    def test_reconstructions(self):
        os.symlink("nothing.npy", os.path.join(self.daemon.root, "link.npy"))
        os.symlink("nothing.png", os.path.join(self.names["outside"], "link.png"))
        angles = np.arange(12) * 15.0
        with h5py.File(os.path.join(self.daemon.root, "tomo.h5"), "w") as file:
            file["exchange/data"] = np.full((12, 2, 32), 900, np.uint16)
            file["exchange/data_white"] = np.full((1, 2, 32), 1000, np.uint16)
            file["exchange/data_dark"] = np.zeros((1, 2, 32), np.uint16)
            file["exchange/theta"] = angles
        np.save(os.path.join(self.daemon.root, "counts.npy"), np.full((12, 2, 32), 900, np.uint16))
        self.program("octavo", self.filled_in(RECONSTRUCTIONS[:-1]), self.names, before=["--address", self.daemon.address])
        self.assertEqual((self.client.jobs(), self.client.volumes()), ([], []))
        # Errors that only the commit can detect come after the work. Its result stays.
        self.program("octavo", self.filled_in(RECONSTRUCTIONS[-1:]), self.names, before=["--address", self.daemon.address])

    def test_the_start_of_the_daemon(self):
        with tempfile.TemporaryDirectory() as folder:
            usual = {"--listen.tcp": "127.0.0.1:0", "--metrics.listen": "none", "--state.dir": folder, "--storage.roots": self.daemon.root,
                     "--log.format": "text"}
            rows = list(self.filled_in(DAEMON))
            if octavo.Client(self.daemon.address).devices()[0].backend == "host":
                rows.append(row("--device.backend cuda", "error=\"backend cuda cannot be used: ", code=1))
            for one in rows:
                given = one.call.split()
                self.program("octavod", [one], self.names, before=[word for flag, value in usual.items() if flag not in given for word in (flag, value)])
        self.assertFalse(os.path.exists(self.names["none"]))


if __name__ == "__main__":
    unittest.main()
