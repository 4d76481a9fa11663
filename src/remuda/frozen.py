"""Small immutable records: like `@dataclass(frozen=True, slots=True)`, without the rest of `dataclasses`.

A dataclass compiles its methods when its module is loaded, which takes half a millisecond each. A keeper had
forty of pure data, and a command that sends one request to a keeper half of those.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, TypeVar, dataclass_transform

    T = TypeVar("T")
else:

    def dataclass_transform(**_):
        return lambda function: function


@dataclass_transform(frozen_default=True)
def frozen(cls: type[T]) -> type[T]:
    """Make a record class.

    Its annotations are its fields, in order; a value in the class is a shared default. `__post_init__` is
    called as by a dataclass.
    """
    names = tuple(vars(cls).get("__annotations__", ()))  # their own, as they were written
    body = {key: value for key, value in cls.__dict__.items() if key not in ("__dict__", "__weakref__")}
    defaults = {name: body.pop(name) for name in names if name in body}
    if any(isinstance(value, (list, dict, set)) for value in defaults.values()):
        raise TypeError(f"a default of {cls.__name__} could be changed by anybody")
    body.update(_METHODS, __slots__=names, __match_args__=names, _defaults=defaults)
    if "__post_init__" in body:
        body["__init__"] = _init_and_more
    return type(cls.__name__, cls.__bases__, body)


class _Fresh:
    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def fresh(make: Callable[[], T]) -> T:
    """Return a default that is made for each record: `names: list[str] = fresh(list)`."""
    return _Fresh(make)  # type: ignore[return-value]


def fields_of(record: Any) -> dict[str, Any]:
    """Return the fields of a frozen record, by name. Their values are not copied."""
    return {name: getattr(record, name) for name in record.__match_args__}


def replaced(record: T, **changes: Any) -> T:
    """Return a copy of a frozen record with other values in these fields."""
    return type(record)(**{**fields_of(record), **changes})


def _init(self: Any, *values: Any, **named: Any) -> None:
    names = self.__match_args__
    if len(values) != len(names) or named:
        values = _complete(self, values, named)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(self, name, value)


def _init_and_more(self: Any, *values: Any, **named: Any) -> None:
    _init(self, *values, **named)
    self.__post_init__()


def _complete(self: Any, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    names, kind = self.__match_args__, type(self).__name__
    by_position = dict(zip(names, values, strict=False))
    wrong = [name for name in named if name not in names or name in by_position]
    if len(values) > len(names) or wrong:
        raise TypeError(f"{kind} has {', '.join(names) or 'no fields'}; given too much: {values!r} {named!r}")
    fields = {**self._defaults, **by_position, **named}
    if missing := [name for name in names if name not in fields]:
        raise TypeError(f"{kind} needs {', '.join(missing)}")
    return tuple(one.make() if isinstance(one := fields[name], _Fresh) else one for name in names)


def _values(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, name) for name in self.__match_args__)


def _eq(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash((type(self), *_values(self)))


def _repr(self: Any) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__name__}({fields})"


def _refuse(self: Any, name: str, _value: object = None) -> NoReturn:
    raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")


_METHODS: dict[str, Any] = {
    "__init__": _init,
    "__eq__": _eq,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
}
