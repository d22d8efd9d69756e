"""``make demo``: T5 generates text at many sizes, eager and compiled, and every token must be the same.

Follows normal usage: ``model.generate`` with the forward of the model and of its encoder compiled, and the key-value
cache enabled. Weights are random and made from a configuration, so that nothing is downloaded.
"""

from __future__ import annotations

import functools
import shutil
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from symshape.tools.terminal import Progress, heading, style, table

PROMPT_LENGTHS = (3, 5, 8, 13, 21, 34, 55, 64)
BATCH_SIZES = (2, 5, 8)
TOKENS = 20
CASES = len(PROMPT_LENGTHS) * len(BATCH_SIZES)
TITLE = "T5, 4 layers, width 256, random weights"
# As much as a reader takes in; the report of `symshape.explain` has all of it.
MOST_LINES = 60
Forward = Callable[..., Any]


@dataclass
class Outcome:
    """Totals over all generations, updated as they run. ``compiled_for`` labels the calls that compiled each report;
    ``compiling`` and ``wrong`` label the generations that compiled and those with other tokens than eager mode;
    ``difference`` is the largest absolute difference of logits."""

    reports: list[Any] = field(default_factory=list)
    compiled_for: list[str] = field(default_factory=list)
    graphs: int = 0
    recompiles: int = 0
    compiling: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    difference: float = 0.0
    compile_seconds: float = 0.0
    calls: int = 0
    timed_calls: int = 0
    eager_seconds: float = 0.0
    symshape_seconds: float = 0.0


def build() -> Any:
    """The T5 model of the zoo, without an end-of-sequence token, so that each prompt generates ``TOKENS`` tokens."""
    from transformers import GenerationConfig

    from symshape.tools.zoo import MODELS

    model = MODELS["t5"].build()
    model.generation_config = GenerationConfig(decoder_start_token_id=0, pad_token_id=0, eos_token_id=None)
    config: Any = model.config
    config.use_cache = True
    return model


def prompt(batch: int, length: int) -> dict[str, Any]:
    """Random token ids of shape (batch, length) with an attention mask: rows are right-padded, as a tokenizer does."""
    import torch

    from symshape.tools.zoo import VOCABULARY

    generator = torch.Generator().manual_seed(1000 * batch + length)
    ids = torch.randint(2, VOCABULARY, (batch, length), generator=generator)
    kept = (length - torch.arange(batch) % 3).clamp(min=1)
    mask = (torch.arange(length)[None, :] < kept[:, None]).to(torch.int64)
    return {"input_ids": ids * mask, "attention_mask": mask}


def generate(model: Any, inputs: dict[str, Any]) -> tuple[Any, Any, float]:
    """Generated tokens, their stacked logits, and the time in seconds; decoding is greedy."""
    import torch

    start = time.perf_counter()
    result = model.generate(
        **inputs,
        max_new_tokens=TOKENS,
        do_sample=False,
        use_cache=True,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return result.sequences, torch.stack(result.logits), time.perf_counter() - start


def compile_model(model: Any, outcome: Outcome) -> None:
    """Compiles the forward of the model and of its encoder in place, and collects the reports in ``outcome``."""
    from symshape.backend import symshape_backend
    from symshape.frame_compiler import compile_with

    backend = functools.partial(symshape_backend, reports=outcome.reports)
    backend.__name__ = "symshape"  # type: ignore[attr-defined]
    for part, describe in ((model, _decoder_call), (model.encoder, _encoder_call)):
        part.forward = _watch(compile_with(part.forward, backend), describe, outcome)


def _watch(forward: Forward, describe: Callable[[dict[str, Any]], str], outcome: Outcome) -> Forward:
    """Wraps a compiled ``forward``: counts calls, and records call labels and seconds of those that compile a graph."""

    @functools.wraps(forward)
    def watched(*args: Any, **kwargs: Any) -> Any:
        call, before, start = describe(kwargs), len(outcome.reports), time.perf_counter()
        result = forward(*args, **kwargs)
        outcome.calls += 1
        new = len(outcome.reports) - before
        outcome.compiled_for += [call] * new
        outcome.compile_seconds += time.perf_counter() - start if new else 0.0
        return result

    return watched


def _encoder_call(_kwargs: dict[str, Any]) -> str:
    return "encoder"


def _decoder_call(kwargs: dict[str, Any]) -> str:
    cache = kwargs.get("past_key_values")
    length = cache.get_seq_length() if cache is not None else 0
    return f"decoder step, {length} cached" if length < 2 else "decoder step, any cache"


def run() -> Outcome:
    """Runs each prompt length at each batch size, eager and compiled in turns."""
    from symshape.tools.measure import Graphs

    outcome, eager, ours = Outcome(), build(), build()
    cases = [(batch, length) for length in PROMPT_LENGTHS for batch in BATCH_SIZES]
    with Graphs() as graphs, Progress("generating", len(cases)) as progress:
        compile_model(ours, outcome)
        for batch, length in cases:
            known = len(outcome.reports)
            progress.say(f"batch {batch}, prompt {length}, {known} graphs")
            _compare(eager, ours, prompt(batch, length), f"batch {batch}, prompt length {length}", outcome)
            if len(outcome.reports) > known:
                outcome.compiling.append(f"batch {batch}, prompt length {length}")
            progress.step()
        outcome.graphs, outcome.recompiles = graphs.read().graphs, graphs.recompiles
    return outcome


def _compare(eager: Any, ours: Any, inputs: dict[str, Any], label: str, outcome: Outcome) -> None:
    """Runs one prompt both ways, compares tokens and logits, and adds up the times. If the compiled run compiled
    something, a second run is timed."""
    expected, expected_logits, eager_seconds = generate(eager, inputs)
    known, before = len(outcome.reports), outcome.calls
    tokens, logits, seconds = generate(ours, inputs)
    if len(outcome.reports) > known:
        before = outcome.calls
        seconds = generate(ours, inputs)[2]
    outcome.timed_calls += outcome.calls - before
    outcome.eager_seconds += eager_seconds
    outcome.symshape_seconds += seconds
    outcome.difference = max(outcome.difference, float((logits - expected_logits).abs().max()))
    if not (tokens.shape == expected.shape and bool((tokens == expected).all())):
        outcome.wrong.append(label)


def show(outcome: Outcome) -> None:
    """Prints the tables, then the guard stub and one kernel of the last graph."""
    print(heading("One compile, every size"))
    eager, ours = (1e3 * seconds / outcome.timed_calls for seconds in (outcome.eager_seconds, outcome.symshape_seconds))
    kernels = sum(len(report.kernels) for report in outcome.reports)
    sizes = f"{CASES} = {len(PROMPT_LENGTHS)} prompt lengths x {len(BATCH_SIZES)} batch sizes x {TOKENS} tokens"
    rows = [
        ["sizes", sizes],
        ["graphs compiled", f"{outcome.graphs} ({outcome.compile_seconds:.1f} s, tracing included)"],
        ["recompiles", f"{outcome.recompiles}, all in the first {len(outcome.compiling)} of {CASES} generations"],
        ["kernels", f"{kernels} ({sum(report.launches for report in outcome.reports)} launches)"],
        ["library calls", str(sum(len(report.library_calls) for report in outcome.reports))],
        ["largest difference of logits", f"{outcome.difference:.2e}"],
        ["ms per call, eager", f"{eager:.2f}"],
        ["ms per call, symshape", f"{ours:.2f} ({eager / ours:.2f}x)"],
    ]
    print(table(["", TITLE], rows))
    print(heading("Graphs"))
    graphs = [
        [str(i), label, len(report.kernels), report.launches, len(report.library_calls)]
        for i, (label, report) in enumerate(zip(outcome.compiled_for, outcome.reports, strict=True))
    ]
    print(table(["graph", "first met at", "kernels", "launches", "library calls"], graphs))
    if outcome.reports:
        show_code(outcome.reports[-1], outcome.compiled_for[-1])


def show_code(report: Any, label: str) -> None:
    """Prints the guard stub and the shortest reduction kernel of a graph, which shows most in fewest lines."""
    print(heading(f"Guard stub ({label})"))
    print_code(report.stub_source)
    if report.kernels:
        kernel = min(report.kernels, key=lambda k: (k.kind == "pointwise", len(k.source)))
        # CPU kernels are LLVM dialect, which is hard to read; Triton code is printed from the same loop program.
        print(heading(f"Kernel {kernel.name} ({kernel.kind}), as Triton code"))
        print_code(kernel.triton_source)


def print_code(source: str) -> None:
    """Prints numbered lines, truncated to the width of the terminal; at most ``MOST_LINES``."""
    lines, columns = source.strip().splitlines(), max(shutil.get_terminal_size((120, 24)).columns - 6, 40)
    for number, line in enumerate(lines[:MOST_LINES], 1):
        print(style(f"{number:4d} ", "dim") + (line if len(line) <= columns else line[: columns - 1] + "…"))
    if len(lines) > MOST_LINES:
        print(style(f"     ... {len(lines) - MOST_LINES} more lines", "dim"))


def main() -> int:
    """Runs the demo. Exit status 0 if all tokens equal eager mode's, else 1."""
    warnings.filterwarnings("ignore")
    outcome = run()
    show(outcome)
    if outcome.wrong:
        print(style(f"\nTokens differ from eager's: {'; '.join(outcome.wrong)}", "red", "bold"))
        return 1
    print(style("\nEvery token equals eager's.", "green", "bold"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
