"""The room's conversation and how it becomes token ids (generation, section 2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.generate.template import ChatTemplate, TemplateError

if TYPE_CHECKING:
    from poolhouse_node.generate.tokenizer import Tokenizer

__all__ = ["Conversation", "Exchange", "PromptTooLong"]

ROOM_FOR_ANSWER_TOKENS = 32


class PromptTooLong(Exception):
    """The question alone does not fit the context; the text says by how much."""


@dataclass(slots=True)
class Exchange:
    """A question and its answer, as the exact ids that were sampled."""

    name: str
    question: str
    answer_ids: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Conversation:
    """Exchanges of one room, oldest first. The last one may be unanswered."""

    tokenizer: Tokenizer
    system: str = ""
    exchanges: list[Exchange] = field(default_factory=list)

    def render(self, context_size: int) -> list[int]:
        """Token ids of the whole conversation, ready for the next answer.

        Drops the oldest exchanges while the ids do not leave 32 positions of ``context_size``, for
        good: a conversation only gets longer, so they would not fit again.
        Raises :class:`PromptTooLong`, and drops nothing, when the last question alone does not fit.
        """
        limit = context_size - ROOM_FOR_ANSWER_TOKENS
        for first in range(len(self.exchanges)):
            ids = self._ids_from(first)
            if len(ids) <= limit:
                del self.exchanges[:first]
                return ids
        raise PromptTooLong(
            f"This question is {len(ids)} tokens long; the room's context holds {limit}."
        )

    def _ids_from(self, first: int) -> list[int]:
        kept = self.exchanges[first:]
        if self.tokenizer.speaks_chatml:
            return _chatml(self.tokenizer, self.system, kept)
        return _by_template(self.tokenizer, self.system, kept)


def _chatml(tokenizer: Tokenizer, system: str, exchanges: list[Exchange]) -> list[int]:
    """Each piece is encoded on its own, so that no user text becomes a special token."""
    start, end = tokenizer.special_id("<|im_start|>"), tokenizer.special_id("<|im_end|>")
    encode = tokenizer.encode
    ids: list[int] = []
    if system:
        ids += [start, *encode(f"system\n{system}"), end, *encode("\n")]
    for number, exchange in enumerate(exchanges, start=1):
        ids += [start, *encode(f"user\n{exchange.question}"), end, *encode("\n")]
        ids += [start, *encode("assistant\n")]
        if number < len(exchanges):
            ids += [*exchange.answer_ids, end, *encode("\n")]
    return ids


def _by_template(tokenizer: Tokenizer, system: str, exchanges: list[Exchange]) -> list[int]:
    """A model without ChatML tags chats by the template its file brings along.

    Here the text is encoded as a whole: a user text may hold the model's own tags. Their reading
    as special tokens cannot reach beyond this conversation.
    """
    if tokenizer.chat_template is None:
        raise TemplateError("This model has no chat template; it can only continue raw prompts.")
    messages: list[dict[str, str]] = []
    if system:
        messages.append({"role": "system", "content": system})
    for exchange in exchanges:
        messages.append({"role": "user", "content": exchange.question})
        if exchange is not exchanges[-1]:
            answer = tokenizer.decode(exchange.answer_ids)
            messages.append({"role": "assistant", "content": answer})
    text = ChatTemplate(tokenizer.chat_template).render(messages, add_generation_prompt=True)
    return tokenizer.encode_with_specials(text)
