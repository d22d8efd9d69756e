"""Hugging Face's ``generate`` with a compiled forward method: graphs, and the first run over AOTAutograd's.

    python bench/generate.py [--models llama,gpt2,qwen2,mixtral,t5] [--ways aot,symshape] [--repeat 3]

Two layers, 12 tokens for each of five prompts, with batches and lengths of 1 among them. Each measurement is in a fresh
process with one thread and no cache; figures are seconds of processor time, medians of ``--repeat``; the ways take
turns. ``graphs`` are Dynamo's ``unique_graphs``, ``breaks`` its graph breaks. Tokens are compared with eager mode's.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import subprocess
import sys
import warnings
from typing import Any

from first_call import ALONE, ROOT, seconds

PROMPTS = ((2, 7), (3, 12), (1, 5), (4, 33), (2, 1))
TOKENS = 12
MODELS = "llama,gpt2,qwen2,mixtral,t5"
SIZES: dict[str, Any] = {
    "vocab_size": 200,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def build(name: str) -> Any:
    import torch
    import transformers as hf

    torch.manual_seed(0)
    if name == "gpt2":
        config: Any = hf.GPT2Config(n_embd=64, n_layer=2, n_head=4, n_positions=128, **_tokens())
        return hf.GPT2LMHeadModel(config).eval()
    if name == "t5":
        sizes = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 200}
        return hf.T5ForConditionalGeneration(hf.T5Config(**sizes, decoder_start_token_id=0, pad_token_id=0)).eval()
    if name == "mixtral":
        sizes = {**SIZES, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}
        return hf.MixtralForCausalLM(hf.MixtralConfig(**sizes)).eval()
    kind = {"llama": (hf.LlamaConfig, hf.LlamaForCausalLM), "qwen2": (hf.Qwen2Config, hf.Qwen2ForCausalLM)}[name]
    return kind[1](kind[0](**SIZES, num_key_value_heads=2)).eval()


def _tokens() -> dict[str, Any]:
    return {name: SIZES[name] for name in ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id")}


def tokens(model: Any) -> list[Any]:
    import torch

    generator = torch.Generator().manual_seed(3)
    found = []
    for batch, length in PROMPTS:
        prompt = torch.randint(3, SIZES["vocab_size"], (batch, length), generator=generator)
        made = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=TOKENS,
            min_new_tokens=TOKENS,
            do_sample=False,
        )
        found.append(made.tolist())
    return found


def measure_here(name: str, way: str) -> dict[str, Any]:
    """In a fresh process."""
    warnings.filterwarnings("ignore")
    import torch
    import transformers  # noqa: F401 - imported before the clock starts
    from torch._dynamo.utils import counters

    import symshape

    torch.set_num_threads(1)
    torch._dynamo.config.recompile_limit = 64
    model = build(name)
    expected = tokens(copy.deepcopy(model))
    if way == "symshape":
        model.forward = symshape.compile(model.forward)
    else:
        model.forward = torch.compile(model.forward, backend="aot_eager", dynamic=True)
    started = seconds()
    made = tokens(model)
    spent = seconds() - started
    breaks = sum(counters["graph_break"].values())
    return {"first": spent, "graphs": counters["stats"]["unique_graphs"], "breaks": breaks, "equal": made == expected}


def measure(name: str, way: str) -> dict[str, Any]:
    """The same in a subprocess of its own."""
    import os

    command = [sys.executable, __file__, "--child", name, way]
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | ALONE | {"PYTHONPATH": paths}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} {way} failed:\n{done.stderr[-4000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--ways", default="aot,symshape")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure_here(*options.child)))
        return
    ratios = []
    for name in options.models.split(","):
        ways = options.ways.split(",")
        rounds = [{way: measure(name, way) for way in ways} for _ in range(options.repeat)]
        first = {way: statistics.median(one[way]["first"] for one in rounds) for way in ways}
        shown = "  ".join(f"{way} {first[way]:6.1f} s, {rounds[0][way]['graphs']} graphs" for way in ways)
        last = rounds[-1][ways[-1]]
        print(f"{name:8s} {shown}  breaks {last['breaks']}  tokens {'equal' if last['equal'] else 'DIFFER'}", end="")
        if set(ways) >= {"aot", "symshape"}:
            ratios.append(first["symshape"] / first["aot"])
            print(f"  ratio {ratios[-1]:.2f}", end="")
        print(flush=True)
    if ratios:
        print(f"geometric mean {statistics.geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
