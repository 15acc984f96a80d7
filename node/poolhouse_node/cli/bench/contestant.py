"""One program that decodes, in a process of its own, for ``bench decode --against``.

Started as ``python -m poolhouse_node.cli.bench.contestant KIND FILE THREADS``. It says ``{}`` when
the model is open; then for each line ``{"ids": [...], "tokens": n}`` on stdin it answers
``{"ttft_s": ..., "tokens_per_s": ...}``, and it ends with its stdin. Nothing but figures goes to
stdout.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["KINDS"]

type Decode = Callable[[list[int], int], Iterator[int]]
"""Feed a prompt, then give so many tokens, each when it is known."""


def main() -> None:
    """Measure until stdin ends."""
    kind, file, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print to stdout as they like
    measure = KINDS[kind](file, threads)
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        ttft_s, rate = measure(asked["ids"], asked["tokens"])
        print(json.dumps({"ttft_s": ttft_s, "tokens_per_s": rate}), file=answers, flush=True)


type Measure = Callable[[list[int], int], tuple[float, float]]


def _timed(decode: Decode) -> Measure:
    def measure(ids: list[int], tokens: int) -> tuple[float, float]:
        started = time.perf_counter()
        times = [time.perf_counter() for _ in decode(ids, tokens)]
        return times[0] - started, (len(times) - 1) / (times[-1] - times[0])

    return measure


def _ours(precision: str) -> Callable[[Path, int], Measure]:
    def opened(file: Path, threads: int) -> Measure:
        from poolhouse_node.engine import load_shard, set_threads
        from poolhouse_node.weights.facts import read_facts
        from poolhouse_node.weights.opening import open_weights

        set_threads(threads)
        with open_weights(file) as gguf:
            layers = read_facts(gguf).layers
        shard = load_shard(
            file, (0, layers), context_size=2048, host=True, device="cpu", precision=precision
        )

        def decode(ids: list[int], tokens: int) -> Iterator[int]:
            shard.reset()
            for _ in range(tokens):
                token = int(shard.top_of_ids(ids, shard.position, 1).ids[0, 0])
                yield token
                ids = [token]

        return _timed(decode)

    return opened


def _hf(file: Path, threads: int) -> Measure:
    """transformers, eager, float32: the class and sizes of the file with random weights.

    Opening the file takes it half a minute, and values do not change its speed.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from poolhouse_node.engine.models.llama import LlamaConfig as Sizes
    from poolhouse_node.weights.facts import read_facts
    from poolhouse_node.weights.opening import open_weights

    torch.set_num_threads(threads)
    with open_weights(file) as gguf:
        sizes, vocabulary = Sizes.read(gguf), read_facts(gguf).vocabulary_size
        is_tied = "output.weight" not in gguf.tensors
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=sizes.width,
        intermediate_size=sizes.ffn_width,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.kv_heads,
        head_dim=sizes.head_size,
        max_position_embeddings=4096,
        tie_word_embeddings=is_tied,
    )
    model = LlamaForCausalLM(config)
    model.set_attn_implementation("eager")
    model.train(mode=False)

    @torch.inference_mode()
    def decode(ids: list[int], tokens: int) -> Iterator[int]:
        feed, past = torch.tensor([ids]), None
        for _ in range(tokens):
            result = model(feed, past_key_values=past, use_cache=True, logits_to_keep=1)
            past, feed = result.past_key_values, result.logits[:, -1:].argmax(-1)
            yield int(feed)

    return _timed(decode)


def _llama_cpp(file: Path, threads: int) -> Measure:
    """llama.cpp by its Python wheel; the figures are those of its own clock."""
    xllamacpp = importlib.import_module("xllamacpp")

    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.n_ctx = 2048
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)

    def measure(ids: list[int], tokens: int) -> tuple[float, float]:
        settings = {"temperature": 0.0, "cache_prompt": False, "ignore_eos": True}
        asked = {"prompt": ids, "n_predict": tokens, **settings}
        timings = server.handle_completions(asked)["timings"]
        return timings["prompt_ms"] / 1000, timings["predicted_per_second"]

    return measure


KINDS: dict[str, Callable[[Path, int], Measure]] = {
    "exact": _ours("exact"),
    "packed": _ours("packed"),
    "hf": _hf,
    "llama.cpp": _llama_cpp,
}

if __name__ == "__main__":
    main()
