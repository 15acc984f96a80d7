"""The tokenizer of a model in safetensors: ``tokenizer.json`` and what lies beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import tokenizers

from poolhouse_node.generate.tokenizer import Tokenizer, TokenizerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["read_hub_tokenizer"]

MAX_TOKENIZER_BYTES = 64 << 20
MAX_CONFIG_BYTES = 4 << 20
MAX_TOKENS = 1 << 21


class _AddedToken(msgspec.Struct):
    id: int
    content: str
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


class _Model(msgspec.Struct):
    vocab: dict[str, int]
    type: str = "BPE"


class _TokenizerFile(msgspec.Struct):
    model: _Model
    added_tokens: list[_AddedToken] = []


class _NamedTemplate(msgspec.Struct):
    name: str
    template: str


class _Content(msgspec.Struct):
    content: str


class _TokenizerConfig(msgspec.Struct):
    bos_token: str | _Content | None = None
    eos_token: str | _Content | None = None
    chat_template: str | list[_NamedTemplate] | None = None


class _EndIds(msgspec.Struct):
    """Of ``config.json`` and ``generation_config.json``."""

    eos_token_id: int | list[int] | None = None


def read_hub_tokenizer(folder: Path) -> Tokenizer:
    """Read it from a model's folder, where everything but ``tokenizer.json`` may be missing.

    Raises :class:`TokenizerError` for what is not sound, and for what is no byte-level BPE.
    """
    path = folder / "tokenizer.json"
    text = _read(path, MAX_TOKENIZER_BYTES)
    if text is None:
        raise TokenizerError(f"A safetensors model needs {path} for its tokens.")
    file = _decode(text, _TokenizerFile, path)
    config = _beside(folder / "tokenizer_config.json", _TokenizerConfig)
    specials = dict(_specials(file))
    tokens = _tokens(file)
    eos = _content(config.eos_token)
    return Tokenizer.assemble(
        tokens=tokens,
        specials=specials,
        more_ends=[*_end_ids(folder), *_id_of(eos, file, specials)],
        chat_template=_template(folder, config),
        bos_token=_content(config.bos_token),
        eos_token=eos,
        bpe=_byte_pairs(text, path),
    )


def _specials(file: _TokenizerFile) -> Iterator[tuple[str, int]]:
    for token in file.added_tokens:
        if token.lstrip or token.rstrip or token.single_word:
            raise TokenizerError(
                f"The tokenizer.json takes the space around {token.content!r} or asks for whole "
                "words, which is not supported."
            )
        if token.content:
            yield token.content, token.id


def _tokens(file: _TokenizerFile) -> list[str]:
    """By id; numbers that nobody has are empty."""
    every = [*file.model.vocab.items(), *((each.content, each.id) for each in file.added_tokens)]
    numbers = [number for _, number in every]
    if not numbers or min(numbers) < 0 or max(numbers) >= MAX_TOKENS:
        raise TokenizerError("The tokenizer.json has no tokens, or numbers that are none.")
    tokens = [""] * (max(numbers) + 1)
    for token, number in every:
        tokens[number] = token
    return tokens


def _byte_pairs(text: bytes, path: Path) -> tokenizers.Tokenizer:
    """The library's, without special tokens: no text of a user's can then become one."""
    values = _decode(text, dict[str, Any], path)
    values["added_tokens"] = []
    values |= dict.fromkeys(("post_processor", "truncation", "padding"))
    if values["model"].get("type", "BPE") != "BPE" or not _is_byte_level(values):
        raise TokenizerError(f"{path} is no byte-level BPE, the only kind that is known.")
    try:
        return tokenizers.Tokenizer.from_str(msgspec.json.encode(values).decode())
    except Exception as error:  # the library raises nothing finer
        raise TokenizerError(f"{path} cannot be used: {error}.") from error


def _is_byte_level(values: Mapping[str, Any]) -> bool:
    splitter = values.get("pre_tokenizer") or {}
    steps = [splitter, *(splitter.get("pretokenizers") or [])]
    return any(isinstance(step, dict) and step.get("type") == "ByteLevel" for step in steps)


def _end_ids(folder: Path) -> Iterator[int]:
    for name in ("config.json", "generation_config.json"):
        found = _beside(folder / name, _EndIds).eos_token_id
        yield from found if isinstance(found, list) else [] if found is None else [found]


def _id_of(token: str | None, file: _TokenizerFile, specials: Mapping[str, int]) -> list[int]:
    number = specials.get(token or "", file.model.vocab.get(token or ""))
    return [] if number is None else [number]


def _template(folder: Path, config: _TokenizerConfig) -> str | None:
    """A file of its own counts first; of several in the configuration the default one."""
    own = _read(folder / "chat_template.jinja", MAX_CONFIG_BYTES)
    if own is not None:
        return own.decode("utf-8", "replace")
    if not isinstance(config.chat_template, list):
        return config.chat_template
    return {each.name: each.template for each in config.chat_template}.get("default")


def _content(token: str | _Content | None) -> str | None:
    return token.content if isinstance(token, _Content) else token


def _beside[T](path: Path, kind: type[T]) -> T:
    text = _read(path, MAX_CONFIG_BYTES)
    return kind() if text is None else _decode(text, kind, path)


def _decode[T](text: bytes, kind: type[T], path: Path) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise TokenizerError(f"{path} is not sound: {error}.") from error


def _read(path: Path, most_bytes: int) -> bytes | None:
    """Nothing when there is no such file."""
    try:
        with path.open("rb") as file:
            text = file.read(most_bytes + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read: {error.strerror}.") from error
    if len(text) > most_bytes:
        raise TokenizerError(f"{path} is too long for a tokenizer's.")
    return text
