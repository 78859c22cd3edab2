"""Checks the arguments of callers at the call: the error of an argument or value that is not
allowed names it and lists what is."""

from __future__ import annotations

import datetime
import functools
import inspect
import numbers
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, TypeVar, Union

import numpy as np
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from octavo.fields import Fields, class_of, is_repeated, plain
from octavo.names import Names, closest, likest, short

Seconds = Union[float, datetime.timedelta]
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Kind = TypeVar("_Kind", bound=type)
_WHOLE = {Field.CPPTYPE_INT32: (-2 ** 31, 2 ** 31 - 1), Field.CPPTYPE_UINT32: (0, 2 ** 32 - 1), Field.CPPTYPE_INT64: (-2 ** 63, 2 ** 63 - 1),
          Field.CPPTYPE_UINT64: (0, 2 ** 64 - 1)}
_REAL = (Field.CPPTYPE_DOUBLE, Field.CPPTYPE_FLOAT)
_MOST_SECONDS = 9e9  # what 64 bits of nanoseconds hold


# -- values

def whole(field: str, value, lo: int, hi: int) -> int:
    """A whole number from lo to hi."""
    number = value.item() if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0 else value
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if not isinstance(number, numbers.Integral) or isinstance(number, bool) or not lo <= number <= hi:
        raise ValueError(f"{field} is {short(value)}; expected a whole number {_span(lo, hi)}")
    return int(number)


def _span(lo: int, hi: int) -> str:
    """A range in words that people can read: the ends of 64 bits are powers of 2."""
    ends = {2 ** 32 - 1: "2^32 - 1", 2 ** 63 - 1: "2^63 - 1", 2 ** 64 - 1: "2^64 - 1", -2 ** 63: "-2^63"}
    return f"from {ends.get(lo, lo)} to {ends.get(hi, hi)}"


def real(field: str, value) -> float:
    """A number; the server checks its range."""
    if isinstance(value, str) or isinstance(value, bool):
        raise ValueError(f"{field} is {short(value)}; expected a number")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{field} is {short(value)}; expected a number") from None


def limit(field: str, value) -> Optional[float]:
    """The most seconds that a call waits; None for no limit."""
    if value is None:
        return None
    expected = "expected seconds from 0 on, a timedelta, or None for no limit"
    try:
        seconds = value.total_seconds() if isinstance(value, datetime.timedelta) else real(field, value)
    except ValueError:
        raise ValueError(f"{field} is {short(value)}; {expected}") from None
    if not 0 <= seconds < _MOST_SECONDS:
        raise ValueError(f"{field} is {short(value)}; {expected}")
    return seconds


def several(field: str, value, what: str) -> tuple:
    """As many numbers as there are words in `what`: several("radius", (0, 3), "begin,
    end")."""
    count = len(what.split(","))
    try:
        values = tuple(value) if not isinstance(value, str) else ()
    except TypeError:
        values = ()
    if len(values) != count:
        raise ValueError(f"{field} is {short(value)}; expected {count} numbers: ({what})")
    return tuple(real(field, one) for one in values)


def array(field: str, value, dtype, axes: str = "") -> np.ndarray:
    """An array of real numbers. axes: the required axes, "[row, column]"; "or" separates
    alternatives."""
    if getattr(getattr(value, "dtype", None), "kind", "") == "c":
        raise TypeError(f"{field} is {short(value)}; expected real numbers, such as those of np.abs({field}), np.real({field}) or np.angle({field})")
    try:
        made = np.asarray(value, dtype)
    except (TypeError, ValueError):
        raise ValueError(f"{field} is {short(value)}; expected an array of numbers{' ' + axes if axes else ''}") from None
    if axes and made.ndim not in [one.count(",") + 1 for one in axes.split(" or ")]:
        raise ValueError(f"{field} has the shape {made.shape}; expected the axes {axes}")
    return made


# -- messages

def message(kind, fields: Mapping[str, object], where: str = "", called: Optional[Mapping[str, str]] = None,
            names: Optional[Mapping[str, Names]] = None):
    """A message of `kind`. Values may be texts for enums, dicts for messages, None for fields that
    are not set.

    where   prefix of field names in errors: "retention."
    called  the caller's names for fields, where they differ
    names   names for fields that take only some values of their enum
    """
    made = kind()
    by_name = kind.DESCRIPTOR.fields_by_name
    for name, value in fields.items():
        if name not in by_name:
            raise TypeError(f"{where}{name} is no field; expected one of {', '.join(where + one for one in by_name)}{closest(name, by_name)}")
        if value is not None:
            _set(made, by_name[name], where + (called or {}).get(name, name), value, (names or {}).get(name))
    return made


def _set(made, field, label: str, value, names: Optional[Names]) -> None:
    if is_repeated(field):
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _set_map(getattr(made, field.name), field.message_type.fields_by_name, label, value)
        else:
            getattr(made, field.name).extend(_list(field, label, value, names))
    elif field.message_type is not None:
        getattr(made, field.name).SetInParent()
        getattr(made, field.name).CopyFrom(_message(field, label, value))
    else:
        setattr(made, field.name, _scalar(field, label, value, names))


def _set_map(entries, of, label: str, value) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"{label} is {short(value)}; expected a dict")
    for key, one in value.items():
        entries[_scalar(of["key"], f"a key of {label}", key, None)] = _scalar(of["value"], f"{label}[{key!r}]", one, None)


def _list(field, label: str, value, names: Optional[Names]) -> list:
    if isinstance(value, (str, bytes, Mapping, Message)) or not hasattr(value, "__iter__"):
        raise ValueError(f"{label} is {short(value)}; expected a list")
    if field.message_type is not None:
        return [_message(field, f"{label}[{i}]", one) for i, one in enumerate(value)]
    if isinstance(value, np.ndarray) and value.ndim == 1 and field.cpp_type in _REAL and value.dtype.kind in "iuf":
        return value.tolist()  # check only their type, because there may be many
    return [_scalar(field, f"{label}[{i}]", one, names) for i, one in enumerate(value)]


def duration(label: str, value) -> Duration:
    """A Duration of seconds, or of a timedelta."""
    expected = f"expected seconds, a number of less than {_MOST_SECONDS:g}, or a datetime.timedelta"
    try:
        seconds = value.total_seconds() if isinstance(value, datetime.timedelta) else real(label, value)
    except ValueError:
        raise ValueError(f"{label} is {short(value)}; {expected}") from None
    if not abs(seconds) < _MOST_SECONDS:
        raise ValueError(f"{label} is {short(value)}; {expected}")
    made = Duration()
    made.FromNanoseconds(round(seconds * 1e9))
    return made


def _message(field, label: str, value):
    kind, value = class_of(field.message_type), plain(value)
    if isinstance(value, kind):
        return value
    if field.message_type.full_name == Duration.DESCRIPTOR.full_name:
        return duration(label, value)
    if isinstance(value, Mapping):
        return message(kind, value, label + ".")
    raise ValueError(f"{label} is {short(value)}; expected {kind.DESCRIPTOR.full_name}, or a dict of its fields: "
                     f"{', '.join(kind.DESCRIPTOR.fields_by_name)}")


def _scalar(field, label: str, value, names: Optional[Names]):
    value = plain(value)
    if field.enum_type is not None:
        return (names if names is not None else Names.of_enum(field.enum_type)).pick(label, value)
    if field.cpp_type in _WHOLE:
        return whole(label, value, *_WHOLE[field.cpp_type])
    if field.cpp_type in _REAL:
        return real(label, value)
    if field.cpp_type == Field.CPPTYPE_BOOL:
        if isinstance(value, (bool, np.bool_)) or (isinstance(value, numbers.Integral) and value in (0, 1)):
            return bool(value)
        raise ValueError(f"{label} is {short(value)}; expected True or False")
    if field.type == Field.TYPE_BYTES:
        return bytes(value)
    return text(label, value)


def text(label: str, value, address: str = "", allowed: str = "text") -> str:
    """A text, a path, or the name of an object: of a Scan, a Volume, a Job … address: of the server
    that is meant; ValueError for an object of another one. allowed: in words."""
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Fields) and "name" in value.message.DESCRIPTOR.fields_by_name:
        its = getattr(value, "address", "")
        if address and its and its != address:
            raise ValueError(f"{label} is {value!r} of the server at {its}, and this client's is at {address}; expected one of its own objects, "
                             "and names: give .name if both are one server")
        return value.name
    if isinstance(value, Message) and "name" in value.DESCRIPTOR.fields_by_name:
        return value.name
    if isinstance(value, (list, tuple, set)) and allowed != "text":
        allowed += ", one in each call"
    raise ValueError(f"{label} is {short(value)}; expected {allowed}")


# -- arguments

# Annotations of arguments that are text: for these, an object stands for its name (objects.py).
_TEXTS = ("str", "Optional[str]", str)
# The same for arguments that name one thing of the server: what they allow, in words.
_OBJECTS = {f"{kind}Name": f"a {kind}, or its name, text of the form {kind.lower()}s/<id>" for kind in ("Scan", "Volume", "Job", "Buffer", "Operation")}
_OBJECTS["Name"] = "an object such as a Volume, or its name, text of the form volumes/<id>"
# The same for arguments that may also name nothing.
_OBJECTS_OR_NONE = {f"Optional[{one}]": f"{allowed}, or None" for one, allowed in _OBJECTS.items()}

# Names of the same argument: in octavo.tomography, in octavo.recon (TomoPy's), in other functions
# of TomoPy.
_SAME = (("iterations", "num_iter", "n_iter", "niter"), ("filter", "filter_name"), ("subsets", "num_block"), ("angles", "theta", "angles_rad"),
         ("initial", "init_recon", "init"), ("mask", "ratio", "mask_ratio"), ("center", "cor", "rotation_center", "rot_center"),
         ("image_size", "num_gridx", "num_gridy"), ("batch", "nchunk"), ("try_centers", "cen_range"), ("rings", "stripe", "remove_stripe"),
         ("seconds", "ttl", "duration"), ("start", "box", "offset", "origin"), ("count", "extent", "size"))


def explained(*takes: Any, called: Optional[Mapping[str, str]] = None, covered: tuple = ()) -> Callable[[_Function], _Function]:
    """Decorator for public functions: an unknown argument raises a TypeError that lists the
    arguments and the nearest one; where text is expected (annotated `str`), a message with a name
    is accepted.

    takes    the meaning of **fields: message classes with these fields, or functions that receive
             them
    called   fields that are arguments here by another name (field → argument); both names work
    covered  fields that must not be given, because other arguments set them
    """
    called = dict(called or {})

    def decorate(function: _Function) -> _Function:
        parameters = list(inspect.signature(function).parameters.values())
        named = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        own = [p.name for p in named if p.name != "self"]
        texts = {p.name: _OBJECTS.get(p.annotation, _OBJECTS_OR_NONE.get(p.annotation, "text")) for p in named
                 if p.annotation in (*_TEXTS, *_OBJECTS, *_OBJECTS_OR_NONE)}
        needed = {p.name for p in named if p.annotation in _OBJECTS and p.default is p.empty}
        text_places = [(i, p.name) for i, p in enumerate(named) if p.name in texts and p.kind != p.KEYWORD_ONLY]
        is_method = bool(named) and named[0].name == "self"
        allowed = list(own)
        for one in takes:
            fields = one.allowed if callable(getattr(one, "explain", None)) else list(one.DESCRIPTOR.fields_by_name)
            allowed += [name for name in fields if name not in allowed and name not in called and name not in covered]
        known = set(allowed)

        def explain(name: str) -> str:
            what = f"{function.__name__}() has no argument '{name}'"
            meant = next((own for words in _SAME if name in words for own in words if own in known), "") or likest(name, allowed)
            others = [other for other, names in _BUILDERS.items() if name in names and other != function.__name__]
            if meant:
                return f"{what}; did you mean '{meant}'? Expected one of {', '.join(allowed)}"
            taken = "; " + ", ".join(f"octavo.{other}()" for other in others) + (" takes it" if len(others) == 1 else " take it") if others else ""
            return f"{what}{taken}; expected one of {', '.join(allowed)}{'' if others else closest(name, allowed)}"

        @functools.wraps(function)
        def call(*args, **kwargs):
            if not kwargs.keys() <= known:
                kwargs = {called.get(name, name): value for name, value in kwargs.items()}
                for name in kwargs:
                    if name not in known:
                        raise TypeError(explain(name))
            address = getattr(args[0], "address", "") if is_method and args else ""
            def as_text(name, value):
                if name in needed and (value is None or value == ""):
                    raise ValueError(f"{name} is {value!r}; expected {texts[name]}")
                return value if isinstance(value, str) or value is None else text(name, value, address, texts[name])

            for place, name in text_places:
                if place < len(args):
                    args = (*args[:place], as_text(name, args[place]), *args[place + 1:])
            for name in texts.keys() & kwargs.keys():
                kwargs[name] = as_text(name, kwargs[name])
            return function(*args[:is_method], *map(plain, args[is_method:]), **{name: plain(value) for name, value in kwargs.items()})

        call.allowed, call.explain = allowed, explain  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


_BUILDERS: Dict[str, List[str]] = {}


def builder(*takes: Any, **options: Any) -> Callable[[_Function], _Function]:
    """As explained, for a function whose result is an argument of another function, so that the
    errors of that one can name this one's arguments."""

    def decorate(function: _Function) -> _Function:
        made = explained(*takes, **options)(function)
        _BUILDERS[function.__name__] = made.allowed  # type: ignore[attr-defined]
        return made

    return decorate


def explained_methods(kind: _Kind) -> _Kind:
    """Applies `explained` to all public methods of a class that do not have it
    yet; those that pass all their **options on leave it to the function that takes them."""
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and (not name.startswith("_") or name == "__init__") and not hasattr(method, "explain"):
            if all(one.kind != one.VAR_KEYWORD for one in inspect.signature(method).parameters.values()):
                setattr(kind, name, explained()(method))
    return kind
