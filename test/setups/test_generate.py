"""``generate`` of Hugging Face's models with a compiled forward method: the tokens are those of eager mode.

(``generate`` of ``torch.compile(model)`` is the method of the model that was compiled, which calls that one.)
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import symshape

SIZES: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
PROMPTS = ((2, 5), (1, 7))


def _llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(num_key_value_heads=1, **SIZES))


def _gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=60,
            n_positions=64,
            n_embd=16,
            n_layer=1,
            n_head=2,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        )
    )


def _qwen2() -> nn.Module:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return Qwen2ForCausalLM(Qwen2Config(num_key_value_heads=1, **SIZES))


def _mixtral() -> nn.Module:
    from transformers import MixtralConfig, MixtralForCausalLM

    return MixtralForCausalLM(MixtralConfig(num_key_value_heads=1, num_local_experts=3, num_experts_per_tok=2, **SIZES))


def _t5() -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=60,
            d_model=16,
            d_kv=8,
            d_ff=32,
            num_layers=1,
            num_heads=2,
            decoder_start_token_id=0,
            pad_token_id=0,
            eos_token_id=2,
        )
    )


FAMILIES = {"llama": _llama, "gpt2": _gpt2, "qwen2": _qwen2, "mixtral": _mixtral, "t5": _t5}


def _forward(model: Any) -> Any:
    model.forward = symshape.compile(model.forward)
    return model


def _in_place(model: Any) -> Any:
    model.compile(backend="symshape", dynamic=True)
    return model


def _tokens(model: Any, **options: Any) -> list[torch.Tensor]:
    found = []
    for batch, length in PROMPTS:
        prompt = torch.randint(3, 60, (batch, length), generator=torch.Generator().manual_seed(length))
        mask = torch.ones_like(prompt)
        if batch > 1 and not hasattr(model, "encoder"):
            prompt[0, :2], mask[0, :2] = 0, 0  # padded on the left
        found.append(model.generate(prompt, attention_mask=mask, max_new_tokens=5, **options))
    return found


@pytest.mark.parametrize(
    "family, wrap, options",
    [
        ("gpt2", _forward, {}),
        *[pytest.param(family, _forward, {}, marks=pytest.mark.long) for family in FAMILIES if family != "gpt2"],
        pytest.param("gpt2", _in_place, {}, marks=pytest.mark.long),
        pytest.param("qwen2", _forward, {"num_beams": 3}, marks=pytest.mark.long),
        pytest.param("llama", _forward, {"cache_implementation": "static"}, marks=pytest.mark.long),
    ],
)
def test_tokens(family: str, wrap: Callable[[Any], Any], options: dict[str, Any]) -> None:
    theirs = FAMILIES[family]().eval()
    ours = wrap(copy.deepcopy(theirs))
    for actual, expected in zip(
        _tokens(ours, do_sample=False, **options), _tokens(theirs, do_sample=False, **options), strict=True
    ):
        assert actual.tolist() == expected.tolist()
