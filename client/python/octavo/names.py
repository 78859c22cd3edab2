"""Names for the numbers of an enum. The error for an unknown name lists the known ones."""

from __future__ import annotations

import difflib
import numbers
from typing import Any, Dict, Iterable, Mapping, Optional

import numpy as np


def folded(text: str) -> str:
    """The form for comparing names: ignoring case, with "-" and " " as "_"."""
    return text.strip().lower().replace("-", "_").replace(" ", "_")


def closest(text: str, allowed: Iterable[str]) -> str:
    """"; did you mean '…'?", or nothing if none is near."""
    by_fold = {folded(name): name for name in allowed}
    found = difflib.get_close_matches(folded(text), by_fold, n=1)
    return f"; did you mean '{by_fold[found[0]]}'?" if found else ""


def likest(text: str, allowed: Iterable[str]) -> str:
    """The name that was almost certainly meant: with a wrong letter, or with its end left out. ""
    if there is none."""
    by_fold = {folded(name): name for name in allowed}
    start = folded(text) if len(text) > 4 else folded(text) + "_"
    begun = [name for fold, name in by_fold.items() if fold.startswith(start)]
    found = difflib.get_close_matches(folded(text), by_fold, n=1, cutoff=0.8)
    return by_fold[found[0]] if found else begun[0] if begun else ""


def short(value) -> str:
    """A value in the form for errors."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} {value.shape}"
    if isinstance(value, np.generic):  # NumPy 2 writes its types around numbers
        value = value.item()
    if isinstance(value, (str, numbers.Number, type(None))):
        text = repr(value)
    else:
        text = f"{' '.join(repr(value).split())} ({type(value).__name__})"  # of a message: its lines
    return text if len(text) <= 80 else text[:77] + "..."


def short_name(enum, number: int) -> str:
    """A value's name without that of its enum: "RUNNING" for SCAN_STATE_RUNNING. The number as text
    for a value that only a newer server knows."""
    value = enum.values_by_number.get(number)
    prefix = enum.values_by_number[0].name[:-len("UNSPECIFIED")]
    return value.name[len(prefix):] if value is not None else str(number)


def enum_name(message: Any, field: str) -> str:
    """The value of a field of an enum in words, for a message: "exclusive" for the mode of a LeaseGrant. "" for the value 0. Fields of objects
    are words by themselves (octavo.fields.Choice)."""
    message = getattr(message, "message", message)
    enums = {one.name: one.enum_type for one in message.DESCRIPTOR.fields if one.enum_type is not None and isinstance(getattr(message, one.name), int)}
    if field not in enums:
        raise ValueError(f"field is {short(field)}; expected a field of {message.DESCRIPTOR.name} that is an enum: {', '.join(enums)}{closest(field, enums)}")
    number = getattr(message, field)
    return short_name(enums[field], number).lower() if number != 0 else ""


_OF: Dict[str, "Names"] = {}  # by the full name of the enum


class Names(dict):
    """Name → number.

    of       the enum (scan_pb2.Format) whose fields take these names everywhere
    aliases  words of other packages for the same: word → name
    refused  words of other packages without a counterpart here: word → what to do instead
    also     values allowed besides names
    """

    def __init__(self, numbers_of: Mapping[str, int], aliases: Optional[Mapping[str, str]] = None, refused: Optional[Mapping[str, str]] = None,
                 also: str = "", of=None):
        super().__init__(numbers_of)
        self.aliases = {folded(word): name for word, name in (aliases or {}).items()}
        self.refused = {folded(word): why for word, why in (refused or {}).items()}
        self.also = also
        self._known = {**self.aliases, **{folded(name): name for name in numbers_of}}
        if of is not None:
            _OF[of.DESCRIPTOR.full_name] = self
            self._know_protos(of.DESCRIPTOR)

    def _know_protos(self, enum) -> None:
        """The names in the protos, too, with and without the name of the enum."""
        by_number = {number: name for name, number in self.items()}
        for value in enum.values:
            if value.number in by_number:
                for word in (value.name, short_name(enum, value.number)):
                    self._known.setdefault(folded(word), by_number[value.number])

    @classmethod
    def of_enum(cls, enum) -> "Names":
        """The names for an enum's descriptor: its own table, else the proto's short names in lower
        case."""
        if enum.full_name not in _OF:
            _OF[enum.full_name] = cls._of_proto(enum)
        return _OF[enum.full_name]

    @classmethod
    def _of_proto(cls, enum) -> "Names":
        names = cls({short_name(enum, value.number).lower(): value.number for value in enum.values if value.number != 0})
        names._know_protos(enum)
        return names

    def name_of(self, word: str) -> Optional[str]:
        """The name that a word stands for; None if it is none."""
        return self._known.get(folded(word))

    def name(self, field: str, value: str) -> str:
        """The same. ValueError names `field`, the word and the allowed
        ones."""
        name = self.name_of(value) if isinstance(value, str) else None
        if name is None:
            raise ValueError(self._why_not(field, value))
        return name

    def pick(self, field: str, value) -> int:
        """The number of a name. Numbers are passed on, because a newer server may know more of
        them. ValueError as in name()."""
        if isinstance(value, numbers.Integral) and not isinstance(value, bool):
            return int(value)
        return self[self.name(field, value)]

    def _why_not(self, field: str, value) -> str:
        allowed = f"expected one of {', '.join(self)}" + (f", {self.also}" if self.also else "")
        if not isinstance(value, str):
            return f"{field} is {short(value)}; {allowed}"
        if folded(value) in self.refused:
            return f"{field} is {value!r}: {self.refused[folded(value)]}; {allowed}"
        return f"{field} is {value!r}; {allowed}{self._meant(value)}"

    def _meant(self, value: str) -> str:
        """"; did you mean '…'?", with the name for which the word of another package
        stands."""
        text = closest(value, self._suggested())
        word = text[len("; did you mean '"):-len("'?")]
        return text if word in self or not text else f"; did you mean {word!r} ({self.name_of(word)})?"

    def _suggested(self) -> Iterable[str]:
        return [*self, *self.aliases]


class Types(Names):
    """Element types: names of the table, NumPy's ("uint16", "<u2"), and its types themselves (np.uint16, np.dtype("u2"))."""

    ALIASES = {"uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16", "uint32": "u32", "int32": "i32", "uint64": "u64", "int64": "i64",
               "float16": "f16", "half": "f16", "float32": "f32", "single": "f32", "float64": "f64", "double": "f64", "complex64": "c64",
               "complex128": "c128"}
    _BY_KIND = {"u1": "u8", "i1": "i8", "u2": "u16", "i2": "i16", "u4": "u32", "i4": "i32", "u8": "u64", "i8": "i64", "f2": "f16", "f4": "f32",
                "f8": "f64", "c8": "c64", "c16": "c128"}

    def __init__(self, numbers_of: Mapping[str, int], aliases: Optional[Mapping[str, str]] = None, of=None):
        own = {word: name for word, name in self.ALIASES.items() if name in numbers_of}
        super().__init__(numbers_of, {**own, **(aliases or {})}, also="NumPy's names and types for these (little-endian)", of=of)

    def _suggested(self) -> Iterable[str]:
        return self  # "int8" is near "int32", but means another type

    def pick(self, field: str, value) -> int:
        if isinstance(value, numbers.Integral) or (isinstance(value, str) and self.name_of(value) is not None):
            return super().pick(field, value)
        try:
            dtype = np.dtype(value)
        except TypeError:
            raise ValueError(self._why_not(field, value)) from None
        name = self._BY_KIND.get(dtype.str[1:])
        if value is None or name not in self or dtype.str[0] == ">":
            raise ValueError(self._why_not(field, value))
        return self[name]
