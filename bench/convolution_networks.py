"""Convolution networks on a CPU: symshape and its peers, time per call over ONNX Runtime's, one thread, processor time.

    python bench/convolution_networks.py [--models resnet18,mobilenet_v2] [--sizes 1x224,4x224,1x320] [--rounds 7]
        [--backends onnxruntime,eager,inductor,symshape] [--out bench/results/convolution_networks.json]

Networks are those of transformers at their published sizes, with random weights, in eval mode. Everything is compiled
once, for any batch and any image, at another size than those that are measured; samples are taken in turns; a figure is
the median. ONNX Runtime needs `pip install onnx onnxscript onnxruntime`; without it times are over eager mode's.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import io
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
import transformers

from symshape.tools.measure import compile_for, geometric_mean, relative_error, samples, write_result
from symshape.tools.terminal import Progress, heading, table

Call = Callable[[torch.Tensor], Any]
_BASIC = {"layer_type": "basic", "depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512], "embedding_size": 64}
MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "resnet18": lambda: transformers.ResNetModel(transformers.ResNetConfig(**_BASIC)),
    "resnet50": lambda: transformers.ResNetModel(transformers.ResNetConfig()),
    "mobilenet_v2": lambda: transformers.MobileNetV2Model(transformers.MobileNetV2Config(tf_padding=False)),
    "efficientnet_b0": lambda: transformers.EfficientNetModel(
        transformers.EfficientNetConfig(width_coefficient=1.0, depth_coefficient=1.0, image_size=224, hidden_dim=1280)
    ),
    "regnet_y_040": lambda: transformers.RegNetModel(transformers.RegNetConfig()),
    "convnext_tiny": lambda: transformers.ConvNextModel(transformers.ConvNextConfig()),
}
_FIRST = (2, 192)  # batch, height and width of the image that is compiled for


class Pooled(torch.nn.Module):
    """The pooled features of a model of transformers, as a tensor."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> Any:
        return self.model(pixel_values=x, return_dict=False)[1]


def onnxruntime(model: torch.nn.Module) -> Call:
    """The model in ONNX Runtime, exported for any batch, height and width."""
    import onnxruntime as runtime

    any_size = torch.export.Dim.DYNAMIC
    dims = ({0: any_size, 2: any_size, 3: any_size},)
    with contextlib.redirect_stdout(io.StringIO()):
        program = torch.onnx.export(model, (image(*_FIRST),), dynamic_shapes=dims, dynamo=True, verbose=False)
    file = io.BytesIO()
    assert program is not None
    program.save(file)
    settings = runtime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = torch.get_num_threads()
    settings.log_severity_level = 3
    session = runtime.InferenceSession(file.getvalue(), settings, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: torch.from_numpy(session.run(None, {name: x.numpy()})[0])


BACKENDS: dict[str, Callable[[torch.nn.Module], Call]] = {
    "onnxruntime": onnxruntime,
    "eager": lambda model: model,
    "inductor": lambda model: torch.compile(model, backend="inductor", dynamic=True),
    "symshape": lambda model: compile_for("symshape", model),
}


def image(batch: int, side: int) -> torch.Tensor:
    return torch.randn(batch, 3, side, side)


def prepared(model: torch.nn.Module) -> torch.nn.Module:
    """The model in eval mode. Batch norms have the statistics of one batch, so that values do not vanish with depth."""
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = 1.0
    model.train()(image(8, 96))
    return model.eval()


@dataclass(frozen=True)
class Row:
    model: str
    size: str
    seconds: dict[str, float]
    error: float


def measure(name: str, backends: list[str], sizes: list[tuple[int, int]], rounds: int, progress: Progress) -> list[Row]:
    """All backends of one model, compiled once, then timed at every size."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = prepared(Pooled(MODELS[name]()))
    progress.say(f"{name}: compiling")
    calls = {backend: BACKENDS[backend](model) for backend in backends}
    rows = []
    for call in calls.values():
        call(image(*_FIRST))
    for batch, side in sizes:
        progress.say(f"{name}: {batch}x{side}")
        x = image(batch, side)
        error = relative_error(calls[backends[-1]](x), model(x))
        runs = {backend: functools.partial(call, x) for backend, call in calls.items()}
        for run in runs.values():
            run()
        found = samples(runs, rounds, clock=time.process_time)
        rows.append(Row(name, f"{batch}x{side}", {key: statistics.median(one) for key, one in found.items()}, error))
        progress.step()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--backends", default=",".join(BACKENDS), help="times are over those of the first")
    parser.add_argument("--sizes", default="1x224,4x224,1x320", help="batch x side of the image")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    names, backends = options.models.split(","), options.backends.split(",")
    if importlib.util.find_spec("onnxruntime") is None:
        backends = [backend for backend in backends if backend != "onnxruntime"]
    sizes = [(int(batch), int(side)) for batch, side in (text.split("x") for text in options.sizes.split(","))]
    rows: list[Row] = []
    with Progress("convolution networks", len(names) * len(sizes)) as progress, torch.no_grad():
        for name in names:
            rows += measure(name, backends, sizes, options.rounds, progress)
    first, others = backends[0], backends[1:]
    print(heading("milliseconds per call, medians"))
    print(
        table(
            ["model", "size", *backends, f"{backends[-1]}: error"],
            [[r.model, r.size, *(1e3 * r.seconds[b] for b in backends), r.error] for r in rows],
        )
    )
    print(heading(f"time over {first}'s, geometric means over sizes"))
    groups = {name: [row for row in rows if row.model == name] for name in names} | {"all": rows}
    summary = {
        name: {other: geometric_mean(row.seconds[other] / row.seconds[first] for row in group) for other in others}
        for name, group in groups.items()
    }
    print(table(["model", *others], [[name, *values.values()] for name, values in summary.items()]))
    if options.out:
        write_result(options.out, "convolution_networks", [asdict(row) for row in rows], ratios=summary)


if __name__ == "__main__":
    main()
