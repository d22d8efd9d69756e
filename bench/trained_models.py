"""The models of bench/models.py: the six of the zoo, a recommender with bags of jagged lengths, a U-Net."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from symshape.tools.zoo import MODELS, Kwargs, Model, Shape, Size

ROWS, TABLES, DENSE = 500, 3, 13


class Dlrm(nn.Module):
    """A DLRM: dense features, sums of embeddings in bags whose lengths differ, products of all pairs, a tower."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(DENSE, inner), nn.ReLU(), nn.Linear(inner, width), nn.ReLU())
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(ROWS, width, mode="sum", include_last_offset=True) for _ in range(TABLES)
        )
        pairs = TABLES * (TABLES + 1) // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, inner), nn.ReLU(), nn.Linear(inner, 1))

    def forward(self, dense: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """``dense``: (batch, 13); ``indices``: (tables, lookups); ``offsets``: (tables, batch + 1), where bags begin.
        (batch, 1)."""
        x = self.bottom(dense)
        bags = [table(indices[i], offsets[i]) for i, table in enumerate(self.tables)]
        features = torch.stack([x, *bags], dim=1)
        rows, columns = torch.tril_indices(TABLES + 1, TABLES + 1, -1)
        products = torch.bmm(features, features.transpose(1, 2))[:, rows, columns]
        output: torch.Tensor = self.top(torch.cat([x, products], dim=1))
        return output


def _dlrm(size: Size) -> nn.Module:
    width, inner = {"full": (64, 256), "tiny": (8, 16)}[size]
    return Dlrm(width, inner)


def _dlrm_inputs(shape: Shape, generator: torch.Generator) -> Kwargs:
    """Bags of any length, empty ones among them."""
    batch, lookups = shape
    inner = torch.randint(0, lookups + 1, (TABLES, batch - 1), generator=generator).sort(dim=1).values
    ends = torch.zeros(TABLES, 1, dtype=torch.int64), torch.full((TABLES, 1), lookups)
    return {
        "dense": torch.randn(batch, DENSE, generator=generator),
        "indices": torch.randint(0, ROWS, (TABLES, lookups), generator=generator),
        "offsets": torch.cat([ends[0], inner, ends[1]], dim=1),
    }


class Block(nn.Module):
    """Two convolutions, each normalised over the batch."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, inputs, height, width) to (batch, outputs, height, width)."""
        x = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(x)))


class UNet(nn.Module):
    """A U-Net: each level has half the resolution, rounded down; on the way up that of the level's own input."""

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        widths = [width * 2**i for i in range(levels + 1)]
        self.down = nn.ModuleList(Block(i, o) for i, o in zip([3, *widths], widths))
        self.up = nn.ModuleList(Block(o + i, o) for o, i in zip(widths[-2::-1], widths[:0:-1]))
        self.head = nn.Conv2d(width, 4, 1)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """(batch, 3, height, width) to (batch, 4, height, width)."""
        kept, x = [], pixel_values
        for i, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for block, skip in zip(self.up, kept[-2::-1]):
            x = functional.interpolate(x, size=skip.shape[-2:], mode="bilinear", align_corners=False)
            x = block(torch.cat([skip, x], dim=1))
        output: torch.Tensor = self.head(x)
        return output


def _unet(size: Size) -> nn.Module:
    width, levels = {"full": (32, 3), "tiny": (4, 2)}[size]
    return UNet(width, levels)


def _unet_inputs(shape: Shape, generator: torch.Generator) -> Kwargs:
    batch, height, width = shape
    return {"pixel_values": torch.randn(batch, 3, height, width, generator=generator)}


# Batch x lookups of each table.
_BAG_SHAPES: tuple[Shape, ...] = ((32, 200), (64, 64), (37, 501), (128, 300), (50, 77), (256, 1000))
_PIXEL_SHAPES: tuple[Shape, ...] = ((2, 32, 48), (3, 33, 47), (4, 40, 40), (2, 65, 31), (5, 24, 56), (2, 96, 80))
_TEXT = (2, 8), (8, 8), (3, 7), (5, 33), (4, 64)
_OWN = {
    "t5": ((2, 8, 6), (8, 8, 8), (3, 7, 5), (5, 33, 16), (4, 64, 24)),
    "vit": ((2, 4, 6), (8, 8, 8), (3, 7, 5), (4, 13, 2), (5, 3, 11)),
    "resnet": ((2, 64, 64), (3, 97, 65), (4, 96, 64), (5, 65, 67), (2, 128, 70)),
    "dlrm": _BAG_SHAPES[:5],
    "unet": _PIXEL_SHAPES[:5],
}

TRAINED: dict[str, Model] = {
    **MODELS,
    "dlrm": Model("dlrm", ("batch", "lookups"), _dlrm, _dlrm_inputs, _BAG_SHAPES, _BAG_SHAPES[:5], ((3, 7), (4, 4))),
    "unet": Model(
        "unet",
        ("batch", "height", "width"),
        _unet,
        _unet_inputs,
        _PIXEL_SHAPES,
        _PIXEL_SHAPES[:5],
        ((2, 9, 12), (3, 8, 8)),
    ),
}
# What a training run goes through, one shape a step.
TRAINING_SHAPES: dict[str, tuple[Shape, ...]] = {name: _OWN.get(name, _TEXT) for name in TRAINED}


def without_dropout(module: nn.Module) -> nn.Module:
    """In training mode, without dropout: other backends draw other numbers than eager mode."""
    module.train()
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        for name in ("dropout", "dropout_prob", "attention_dropout"):
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)
    return module
