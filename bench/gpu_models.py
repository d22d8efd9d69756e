"""Models of bench/gpu.py: forward, training, decoding with CUDA graphs, the share of compile time."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final
from unittest import mock

import torch
from gpu_kernels import compared
from gpu_run import Job, Row, Run, Work
from models import Trainer
from trained_models import TRAINED

from symshape.tools.measure import compile_for, relative_error
from symshape.tools.zoo import MODELS, Model, Shape

INFERENCE: Final = ("t5", "bert", "llama", "vit", "resnet")
TRAINING: Final = ("bert", "llama", "vit", "resnet", "t5")
PASTS: Final = (7, 100, 511)  # tokens that are known when one is decoded
PLACES: Final = 3  # where keys and values of equal numbers lie
BATCH: Final = 4
SMALLEST: Final = "dlrm"  # what a dry run takes for all models
TOLERANCE: Final = 2e-3
LIMITS: Final = ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")  # see `work_together` in gpu.py


def module_of(run: Run, model: Model) -> torch.nn.Module:
    return model.build("tiny" if run.dry else "full").to(run.device)


def inductor(run: Run, module: Any, **given: Any) -> Any:
    """Inductor as its users call it. A dry run has none."""
    return torch.compile(module, **({"backend": "eager", "dynamic": given.get("dynamic")} if run.dry else given))


def without_failing_peers(ways: dict[str, Any], call: Callable[[Any], Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The result of each way, and the errors of Inductor's, which are no ways any more: the others are measured."""
    results, errors = {}, {}
    for name, way in list(ways.items()):
        try:
            results[name] = call(way)
        except Exception as error:
            if not name.startswith("inductor"):
                raise
            errors[name] = f"{type(error).__name__}: {error}"[:500]
            del ways[name]
    return results, errors


# Forward.


def dynamic_forwards(run: Run, model: Model) -> dict[str, Callable[..., Any]]:
    """Eager mode and the dynamic compilations, each with a module of its own, which have met another shape first."""
    calls: dict[str, Callable[..., Any]] = {
        "eager": module_of(run, model),
        "inductor_dynamic": inductor(run, module_of(run, model), dynamic=True),
        "symshape": compile_for("symshape", module_of(run, model), **run.options),
    }
    first = model.tiny_shapes[0] if run.dry else model.first_shapes[0]
    without_failing_peers(calls, lambda call: call(**run.put(model.inputs(first))))
    return calls


@torch.no_grad()
def measure_inference(run: Run, name: str, shape: Shape) -> Work:
    """A forward pass at one shape. The static compilation is made for it."""
    model = TRAINED[name]
    calls = run.only(("inference", name), lambda: dynamic_forwards(run, model))
    calls = {**calls, "inductor_static": inductor(run, module_of(run, model), dynamic=False)}
    inputs = run.put(model.inputs(shape))
    results, failed = without_failing_peers(calls, lambda call: call(**inputs))
    error = relative_error(results["symshape"], results["eager"])
    del results
    yield
    times = run.times({key: partial(call, **inputs) for key, call in calls.items()})
    return {**compared(times), "error": error, "accurate": error <= TOLERANCE, "peers_failed": failed}


# Training.


def trainer_of(run: Run, model: Model, compile_: Callable[[Any], Any]) -> Trainer:
    """On the device of the run."""
    return Trainer(model, "tiny" if run.dry else "full", compile_, run.device)


def dynamic_trainers(run: Run, model: Model) -> dict[str, Trainer]:
    """As `dynamic_forwards`."""
    trainers = {
        "eager": trainer_of(run, model, lambda module: module),
        "inductor_dynamic": trainer_of(run, model, partial(inductor, run, dynamic=True)),
        "symshape": trainer_of(run, model, partial(compile_for, "symshape", **run.options)),
    }
    first = model.tiny_shapes[0] if run.dry else model.first_shapes[0]
    without_failing_peers(trainers, lambda trainer: trainer.step(**run.put(model.inputs(first))))
    return trainers


def measure_training(run: Run, name: str, shape: Shape) -> Work:
    """A step (forward, backward, SGD). The loss is compared after as many steps as the dynamic ones have made."""
    model = TRAINED[name]
    trainers = run.only(("training", name), lambda: dynamic_trainers(run, model))
    trainers = {**trainers, "inductor_static": trainer_of(run, model, partial(inductor, run, dynamic=False))}
    inputs = run.put(model.inputs(shape))
    losses, failed = without_failing_peers(trainers, lambda trainer: float(trainer.step(**inputs)))
    error = abs(losses["symshape"] - losses["eager"]) / abs(losses["eager"])
    yield
    times = run.times({key: partial(one.step, **inputs) for key, one in trainers.items()})
    return {**compared(times), "losses": losses, "error": error, "accurate": error <= TOLERANCE, "peers_failed": failed}


def model_jobs(dry: bool, part: str) -> list[Job]:
    """Two shapes of each model; one in training, where Inductor compiles for minutes."""
    names, work, count, expected = {
        "inference": (INFERENCE, measure_inference, 2, 45.0),
        "training": (TRAINING, measure_training, 1, 100.0),
    }[part]
    found = []
    for name in (SMALLEST,) if dry else names:
        model = TRAINED[name]
        shapes = model.tiny_shapes[1:2] if dry else model.large_shapes[12 : 12 + count]
        for shape in shapes:
            found.append(Job(part, name, "float32", shape, partial(work, name=name, shape=shape), expected))
    return found


# Decoding.


class Decoder(torch.nn.Module):
    """Llama, called with one token and what is known of those before: keys and values of each layer."""

    def __init__(self, llama: torch.nn.Module) -> None:
        from transformers import DynamicCache  # in a compiled function PyTorch 2.11 breaks the graph here

        super().__init__()
        self.llama, self.make_cache = llama, DynamicCache

    def forward(self, token: torch.Tensor, past: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
        """``token``: (batch, 1); keys and values: (batch, heads, tokens, head width). Logits: (batch, 1, words)."""
        cache = self.make_cache()
        for i, (keys, values) in enumerate(past):
            cache.update(keys, values, i)
        logits: torch.Tensor = self.llama(input_ids=token, past_key_values=cache, use_cache=True).logits
        return logits


def decoder_inputs(run: Run, decoder: Decoder, batch: int, past: int) -> tuple[Any, ...]:
    config = decoder.llama.config
    width = config.hidden_size // config.num_attention_heads
    generator = torch.Generator(run.device).manual_seed(past)
    sizes = batch, config.num_key_value_heads, past, width
    draw = functools.partial(torch.randn, sizes, generator=generator, device=run.device)
    known = [(draw(), draw()) for _ in range(config.num_hidden_layers)]
    return torch.full((batch, 1), past % 7, device=run.device), known


def marked(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call that begins a step of CUDA graphs: what the one before returned is not needed any more."""

    def step(*inputs: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return call(*inputs)

    return step


def over(call: Callable[..., Any], inputs: Sequence[tuple[Any, ...]]) -> Callable[[], Any]:
    """A call of each of these inputs in turn: in a loop that decodes, keys and values lie elsewhere in each step."""
    turns = itertools.cycle(inputs)
    return lambda: call(*next(turns))


def decoders(run: Run) -> dict[str, Callable[..., Any]]:
    """Each way, with a module of its own."""

    def own() -> Decoder:
        return Decoder(module_of(run, MODELS["llama"]))

    def ours(**given: Any) -> Any:
        return compile_for("symshape", own(), **run.options, **given)

    return {
        "eager": own(),
        "inductor_dynamic": inductor(run, own(), dynamic=True),
        "inductor_graphs": marked(inductor(run, own(), mode="reduce-overhead")),
        "symshape_kernels": ours(),
        "symshape": marked(ours(mode="reduce-overhead")),
    }


@torch.no_grad()
def measure_decode(run: Run, shape: Shape) -> Work:
    """One token with so many before it; ``call`` is what counts, since launching is most of it."""
    batch, past = shape
    calls = run.only("decode", lambda: decoders(run))
    inputs = [decoder_inputs(run, calls["eager"], batch, past) for _ in range(PLACES)]
    expected = calls["eager"](*inputs[0])
    errors = {}
    in_turn = {name: over(call, inputs) for name, call in calls.items()}
    for name, call in in_turn.items():
        for _ in range(2 * PLACES):  # before a graph is recorded calls run as they are
            errors[name] = relative_error(call(), expected)
    yield
    times = run.times(in_turn)
    return {**compared(times), "errors": errors, "accurate": errors["symshape"] <= TOLERANCE}


def decode_jobs(dry: bool) -> list[Job]:
    shapes = [(2, 3)] if dry else [(BATCH, past) for past in PASTS]
    return [Job("decode", "llama", "float32", one, partial(measure_decode, shape=one), expected=30.0) for one in shapes]


# Compile time.


def measure_compile(run: Run, name: str) -> Row:
    """The first call of each backend in a fresh process with empty caches; a dry run stays in this one."""
    import compile_time

    first, second = {}, {}
    for backend in compile_time.BACKENDS:
        if run.dry:
            torch._dynamo.reset()
            known = "aot_eager" if backend == "inductor" else backend
            options = run.options if backend == "symshape" else {}
            found = compile_time.measure_here(name, known, run.device, "tiny", options)
        else:
            with mock.patch.dict(os.environ):
                for limit in LIMITS:  # of processes that compile side by side: here one compiles, as it does for a user
                    os.environ.pop(limit, None)
                found = compile_time.measure(name, backend, run.device)
        first[backend], second[backend] = found["first_call"], found["second_call"]
    own, theirs = first["symshape"] - first["aot_eager"], first["inductor"] - first["aot_eager"]
    return {"first_call": first, "second_call": second, "share": own / theirs if theirs > 0 else None, "accurate": True}


def compile_jobs(dry: bool) -> list[Job]:
    names = ("bert",) if dry else ("bert", "t5", "resnet")
    return [
        Job("compile", name, "float32", MODELS[name].first_shapes[0], partial(measure_compile, name=name), 60.0)
        for name in names
    ]
