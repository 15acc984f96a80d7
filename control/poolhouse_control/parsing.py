"""How a setting is declared, and how its text becomes a value.

A parser raises ``ValueError`` whose text completes "X must be ...". A group of settings is a frozen
dataclass whose fields are made by ``setting``; ``load_values`` fills it.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poolhouse_control.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "Key",
    "choice",
    "comma_list",
    "describe",
    "flag",
    "load_values",
    "networks",
    "seconds",
    "secret_lines",
    "setting",
    "text",
    "whole",
]

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})


@dataclass(frozen=True, slots=True)
class Key:
    """What people must know of one setting."""

    name: str
    variable: str
    doc: str
    default: str


# ---- parsers ------------------------------------------------------------------------------------


def text(value: str) -> str:
    """Any text, without the space around it."""
    return value.strip()


def flag(value: str) -> bool:
    """A switch."""
    lowered = value.strip().lower()
    if lowered not in _TRUE | _FALSE:
        raise ValueError("1 or 0")
    return lowered in _TRUE


def whole(low: int, high: int) -> Callable[[str], int]:
    """A whole number within bounds."""

    def parse(value: str) -> int:
        if not re.fullmatch(r"\d{1,18}", value.strip()) or not low <= int(value) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(value)

    return parse


def seconds(low: float, high: float) -> Callable[[str], float]:
    """A duration within bounds."""

    def parse(value: str) -> float:
        expected = f"a number of seconds from {low:g} to {high:g}"
        try:
            number = float(value)
        except ValueError:
            raise ValueError(expected) from None
        if not low <= number <= high:
            raise ValueError(expected)
        return number

    return parse


def comma_list(value: str) -> tuple[str, ...]:
    """Texts between commas."""
    return tuple(item for part in value.split(",") if (item := part.strip()))


def networks(value: str) -> tuple[str, ...]:
    """Addresses and ranges, each in its normal form."""
    try:
        return tuple(str(ipaddress.ip_network(item)) for item in comma_list(value))
    except ValueError:
        raise ValueError("a comma list of addresses or ranges such as 10.0.0.0/8") from None


def choice(*choices: str) -> Callable[[str], str]:
    """One of some words."""

    def parse(value: str) -> str:
        if value.strip().lower() not in choices:
            raise ValueError("one of " + ", ".join(choices))
        return value.strip().lower()

    return parse


# ---- groups of settings -------------------------------------------------------------------------


def setting(
    default: Any,
    parse: Callable[[str], Any],
    doc: str,
    *,
    alias: str = "",
    secret: bool = False,
    is_harmless: Callable[[str], bool] = lambda _: False,
) -> Any:
    """Declare a setting. ``alias`` is a variable other deployments use for the same thing.

    A secret is never shown, and taken from an argument only if that ``is_harmless``; a field
    ``<name>_file`` beside it names a file that holds it instead.
    """
    metadata = {
        "parse": parse,
        "doc": doc,
        "alias": alias,
        "secret": secret,
        "is_harmless": is_harmless,
    }
    return field(default=default, metadata=metadata, repr=not secret)


def describe(group: type, prefix: str) -> list[Key]:
    """List the settings of a group, for help texts and the reference page."""
    return [
        Key(
            name=each.name,
            variable=prefix + each.name.upper(),
            doc=each.metadata["doc"],
            default=str(each.default) if each.default is not MISSING else "",
        )
        for each in fields(group)
    ]


def load_values(
    group: type, environ: Mapping[str, str], prefix: str, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Merge arguments (None: not given) over ``environ``, check all, read the files of secrets.

    Raises:
        SettingsError: a value, an unknown name or a secret given as an argument.
    """
    values: dict[str, Any] = {}
    for each in fields(group):
        variable, raw = _look_up(prefix + each.name.upper(), each.metadata["alias"], environ)
        if raw is not None:
            secret = each.metadata["secret"]
            values[each.name] = _parse(variable, raw, each.metadata["parse"], secret=secret)
    values |= _checked_arguments(group, prefix, arguments)
    for each in fields(group):
        if each.metadata["secret"]:
            _fill_from_file(each, prefix, values)
    return values


def secret_lines(file: str, what: str) -> tuple[str, ...]:
    """Read a file of secrets, one a line; lines that begin with ``#`` are remarks.

    Raises:
        SettingsError: it cannot be read, or holds nothing.
    """
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SettingsError(f"{what} cannot be read from {file}: {reason}.") from None
    found = tuple(s for line in lines if (s := line.strip()) and not s.startswith("#"))
    if not found:
        raise SettingsError(f"{what}: the file {file} is empty.")
    return found


def _look_up(variable: str, alias: str, environ: Mapping[str, str]) -> tuple[str, str | None]:
    if variable not in environ and alias and alias in environ:
        return alias, environ[alias]
    return variable, environ.get(variable)


def _parse(label: str, raw: str, parse: Callable[[str], Any], *, secret: bool = False) -> Any:
    try:
        return parse(raw)
    except ValueError as error:
        shown = "" if secret else f", not {raw!r}"
        raise SettingsError(f"{label} must be {error}{shown}.") from None


def _checked_arguments(group: type, prefix: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    known = {each.name: each for each in fields(group)}
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        if name not in known:
            raise SettingsError(f"There is no setting named {name!r}.")
        if value is None:
            continue
        metadata = known[name].metadata
        if metadata["secret"] and not metadata["is_harmless"](_as_text(value)):
            variable = prefix + name.upper()
            raise SettingsError(
                f"{name} is a secret: give it as {variable} or {variable}_FILE, not as an argument."
            )
        values[name] = _parse(name, _as_text(value), known[name].metadata["parse"])
    return values


def _fill_from_file(each: Any, prefix: str, values: dict[str, Any]) -> None:
    """A file and a value at once would leave in doubt which counts."""
    file = values.get(f"{each.name}_file", "")
    if not file:
        return
    variable = prefix + each.name.upper()
    if values.get(each.name):
        raise SettingsError(f"Give {variable} by value or by file, not both.")
    joined = "\n".join(secret_lines(file, variable))
    values[each.name] = _parse(f"{variable}_FILE", joined, each.metadata["parse"], secret=True)


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, str):
        return value
    if isinstance(value, tuple | list):
        return ",".join(_items(value))
    return str(value)


def _items(values: Iterable[Any]) -> list[str]:
    return [str(value) for value in values]
