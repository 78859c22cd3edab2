"""Messages of the server as Python values: enums as words, moments as datetime, spans as timedelta.

    volume.state                  VolumeState.HELD; prints as HELD
    volume.state == "held"        also "HELD", "VOLUME_STATE_HELD" and the contract's number
    volume.hold_time              datetime with its zone (UTC)
    volume.levels                 None: not set; else Levels, whose fields are read in the same way
    volume.message                the whole message

A class for each kind of message is generated from the message's descriptor when it is first used, so that it
has every field of the contract that this package was built with.
"""

from __future__ import annotations

import datetime
import difflib
import enum
import threading
from typing import Any, Callable, Dict, Optional, Tuple, Type

import numpy as np
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from octavo import errors
from octavo.names import Names, closest, short, short_name

_DTYPE = "octavo.v1.Dtype"


class Choice(enum.Enum):
    """A value of one of the contract's enums.

    It prints as its word, HELD, and equals that word in any case, the other words that calls take
    for it ("zarr" for a format), and the number of the contract; a type of elements also NumPy's:
    volume.dtype == np.uint16. A comparison with a misspelt word is an OctavoWarning. Its hash is that of the word in
    capitals: {"HELD", "COMMITTED"} finds it, a set of numbers does not. The value 0, UNSPECIFIED,
    is false. `int(choice)` is the number.
    """

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, how: str) -> str:
        return format(self.name, how)

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value

    def __bool__(self) -> bool:
        return self.value != 0

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            number = type(self).number_of(other)
            if number is None:
                self._doubt(other)
            return self.value == number
        if isinstance(other, np.dtype):
            return getattr(self, "dtype", None) == other
        if isinstance(other, type) and issubclass(other, np.generic):
            return getattr(getattr(self, "dtype", None), "type", None) is other
        if isinstance(other, (int, np.integer)) and not isinstance(other, bool):
            return self.value == other
        return self is other or NotImplemented

    def _doubt(self, word: str) -> None:
        """Warns of a comparison with a word that is none of this enum's, if it may be a misspelt one."""
        words = [one.lower() for one in type(self).__members__ if one != "UNSPECIFIED"]
        guess = closest(word, words)
        if guess:
            errors.warn(f"{type(self).__name__} is compared with {short(word)}, which is none of its words; they are {', '.join(words)}{guess}")

    def __reduce_ex__(self, _: Any) -> Tuple[Callable, tuple]:
        return _choice, (type(self).descriptor().full_name, self.value)

    @property
    def dtype(self) -> np.dtype:
        """NumPy's type for a type of elements: np.dtype(volume.dtype). AttributeError for other
        enums, and for C32, which NumPy has not."""
        kind = {"U": "u", "I": "i", "F": "f", "C": "c"}.get(self.name[:1])
        if self.descriptor().full_name != _DTYPE or kind is None or self.name in ("UNSPECIFIED", "C32"):
            raise AttributeError(f"{self!r} is no type of elements that NumPy has")
        return np.dtype(f"<{kind}{int(self.name[1:]) // 8}")

    @classmethod
    def descriptor(cls) -> EnumDescriptor:
        """The enum in the contract."""
        return cls.__dict__["_descriptor"][0]

    @classmethod
    def number_of(cls, word: str) -> Optional[int]:
        """The number that a word stands for; None if it is none of this enum."""
        names = Names.of_enum(cls.descriptor())
        name = names.name_of(word)
        zero = cls.descriptor().values_by_number[0].name
        return names[name] if name is not None else 0 if word.upper() in (zero, "UNSPECIFIED") else None

    @classmethod
    def _missing_(cls, value: object) -> Optional["Choice"]:
        if isinstance(value, str) and cls.number_of(value) is not None:
            return cls(cls.number_of(value))
        if not isinstance(value, int):
            return None
        other = object.__new__(cls)  # of a newer server: its number is its word
        other._name_, other._value_ = str(value), value
        return cls._value2member_map_.setdefault(value, other)  # type: ignore[return-value]


# Classes are made once, whichever thread needs them first: members of two enums of one name would differ.
_making = threading.RLock()
_choices: Dict[str, Type[Choice]] = {}  # by the full name of the enum


def choices(of: EnumDescriptor) -> Type[Choice]:
    """The Python enum for an enum of the contract: VolumeState with HELD, COMMITTED, …"""
    made = _choices.get(of.full_name)
    if made is not None:
        return made
    with _making:
        if of.full_name not in _choices:
            made = Choice(of.name, {short_name(of, value.number): value.number for value in of.values}, module=__name__)  # type: ignore[call-overload]
            type.__setattr__(made, "_descriptor", (of,))
            _choices[of.full_name] = made
        return _choices[of.full_name]


def _choice(full_name: str, number: int) -> Choice:
    return choices(descriptor_pool.Default().FindEnumTypeByName(full_name))(number)


class Fields:
    """A message of the server, to be read by the names of its fields.

    message  the message itself

    Enums are members of Python enums (see Choice), Timestamps are datetime in UTC, Durations are
    timedelta, both to the microsecond; messages are Fields again, repeated fields lists, maps
    dicts. What has presence and is not set is None. Fields cannot be assigned to.
    """

    __slots__ = ("_message", "_context", "__weakref__")
    _kinds: Dict[str, Type["Fields"]] = {}  # by the full name of the message
    _descriptor: Descriptor

    def __init_subclass__(cls, of: Optional[Descriptor] = None, **options: Any):
        super().__init_subclass__(**options)
        if of is not None:
            cls._descriptor = of
            for field in of.fields:
                if not any(field.name in vars(base) for base in cls.__mro__):  # a method of that name hides the field
                    setattr(cls, field.name, _property(field))
            Fields._kinds[of.full_name] = cls

    def __init__(self, context: Any, message: Message):
        self._context, self._message = context, message

    @property
    def message(self) -> Any:
        """The whole message, as it came."""
        return self._message

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_message", "_context"):
            raise AttributeError(name)
        known = [one for one in dir(type(self)) if not one.startswith("_")]
        near = difflib.get_close_matches(name, known, n=4)
        where = self._elsewhere(name)
        its = f"; near it are {', '.join(near)}" if near else "" if where else f"; it has {', '.join(known)}"
        raise AttributeError(f"{type(self).__name__} has no '{name}'{its}{f'; {where}' if where else ''}")

    def _elsewhere(self, name: str) -> str:
        """The call that does what an attribute of this name would; "" if there is none."""
        return ""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("_message", "_context"):
            raise AttributeError(f"{name} of {self!r} cannot be set here: calls of the client change what the server has; "
                                 "a copy of `message` is what a program may change")
        super().__setattr__(name, value)

    def __eq__(self, other: object) -> bool:
        return self._message == plain(other) if isinstance(other, (Fields, Message)) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = (f"{field.name}={_shortly(getattr(self, field.name, None))}" for field, _ in self._message.ListFields())
        return f"<{type(self).__name__}{''.join(f' {one}' for one in values)}>"

    def __reduce_ex__(self, _: Any) -> Tuple[Callable, tuple]:
        return _from_bytes, (self._descriptor.full_name, self._message.SerializeToString())

    def __copy__(self) -> "Fields":
        return self

    def __deepcopy__(self, _: Any) -> "Fields":
        return self


def kind_of(descriptor: Descriptor) -> Type[Fields]:
    """The class for a kind of message."""
    kind = Fields._kinds.get(descriptor.full_name)
    if kind is not None:
        return kind
    with _making:
        kind = Fields._kinds.get(descriptor.full_name)
        return kind if kind is not None else type(Fields)(descriptor.name, (Fields,), {"__slots__": (), "__module__": __name__}, of=descriptor)


def of_message(context: Any, message: Message) -> Fields:
    """The object for a message. context: what its methods call."""
    return kind_of(message.DESCRIPTOR)(context, message)


def _from_bytes(full_name: str, data: bytes) -> Fields:
    return of_message(None, class_of(descriptor_pool.Default().FindMessageTypeByName(full_name)).FromString(data))


def _property(field: FieldDescriptor) -> property:
    convert, name = _conversion(field), field.name
    if _is_map(field):
        convert_value = _conversion(field.message_type.fields_by_name["value"])

        def get(self: Fields) -> Any:
            return {key: convert_value(self._context, value) for key, value in getattr(self._message, name).items()}
    elif is_repeated(field):
        def get(self: Fields) -> Any:
            return [convert(self._context, one) for one in getattr(self._message, name)]
    elif field.message_type is not None or field.containing_oneof is not None:
        def get(self: Fields) -> Any:
            return convert(self._context, getattr(self._message, name)) if self._message.HasField(name) else None
    else:
        def get(self: Fields) -> Any:
            return convert(self._context, getattr(self._message, name))
    return property(get, doc=f"The field `{name}` of {field.containing_type.full_name}.")


def _conversion(field: FieldDescriptor) -> Callable[[Any, Any], Any]:
    """The function (context, value of the field) → value in Python."""
    if field.enum_type is not None:
        of_enum = field.enum_type
        return lambda _, number: choices(of_enum)(number)
    if field.message_type is None:
        return lambda _, value: value
    if field.message_type.full_name == Timestamp.DESCRIPTOR.full_name:
        return lambda _, moment: moment.ToDatetime(datetime.timezone.utc)
    if field.message_type.full_name == Duration.DESCRIPTOR.full_name:
        return lambda _, span: span.ToTimedelta()
    return of_message


def is_repeated(field: FieldDescriptor) -> bool:
    # protobuf 6 says is_repeated, and later ones have no label any more.
    return field.is_repeated if hasattr(field, "is_repeated") else field.label == FieldDescriptor.LABEL_REPEATED


def _is_map(field: FieldDescriptor) -> bool:
    return is_repeated(field) and field.message_type is not None and field.message_type.GetOptions().map_entry


def _shortly(value: Any) -> str:
    text = str(value) if isinstance(value, Choice) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def plain(value: Any) -> Any:
    """The message of an object, the word of a Choice (its number belongs to its own enum only);
    another value as it is."""
    if isinstance(value, Choice):
        return value.value if value.value == 0 or value.name == str(value.value) else value.name
    return value.message if isinstance(value, Fields) else value


def class_of(descriptor: Descriptor) -> Any:
    """The class of a kind of message."""
    # protobuf 4.22 and later have a function for it.
    get = getattr(message_factory, "GetMessageClass", None)
    return get(descriptor) if get is not None else descriptor._concrete_class
