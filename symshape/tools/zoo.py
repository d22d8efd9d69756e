"""Six models with random weights, their inputs, and the sizes they are measured at. Used by tests and benchmarks.

Each model is built from a `transformers` configuration, so nothing is downloaded. Size ``full`` (4 layers, width 256;
ResNet-18 as published) is what benchmarks measure; ``tiny`` is for interpreted kernels, which take microseconds per
element.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

Size = Literal["full", "tiny"]
Shape = tuple[int, ...]
Kwargs = dict[str, torch.Tensor]

VOCABULARY = 1000
# BERT and GPT-2 have learned position embeddings, so this must be at least the longest sequence below.
POSITIONS = 512
PATCH = 16


@dataclass(frozen=True)
class Model:
    """One model: how to build it, how to make its inputs, and the shapes it is measured at.

    ``axes`` names the sizes of a shape. Each of ``first_shapes`` is used for a first call; ``tiny_shapes`` are for the
    tiny model."""

    name: str
    axes: tuple[str, ...]
    make: Callable[[Size], torch.nn.Module]
    make_inputs: Callable[[Shape, torch.Generator], Kwargs]
    shapes: tuple[Shape, ...]
    first_shapes: tuple[Shape, ...]
    tiny_shapes: tuple[Shape, ...]

    def build(self, size: Size = "full", seed: int = 0) -> torch.nn.Module:
        """The model with weights drawn from ``seed``, in eval mode."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.make(size).eval()

    def inputs(self, shape: Shape, seed: int = 0) -> Kwargs:
        """Contiguous keyword inputs of ``shape``, drawn from ``seed``."""
        return self.make_inputs(shape, torch.Generator().manual_seed(seed))

    @property
    def large_shapes(self) -> tuple[Shape, ...]:
        """The shapes without a size of 1; frameworks specialise on size 1."""
        return tuple(shape for shape in self.shapes if min(shape) >= 2)

    @property
    def one_shapes(self) -> tuple[Shape, ...]:
        """The shapes with a size of 1."""
        return tuple(shape for shape in self.shapes if min(shape) < 2)

    def describe(self, shape: Shape) -> str:
        """A shape with the names of its sizes: ``batch=2 sequence=7``."""
        return " ".join(f"{axis}={size}" for axis, size in zip(self.axes, shape, strict=True))


def _tokens(shape: Shape, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, shape, generator=generator)


def _padding_mask(shape: Shape) -> torch.Tensor:
    """A padding mask: row i keeps all but its last ``i % 3`` tokens, but at least one."""
    batch, length = shape
    kept = (length - torch.arange(batch) % 3).clamp(min=1)
    return (torch.arange(length)[None, :] < kept[:, None]).to(torch.int64)


def _text_inputs(shape: Shape, generator: torch.Generator) -> Kwargs:
    return {"input_ids": _tokens(shape, generator), "attention_mask": _padding_mask(shape)}


def _text_pair_inputs(shape: Shape, generator: torch.Generator) -> Kwargs:
    batch, source, target = shape
    encoder = _text_inputs((batch, source), generator)
    return {**encoder, "decoder_input_ids": _tokens((batch, target), generator)}


def image_inputs(shape: Shape, generator: torch.Generator) -> Kwargs:
    batch, height, width = shape
    return {"pixel_values": torch.randn(batch, 3, height, width, generator=generator)}


def _patch_inputs(shape: Shape, generator: torch.Generator) -> Kwargs:
    batch, rows, columns = shape
    return image_inputs((batch, rows * PATCH, columns * PATCH), generator)


def _dimensions(size: Size) -> dict[str, int]:
    """Layers, width, heads and inner width of a transformer, under BERT's names."""
    layers, width, heads = {"full": (4, 256, 4), "tiny": (1, 32, 2)}[size]
    return {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
    }


def _bert(size: Size) -> torch.nn.Module:
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=VOCABULARY, max_position_embeddings=POSITIONS, **_dimensions(size))
    return BertModel._from_config(config, attn_implementation="sdpa")


def _gpt2(size: Size) -> torch.nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    names = {"num_hidden_layers": "n_layer", "hidden_size": "n_embd", "num_attention_heads": "n_head"}
    sizes = {names[key]: value for key, value in _dimensions(size).items() if key in names}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=POSITIONS, use_cache=False, **ends, **sizes)
    return GPT2LMHeadModel._from_config(config, attn_implementation="sdpa")


def _t5(size: Size) -> torch.nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = _dimensions(size)
    width, heads = sizes["hidden_size"], sizes["num_attention_heads"]
    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=width,
        d_kv=width // heads,
        d_ff=sizes["intermediate_size"],
        num_layers=sizes["num_hidden_layers"],
        num_heads=heads,
        decoder_start_token_id=0,
        use_cache=False,
    )
    return T5ForConditionalGeneration._from_config(config)


def _llama(size: Size) -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=POSITIONS,
        num_key_value_heads=2,
        use_cache=False,
        **_dimensions(size),
    )
    return LlamaForCausalLM._from_config(config, attn_implementation="sdpa")


class _AnySizeVit(torch.nn.Module):
    """ViT that always interpolates its position embeddings; `transformers` does so only on request at each call."""

    def __init__(self, vit: torch.nn.Module) -> None:
        super().__init__()
        self.vit = vit

    def forward(self, pixel_values: torch.Tensor) -> Any:
        return self.vit(pixel_values=pixel_values, interpolate_pos_encoding=True)


def _vit(size: Size) -> torch.nn.Module:
    from transformers import ViTConfig, ViTModel

    image = {"full": 224, "tiny": 64}[size]
    config = ViTConfig(image_size=image, patch_size=PATCH, **_dimensions(size))
    return _AnySizeVit(ViTModel._from_config(config, attn_implementation="sdpa"))


def _resnet(size: Size) -> torch.nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    sizes: dict[str, Any] = {
        "full": {"embedding_size": 64, "hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2]},
        "tiny": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
    }[size]
    model = ResNetForImageClassification(ResNetConfig(layer_type="basic", num_labels=10, **sizes))
    _randomise_statistics(model)
    return model


def _randomise_statistics(model: torch.nn.Module) -> None:
    """Randomises running statistics of batch norm in place: at their defaults 0 and 1 a wrong result can look right."""
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(std=0.1)
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)


# Batch x sequence: batch 1, sequence 1, primes, squares, multiples of 16 and their neighbours, one long.
_TEXT_SHAPES: tuple[Shape, ...] = (
    (2, 8),
    (4, 16),
    (8, 8),
    (3, 7),
    (5, 13),
    (7, 31),
    (16, 16),
    (2, 64),
    (4, 63),
    (4, 65),
    (13, 13),
    (8, 32),
    (2, 128),
    (3, 127),
    (6, 48),
    (11, 17),
    (2, 257),
    (32, 5),
    (2, 2),
    (9, 100),
    (1, 8),
    (1, 37),
    (4, 1),
    (1, 1),
    (1, 128),
)
_TEXT_FIRST: tuple[Shape, ...] = ((2, 8), (8, 8), (3, 7), (16, 32), (5, 64))
# Batch x source x target of an encoder-decoder.
_PAIR_SHAPES: tuple[Shape, ...] = (
    (2, 8, 6),
    (4, 16, 16),
    (8, 8, 8),
    (3, 7, 5),
    (5, 13, 3),
    (7, 31, 11),
    (16, 16, 4),
    (2, 64, 32),
    (4, 63, 17),
    (4, 65, 2),
    (13, 13, 13),
    (8, 32, 24),
    (2, 128, 64),
    (3, 127, 31),
    (6, 48, 12),
    (11, 17, 19),
    (2, 5, 97),
    (2, 2, 2),
    (9, 40, 20),
    (2, 200, 7),
    (1, 8, 6),
    (1, 37, 23),
    (4, 1, 5),
    (4, 9, 1),
    (1, 1, 1),
    (1, 64, 1),
)
_PAIR_FIRST: tuple[Shape, ...] = ((2, 8, 6), (8, 8, 8), (3, 7, 5), (16, 32, 4), (5, 64, 16))
# Batch x rows x columns of patches; the sequence is rows * columns + 1, (1, 1) is the shortest there is. The native
# size (14 x 14) is not here: transformers does not interpolate at it, a branch in Python and so a graph of its own.
_PATCH_SHAPES: tuple[Shape, ...] = (
    (2, 14, 13),
    (4, 4, 4),
    (8, 8, 8),
    (3, 7, 5),
    (5, 3, 11),
    (7, 2, 3),
    (16, 2, 2),
    (2, 16, 8),
    (2, 9, 10),
    (4, 6, 6),
    (3, 5, 13),
    (2, 12, 4),
    (6, 3, 3),
    (11, 4, 2),
    (2, 2, 17),
    (3, 10, 10),
    (2, 7, 7),
    (5, 5, 5),
    (13, 2, 5),
    (2, 11, 7),
    (1, 13, 14),
    (1, 7, 3),
    (4, 1, 5),
    (3, 6, 1),
    (1, 1, 1),
)
_PATCH_FIRST: tuple[Shape, ...] = ((2, 4, 6), (8, 8, 8), (3, 7, 5), (4, 13, 2), (5, 3, 11))
# Batch x height x width in pixels; the convolutions round up at every stride, so odd sizes matter.
_IMAGE_SHAPES: tuple[Shape, ...] = (
    (2, 64, 64),
    (4, 96, 96),
    (3, 97, 61),
    (2, 128, 64),
    (5, 65, 63),
    (7, 37, 41),
    (2, 100, 120),
    (8, 48, 48),
    (33, 33, 33),
    (2, 160, 32),
    (4, 67, 71),
    (6, 64, 40),
    (13, 35, 35),
    (2, 77, 129),
    (3, 50, 70),
    (2, 224, 224),
    (11, 47, 53),
    (5, 80, 80),
    (16, 40, 36),
    (2, 111, 113),
    (1, 64, 64),
    (1, 97, 61),
    (2, 32, 32),
    (2, 1, 1),
    (1, 1, 1),
)
_IMAGE_FIRST: tuple[Shape, ...] = ((2, 64, 64), (64, 64, 64), (3, 97, 61), (4, 96, 48), (5, 65, 63))

_TINY_TEXT: tuple[Shape, ...] = ((2, 5), (3, 3), (1, 4))
_TINY_PAIR: tuple[Shape, ...] = ((2, 5, 3), (3, 3, 3), (1, 4, 2))
_TINY_PATCH: tuple[Shape, ...] = ((2, 2, 3), (3, 3, 3), (1, 2, 2))
_TINY_IMAGE: tuple[Shape, ...] = ((2, 20, 24), (3, 17, 19), (1, 16, 16))

_TEXT = ("batch", "sequence")
_PAIR = ("batch", "source", "target")
MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model("bert", _TEXT, _bert, _text_inputs, _TEXT_SHAPES, _TEXT_FIRST, _TINY_TEXT),
        Model("gpt2", _TEXT, _gpt2, _text_inputs, _TEXT_SHAPES, _TEXT_FIRST, _TINY_TEXT),
        Model("t5", _PAIR, _t5, _text_pair_inputs, _PAIR_SHAPES, _PAIR_FIRST, _TINY_PAIR),
        Model("llama", _TEXT, _llama, _text_inputs, _TEXT_SHAPES, _TEXT_FIRST, _TINY_TEXT),
        Model("vit", ("batch", "rows", "columns"), _vit, _patch_inputs, _PATCH_SHAPES, _PATCH_FIRST, _TINY_PATCH),
        Model("resnet", ("batch", "height", "width"), _resnet, image_inputs, _IMAGE_SHAPES, _IMAGE_FIRST, _TINY_IMAGE),
    )
}
