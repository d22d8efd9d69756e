"""The ``symshape`` command: each subcommand is one function here, and a module of ``symshape/tools/``."""

from __future__ import annotations

import argparse
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
    explain.add_argument("model", help="a model of symshape.tools.zoo (t5, ...), FILE.py:FUNCTION or MODULE:FUNCTION")
    stages = ", ".join(STAGES)
    explain.add_argument("--stage", choices=list(STAGES), metavar="STAGE", help=f"print the IR of this stage: {stages}")
    explain.add_argument("--source", action="store_true", help="print the host program and the kernels")
    explain.set_defaults(run=_explain)
    report = commands.add_parser("report", help="compile models, and write what was made of each as an HTML page")
    report.add_argument("models", nargs="+", metavar="model", help="as for explain")
    report.add_argument("-o", "--output", help="the page, or a folder for the pages; by default NAME.html")
    report.set_defaults(run=_report)
    _add_ablate(commands)
    cache = commands.add_parser("cache", help="what is kept on disk: compiled graphs, results of autotuning")
    cache.add_argument("action", nargs="?", choices=("show", "clear"), default="show")
    cache.set_defaults(run=_cache)
    patches = commands.add_parser("patches", help="what is changed of PyTorch while it traces")
    patches.add_argument("--probe", action="store_true", help="whether the installed PyTorch is what each change needs")
    patches.add_argument("--markdown", action="store_true", help="the page docs/reference/patches.md")
    patches.set_defaults(run=_patches)
    replay = commands.add_parser("replay", help="compile graphs that SYMSHAPE_RECORD=DIR recorded, without the model")
    replay.add_argument("folder", metavar="DIR", help="a recording, or the folder of several")
    replay.add_argument("--check", action="store_true", help="the program and the kernels must be the recorded ones")
    replay.add_argument(
        "--run", dest="execute", action="store_true", help="run it on random inputs of the sizes first seen"
    )
    replay.add_argument("--size", action="append", default=[], metavar="NAME=N", help="of --run: another size")
    replay.add_argument("--seed", type=int, default=0, help="of --run: of the random inputs")
    replay.set_defaults(run=_replay)
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
    except Exception as error:
        cause = getattr(error, "inner_exception", error)  # of what Dynamo says of a backend
        if not isinstance(cause, SymshapeError):
            raise
        print(f"symshape: error: {cause}", file=sys.stderr)
        return 1


def _demo(_args: Any, _rest: list[str]) -> int:
    from symshape.tools.demo import main as demo

    return demo()


def _explain(args: Any, _rest: list[str]) -> int:
    import symshape
    from symshape.tools.subjects import subject

    found = subject(args.model)
    report = symshape.explain(found.fn, *found.inputs, **found.keywords)
    print(report)
    for i, graph in enumerate(report.graphs):
        if args.stage:
            print(f"\n// graph {i}, stage {args.stage}\n{graph.stage(args.stage)}")
        if args.source:
            print(f"\n# graph {i}: host program\n{graph.program_source}")
            for kernel in graph.kernels:
                print(f"\n# {kernel.name} ({kernel.kind})\n{kernel.source}")
    return 0


def _report(args: Any, _rest: list[str]) -> int:
    import symshape
    from symshape.tools.html_report.libraries import library
    from symshape.tools.subjects import subject

    for needed in ("jinja2", "pygments"):
        library(needed)  # an error before anything is compiled
    for model, file in zip(args.models, _pages(args.models, args.output)):
        found = subject(model)
        print(symshape.explain(found.fn, *found.inputs, **found.keywords).html(file, model))
    return 0


def _pages(models: Sequence[str], output: str | None) -> list[Path]:
    """A file for each model."""
    if output is not None and len(models) == 1 and not Path(output).is_dir():
        return [Path(output)]
    folder = Path(output or ".")
    if output is not None and not folder.is_dir():
        raise OptionError(f"{output} is no folder", next_step="several pages need one: mkdir it, or name one model")
    names = [f"{Path(model.partition(':')[0]).stem}-{model.partition(':')[2]}".rstrip("-") for model in models]
    return [folder / f"{name}.html" for name in names]


def _add_ablate(commands: Any) -> None:
    parser = commands.add_parser("ablate", help="what a pass is worth: models without it, or with one more")
    parser.add_argument("models", nargs="*", help="as for explain; without any, all models of symshape.tools.zoo")
    parser.add_argument("--without", default="", metavar="PASS,...", help="passes to leave out, each by itself")
    parser.add_argument("--with", dest="added", action="append", default=[], metavar="PASS", help="a pass to add")
    parser.add_argument("--load-pass", action="append", default=[], metavar="FILE", help="a Python file with passes")
    parser.add_argument("--rounds", type=int, default=5, help="how often each variant is timed")
    parser.add_argument("--out", metavar="FILE.json", help="the rows as JSON")
    parser.set_defaults(run=_ablate)


def _ablate(args: Any, _rest: list[str]) -> int:
    from symshape.tools.ablate import ablate

    without = [name for name in args.without.split(",") if name]
    print(ablate(args.models, without, args.added, args.load_pass, args.rounds, args.out))
    return 0


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


def _replay(args: Any, _rest: list[str]) -> int:
    from symshape.tools.replay import How, replay

    return replay(Path(args.folder), How(args.check, args.execute, tuple(args.size), args.seed))


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
