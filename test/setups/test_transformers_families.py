"""One small model of many families of Hugging Face's transformers: forward and a training step, at several sizes.

Random weights and no dropout, so that both runs draw nothing. ``checkpointed``: with gradient checkpointing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import symshape
from symshape.tools.measure import relative_error, tensors_of

TEXT = ((2, 7), (3, 5), (1, 6))
IMAGES = ((2, 3, 32, 32), (3, 3, 32, 32), (1, 3, 32, 32))
SOUND = ((2, 400), (3, 650), (1, 400))
BASE: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
}
PAIR: dict[str, Any] = {
    "vocab_size": 50,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 0,
    "use_cache": False,
}
SEEN = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 32,
    "patch_size": 8,
}

# Family: the model's class, what its configuration has other than the defaults, and its inputs.
FAMILIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "bert": ("BertForMaskedLM", BASE, "text"),
    "roberta": ("RobertaForMaskedLM", BASE, "text"),
    "distilbert": (
        "DistilBertForMaskedLM",
        {"vocab_size": 50, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 64},
        "text",
    ),
    "electra": ("ElectraForPreTraining", {**BASE, "embedding_size": 16}, "text"),
    "deberta": (
        "DebertaV2ForMaskedLM",
        {
            **BASE,
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 8,
            "max_relative_positions": 16,
        },
        "text",
    ),
    "albert": ("AlbertForMaskedLM", {**BASE, "embedding_size": 8}, "text"),
    "xlnet": ("XLNetLMHeadModel", {"vocab_size": 50, "d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 32}, "text"),
    "gpt2": (
        "GPT2LMHeadModel",
        {"vocab_size": 50, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 2, "use_cache": False},
        "text",
    ),
    "llama": ("LlamaForCausalLM", {**BASE, "num_key_value_heads": 1}, "text"),
    "gemma": ("GemmaForCausalLM", {**BASE, "num_key_value_heads": 1, "head_dim": 8}, "text"),
    "phi": ("PhiForCausalLM", BASE, "text"),
    "falcon": ("FalconForCausalLM", {**BASE, "multi_query": True, "alibi": True}, "text"),
    "mistral": ("MistralForCausalLM", {**BASE, "num_key_value_heads": 1, "sliding_window": 4}, "text"),
    "mixtral": ("MixtralForCausalLM", {**BASE, "num_key_value_heads": 1, "num_local_experts": 3}, "text"),
    "bloom": (
        "BloomForCausalLM",
        {"vocab_size": 50, "hidden_size": 16, "n_layer": 1, "n_head": 2, "use_cache": False},
        "text",
    ),
    "opt": ("OPTForCausalLM", {**BASE, "ffn_dim": 32, "word_embed_proj_dim": 16}, "text"),
    "mamba": (
        "MambaForCausalLM",
        {"vocab_size": 50, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 1, "use_cache": False},
        "text",
    ),
    "t5": (
        "T5ForConditionalGeneration",
        {
            "vocab_size": 50,
            "d_model": 16,
            "d_kv": 8,
            "d_ff": 32,
            "num_layers": 2,
            "num_heads": 2,
            "decoder_start_token_id": 0,
            "use_cache": False,
        },
        "pair",
    ),
    "bart": ("BartForConditionalGeneration", PAIR, "pair"),
    "marian": ("MarianMTModel", {**PAIR, "decoder_vocab_size": 50}, "pair"),
    "pegasus": ("PegasusForConditionalGeneration", PAIR, "pair"),
    "whisper": (
        "WhisperForConditionalGeneration",
        {**PAIR, "num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 64},
        "mel",
    ),
    "wav2vec2": (
        "Wav2Vec2ForCTC",
        {
            **{k: v for k, v in BASE.items() if k != "use_cache"},
            "conv_dim": (8, 8),
            "conv_kernel": (10, 3),
            "conv_stride": (5, 2),
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 4,
            "num_conv_pos_embedding_groups": 2,
            "layerdrop": 0.0,
            "apply_spec_augment": False,
        },
        "sound",
    ),
    "vit": ("ViTForImageClassification", SEEN, "image"),
    "swin": (
        "SwinForImageClassification",
        {
            "image_size": 32,
            "patch_size": 4,
            "embed_dim": 8,
            "depths": [1, 1],
            "num_heads": [2, 2],
            "window_size": 4,
            "drop_path_rate": 0.0,
        },
        "image",
    ),
    "convnext": (
        "ConvNextForImageClassification",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "drop_path_rate": 0.0},
        "image",
    ),
    "segformer": (
        "SegformerForSemanticSegmentation",
        {
            "num_encoder_blocks": 2,
            "depths": [1, 1],
            "sr_ratios": [2, 1],
            "hidden_sizes": [8, 16],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
            "decoder_hidden_size": 16,
            "drop_path_rate": 0.0,
            "classifier_dropout_prob": 0.0,
        },
        "image",
    ),
    "resnet": (
        "ResNetForImageClassification",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
        "image",
    ),
    "clip": (
        "CLIPModel",
        {
            "text_config": {k: v for k, v in BASE.items() if k != "use_cache"},
            "vision_config": SEEN,
            "projection_dim": 8,
        },
        "both",
    ),
}


def build(family: str) -> nn.Module:
    name, settings, _ = FAMILIES[family]
    kind: Any = getattr(transformers, name)
    settings = copy.deepcopy(settings)
    config = kind.config_class(**settings)
    for key in vars(config):
        if "drop" in key and isinstance(getattr(config, key), float):
            setattr(config, key, 0.0)
    torch.manual_seed(0)
    model: nn.Module = kind(config)
    return model


def _tokens(*shape: int) -> Tensor:
    return torch.randint(3, 50, shape)


def inputs(kind: str) -> list[dict[str, Tensor]]:
    """Keyword inputs of each size, one of them with batch 1."""
    torch.manual_seed(1)
    make: dict[str, Callable[[], list[dict[str, Tensor]]]] = {
        "text": lambda: [{"input_ids": _tokens(*s), "attention_mask": _padding(*s)} for s in TEXT],
        "pair": lambda: [
            {"input_ids": _tokens(*s), "attention_mask": _padding(*s), "decoder_input_ids": _tokens(s[0], s[1] - 2)}
            for s in TEXT
        ],
        "mel": lambda: [{"input_features": torch.randn(b, 8, 40), "decoder_input_ids": _tokens(b, n)} for b, n in TEXT],
        "sound": lambda: [{"input_values": torch.randn(*s)} for s in SOUND],
        "image": lambda: [{"pixel_values": torch.randn(*s)} for s in IMAGES],
        "both": lambda: [
            {"input_ids": _tokens(*s), "attention_mask": _padding(*s), "pixel_values": torch.randn(s[0], 3, 32, 32)}
            for s in TEXT
        ],
    }
    return make[kind]()


def _padding(batch: int, length: int) -> Tensor:
    return (torch.arange(length) < length - torch.arange(batch)[:, None] % 3).long()


def step(model: nn.Module, forward: Any, given: dict[str, Tensor]) -> list[Tensor]:
    """Outputs, and gradients of the sum of their squares."""
    model.zero_grad()
    outputs = [t for t in tensors_of(forward(**given)) if t.is_floating_point()]
    loss = sum(((t.float() ** 2).mean() for t in outputs if t.requires_grad), torch.zeros(()))
    loss.backward()
    return [t.detach() for t in outputs] + [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_forward_and_training_step(family: str) -> None:
    theirs = build(family)
    ours = copy.deepcopy(theirs)
    forward = symshape.compile(ours)
    for given in inputs(FAMILIES[family][2]):
        with torch.no_grad():
            ours.eval(), theirs.eval()
            assert relative_error(forward(**given), theirs(**given)) < 1e-4
        ours.train(), theirs.train()
        _assert_close(step(ours, forward, given), step(theirs, theirs, given))


@pytest.mark.long
@pytest.mark.parametrize("family", ["gpt2", "llama", "bert", "t5"])
def test_training_with_gradient_checkpointing(family: str) -> None:
    theirs = build(family).train()
    ours = copy.deepcopy(theirs)
    for model in (ours, theirs):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    forward = symshape.compile(ours)
    for given in inputs(FAMILIES[family][2]):
        _assert_close(step(ours, forward, given), step(theirs, theirs, given))


def _assert_close(actual: list[Tensor], expected: list[Tensor]) -> None:
    """Gradients that are zero in exact arithmetic are rounding noise in both."""
    scale = max(float(t.abs().max()) for t in expected)
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5 * max(scale, 1.0))
