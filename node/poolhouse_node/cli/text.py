"""Texts of others on a terminal: shown, never obeyed."""

from __future__ import annotations

__all__ = ["printable"]

_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_BIDI_OVERRIDES = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""They can make a line read as another one."""
_UNWANTED = {code: None for code in (*_CONTROLS, *_BIDI_OVERRIDES) if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """``text`` without what a terminal would act on; line ends and tabs stay."""
    return text.translate(_UNWANTED)
