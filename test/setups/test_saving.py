"""Compiled models that are saved, loaded, exported, copied and pickled."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import symshape


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.norm(self.up(x)).relu())


def _assert_same(ours: Callable[[Tensor], Tensor], theirs: Callable[[Tensor], Tensor]) -> None:
    for rows in (3, 5, 2):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(ours(x), theirs(x))


def test_weights_are_loaded_into_a_compiled_model() -> None:
    trained, compiled = Net(), symshape.compile(Net())
    compiled(torch.randn(3, 4))
    file = io.BytesIO()
    torch.save(trained.state_dict(), file)
    file.seek(0)
    compiled._orig_mod.load_state_dict(torch.load(file))
    _assert_same(compiled, trained)
    # The other way: names that torch.compile gives, as everybody strips them.
    plain = {name.removeprefix("_orig_mod."): value for name, value in compiled.state_dict().items()}
    fresh = Net()
    fresh.load_state_dict(plain)
    _assert_same(fresh.eval(), compiled.eval())


@pytest.mark.long
def test_weights_are_assigned() -> None:
    """``assign=True`` puts other tensors in the place of parameters: what is compiled reads those."""
    trained, compiled = Net(), symshape.compile(Net())
    for _ in range(3):
        compiled(torch.randn(3, 4))
        compiled._orig_mod.load_state_dict(copy.deepcopy(trained.state_dict()), assign=True)
        _assert_same(compiled, trained)
        trained = Net()


@pytest.mark.long
def test_a_compiled_model_is_saved() -> None:
    compiled = symshape.compile(Net())
    compiled(torch.randn(3, 4))
    file = io.BytesIO()
    torch.save(compiled, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    _assert_same(loaded.eval(), compiled.eval())


@pytest.mark.long
def test_an_exported_model_is_compiled() -> None:
    model = Net().eval()
    rows = torch.export.Dim("rows", min=2)
    exported = torch.export.export(model, (torch.randn(3, 4),), dynamic_shapes=({0: rows},))
    _assert_same(symshape.compile(exported.module()), model)


@pytest.mark.long
def test_a_traced_part_stays_as_it_is() -> None:
    """``torch.jit.trace`` makes a module that Dynamo does not look into: the code around it is compiled."""
    model = Net().eval()
    traced: Any = torch.jit.trace(model, torch.randn(3, 4))
    _assert_same(symshape.compile(lambda x: traced(x).exp() + 1), lambda x: model(x).exp() + 1)


@pytest.mark.long
def test_precision_is_changed_after_compiling() -> None:
    model = Net().eval()
    compiled = symshape.compile(model)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        model.to(dtype)
        theirs = copy.deepcopy(model)
        x = torch.randn(3, 4, dtype=dtype)
        torch.testing.assert_close(compiled(x), theirs(x))


@pytest.mark.long
def test_a_pipeline() -> None:
    """Of Hugging Face's transformers, with a tokenizer made here."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        PreTrainedTokenizerFast,
        TextClassificationPipeline,
    )

    words = {"[PAD]": 0, "[UNK]": 1, **{word: i + 2 for i, word in enumerate("what a fine day it is today".split())}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    theirs = BertForSequenceClassification(
        BertConfig(
            vocab_size=10,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
        )
    ).eval()
    ours: Any = copy.deepcopy(theirs)
    ours.forward = symshape.compile(ours.forward)
    texts = ["what a day", "it is a fine day today", "fine"]
    found = [TextClassificationPipeline(model=model, tokenizer=fast, batch_size=2)(texts) for model in (ours, theirs)]
    for actual, expected in zip(*found, strict=True):
        assert actual["label"] == expected["label"]
        assert actual["score"] == pytest.approx(expected["score"], rel=1e-4)
