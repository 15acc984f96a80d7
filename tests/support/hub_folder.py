"""A model's folder as a hub hands it out: safetensors, config.json, a trained tokenizer."""

import json
from pathlib import Path

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from poolhouse_node.generate.tokenizer import _WORDS
from tests.support.model_maker import ModelMaker
from tests.support.model_shapes import SMALL_SHAPES, ModelShape

__all__ = ["SHAPE", "SPECIALS", "train_tokenizer", "write_hub_folder"]

SHAPE = SMALL_SHAPES["qwen3"].but(vocabulary_size=400, tied=True)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
USER_DEFINED = "<think>"
CORPUS = [
    "What is a swimming pool? A pool is a structure that holds water for swimming.",
    "Was ist ein Schwimmbecken? Größe, Tiefe und Überlauf.",
    "e\u0301te\u0301 नमस्ते 你好 пул 12 345\n\n  def f(x):\n\treturn x\n",
] * 3
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train_tokenizer(words: str = "qwen35") -> tokenizers.Tokenizer:
    """Byte-level pairs with the splitting of Qwen models, as their files have it."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS[words]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SHAPE.vocabulary_size - len(SPECIALS) - 1,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens(list(SPECIALS))
    tokenizer.add_tokens([USER_DEFINED])
    return tokenizer


def write_hub_folder(folder: Path, shape: ModelShape = SHAPE) -> tokenizers.Tokenizer:
    """Write everything; gives the library's own tokenizer to compare with."""
    folder.mkdir(parents=True, exist_ok=True)
    ModelMaker(shape).write_safetensors(folder, "F32")
    tokenizer = train_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "bos_token": None,
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return tokenizer
