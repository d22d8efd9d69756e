"""Small models of many families of Hugging Face transformers, made from configurations: nothing is downloaded.

Size ``full`` (two layers of width 64) is what the dashboard measures; ``tiny`` (one layer of width 16) is for tests.
Dropout is off in all models, so that results are deterministic. Kinds of inputs: token ids with a padding mask, the
same with decoder ids, a spectrogram with decoder ids, audio samples, images, and images with token ids.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from symshape.tools.zoo import Kwargs, Model, Shape, Size, image_inputs

POSITIONS = 128
# Ids below this are special: padding, begin, end.
_SPECIAL = 3
_IMAGE = 32
_MELS, _FRAMES = 8, 40


@dataclass(frozen=True)
class Dimensions:
    """Dimensions of a transformer; ``inner`` is the hidden width of the feed-forward network."""

    vocabulary: int
    layers: int
    width: int
    heads: int
    inner: int


DIMENSIONS: dict[Size, Dimensions] = {"full": Dimensions(200, 2, 64, 4, 128), "tiny": Dimensions(50, 1, 16, 2, 32)}

Settings = dict[str, Any]


def _ids(d: Dimensions) -> Settings:
    return {"vocab_size": d.vocabulary, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _core(d: Dimensions) -> Settings:
    """The dimensions under BERT's names."""
    return {
        "hidden_size": d.width,
        "num_hidden_layers": d.layers,
        "num_attention_heads": d.heads,
        "intermediate_size": d.inner,
    }


def _text(d: Dimensions) -> Settings:
    return {**_ids(d), **_core(d), "max_position_embeddings": POSITIONS}


def _causal(d: Dimensions) -> Settings:
    return {**_text(d), "use_cache": False}


def _one_key_head(d: Dimensions) -> Settings:
    return {**_causal(d), "num_key_value_heads": 1}


def _pair(d: Dimensions) -> Settings:
    """Settings of an encoder-decoder, under BART's names."""
    return {
        **_ids(d),
        "d_model": d.width,
        "encoder_layers": d.layers,
        "decoder_layers": d.layers,
        "encoder_attention_heads": d.heads,
        "decoder_attention_heads": d.heads,
        "encoder_ffn_dim": d.inner,
        "decoder_ffn_dim": d.inner,
        "max_position_embeddings": POSITIONS,
        "decoder_start_token_id": 0,
        "use_cache": False,
    }


def _seen(d: Dimensions) -> Settings:
    """Settings of a vision transformer."""
    return {**_core(d), "image_size": _IMAGE, "patch_size": 8}


def _deberta(d: Dimensions) -> Settings:
    relative = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}
    return {**_text(d), **relative, "max_relative_positions": 16}


def _distilbert(d: Dimensions) -> Settings:
    sizes = {"dim": d.width, "n_layers": d.layers, "n_heads": d.heads, "hidden_dim": d.inner}
    return {"vocab_size": d.vocabulary, **sizes, "max_position_embeddings": POSITIONS}


def _xlnet(d: Dimensions) -> Settings:
    return {"vocab_size": d.vocabulary, "d_model": d.width, "n_layer": d.layers, "n_head": d.heads, "d_inner": d.inner}


def _gpt2(d: Dimensions) -> Settings:
    sizes = {"n_positions": POSITIONS, "n_embd": d.width, "n_layer": 2, "n_head": d.heads}
    return {**_ids(d), **sizes, "use_cache": False}


def _gemma(d: Dimensions) -> Settings:
    return {**_one_key_head(d), "head_dim": d.width // d.heads}


def _falcon(d: Dimensions) -> Settings:
    return {**_causal(d), "multi_query": True, "alibi": True}


def _bloom(d: Dimensions) -> Settings:
    sizes = {"hidden_size": d.width, "n_layer": d.layers, "n_head": d.heads}
    return {"vocab_size": d.vocabulary, **sizes, "use_cache": False}


def _opt(d: Dimensions) -> Settings:
    return {**_causal(d), "ffn_dim": d.inner, "word_embed_proj_dim": d.width}


def _mamba(d: Dimensions) -> Settings:
    sizes = {"hidden_size": d.width, "state_size": 4, "num_hidden_layers": d.layers}
    return {"vocab_size": d.vocabulary, **sizes, "use_cache": False}


def _t5(d: Dimensions) -> Settings:
    sizes = {"d_model": d.width, "d_kv": d.width // d.heads, "d_ff": d.inner, "num_layers": 2, "num_heads": d.heads}
    return {"vocab_size": d.vocabulary, **sizes, "decoder_start_token_id": 0, "use_cache": False}


def _whisper(d: Dimensions) -> Settings:
    return {
        **_pair(d),
        "num_mel_bins": _MELS,
        "max_source_positions": _FRAMES // 2,
        "max_target_positions": POSITIONS,
    }


def _wav2vec2(d: Dimensions) -> Settings:
    return {
        **_text(d),
        "conv_dim": (8, 8),
        "conv_kernel": (10, 3),
        "conv_stride": (5, 2),
        "num_feat_extract_layers": 2,
        "num_conv_pos_embeddings": 4,
        "num_conv_pos_embedding_groups": 2,
        "layerdrop": 0.0,
        "apply_spec_augment": False,
    }


def _swin(d: Dimensions) -> Settings:
    sizes = {"embed_dim": d.width // 2, "depths": [d.layers, 1], "num_heads": [2, 2], "window_size": 4}
    return {"image_size": _IMAGE, "patch_size": 4, **sizes}


def _convolutions(d: Dimensions) -> Settings:
    return {"hidden_sizes": [d.width // 2, d.width], "depths": [d.layers, 1]}


def _convnext(d: Dimensions) -> Settings:
    return {**_convolutions(d), "num_stages": 2}


def _resnet(d: Dimensions) -> Settings:
    return {**_convolutions(d), "embedding_size": d.width // 2, "layer_type": "basic"}


def _regnet(d: Dimensions) -> Settings:
    return {**_convolutions(d), "embedding_size": d.width // 2, "layer_type": "y", "groups_width": d.width // 2}


def _segformer(d: Dimensions) -> Settings:
    return {
        "num_encoder_blocks": 2,
        "depths": [d.layers, 1],
        "sr_ratios": [2, 1],
        "hidden_sizes": [d.width // 2, d.width],
        "patch_sizes": [7, 3],
        "strides": [4, 2],
        "num_attention_heads": [1, 2],
        "mlp_ratios": [2, 2],
        "decoder_hidden_size": d.width,
    }


def _clip(d: Dimensions) -> Settings:
    return {"text_config": _text(d), "vision_config": _seen(d), "projection_dim": d.width // 2}


def _make(kind: str, settings: Callable[[Dimensions], Settings], size: Size) -> torch.nn.Module:
    """A model of the class ``kind`` of transformers."""
    import transformers

    made: Any = getattr(transformers, kind)
    config = made.config_class(**settings(DIMENSIONS[size]))
    for key in vars(config):
        if "drop" in key and isinstance(getattr(config, key), float):
            setattr(config, key, 0.0)
    model: torch.nn.Module = made(config)
    return model


def _tokens(shape: Shape, generator: torch.Generator) -> torch.Tensor:
    """Random ids of the smallest vocabulary, which models of all sizes accept."""
    return torch.randint(_SPECIAL, DIMENSIONS["tiny"].vocabulary, shape, generator=generator)


def _text_inputs(shape: Shape, generator: torch.Generator) -> Kwargs:
    """Token ids and mask of shape (batch, length); row i ends in ``i % 3`` tokens of padding."""
    batch, length = shape
    mask = (torch.arange(length) < length - torch.arange(batch)[:, None] % 3).long()
    return {"input_ids": _tokens(shape, generator), "attention_mask": mask}


def _pair_inputs(shape: Shape, generator: torch.Generator) -> Kwargs:
    batch, source, target = shape
    encoder = _text_inputs((batch, source), generator)
    return {**encoder, "decoder_input_ids": _tokens((batch, target), generator)}


def _image_inputs(shape: Shape, generator: torch.Generator) -> Kwargs:
    """Images of the one height and width that most of these models take; only the batch size varies."""
    return {"pixel_values": torch.randn(shape[0], 3, _IMAGE, _IMAGE, generator=generator)}


def _spectrogram_inputs(shape: Shape, generator: torch.Generator) -> Kwargs:
    spectrogram = torch.randn(shape[0], _MELS, _FRAMES, generator=generator)
    return {"input_features": spectrogram, "decoder_input_ids": _tokens(shape, generator)}


def _sound_inputs(shape: Shape, generator: torch.Generator) -> Kwargs:
    return {"input_values": torch.randn(shape, generator=generator)}


def _image_and_text_inputs(shape: Shape, generator: torch.Generator) -> Kwargs:
    return {**_text_inputs(shape, generator), **_image_inputs(shape[:1], generator)}


@dataclass(frozen=True)
class _Kind:
    """One kind of inputs: names of the sizes, a function that makes inputs, and the shapes for ``full`` and ``tiny``
    models. A model is called first with the first shape; the last shape has a size of 1."""

    axes: tuple[str, ...]
    make_inputs: Callable[[Shape, torch.Generator], Kwargs]
    shapes: tuple[Shape, ...]
    tiny_shapes: tuple[Shape, ...]


_TEXT_SHAPES: tuple[Shape, ...] = ((2, 16), (5, 37), (8, 96), (3, 63), (1, 24))
# For a model with a Python loop over positions, which tracing unrolls: it has a graph per length.
_SHORT_SHAPES: tuple[Shape, ...] = ((2, 6), (3, 9), (5, 14), (4, 11), (1, 7))
_TEXT = _Kind(("batch", "sequence"), _text_inputs, _TEXT_SHAPES, ((2, 7), (3, 5), (1, 6)))
_KINDS: dict[str, _Kind] = {
    "text": _TEXT,
    "short text": replace(_TEXT, shapes=_SHORT_SHAPES),
    "pair": _Kind(
        ("batch", "source", "target"),
        _pair_inputs,
        ((2, 16, 12), (5, 37, 23), (8, 96, 64), (3, 63, 17), (1, 24, 8)),
        ((2, 7, 5), (3, 5, 3), (1, 6, 4)),
    ),
    "image": _Kind(("batch",), _image_inputs, ((2,), (5,), (16,), (9,), (1,)), ((2,), (3,), (1,))),
    "any image": _Kind(
        ("batch", "height", "width"),
        image_inputs,
        ((2, 32, 32), (5, 64, 48), (8, 96, 96), (3, 72, 40), (1, 32, 64)),
        ((2, 32, 32), (3, 32, 32), (1, 32, 32)),
    ),
    "spectrogram": replace(_TEXT, make_inputs=_spectrogram_inputs),
    "sound": _Kind(
        ("batch", "samples"),
        _sound_inputs,
        ((2, 400), (5, 1310), (8, 4000), (3, 2750), (1, 800)),
        ((2, 400), (3, 650), (1, 400)),
    ),
    "image and text": replace(_TEXT, make_inputs=_image_and_text_inputs),
}

# Family: class of transformers, settings of its configuration, kind of inputs (a key of _KINDS).
_FAMILIES: dict[str, tuple[str, Callable[[Dimensions], Settings], str]] = {
    "bert": ("BertForMaskedLM", _text, "text"),
    "roberta": ("RobertaForMaskedLM", _text, "text"),
    "distilbert": ("DistilBertForMaskedLM", _distilbert, "text"),
    "electra": ("ElectraForPreTraining", lambda d: {**_text(d), "embedding_size": d.width}, "text"),
    "deberta": ("DebertaV2ForMaskedLM", _deberta, "text"),
    "albert": ("AlbertForMaskedLM", lambda d: {**_text(d), "embedding_size": d.width // 2}, "text"),
    "xlnet": ("XLNetLMHeadModel", _xlnet, "text"),
    "gpt2": ("GPT2LMHeadModel", _gpt2, "text"),
    "gpt_neox": ("GPTNeoXForCausalLM", _causal, "text"),
    "llama": ("LlamaForCausalLM", _one_key_head, "text"),
    "gemma": ("GemmaForCausalLM", _gemma, "text"),
    "qwen2": ("Qwen2ForCausalLM", _one_key_head, "text"),
    "phi": ("PhiForCausalLM", _causal, "text"),
    "falcon": ("FalconForCausalLM", _falcon, "text"),
    "mistral": ("MistralForCausalLM", lambda d: {**_one_key_head(d), "sliding_window": 4}, "text"),
    "mixtral": ("MixtralForCausalLM", lambda d: {**_one_key_head(d), "num_local_experts": 3}, "text"),
    "bloom": ("BloomForCausalLM", _bloom, "text"),
    "opt": ("OPTForCausalLM", _opt, "text"),
    "mamba": ("MambaForCausalLM", _mamba, "short text"),
    "t5": ("T5ForConditionalGeneration", _t5, "pair"),
    "bart": ("BartForConditionalGeneration", _pair, "pair"),
    "marian": ("MarianMTModel", lambda d: {**_pair(d), "decoder_vocab_size": d.vocabulary}, "pair"),
    "pegasus": ("PegasusForConditionalGeneration", _pair, "pair"),
    "whisper": ("WhisperForConditionalGeneration", _whisper, "spectrogram"),
    "wav2vec2": ("Wav2Vec2ForCTC", _wav2vec2, "sound"),
    "vit": ("ViTForImageClassification", _seen, "image"),
    "dinov2": ("Dinov2ForImageClassification", lambda d: {**_seen(d), "mlp_ratio": 2}, "image"),
    "swin": ("SwinForImageClassification", _swin, "image"),
    "convnext": ("ConvNextForImageClassification", _convnext, "any image"),
    "segformer": ("SegformerForSemanticSegmentation", _segformer, "any image"),
    "resnet": ("ResNetForImageClassification", _resnet, "any image"),
    "regnet": ("RegNetForImageClassification", _regnet, "any image"),
    "clip": ("CLIPModel", _clip, "image and text"),
}


def _model(name: str) -> Model:
    made, settings, kind = _FAMILIES[name]
    found = _KINDS[kind]
    make = functools.partial(_make, made, settings)
    return Model(name, found.axes, make, found.make_inputs, found.shapes, found.shapes[:1], found.tiny_shapes)


TRANSFORMERS: dict[str, Model] = {name: _model(name) for name in _FAMILIES}
