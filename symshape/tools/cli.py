"""The ``symshape`` command: ``demo``, ``explain``, ``cache``, ``patches``, ``bench`` and ``reduce``."""

from __future__ import annotations

import argparse
import importlib.util
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from symshape.errors import OptionError, SymshapeError
from symshape.passes.stages import STAGES

BENCHES = Path(__file__).resolve().parents[2] / "bench"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0; 1 for an error, which is printed; 2 for a wrong command line."""
    parser = argparse.ArgumentParser(prog="symshape", description="One compile serves every size.")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="T5 generates text at many sizes, eager against symshape")
    demo.set_defaults(run=_demo)
    explain = commands.add_parser("explain", help="compile a model and show what was made")
    explain.add_argument("model", help="a model of symshape.tools.zoo (bert, t5, ...), or FILE.py:FUNCTION")
    stages = ", ".join(STAGES)
    explain.add_argument("--stage", choices=list(STAGES), metavar="STAGE", help=f"print the IR of this stage: {stages}")
    explain.add_argument("--source", action="store_true", help="print the host program and the kernels")
    explain.set_defaults(run=_explain)
    cache = commands.add_parser("cache", help="what is kept on disk: compiled graphs, results of autotuning")
    cache.add_argument("action", nargs="?", choices=("show", "clear"), default="show")
    cache.set_defaults(run=_cache)
    patches = commands.add_parser("patches", help="what is changed of PyTorch while it traces")
    patches.add_argument("--probe", action="store_true", help="whether the installed PyTorch is what each change needs")
    patches.add_argument("--markdown", action="store_true", help="the page docs/reference/patches.md")
    patches.set_defaults(run=_patches)
    bench = commands.add_parser("bench", help="run a script of bench/ (a checkout is needed)", add_help=False)
    bench.add_argument("name", nargs="?", default="steady_state")
    bench.set_defaults(run=_bench)
    reduce = commands.add_parser("reduce", help="IR that fails becomes less IR that still fails", add_help=False)
    reduce.set_defaults(run=_reduce)
    words = sys.argv[1:] if argv is None else list(argv)
    known, further = (words[:1], words[1:]) if words[:1] == ["reduce"] else (words, [])
    args, rest = parser.parse_known_args(known)
    rest += further
    if rest and args.command not in ("bench", "reduce"):  # which have arguments of their own
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        return args.run(args, rest) or 0
    except SymshapeError as error:
        print(f"symshape: error: {error}", file=sys.stderr)
        return 1


def _demo(_args: Any, _rest: list[str]) -> int:
    from symshape.tools.demo import main as demo

    return demo()


def _explain(args: Any, _rest: list[str]) -> int:
    import symshape

    fn, inputs, keywords = _subject(args.model)
    report = symshape.explain(fn, *inputs, **keywords)
    print(report)
    for i, graph in enumerate(report.graphs):
        if args.stage:
            print(f"\n// graph {i}, stage {args.stage}\n{graph.stage(args.stage)}")
        if args.source:
            print(f"\n# graph {i}: host program\n{graph.program_source}")
            for kernel in graph.kernels:
                print(f"\n# {kernel.name} ({kernel.kind})\n{kernel.source}")
    return 0


def _subject(name: str) -> tuple[Any, Sequence[Any], dict[str, Any]]:
    """What to explain, and its inputs: a model of the zoo, or a function whose module has ``inputs()``."""
    from symshape.tools import zoo

    if name in zoo.MODELS:
        model = zoo.MODELS[name]
        return model.build(), (), model.inputs(model.first_shapes[0])
    file, _, function = name.partition(":")
    if not function or not Path(file).is_file():
        models = ", ".join(zoo.MODELS)
        raise OptionError(f"no model or file is called {name!r}", next_step=f"models: {models}; or FILE.py:FUNCTION")
    spec = importlib.util.spec_from_file_location("symshape_subject", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for needed in (function, "inputs"):
        if not hasattr(module, needed):
            hint = "it needs the function and `inputs()`, a tuple of its arguments"
            raise OptionError(f"{file} has no {needed}", next_step=hint)
    return getattr(module, function), module.inputs(), {}


def _cache(args: Any, _rest: list[str]) -> int:
    from symshape.tools.cache_report import clear, show

    print(clear() if args.action == "clear" else show())
    return 0


def _patches(args: Any, _rest: list[str]) -> int:
    if args.markdown:
        from symshape.tools.reference import pages

        print(pages("patches")["patches"], end="")
        return 0
    from symshape.tools.patch_report import probe, show

    return probe() if args.probe else show()


def _reduce(_args: Any, rest: list[str]) -> int:
    from symshape.tools.reduce.command import main as reduce

    return reduce(rest)


def _bench(args: Any, rest: list[str]) -> int:
    script = BENCHES / f"{args.name}.py"
    if not script.is_file():
        scripts = [p.stem for p in BENCHES.glob("*.py") if "__main__" in p.read_text(encoding="utf-8")]
        known = ", ".join(sorted(scripts)) or "none: they are in the repository"
        raise OptionError(f"no benchmark is called {args.name!r}", next_step=f"benchmarks: {known}")
    sys.argv = [str(script), *rest]
    sys.path.insert(0, str(BENCHES))
    runpy.run_path(str(script), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
