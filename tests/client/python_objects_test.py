"""The objects of octavo from Python without a server: fields, words of enums, equality, what they refuse. ctest sets PYTHONPATH."""

import copy
import datetime
import enum
import inspect
import os
import pickle
import subprocess
import sys
import threading
import unittest
import warnings

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

import octavo
from octavo import buffers, fields, objects
from octavo.devices import TOMOPY_NUMBERS, device_name
from octavo.v1 import array_operation_pb2, buffer_pb2, ingest_pb2, job_pb2, operation_pb2, reason_pb2, scan_pb2, stream_pb2, system_pb2, types_pb2, volume_pb2

KINDS = {octavo.Operation: operation_pb2.Operation, octavo.Scan: scan_pb2.Scan, octavo.Volume: volume_pb2.Volume, octavo.Job: job_pb2.Job, octavo.Buffer: buffer_pb2.Buffer}
# Fields that a method of the same name hides, and where they are.
HIDDEN = {(octavo.Scan, "volumes"): "volume_names", (octavo.Job, "volumes"): "volume_names", (octavo.Volume, "commit"): "commit_result"}


class NoCalls:
    """In the place of a client: everything but its address fails."""

    address = "127.0.0.1:1"

    def __getattr__(self, name):
        raise AssertionError(f"{name} was called")


class Calls:
    """In the place of a client: notes the calls, and gives an object of the kind that it is for."""

    address = "127.0.0.1:1"

    def __init__(self, message):
        self.message, self.calls = message, []

    def __getattr__(self, name):
        def call(*arguments, **options):
            self.calls.append((name, arguments, options))
            return fields.of_message(self, type(self.message)(name=self.message.name, state=4))

        return call


def fill(message, depth=3):
    """Sets every field of a message, of one oneof its last."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None and (depth == 0 or field.message_type.GetOptions().map_entry):
            continue
        value = {FieldDescriptor.CPPTYPE_STRING: "a", FieldDescriptor.CPPTYPE_BOOL: True}.get(field.cpp_type, 1)
        value = b"a" if field.type == FieldDescriptor.TYPE_BYTES else value
        if field.enum_type is not None:
            value = field.enum_type.values[-1].number
        if fields.is_repeated(field):
            if field.message_type is not None:
                fill(getattr(message, field.name).add(), depth - 1)
            else:
                getattr(message, field.name).append(value)
        elif field.message_type is not None:
            getattr(message, field.name).SetInParent()
            fill(getattr(message, field.name), depth - 1)
        else:
            setattr(message, field.name, value)
    return message


class Choices(unittest.TestCase):
    def test_a_state_is_a_word(self):
        held = octavo.VolumeState.HELD
        self.assertEqual((str(held), f"{held}", f"{held:>6}|", repr(held)), ("HELD", "HELD", "  HELD|", "VolumeState.HELD"))
        for same in ("HELD", "held", "Held", "VOLUME_STATE_HELD", 2, np.int32(2), types_pb2.VOLUME_STATE_HELD, octavo.VolumeState.HELD):
            with self.subTest(same):
                self.assertTrue(held == same and same == held)
                self.assertFalse(held != same or same != held)
                self.assertIn(held, [None, same])
        for other in ("COMMITTED", "held_", "", 3, 2.5, None, octavo.VolumeState.COMMITTED, octavo.ScanState.RUNNING, b"HELD", True):
            with self.subTest(other):
                self.assertTrue(held != other and other != held)
                self.assertFalse(held == other or other == held)
        self.assertEqual(octavo.ScanState.RUNNING.value, held.value)  # so it was not for the number

    def test_sets_and_dicts_have_words(self):
        self.assertIn(octavo.VolumeState.HELD, {"HELD", "COMMITTED"})
        self.assertEqual({octavo.VolumeState.HELD: 3}["HELD"], 3)
        self.assertEqual(len({state for state in octavo.VolumeState}), len(octavo.VolumeState))

    def test_every_enum_of_the_contract_has_its_values(self):
        for proto in (scan_pb2, volume_pb2, job_pb2, buffer_pb2, types_pb2, stream_pb2):
            for of in proto.DESCRIPTOR.enum_types_by_name.values():
                made = fields.choices(of)
                self.assertEqual([(f"{one.name}", int(one)) for one in made], [(fields.short_name(of, v.number), v.number) for v in of.values])
                for value in of.values:
                    self.assertEqual(made(value.number), value.name)
                    self.assertIs(made(value.name), made(value.number))
                    self.assertIs(made(str(made(value.number)).lower()), made(value.number))

    def test_words_of_other_packages(self):
        self.assertEqual(fields.choices(scan_pb2.Format.DESCRIPTOR).OME_ZARR_05, "zarr")
        self.assertEqual(fields.choices(types_pb2.Dtype.DESCRIPTOR).U16, "uint16")

    def test_zero_is_false_and_other_values_are_true(self):
        self.assertEqual([bool(state) for state in octavo.JobState], [False] + [True] * (len(octavo.JobState) - 1))

    def test_a_value_of_a_newer_server(self):
        newer = octavo.VolumeState(77)
        self.assertEqual((str(newer), int(newer), newer == 77, newer == "77", newer == "HELD"), ("77", 77, True, False, False))
        self.assertIs(octavo.VolumeState(77), newer)
        self.assertNotIn(newer, list(octavo.VolumeState))
        with self.assertRaises(ValueError):
            octavo.VolumeState("holding")

    def test_a_misspelt_word_is_doubted(self):
        for word, words in (("helt", "VolumeState is compared with 'helt', which is none of its words; they are acquiring, held, committing, committed, "
                                     "discarded, failed; did you mean 'held'?"), ("commited", "did you mean 'committed'?")):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                self.assertFalse(octavo.VolumeState.HELD == word)
            self.assertEqual([(one.category, os.path.basename(one.filename)) for one in told], [(octavo.OctavoWarning, os.path.basename(__file__))])
            self.assertIn(words, str(told[0].message))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for word in ("held", "COMMITTED", "", "77", "RUNNING", "eye"):
                octavo.VolumeState.HELD == word  # noqa: B015

    def test_one_class_for_all_threads(self):
        """Members of two classes of one enum would not be equal."""
        for of in (stream_pb2.Product, stream_pb2.Encoding, array_operation_pb2.ReduceKind, array_operation_pb2.ResizeEdge, array_operation_pb2.Sampling, ingest_pb2.CameraInfo):
            made, begin = [], threading.Barrier(8)

            def make():
                begin.wait()
                made.append((fields.choices if hasattr(of, "Name") else fields.kind_of)(of.DESCRIPTOR))

            threads = [threading.Thread(target=make) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual((len(made), len(set(made))), (8, 1))

    def test_copies_are_the_same(self):
        for choice in (octavo.VolumeState.HELD, octavo.VolumeState(78), fields.choices(types_pb2.ScanEvent.Kind.DESCRIPTOR).GAP):
            for copied in (pickle.loads(pickle.dumps(choice)), copy.copy(choice), copy.deepcopy(choice)):
                self.assertIs(copied, choice)

    def test_messages_and_arguments_take_them(self):
        request = volume_pb2.ListVolumesRequest(states=[octavo.VolumeState.HELD])
        self.assertEqual(list(request.states), [2])
        self.assertEqual(octavo.processing(window=fields.choices(scan_pb2.WindowKind.DESCRIPTOR).HANN), octavo.processing(window="hann"))
        with self.assertRaises(ValueError) as caught:  # the number is that of another enum
            octavo.processing(window=octavo.VolumeState.COMMITTING)
        self.assertIn("window is 'COMMITTING'; expected one of rect, hann", str(caught.exception))

    def test_types_of_numpy(self):
        dtypes = fields.choices(types_pb2.Dtype.DESCRIPTOR)
        for name, dtype in (("U8", "u1"), ("I16", "<i2"), ("F16", "<f2"), ("F64", "<f8"), ("C64", "<c8"), ("C128", "<c16"), ("U64", "<u8")):
            self.assertEqual(np.dtype(dtypes[name]), np.dtype(dtype))
            for same in (np.dtype(dtype), np.dtype(dtype).type):
                self.assertTrue(dtypes[name] == same and same == dtypes[name] and not dtypes[name] != same)
            for other in (np.int64, np.dtype("f2" if name != "F16" else "f8"), np.generic, int):
                self.assertFalse(dtypes[name] == other)
            self.assertFalse(octavo.VolumeState.HELD == np.uint16)
        for none in (dtypes.C32, dtypes.UNSPECIFIED, octavo.VolumeState.HELD):
            with self.assertRaises(TypeError):
                np.dtype(none)


class Devices(unittest.TestCase):
    """The words for a device on servers with these devices, by name and backend."""

    HOST_ONLY = {"devices/0": "host", "devices/1": "host"}
    GPU_ONLY = {"devices/0": "cuda"}
    BOTH = {"devices/0": "cuda", "devices/1": "cuda", "devices/host": "host"}

    def name(self, devices, word, *numbers):
        class Server:
            def devices(self):
                return [system_pb2.DeviceStatus(name=name, backend=backend) for name, backend in devices.items()]
        return device_name(Server(), word, *numbers)

    def test_words_in_any_case(self):
        for devices, word, expected in ((self.HOST_ONLY, "cpu", ""), (self.HOST_ONLY, "CPU", ""), (self.GPU_ONLY, "Gpu", ""), (self.BOTH, "gpu", ""),
                                        (self.BOTH, "Cpu", "devices/host"), (self.BOTH, "HOST", "devices/host"), (self.HOST_ONLY, "host", "devices/host"),
                                        (self.BOTH, "Auto", ""), (self.BOTH, "", ""), (self.BOTH, None, ""), (self.BOTH, "devices/1", "devices/1")):
            self.assertEqual(self.name(devices, word), expected, (devices, word))

    def test_the_numbers_of_tomopy(self):
        for number in (1, "1", np.int64(1)):
            self.assertEqual(self.name(self.BOTH, number, TOMOPY_NUMBERS), "")
        self.assertEqual(self.name(self.BOTH, 0, TOMOPY_NUMBERS), "devices/host")
        for number, numbers in (("1", ()), (2, (TOMOPY_NUMBERS,)), (True, (TOMOPY_NUMBERS,))):
            with self.assertRaisesRegex(ValueError, f"device is {number!r}; expected gpu, cpu, host, auto or devices/<n>"):
                self.name(self.BOTH, number, *numbers)

    def test_what_the_server_does_not_have(self):
        with self.assertRaises(ValueError) as none:
            self.name(self.HOST_ONLY, 1, TOMOPY_NUMBERS)
        self.assertEqual(str(none.exception), "device is 1, but the server has no GPU; allowed are auto, cpu, devices/0, devices/1")
        with self.assertRaises(ValueError) as none:
            self.name(self.GPU_ONLY, "CPU")
        self.assertEqual(str(none.exception), "device is 'CPU', but the server has no device on its CPU (device.host_for_jobs of its configuration is false); "
                         "allowed are auto, gpu, devices/0")
        with self.assertRaisesRegex(ValueError, "did you mean 'host'"):
            self.name(self.BOTH, "hosst")


class Objects(unittest.TestCase):
    def check_value(self, field, value, message):
        """A value has the form that its field says."""
        if fields.is_repeated(field) and not (field.message_type is not None and field.message_type.GetOptions().map_entry):
            self.assertIsInstance(value, list)
            value, message = value[0], message[0]
        if field.message_type is None:
            self.assertEqual(value, message)
            self.assertEqual(isinstance(value, enum.Enum), field.enum_type is not None)
        elif field.message_type.GetOptions().map_entry:
            self.assertEqual(value, dict(message))
        elif field.message_type.full_name == "google.protobuf.Timestamp":
            self.assertEqual((value.tzinfo, value.timestamp()), (datetime.timezone.utc, message.seconds + message.nanos // 1000 / 1e6))
        elif field.message_type.full_name == "google.protobuf.Duration":
            self.assertEqual(value, datetime.timedelta(seconds=message.seconds, microseconds=message.nanos // 1000))
        elif field.message_type.full_name == "google.rpc.Status":
            self.assertIsInstance(value, octavo.OctavoError)
            self.assertEqual((value.message, value.code.value[0]), (message.message, message.code))
        else:
            self.assertIsInstance(value, octavo.Fields)
            self.assertIs(value.message, value.message)
            self.assertEqual(value.message, message)
            self.check(value)

    def check(self, made):
        for field in made.message.DESCRIPTOR.fields:
            name = HIDDEN.get((type(made), field.name), field.name)
            value, message = getattr(made, name), getattr(made.message, field.name)
            if field.message_type is not None and not fields.is_repeated(field) and not made.message.HasField(field.name):
                self.assertIsNone(value)
            elif not fields.is_repeated(field) and field.containing_oneof is not None and not made.message.HasField(field.name):
                self.assertIsNone(value)
            elif fields.is_repeated(field) and len(message) == 0:
                self.assertIn(value, ([], {}))
            else:
                self.check_value(field, value, message)

    def test_every_field_by_its_name(self):
        for kind, message in KINDS.items():
            with self.subTest(kind.__name__):
                self.check(kind(NoCalls(), message()))
                self.check(kind(NoCalls(), fill(message())))
                self.assertLessEqual({f.name for f in message.DESCRIPTOR.fields}, set(dir(kind)))

    def test_nothing_else_hides_a_field(self):
        for kind, message in KINDS.items():
            for field in message.DESCRIPTOR.fields:
                found = inspect.getattr_static(kind, field.name)
                self.assertEqual(not isinstance(found, property), (kind, field.name) in HIDDEN, f"{kind.__name__}.{field.name}")

        def below(descriptor, seen):
            if descriptor.full_name not in seen:
                seen[descriptor.full_name] = descriptor
                for field in descriptor.fields:
                    if field.message_type is not None:
                        below(field.message_type, seen)
            return seen

        for message in KINDS.values():
            known = below(message.DESCRIPTOR, {})
            known.pop("google.rpc.Status", None)  # an error, no object
            for one in known.values():
                self.assertEqual({f.name for f in one.fields} & {"message", "address", "refresh"}, set(), one.full_name)

    def test_what_they_print(self):
        volume = volume_pb2.Volume(name="volumes/1a-2b", state=2, shape=[512, 512, 1024], dtype=types_pb2.DTYPE_U16, bytes=256 << 20)
        self.assertEqual(repr(octavo.Volume(NoCalls(), volume)), "<Volume volumes/1a-2b HELD [512, 512, 1024] U16 256 MiB>")
        self.assertEqual(repr(octavo.Scan(NoCalls(), scan_pb2.Scan(name="scans/1", state=2, volumes_done=1, spec=scan_pb2.ScanSpec(title="mouse")))),
                         "<Scan scans/1 RUNNING 1 volume 'mouse'>")
        self.assertEqual(repr(octavo.Job(NoCalls(), job_pb2.Job(name="jobs/1", state=2, kind=job_pb2.JOB_KIND_TOMOGRAPHY, fraction=0.451))),
                         "<Job jobs/1 RUNNING tomography 45 %>")
        replicas = [buffer_pb2.Replica(), buffer_pb2.Replica()]
        self.assertEqual(repr(octavo.Buffer(NoCalls(), buffer_pb2.Buffer(name="buffers/1", state=1, shape=[3, 2], replicas=replicas, byte_size=1536,
                                                                         type=types_pb2.ElementType(dtype=types_pb2.DTYPE_F32, lanes=2)))),
                         "<Buffer buffers/1 READY [3, 2] F32 x 2 1.5 KiB on 2 devices>")
        self.assertEqual(repr(fields.of_message(None, types_pb2.ScanEvent(kind=10, marker="m"))), "<ScanEvent kind=MARKER marker='m'>")
        for kind, message in KINDS.items():
            self.assertLess(len(repr(kind(NoCalls(), fill(message())))), 200)
            repr(kind(NoCalls(), message()))

    def test_equal_by_name(self):
        held, gone = (octavo.Volume(NoCalls(), volume_pb2.Volume(name="volumes/1", state=state)) for state in (2, 5))
        other = octavo.Volume(NoCalls(), volume_pb2.Volume(name="volumes/2", state=2))
        self.assertEqual((held == gone, held == other, len({held, gone, other})), (True, False, 2))
        self.assertFalse(held == octavo.Job(NoCalls(), job_pb2.Job(name="volumes/1")))
        self.assertFalse(held == "volumes/1" or held == held.message)
        self.assertEqual(held, copy.copy(held))
        self.assertEqual(held, copy.deepcopy([held])[0])
        levels = [fields.of_message(None, types_pb2.Levels(lo=lo)) for lo in (1, 1, 2)]  # other messages: by their fields
        self.assertEqual((levels[0] == levels[1], levels[0] == levels[2], levels[0] == levels[0].message), (True, False, True))
        self.assertEqual(pickle.loads(pickle.dumps(levels[0])), levels[0])

    def test_they_cannot_be_pickled_and_say_so(self):
        for kind, message in KINDS.items():
            with self.assertRaises(TypeError) as caught:
                pickle.dumps(kind(NoCalls(), message(name="a/1")))
            self.assertIn("pickle its name ('a/1')", str(caught.exception))

    def test_unknown_fields_name_near_ones(self):
        volume = octavo.Volume(NoCalls(), volume_pb2.Volume())
        for name, near in (("spacing", "spacing_um"), ("dervie", "derive"), ("sate", "state"), ("hold_tme", "hold_time")):
            with self.assertRaises(AttributeError) as caught:
                getattr(volume, name)
            self.assertIn(f"Volume has no '{name}'; near it are", str(caught.exception))
            self.assertIn(near, str(caught.exception).split("near it are")[1])
        with self.assertRaises(AttributeError) as caught:
            volume.xyzzy  # noqa: B018
        self.assertIn("it has acquire_begin_monotonic_ns, ", str(caught.exception))
        self.assertEqual((hasattr(volume, "xyzzy"), getattr(volume, "xyzzy", 3)), (False, 3))

    def test_fields_are_read_only(self):
        volume = octavo.Volume(NoCalls(), volume_pb2.Volume(title="a"))
        for name in ("title", "xyzzy", "levels"):
            with self.assertRaises(AttributeError) as caught:
                setattr(volume, name, "b")
            self.assertIn(f"{name} of <Volume", str(caught.exception))
        volume.shape.append(3)  # a list of its own
        self.assertEqual((volume.title, volume.shape), ("a", []))

    def test_methods_are_the_calls_of_the_client_for_this_resource(self):
        """Each makes one call with the name; those that give the object itself have brought its fields up to date."""
        array = np.zeros(3, "f4")
        rows = {octavo.Scan: dict(refresh=("scan",), wait=("wait",), stop=("stop",), cancel=("cancel",), update=("update_scan", "p", "window"),
                                  mark=("mark", "m"), watch=("watch",), subscribe=("subscribe", ["aip"]), volumes=("volumes", ["held"])),
                octavo.Volume: dict(refresh=("volume",), wait=("wait_volume",), hold=("hold",), release=("release",), spill=("spill", "host"),
                                    restore=("restore",), discard=("discard",), derive=("derive", {"mip": {}}), read=("read", (1,), (2,)),
                                    render=("render", "max", "z"), start_commit=("start_commit", "a", "npy"), start_derive=("start_derive", {"mip": {}}),
                                    start_spill=("start_spill", "host"), start_restore=("start_restore",)),
                octavo.Job: dict(refresh=("job",), cancel=("cancel_job",), watch=("watch_job",), subscribe=("subscribe", ["mip"]), volumes=("volumes",),
                                 wait=("wait_job",), series_volumes=("series_volumes",)),
                octavo.Operation: dict(refresh=("operation",), wait=("wait_operation",), watch=("watch_operation",), cancel=("cancel_operation",)),
                octavo.Buffer: dict(refresh=("get",), wait=("wait",), write=("write", array), apply=("apply", {"mip": {}}), sync=("sync", 1, (0,)),
                                    update=("update",), destroy=("destroy",), read=("read",))}
        for kind, methods in rows.items():
            public = {name for name, of in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}
            self.assertEqual(public - {"commit", "result"}, set(methods), kind.__name__)
            for method, (call, *arguments) in methods.items():
                with self.subTest(f"{kind.__name__}.{method}"):
                    message = KINDS[kind](name="a/1", state=2)
                    calls = Calls(message)
                    made = kind(calls, message)
                    given = getattr(made, method)(*arguments)
                    (called, (name, *rest), _), = calls.calls
                    self.assertEqual((called, name), (call, "a/1"))
                    self.assertEqual(rest, arguments)
                    self.assertEqual(made.state.value, 4 if given is made else 2)

    def test_a_scan_that_died_with_the_server_is_an_error(self):
        lost = scan_pb2.Scan(name="scans/1", state=types_pb2.SCAN_STATE_LOST, reason="the server died", reason_code=reason_pb2.REASON_LOST)

        class Waits(NoCalls):
            def wait(self, name, check=True, timeout=None):
                return octavo.Scan(self, lost)

        scan = octavo.Scan(Waits(), scan_pb2.Scan(name="scans/1"))
        with self.assertRaises(octavo.OctavoError) as caught:
            scan.wait()
        self.assertEqual((caught.exception.code.name, caught.exception.reason, caught.exception.numbers), ("DATA_LOSS", "LOST", {"scan": "scans/1"}))
        self.assertIn("scans/1 is LOST: the server died", str(caught.exception))
        self.assertEqual(scan.state, "LOST")  # the fields are up to date all the same
        self.assertIs(scan.wait(check=False), scan)

    def test_no_copy_is_refused(self):
        volume = octavo.Volume(NoCalls(), volume_pb2.Volume(name="volumes/1"))
        with self.assertRaises(ValueError) as caught:
            volume.__array__(copy=False)
        self.assertIn("client.map maps its memory", str(caught.exception))


class Package(unittest.TestCase):
    def test_no_side_effect_at_import(self):
        program = ("import os, threading; before = dict(os.environ); import octavo; assert dict(os.environ) == before; "
                   "assert threading.active_count() == 1; octavo.Client('127.0.0.1:1').close(); print(os.environ.get('GRPC_EXPERIMENTS'))")
        for given, wanted in ((None, "tcp_frame_size_tuning"), ("", ""), ("other", "other")):
            environment = {name: value for name, value in os.environ.items() if name != "GRPC_EXPERIMENTS"}
            environment.update({} if given is None else {"GRPC_EXPERIMENTS": given})
            done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (0, wanted + "\n"), done.stderr)

    def test_every_public_argument_is_annotated(self):
        self.assertTrue(os.path.exists(os.path.join(os.path.dirname(octavo.__file__), "py.typed")))
        lacking = []

        def look(where, function):
            signature = inspect.signature(function)
            lacking.extend(f"{where}: {p.name}" for p in signature.parameters.values() if p.annotation is p.empty and p.name != "self")
            if signature.return_annotation is signature.empty and not where.endswith("__init__"):
                lacking.append(f"{where}: what it gives")

        public = [getattr(octavo, name) for name in octavo.__all__] + [buffers.Buffers]
        public += [getattr(one, name) for one in public if inspect.ismodule(one) for name in one.__all__]
        for one in public:
            if inspect.ismodule(one):
                continue
            if inspect.isclass(one):
                for kind in one.__mro__:
                    for name, method in vars(kind).items() if kind.__module__.startswith("octavo") else ():
                        if inspect.isfunction(method) and (not name.startswith("_") or name == "__init__"):
                            look(f"{kind.__name__}.{name}", method)
            else:
                look(one.__name__, one)
        self.assertEqual(lacking, [])
        self.assertLessEqual({"Scan", "Volume", "Job", "Buffer", "ScanState", "VolumeState"}, set(octavo.__all__))
        self.assertEqual(objects.Resource.__mro__[1], octavo.Fields)


if __name__ == "__main__":
    unittest.main()
