"""The ``symshape`` command. Each subcommand is one function here, which calls a module of ``symshape/tools/``."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from symshape.errors import OptionError
from symshape.passes.stages import STAGES
from symshape.tools.command_line import exit_status, new_parser, require_folder_of

BENCHES = Path(__file__).resolve().parents[2] / "bench"
_PARSED_BY_THEMSELVES = ("reduce", "corpus")  # subcommands with argument parsers of their own


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status: 0; 1 after an error, which is printed; 2 for wrong usage."""
    parser = new_parser("symshape", "One compile serves every size.")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="T5 generates text at many sizes, eager against symshape")
    demo.set_defaults(run=_demo)
    explain = commands.add_parser("explain", help="compile a model and show its graphs, kernels and library calls")
    explain.add_argument("model", help="a model of symshape.tools.zoo (t5, ...), FILE.py:FUNCTION or MODULE:FUNCTION")
    stages = ", ".join(STAGES)
    explain.add_argument("--stage", choices=list(STAGES), metavar="STAGE", help=f"print the IR of this stage: {stages}")
    explain.add_argument("--disable-pass", action="append", default=[], metavar="NAME", help="leave a step out")
    code = explain.add_mutually_exclusive_group()
    code.add_argument("--source", action="store_true", help="print the host program and the kernels")
    code.add_argument("--kernel", metavar="NAME", help="print this kernel, and when each way to run it is taken")
    explain.set_defaults(run=_explain)
    report = commands.add_parser("report", help="compile models, and write an HTML page about each")
    report.add_argument("models", nargs="+", metavar="model", help="as for explain")
    report.add_argument("-o", "--output", help="the page, or a folder for the pages; by default NAME.html")
    report.set_defaults(run=_report)
    _add_ablate(commands)
    _add_sweep(commands)
    plot = commands.add_parser("plot", help="draw the JSON that sweep, ablate or bench/kernels.py has written")
    plot.add_argument("file", metavar="FILE.json")
    plot.add_argument("-o", "--output", metavar="FILE", help="FILE.png or FILE.svg; by default beside the result")
    plot.set_defaults(run=_plot)
    cache = commands.add_parser("cache", help="list or clear the cache on disk: compiled graphs, results of autotuning")
    cache.add_argument("action", nargs="?", choices=("show", "clear"), default="show")
    cache.set_defaults(run=_cache)
    patches = commands.add_parser("patches", help="list the changes to PyTorch while it traces")
    patches.add_argument("--probe", action="store_true", help="whether the installed PyTorch is what each change needs")
    patches.add_argument("--markdown", action="store_true", help="the page docs/reference/patches.md")
    patches.set_defaults(run=_patches)
    replay = commands.add_parser("replay", help="compile what SYMSHAPE_RECORD=DIR recorded again, without the model")
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
    reduce = commands.add_parser("reduce", help="reduce IR that fails to little IR that still fails", add_help=False)
    reduce.set_defaults(run=_reduce)
    corpus = commands.add_parser("corpus", help="record questions about sizes, compare solvers on them", add_help=False)
    corpus.set_defaults(run=_corpus)
    words = sys.argv[1:] if argv is None else list(argv)
    known, further = (words[:1], words[1:]) if words and words[0] in _PARSED_BY_THEMSELVES else (words, [])
    args, rest = parser.parse_known_args(known)
    rest += further
    if rest and args.command not in ("bench", *_PARSED_BY_THEMSELVES):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return exit_status("symshape", words, lambda: args.run(args, rest) or 0)


def _demo(_args: Any, _rest: list[str]) -> int:
    from symshape.tools.demo import main as demo

    return demo()


def _explain(args: Any, _rest: list[str]) -> int:
    import symshape
    from symshape.dialects.short_form import print_short
    from symshape.tools.subjects import subject

    found = subject(args.model)
    options = {"disable_passes": args.disable_pass}
    report = symshape.explain(found.fn, *found.inputs, options=options, **found.keywords)
    kernels = list(_kernels_called(args.kernel, report)) if args.kernel else []
    print(report, file=sys.stderr if args.stage or args.source or kernels else sys.stdout)
    if args.stage:
        parts = [f"// graph {i}\n{print_short(graph.stage(args.stage))}" for i, graph in enumerate(report.graphs)]
        print("\n// -----\n".join(parts))
    for i, graph in enumerate(report.graphs if args.source else ()):
        print(f"\n# graph {i}: host program\n{graph.program_source}")
        for kernel in graph.kernels:
            print(f"\n{_origin(kernel)}\n{kernel.source}")
    for i, kernel in kernels:
        ways = "".join(f"\n# {way.name} if {way.condition}: {way.does}" for way in kernel.choices)
        print(f"# graph {i}\n{_origin(kernel)}\n# of the ways to run it the first whose condition holds:{ways}")
        print(kernel.source)
    return 0


def _origin(kernel: Any) -> str:
    """The comment lines printed above a kernel's source."""
    return f"# {kernel.name} ({kernel.kind}), of" + "".join(f"\n# {line}" for line in kernel.lines)


def _kernels_called(name: str, report: Any) -> Iterator[tuple[int, Any]]:
    """The kernels called ``name``, each with the index of its graph; kernel names are unique only within a graph.
    OptionError if there is none."""
    found = [(i, kernel) for i, graph in enumerate(report.graphs) for kernel in graph.kernels]
    if name not in {kernel.name for _, kernel in found}:
        known = ", ".join(dict.fromkeys(kernel.name for _, kernel in found)) or "there are none"
        raise OptionError(f"no kernel is called {name!r}", next_step=f"kernels: {known}")
    return ((i, kernel) for i, kernel in found if kernel.name == name)


def _report(args: Any, _rest: list[str]) -> int:
    import symshape
    from symshape.tools.html_report.libraries import library
    from symshape.tools.subjects import subject

    for needed in ("jinja2", "pygments"):
        library(needed)  # a missing package is reported before anything is compiled
    for model, file in zip(args.models, _pages(args.models, args.output)):
        found = subject(model)
        print(symshape.explain(found.fn, *found.inputs, **found.keywords).html(file, model))
    return 0


def _pages(models: Sequence[str], output: str | None) -> list[Path]:
    """The path of the HTML page of each model. OptionError if ``output`` is no folder for several models."""
    if output is not None and len(models) == 1 and not Path(output).is_dir():
        require_folder_of(output)
        return [Path(output)]
    folder = Path(output or ".")
    if output is not None and not folder.is_dir():
        raise OptionError(f"{output} is no folder", next_step="several pages need one: mkdir it, or name one model")
    names = [f"{Path(model.partition(':')[0]).stem}-{model.partition(':')[2]}".rstrip("-") for model in models]
    return [folder / f"{name}.html" for name in names]


def _add_ablate(commands: Any) -> None:
    parser = commands.add_parser("ablate", help="measure what a pass is worth: models without it, or with one more")
    parser.add_argument("models", nargs="*", help="as for explain; without any, all models of symshape.tools.zoo")
    parser.add_argument("--without", default="", metavar="PASS,...", help="passes to leave out, each by itself")
    parser.add_argument("--with", dest="added", action="append", default=[], metavar="PASS", help="a pass to add")
    parser.add_argument("--load-pass", action="append", default=[], metavar="FILE", help="a Python file with passes")
    parser.add_argument("--rounds", type=int, default=7, help="how often each variant is timed")
    _add_clock(parser)
    parser.add_argument("--out", metavar="FILE.json", help="the rows as JSON")
    parser.set_defaults(run=_ablate)


def _add_clock(parser: Any) -> None:
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    parser.add_argument("--threads", type=int, help="of PyTorch and of kernels; with --clock processor, one is meant")


def _set_threads(args: Any) -> None:
    if args.threads:
        import torch

        torch.set_num_threads(args.threads)


def _ablate(args: Any, _rest: list[str]) -> int:
    """Prints the table. Exit status 1 if a variant gives wrong results."""
    from symshape.tools.ablate import Timing, ablate, shown

    _set_threads(args)
    without = [name for name in args.without.split(",") if name]
    timing = Timing(args.rounds, clock=args.clock)
    rows = ablate(args.models, without, args.added, args.load_pass, timing, args.out)
    print(shown(rows))
    return int(any(row.wrong for row in rows))


def _add_sweep(commands: Any) -> None:
    parser = commands.add_parser("sweep", help="measure an option of a pass or compile at several values, over sizes")
    parser.add_argument("program", help="a model of symshape.tools.zoo, FILE.py:FUNCTION or MODULE:FUNCTION")
    parser.add_argument("parameter", help="PASS.OPTION, such as fuse-kernels.max-members, or an option: opt-level")
    parser.add_argument("values", metavar="VALUE,...", help="two or more")
    parser.add_argument("--sizes", default="", metavar="2x8,4x64", help="by default those that a model is measured at")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=7, help="how often each value is timed at each size")
    _add_clock(parser)
    parser.add_argument("--out", metavar="FILE.json", help="the rows as JSON")
    parser.add_argument("--plot", metavar="FILE.png", help="regret over sizes; needs matplotlib")
    parser.set_defaults(run=_sweep)


def _sweep(args: Any, _rest: list[str]) -> int:
    from symshape.tools.sweep import Timing, sizes_of, sweep

    require_folder_of(args.plot)
    _set_threads(args)
    timing, sizes = Timing(args.device, args.rounds, clock=args.clock), sizes_of(args.sizes)
    print(sweep(args.program, args.parameter, args.values.split(","), sizes, timing, args.out, args.plot))
    return 0


def _plot(args: Any, _rest: list[str]) -> int:
    from symshape.tools.plot_results import draw

    require_folder_of(args.output)
    print(draw(args.file, args.output))
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
    from symshape.tools.replay import Actions, replay

    return replay(Path(args.folder), Actions(args.check, args.execute, tuple(args.size), args.seed))


def _reduce(_args: Any, rest: list[str]) -> int:
    from symshape.tools.reduce.command import main as reduce

    return reduce(rest)


def _corpus(_args: Any, rest: list[str]) -> int:
    from symshape.tools.corpus.command import main as corpus

    return corpus(rest)


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
