"""Batches of a DataLoader: padded to their longest row, the last one smaller, read by processes of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import symshape

Row = tuple[Tensor, int]


class Texts(Dataset[Row]):
    def __len__(self) -> int:
        return 23

    def __getitem__(self, i: int) -> Row:
        length = 2 + i * 7 % 11
        return torch.arange(1, length + 1) * (i + 1) % 19 + 1, i % 3


def collate(rows: list[Row]) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens (batch, length), which of them are there, and labels (batch)."""
    tokens = nn.utils.rnn.pad_sequence([row for row, _ in rows], batch_first=True)
    return tokens, tokens != 0, torch.tensor([label for _, label in rows])


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.score, self.head = nn.Embedding(20, 8, padding_idx=0), nn.Linear(8, 1), nn.Linear(8, 3)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        x = self.embedding(tokens)
        weights = self.score(x).squeeze(-1).masked_fill(~mask, float("-inf")).softmax(-1)
        return self.head((weights.unsqueeze(-1) * x).sum(1))


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_ragged_batches(workers: int, graphs: Callable[[], int]) -> None:
    ours = Classifier()
    theirs = copy.deepcopy(ours)
    forward = symshape.compile(ours)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (ours, theirs)]
    for _ in range(2):
        loader = DataLoader(
            Texts(),
            batch_size=4,
            collate_fn=collate,
            num_workers=workers,
            multiprocessing_context="fork" if workers else None,
        )
        for tokens, mask, labels in loader:
            losses = [F.cross_entropy(model(tokens, mask), labels) for model in (forward, theirs)]
            for loss, optimizer in zip(losses, optimizers, strict=True):
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-4)
    assert graphs() == 1
