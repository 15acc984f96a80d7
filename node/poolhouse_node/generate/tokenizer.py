"""Text to token ids and back, from what the model file says (engine, section 10).

Byte-level BPE through HF ``tokenizers``. Special tokens are matched here, not in the library: a
user's text can then never become one by accident of a setting.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import tokenizers
from tokenizers import Regex, models, pre_tokenizers

from poolhouse_node.weights.gguf_header import LazyArray

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from poolhouse_node.weights.gguf_header import Scalar

__all__ = ["TextStream", "Tokenizer", "TokenizerError"]

type Metadata = Mapping[str, Scalar | LazyArray]

_CONTROL, _USER_DEFINED = 3, 4
_END_TOKENS = ("<|im_end|>", "<|endoftext|>")  # generation, section 7


class TokenizerError(Exception):
    """The model file's tokenizer cannot be used; the text is a sentence for a person."""


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Made by :meth:`from_metadata` or :meth:`assemble`. Needs nothing of the file afterwards."""

    tokens: Sequence[str]
    """The vocabulary as the file spells it: byte-level for ordinary tokens."""
    specials: Mapping[str, int]
    """Tokens that stand for themselves (control and user-defined), by their text."""
    end_ids: frozenset[int]
    """Any of these ends an answer."""
    chat_template: str | None
    bos_token: str | None
    eos_token: str | None
    _bpe: tokenizers.Tokenizer
    _special_pattern: re.Pattern[str] | None
    _special_ids: frozenset[int]
    _bytes: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    def from_metadata(cls, metadata: Metadata) -> Self:
        """Build from a GGUF's metadata. Raises :class:`TokenizerError`."""
        tokens = _texts(metadata, "tokenizer.ggml.tokens")
        vocabulary = {token: number for number, token in enumerate(tokens)}
        kinds = _integers(metadata, "tokenizer.ggml.token_type")
        specials = {
            token: number
            for number, (token, kind) in enumerate(zip(tokens, kinds, strict=False))
            if kind in (_CONTROL, _USER_DEFINED) and token
        }
        eos = _token_at(metadata, "tokenizer.ggml.eos_token_id", tokens)
        template = metadata.get("tokenizer.chat_template")
        return cls.assemble(
            tokens=tokens,
            specials=specials,
            more_ends=[] if eos is None else [vocabulary[eos]],
            chat_template=template if isinstance(template, str) else None,
            bos_token=_token_at(metadata, "tokenizer.ggml.bos_token_id", tokens),
            eos_token=eos,
            bpe=_byte_pairs(metadata, vocabulary),
        )

    @classmethod
    def assemble(
        cls,
        *,
        tokens: Sequence[str],
        specials: Mapping[str, int],
        more_ends: Iterable[int],
        chat_template: str | None,
        bos_token: str | None,
        eos_token: str | None,
        bpe: tokenizers.Tokenizer,
    ) -> Self:
        """Build from parts. ``bpe`` knows no special tokens; ``more_ends`` end answers besides
        the usual ones.
        """
        ends = {specials[name] for name in _END_TOKENS if name in specials}
        return cls(
            tokens=tokens,
            specials=specials,
            end_ids=frozenset(ends.union(more_ends)),
            chat_template=chat_template,
            bos_token=bos_token,
            eos_token=eos_token,
            _bpe=bpe,
            _special_pattern=_any_of(specials),
            _special_ids=frozenset(specials.values()),
        )

    @property
    def vocabulary_size(self) -> int:
        return len(self.tokens)

    @property
    def speaks_chatml(self) -> bool:
        """True when the vocabulary has the tags of room chat (generation, section 2)."""
        return "<|im_start|>" in self.specials and "<|im_end|>" in self.specials

    def special_id(self, name: str) -> int:
        """The id of a special token. Raises :class:`TokenizerError` when there is none."""
        if name not in self.specials:
            raise TokenizerError(f"This model has no token {name}.")
        return self.specials[name]

    def encode(self, text: str) -> list[int]:
        """Ids of plain text: whatever it spells, no special token comes out. No BOS is added."""
        ids: list[int] = self._bpe.encode(_sound(text), add_special_tokens=False).ids
        return ids

    def encode_with_specials(self, text: str) -> list[int]:
        """Ids of text in which special tokens are read as such: the longest at each place."""
        if self._special_pattern is None:
            return self.encode(text)
        ids: list[int] = []
        # The pattern is one group, so that split alternates text and special tokens.
        for number, piece in enumerate(self._special_pattern.split(text)):
            ids += [self.specials[piece]] if number % 2 else self.encode(piece)
        return ids

    def token_bytes(self, token: int) -> bytes:
        """The bytes a token stands for; of a special one its name. Nothing for an unknown id."""
        known = self._bytes.get(token)
        if known is None:
            known = self._bytes[token] = self._spell(token)
        return known

    def _spell(self, token: int) -> bytes:
        if not 0 <= token < len(self.tokens):
            return b""
        text = self.tokens[token]
        if token in self._special_ids:
            return text.encode()
        try:
            return bytes(_BYTE_OF[character] for character in text)
        except KeyError:  # not byte-level after all: as it is spelled
            return text.encode()

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, specials by name; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")


class TextStream:
    """Text of tokens as they come, in whole characters (generation, section 13)."""

    __slots__ = ("_decoder", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that is complete with ``token``; bytes of an unfinished character wait."""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def flush(self) -> str:
        """What still waited (U+FFFD for a broken character); the stream starts anew."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text


def _byte_pairs(metadata: Metadata, vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
    model = metadata.get("tokenizer.ggml.model")
    if model != "gpt2":
        raise TokenizerError(f"The tokenizer {model!r} of this model file is not known, only gpt2.")
    pairs = [_pair(merge) for merge in _texts(metadata, "tokenizer.ggml.merges")]
    try:
        bpe = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    except Exception as error:  # the library raises nothing finer
        raise TokenizerError(f"The merges of this model file do not fit it: {error}.") from error
    bpe.pre_tokenizer = _pre_tokenizer(metadata.get("tokenizer.ggml.pre", "default"))
    return bpe


def _pair(merge: str) -> tuple[str, str]:
    left, space, right = merge.partition(" ")
    if not (left and space and right):
        raise TokenizerError(f"The model file has a merge that is not a pair: {merge!r}.")
    return left, right


# The splitting rules below are facts of the models, as their tokenizers were trained with them.
def _qwen_words(letters: str) -> str:
    """Endings such as ``'ll``, words, single digits, marks, ends of lines, other space."""
    return "|".join(
        (
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
            rf"[^\r\n\p{{L}}\p{{N}}]?[{letters}]+",
            r"\p{N}",
            rf" ?[^\s{letters}\p{{N}}]+[\r\n]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        )
    )


_WORDS = {
    "qwen2": _qwen_words(r"\p{L}"),
    # Combining marks are letters: accents and vowel signs stay in their words (engine, section 10).
    "qwen35": _qwen_words(r"\p{L}\p{M}"),
}


def _pre_tokenizer(name: Scalar | LazyArray) -> pre_tokenizers.PreTokenizer:
    byte_level = pre_tokenizers.ByteLevel
    match name:
        case "smollm":
            # Every numeric character alone, also beyond ASCII; then GPT-2's own rule.
            digits = pre_tokenizers.Digits(individual_digits=True)
            return pre_tokenizers.Sequence([digits, byte_level(add_prefix_space=False)])
        case "gpt-2" | "gpt2" | "default":
            return byte_level(add_prefix_space=False)
        case str() if name in _WORDS:
            words = pre_tokenizers.Split(Regex(_WORDS[name]), "isolated")
            whole = byte_level(add_prefix_space=False, use_regex=False)
            return pre_tokenizers.Sequence([words, whole])
        case _:
            raise TokenizerError(f"The splitting rule {name!r} of this model file is not known.")


def _any_of(specials: Mapping[str, int]) -> re.Pattern[str] | None:
    """One group that matches any of the texts, the longest first."""
    if not specials:
        return None
    return re.compile(f"({'|'.join(map(re.escape, sorted(specials, key=len, reverse=True)))})")


def _texts(metadata: Metadata, key: str) -> Sequence[str]:
    found = metadata.get(key)
    values = found.values if isinstance(found, LazyArray) else ()
    if not values or not all(isinstance(value, str) for value in values):
        raise TokenizerError(f"The model file has no usable {key}.")
    return values  # type: ignore[return-value]  # just checked


def _integers(metadata: Metadata, key: str) -> Sequence[int]:
    found = metadata.get(key)
    values = found.values if isinstance(found, LazyArray) else ()
    return [value if isinstance(value, int) else 0 for value in values]


def _token_at(metadata: Metadata, key: str, tokens: Sequence[str]) -> str | None:
    number = metadata.get(key)
    if not isinstance(number, int) or not 0 <= number < len(tokens):
        return None
    return tokens[number]


def _sound(text: str) -> str:
    """Without lone surrogates, which are no text (a JSON escape can make them)."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _byte_characters() -> Iterator[tuple[str, int]]:
    """GPT-2's alphabet: printable Latin-1 bytes are themselves, the rest follow from U+0100."""
    moved = 0x100
    for byte in range(256):
        if 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE:
            yield chr(byte), byte
        else:
            yield chr(moved), byte
            moved += 1


_BYTE_OF = dict(_byte_characters())
