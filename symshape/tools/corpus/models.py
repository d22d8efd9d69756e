"""The models of the corpus. Each has random weights, and is compiled for inference or with its gradient."""

from __future__ import annotations

import platform
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch

import symshape
from symshape import knobs
from symshape.compiler import Built, Watch, attempts, build
from symshape.errors import CompileError, FallbackWarning, OptionError
from symshape.frontend.bridge.asked_questions import questions_of_tracing
from symshape.recording import Recorded, read_recording, recordings_in
from symshape.run_text import read_ir
from symshape.tools.corpus.questions import Corpus
from symshape.tools.corpus.recorder import Recorder
from symshape.tools.measure import tensors_of
from symshape.tools.transformers_configs import TRANSFORMERS
from symshape.tools.zoo import MODELS, Model

Mode = Literal["forward", "training"]
MODES: tuple[Mode, ...] = get_args(Mode)
# The zoo's models are larger versions of the same families.
ALL: dict[str, Model] = TRANSFORMERS | {f"zoo-{name}": model for name, model in MODELS.items()}


@dataclass(frozen=True)
class Subject:
    """A model and how it is compiled: "forward" without gradient, or "training" with it."""

    model: str
    mode: Mode

    @property
    def name(self) -> str:
        return f"{self.model}-{self.mode}"


SUBJECTS: dict[str, Subject] = {
    subject.name: subject for mode in MODES for subject in (Subject(name, mode) for name in ALL)
}


def record(subject: Subject) -> Corpus:
    """Compiles the model at its first shape for CPUs, then the same graphs for GPUs, and returns the questions asked.

    Must run in a process that has compiled nothing: cached proofs of an earlier compile are not asked again.
    """
    model = ALL[subject.model]
    built = model.build()
    shape = model.first_shapes[0]
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as warned, recorder.in_force():
        warnings.simplefilter("always", FallbackWarning)
        with questions_of_tracing(recorder.ask_traced), knobs.RECORD.set_to(folder):
            _compile(built, model.inputs(shape), subject.mode)
        fallbacks = [str(one.message) for one in warned if issubclass(one.category, FallbackWarning)]
        graphs = [_compile_for_gpus(read_recording(one)) for one in recordings_in(Path(folder))]
    about = _about(subject, model, built, shape)
    about |= {"graphs": len(graphs), "fallbacks": fallbacks + [text for texts in graphs for text in texts]}
    return recorder.corpus(about)


def _compile(built: torch.nn.Module, inputs: dict[str, torch.Tensor], mode: Mode) -> None:
    compiled = symshape.compile(built, cache=False)
    if mode == "forward":
        with torch.no_grad():
            compiled(**inputs)
        return
    built.train()
    outputs = [one for one in tensors_of(compiled(**inputs)) if one.is_floating_point() and one.requires_grad]
    torch.stack([(one.float() ** 2).mean() for one in outputs]).sum().backward()


def _compile_for_gpus(recorded: Recorded) -> list[str]:
    """Generates Triton code for a recorded graph, as text only. Returns the fallbacks that were needed."""
    if "imported" not in recorded.stages:
        return [f"no IR: {recorded.about['outcome']}"]
    ready = read_ir(recorded.stages["imported"], str(recorded.folder), "imported")

    def once(attempt: Any) -> Built:
        if attempt.as_calls:
            hint = "the fallbacks before it name the steps that failed"
            raise CompileError("nothing is left to compile for a GPU", where=str(recorded.folder), next_step=hint)
        return build(ready.start("triton", "cuda", recorded.about["kind"]), recorded.options, attempt, Watch())

    return [str(one) for one in attempts(once, recorded.options)[1]]


def _about(subject: Subject, model: Model, built: torch.nn.Module, shape: tuple[int, ...]) -> dict[str, Any]:
    import transformers

    config = getattr(built, "config", None) or getattr(getattr(built, "vit", None), "config", None)
    if config is None:
        raise OptionError(f"{subject.model} has no configuration", next_step="a model of transformers is needed")
    return {
        "model": subject.model,
        "mode": subject.mode,
        "class": f"transformers.{next(iter(config.architectures or [type(built).__name__]))}",
        "config": _plain(config),
        "parameters": sum(one.numel() for one in built.parameters()),
        "first shape": dict(zip(model.axes, shape, strict=True)),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "command": f"symshape corpus record {subject.name}",
    }


def _plain(config: Any) -> dict[str, Any]:
    """The settings of a configuration that differ from its class's defaults."""
    return {key: value for key, value in config.to_diff_dict().items() if key != "transformers_version"}
