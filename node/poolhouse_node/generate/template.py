"""Chat templates of model files, rendered as a stranger's code.

The text of a template comes with a model file, and a model file comes from anywhere:
:mod:`~poolhouse_node.generate.template_sandbox` keeps it from Python and from eating the machine.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import jinja2

from poolhouse_node.generate.template_sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["ChatTemplate", "TemplateError"]

MAX_SOURCE_CHARACTERS = 1 << 18


class TemplateError(Exception):
    """A chat template cannot be used or refuses its messages; the text is a sentence."""


def _local_time() -> datetime.datetime:
    return datetime.datetime.now().astimezone()


class ChatTemplate:
    """One model's template, compiled. ``specials`` are further names it sees (``bos_token``).

    Raises :class:`TemplateError` when the source is not a template.
    """

    __slots__ = ("_sandbox", "_specials", "_template")

    def __init__(
        self,
        source: str,
        specials: Mapping[str, str | None] | None = None,
        *,
        now: Callable[[], datetime.datetime] = _local_time,
    ) -> None:
        if len(source) > MAX_SOURCE_CHARACTERS:
            raise TemplateError("The model's chat template is absurdly long.")
        self._specials = dict(specials or {})
        self._sandbox = Sandbox(now)
        try:
            self._template = self._sandbox.from_string(source)
        except (jinja2.TemplateError, RecursionError, SyntaxError, ValueError) as error:
            raise TemplateError(f"The model's chat template is broken: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = False,
        **more: object,
    ) -> str:
        """The prompt's text. ``more`` are further variables (``tools``, ``enable_thinking``).

        Raises :class:`TemplateError` when the template refuses the messages or goes too far.
        """
        values = {
            **self._specials,
            **more,
            "messages": messages,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return self._sandbox.run(self._template, values)
        except jinja2.TemplateError as error:
            raise TemplateError(f"The model's chat template failed: {error}") from error
        except Exception as error:  # a template may provoke anything
            reason = f"{type(error).__name__} {error}".strip()
            raise TemplateError(f"The model's chat template failed: {reason}") from error
