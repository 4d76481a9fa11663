"""Small immutable records, held against what the library makes of the same class."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from remuda.frozen import fields_of, fresh, frozen, replaced


@frozen
class Point:
    """Where something is."""

    x: int
    y: int = 0
    name: str = ""

    @property
    def doubled(self) -> Point:
        return Point(2 * self.x, 2 * self.y, self.name)


@frozen
class Other:
    x: int
    y: int = 0
    name: str = ""


@frozen
class Nothing:
    pass


@dataclass(frozen=True, slots=True)
class Model:
    x: int
    y: int = 0
    name: str = ""


@pytest.mark.parametrize(
    ("values", "named"),
    [((1,), {}), ((1, 2), {}), ((1, 2, "a"), {}), ((), {"y": 3, "x": 1}), ((1,), {"name": "b"})],
)
def test_fields_are_those_of_a_dataclass(values: tuple[object, ...], named: dict[str, object]) -> None:
    made, model = Point(*values, **named), Model(*values, **named)  # type: ignore[arg-type]
    assert [made.x, made.y, made.name] == [model.x, model.y, model.name]
    assert repr(made) == repr(model).replace("Model", "Point")


@pytest.mark.parametrize(
    ("values", "named"), [((), {}), ((1, 2, "a", 4), {}), ((1,), {"x": 2}), ((1,), {"z": 2}), ((), {"y": 1})]
)
def test_what_no_dataclass_takes_is_refused(values: tuple[object, ...], named: dict[str, object]) -> None:
    for kind in (Point, Model):
        with pytest.raises(TypeError):
            kind(*values, **named)  # type: ignore[arg-type]


def test_equal_are_those_of_one_kind_with_equal_fields() -> None:
    assert Point(1, 2) == Point(1, 2)
    assert Point(1, 2) != Point(1, 3)
    assert Point(1, 2) != Other(1, 2)  # type: ignore[comparison-overlap]
    assert len({Point(1), Point(1), Point(2), Other(1), Nothing(), Nothing()}) == 4


def test_a_default_that_can_be_changed_is_refused() -> None:
    with pytest.raises(TypeError):

        @frozen
        class Wrong:
            names: list[str] = []  # noqa: RUF012


def test_nothing_can_be_changed_added_or_removed() -> None:
    point = Point(1)
    for name in ("x", "z"):
        with pytest.raises(AttributeError):
            setattr(point, name, 2)
    with pytest.raises(AttributeError):
        del point.x
    assert not hasattr(point, "__dict__")
    assert point.x == 1


def test_it_is_a_class_like_any_other() -> None:
    assert Point.__doc__ == "Where something is."
    assert Point(1, 2, "a").doubled == Point(2, 4, "a")
    match Point(1, 2):
        case Point(1, y):
            assert y == 2
        case _:
            raise AssertionError


@frozen
class Bag:
    name: str
    things: list[str] = fresh(list)


def test_fresh_default_is_made_for_each_record() -> None:
    first, second = Bag("a"), Bag("b")
    first.things.append("x")
    assert (first.things, second.things) == (["x"], [])
    assert Bag("c", ["y"]).things == ["y"]


def test_fields_of_a_record_are_listed_in_order_and_can_be_replaced() -> None:
    bag = Bag("a", ["x"])
    assert list(fields_of(bag).items()) == [("name", "a"), ("things", ["x"])]
    assert replaced(bag, name="b") == Bag("b", ["x"])


@frozen
class Short:
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self.text[:3])


def test_post_init_is_called_when_a_record_is_made() -> None:
    assert Short("abcdef") == Short("abc")
    assert replaced(Short("a"), text="wxyz").text == "wxy"
