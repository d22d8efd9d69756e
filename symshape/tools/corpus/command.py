"""``symshape corpus``: records questions, has solvers answer them, and writes docs/corpus.md."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

from symshape.errors import OptionError
from symshape.tools.command_line import new_parser
from symshape.tools.corpus.questions import SUFFIX, corpus_files, read_corpus, write_corpus
from symshape.tools.corpus.smtlib import script
from symshape.tools.corpus.solve import SOLVERS, load_solvers, read_answers, solve, write_answers
from symshape.tools.terminal import Progress

FOLDER, PAGE, RESULTS = "corpus", "docs/corpus.md", "results.json"


def main(argv: Sequence[str]) -> int:
    """Runs a subcommand. Exit status 0; 1 if a model could not be recorded, or if solvers contradict one another."""
    parser = new_parser("symshape corpus", __doc__)
    commands = parser.add_subparsers(dest="action", required=True)
    record = commands.add_parser("record", help="compile models, and write down what was asked")
    record.add_argument("models", nargs="*", help="MODEL-forward or MODEL-training; without any, all")
    record.add_argument("--again", action="store_true", help="also what is recorded already")
    record.set_defaults(run=_record)
    solve = commands.add_parser("solve", help="put every question to every solver")
    solve.add_argument("--again", action="store_true", help="also what is solved already")
    solve.set_defaults(run=_solve)
    page = commands.add_parser("page", help="figures, page and plots")
    page.add_argument("--page", default=PAGE, help=f"the page; the plots lie beside it (default: {PAGE})")
    page.set_defaults(run=_page)
    smtlib = commands.add_parser(
        "smtlib", help="write the questions of a model as SMT-LIB, a file for each set of facts"
    )
    smtlib.add_argument("model", help="MODEL-forward or MODEL-training")
    smtlib.add_argument("output", help="a folder")
    smtlib.set_defaults(run=_smtlib)
    for command in (record, solve, page, smtlib):
        command.add_argument("--folder", default=FOLDER, help=f"of the questions (default: {FOLDER})")
    args = parser.parse_args(argv)
    status: int = args.run(args)
    return status


def _solve(args: argparse.Namespace) -> int:
    folder = Path(args.folder)
    waiting = [
        (file, name)
        for file in corpus_files(folder)
        for name in SOLVERS
        if args.again or name not in read_answers(file)
    ]
    if waiting:
        load_solvers()
    with Progress("solve", len(waiting)) as progress:
        for file, name in waiting:
            progress.say(f"{file.name.removesuffix(SUFFIX)}: {name}")
            write_answers(file, {**read_answers(file), name: solve(read_corpus(file), name)})
            progress.step()
    return 0


def _page(args: argparse.Namespace) -> int:
    from symshape.tools.corpus.figures import figures
    from symshape.tools.corpus.page import page
    from symshape.tools.corpus.solver_charts import write_charts
    from symshape.tools.measure import write_result

    found = figures(Path(args.folder))
    results, file = Path(args.folder) / RESULTS, Path(args.page)
    write_result(results, "corpus", found.pop("models"), **found)
    write_charts(found, file.parent)
    file.write_text(page(json.loads(results.read_text(encoding="utf-8"))), encoding="utf-8")
    for one in (*found["contradictions"], *found["wrong when compiled"]):
        print(f"contradiction in {one['model']}: {one['condition']} where {one['facts']}: {one['answers']}")
    print(f"{file}: {found['questions']['distinct']} questions")
    return 1 if found["contradictions"] or found["wrong when compiled"] else 0


def _smtlib(args: argparse.Namespace) -> int:
    file, output = Path(args.folder) / f"{args.model}{SUFFIX}", Path(args.output)
    if not file.exists():
        known = ", ".join(one.name.removesuffix(SUFFIX) for one in corpus_files(Path(args.folder)))
        raise OptionError(f"{args.model} is not recorded in {args.folder}", next_step=f"recorded: {known or 'none'}")
    corpus = read_corpus(file)
    output.mkdir(parents=True, exist_ok=True)
    for facts, positions in corpus.by_facts():
        text = script(corpus, [corpus.questions[position] for position in positions])
        (output / f"{corpus.name}-{facts}.smt2").write_text(text, encoding="utf-8")
    return 0


def _record(args: argparse.Namespace) -> int:
    from symshape.tools.corpus.models import SUBJECTS

    folder = Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    unknown = [name for name in args.models if name not in SUBJECTS]
    if unknown:
        raise OptionError(f"no model is called {', '.join(unknown)}", next_step=f"models: {', '.join(SUBJECTS)}")
    names = args.models or list(SUBJECTS)
    waiting = [name for name in names if args.again or not (folder / f"{name}{SUFFIX}").exists()]
    failed = []
    with Progress("record", len(waiting)) as progress:
        for name in waiting:
            progress.say(name)
            if not _recorded(name, folder):
                failed.append(name)
            progress.step()
    if failed:
        print(f"not recorded: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _recorded(name: str, folder: Path) -> bool:
    """Records one model in a process of its own and returns whether that succeeded. A shared process would cache proofs
    of earlier compiles, and questions would be missed."""
    import transformers  # noqa: F401 - imported before forking, once for all processes

    process = get_context("fork").Process(target=_record_one, args=(name, folder))
    process.start()
    process.join()
    return process.exitcode == 0


def _record_one(name: str, folder: Path) -> None:
    from symshape.tools.corpus.models import SUBJECTS, record

    file = write_corpus(record(SUBJECTS[name]), folder)
    counts = read_corpus(file).about["counts"]
    print(f"{file}: {counts['distinct']} questions, asked {counts['raw']} times", flush=True)
