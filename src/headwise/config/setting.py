"""Declaration of settings: default, range, choices, help, and the models that they apply to."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from headwise.errors import UserError, unknown

# The models that a setting applies to: keys of [model] and their values. `|` combines conditions.
OnlyFor = dict[str, tuple[str, ...]]

Range = tuple[str, Callable[[float], bool]]  # text after "must be", and a test
ANY: Range = "a number", lambda x: True
NOT_NEGATIVE: Range = "at least 0", lambda x: x >= 0
POSITIVE: Range = "greater than 0", lambda x: x > 0
SHARE: Range = "greater than 0 and at most 1", lambda x: 0 < x <= 1
RATE: Range = "at least 0 and less than 1", lambda x: 0 <= x < 1
SEED: Range = "from 0 to 4294967295", lambda x: 0 <= x < 2**32
THREADS: Range = "from 0 to 1024", lambda x: 0 <= x <= 1024
A_CHARACTER: Range = "0, or at least 8", lambda x: not x or x >= 8  # 0 = no limit; room for bytes, end token, tag

Section = TypeVar("Section")  # a dataclass of settings


@dataclass(frozen=True)
class Setting:
    """The declaration of a setting."""

    default: Any
    help: str  # with unit and meaning of 0; symbols and sections of the paper in brackets
    range: Range = NOT_NEGATIVE  # of a number, or of each number of a tuple
    choices: tuple[Any, ...] = ()
    only_for: OnlyFor = field(default_factory=dict)
    task: str = ""  # property of the tasks that use it (`config.tasks`); "" = all with its section
    derived: bool = False  # computed from the data, not set by users

    def check(self, key: str, value: Any) -> None:
        """Raise a `UserError` for an invalid value of the right type."""
        if self.choices and value not in self.choices:
            raise unknown(f"value for {key}", str(value), map(str, self.choices))
        if isinstance(value, str) and not (self.choices or isinstance(self.default, str)):
            raise UserError(f"{key} = {value!r}: must be of type {type(self.default).__name__}")
        words, holds = self.range
        many, shown = ("each ", list(value)) if isinstance(value, tuple) else ("", value)
        for number in value if many else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise UserError(f"{key} = {shown}: {many}must be a finite number")
            if isinstance(number, int | float) and not holds(number):
                raise UserError(f"{key} = {shown}: {many}must be {words}")

    def unused_by(self, model: Any) -> str:
        """The key of [model] whose value makes this setting unused; "" if it is used."""
        return next((key for key, values in self.only_for.items() if getattr(model, key) not in values), "")


def setting(default: Any, help: str, range: Range = NOT_NEGATIVE, **declared: Any) -> Any:
    """A dataclass field for a setting; `declared` are further fields of `Setting`."""
    return field(default=default, metadata={"setting": Setting(default, help, range, **declared)})


def choice(choices: tuple[Any, ...], help: str, **declared: Any) -> Any:
    """A setting with fixed choices; the first is the default."""
    return setting(choices[0], help, choices=choices, **declared)


def check_values(section: str, table: Any) -> None:
    """Raise a `UserError` for the first invalid value of a section ("" = no section)."""
    for own in fields(table):
        if declared := own.metadata.get("setting"):
            declared.check(f"{section}.{own.name}".lstrip("."), getattr(table, own.name))


def converted(table: Any, section: type[Section]) -> Section:
    """A new section with the values of the settings that both have."""
    names = {own.name for own in fields(section)}  # pyright: ignore[reportArgumentType]
    return section(**{own.name: getattr(table, own.name) for own in fields(table) if own.name in names})
