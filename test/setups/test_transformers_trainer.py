"""Hugging Face's Trainer. It hands backend names to accelerate, which knows those of PyTorch only: the model is
compiled before it is handed over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

import symshape

STEPS = 3


class Sentences(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Of lengths that differ from batch to batch."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        length = 4 + i // 2 % 5
        return {"input_ids": (torch.arange(length) * 7 + i) % 50, "labels": torch.tensor(i % 3)}


def collate(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    ids = nn.utils.rnn.pad_sequence([row["input_ids"] for row in rows], batch_first=True)
    mask = nn.utils.rnn.pad_sequence([torch.ones_like(row["input_ids"]) for row in rows], batch_first=True)
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.stack([row["labels"] for row in rows])}


class Losses(TrainerCallback):
    def __init__(self) -> None:
        self.found: list[float] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        self.found += [value for name, value in (logs or {}).items() if name in ("loss", "eval_loss")]


class Average(nn.Module):
    """The least that the Trainer takes."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 8), nn.Linear(8, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, **_: Any) -> dict[str, Tensor]:
        there = attention_mask.unsqueeze(-1)
        logits = self.head((self.embedding(input_ids) * there).sum(1).tanh() / there.sum(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def _bert() -> nn.Module:
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=50,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            num_labels=3,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )


def _train(
    make: Callable[[], nn.Module], wrap: Callable[[nn.Module], Any], folder: Path, **arguments: Any
) -> list[float]:
    torch.manual_seed(0)
    model = make()
    settings = TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=2,
        learning_rate=1e-2,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        label_names=["labels"],
        **arguments,  # else it asks the signature of `forward`
    )
    losses = Losses()
    trainer = Trainer(
        wrap(model),
        settings,
        train_dataset=Sentences(),
        eval_dataset=Sentences(),
        data_collator=collate,
        callbacks=[losses],
    )
    trainer.train()
    if arguments:
        trainer.evaluate()
    return losses.found


def _in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="symshape")
    return model


ACCUMULATED = {"gradient_accumulation_steps": 2, "bf16": True}


@pytest.mark.parametrize(
    "make, wrap, arguments",
    [
        (Average, symshape.compile, {}),
        pytest.param(Average, _in_place, {}, marks=pytest.mark.long),
        pytest.param(_bert, symshape.compile, {"max_grad_norm": 0.1}, marks=pytest.mark.long),
        pytest.param(_bert, _in_place, ACCUMULATED, marks=pytest.mark.long),
    ],
)
def test_losses_of_the_trainer(
    make: Callable[[], nn.Module], wrap: Callable[[nn.Module], Any], arguments: dict[str, Any], tmp_path: Path
) -> None:
    actual = _train(make, wrap, tmp_path / "ours", **arguments)
    expected = _train(make, lambda model: model, tmp_path / "theirs", **arguments)
    assert len(actual) == STEPS + bool(arguments)
    assert actual == pytest.approx(expected, rel=2e-2 if "bf16" in arguments else 1e-4)
