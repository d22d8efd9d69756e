"""The text of one jit function: signature, the points of a program, sweeps over chunks of the reduced points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from symshape.analysis.loops import Arg, Dim, Instr, LoopKernel
from symshape.analysis.online import Online
from symshape.codegen.triton.body import ONE, Segment, TritonBody
from symshape.codegen.triton.index import IndexText
from symshape.codegen.triton.ops import TYPES
from symshape.codegen.triton.reduce import accumulate, finish, start
from symshape.codegen.triton.schedule import Schedule
from symshape.prover.numbers.expr import Expr, product

WHOLE = "WHOLE"  # a constexpr: compute full blocks without a mask, because that is faster
ALIGNED = {"xnumel": "XNUMEL_ALIGNED", "ynumel": "YNUMEL_ALIGNED", "rnumel": "RNUMEL_ALIGNED"}


class FunctionText:
    """A jit function while it is printed. ``own``: arguments besides the common ones; ``blocks``: names of the
    constexpr block sizes; ``bounds``: mask bounds that are multiples of 16 in some variant; ``calls``: a function
    printed before it, which receives the arguments unchanged; ``passes_on``: so do others, printed elsewhere."""

    def __init__(
        self,
        kernel: LoopKernel,
        name: str,
        blocks: Sequence[str],
        *,
        own: Sequence[str] = (),
        bounds: frozenset[str] = frozenset(),
        axis_of: dict[str, str] | None = None,
        calls: FunctionText | None = None,
        segments: Sequence[Segment] = (ONE,),
        passes_on: bool = False,
    ) -> None:
        self.kernel, self.name, self.own, self.calls = kernel, name, tuple(own), calls
        self.index = IndexText(kernel, flat=axis_of is None)
        self.body = TritonBody(kernel, self.index, axis_of, segments)
        self.parallel = [d for d in kernel.dims if not d.reduced]
        self.reduced = [d for d in kernel.dims if d.reduced]
        self._bounds = bounds
        self.constants = ["INDEX", *blocks]
        numbers = kernel.numbers
        for symbol in kernel.symbols:
            self.line(f"{symbol} = tl.cast({symbol}, {'tl.int64' if symbol in numbers else 'INDEX'})")
        for arg in kernel.args:
            if arg.by_value and calls is None and not passes_on:
                self.line(f"{arg.name} = {number(arg)}")

    def line(self, *texts: str) -> None:
        for text in texts:
            self.body.line(text)

    def text(self) -> str:
        """The source of the function, preceded by that of the function it calls."""
        before = [self.calls.text(), "", ""] if self.calls is not None else []
        constants = [f"{name}: tl.constexpr" for name in self.constants]
        names = [*self.given(), *self.own, *constants]
        return "\n".join([*before, "@triton.jit", f"def {self.name}({', '.join(names)}):", *self.body.lines, ""])

    def given(self) -> list[str]:
        """The arguments common to all functions of the kernel."""
        slot = ["error_slot"] if self.kernel.checks_index else []
        return [*(a.name for a in self.kernel.args), *self.kernel.symbols, *slot]

    def bound(self, name: str, dims: Iterable[Dim]) -> Expr:
        """Defines ``name`` as the number of points of ``dims``, and returns it."""
        size = product(d.size for d in dims)
        text = self.index.expr(size)
        if name in self._bounds and size.as_int() is None:
            self.constants.append(ALIGNED[name])
            text = f"tr.multiple({text}, {ALIGNED[name]})"
        self.line(f"{name} = {text}")
        return size

    def programs(self, count: str = "") -> None:
        """Defines the points of a program. With ``count``, so many programs share each group of rows, and the variable
        ``count`` numbers them."""
        if count:
            self.groups(count)
        self.points("program % groups" if count else "tl.program_id(0).to(INDEX)")

    def groups(self, count: str) -> None:
        """Defines the program's index among those that share its group of rows, as the variable ``count``."""
        self.line(
            "groups = tl.cdiv(xnumel, XBLOCK)",
            "program = tl.program_id(0).to(INDEX)",
            f"{count} = program // groups",
        )

    def points(self, group: str) -> None:
        """Defines the rows of group ``group``: "x" and its mask, shaped as a column if there are reduced points."""
        lanes = "tl.arange(0, XBLOCK)" + ("[:, None]" if self.reduced else "")
        self.line(f"x = {f'({group})' if ' ' in group else group} * XBLOCK + {lanes}")
        self.line("xmask = tr.rows(x, xnumel, XBLOCK)" if self.reduced else "xmask = x < xnumel")
        self.body.recover("x", self.parallel)

    def reduced_points(self, start: str, segment: Segment = ONE) -> None:
        """Defines the reduced points of one step of a loop, or all of them, or those of a segment."""
        r = f"r{segment.suffix}"
        self.line(f"{r} = ({start} + tl.arange(0, {segment.block})[None, :]).to(INDEX)")
        if segment.masked:
            self.line(f"rmask{segment.suffix} = {self.mask(r, segment.block)}")
        self.body.enter(segment)
        self.body.recover("r", self.reduced)

    def mask(self, r: str, block: str = "RBLOCK") -> str:
        """The mask of the reduced points within bounds in a block."""
        size = product(d.size for d in self.reduced).as_int()
        return f"{r} < rnumel" if size is None else f"tr.lanes({r}, {size}, {block})"

    def loop(self, begin: str, end: str, write: Callable[[], None], unrolled: str = "") -> None:
        """Prints a loop over chunks of RBLOCK points, with the body that ``write`` prints. ``unrolled``: the constexpr
        with the unroll factor."""
        factor = f", loop_unroll_factor={unrolled}" if unrolled else ""
        self.line(f"for chunk in {'tl.range' if factor else 'range'}({begin}, {end}, RBLOCK{factor}):")
        self.body.indent += "    "
        write()
        self.body.indent = self.body.indent[4:]

    def reduce_sweep(self, plan: Schedule, code: Sequence[Instr], begin: str, end: str) -> None:
        """Prints one sweep. It leaves the accumulators of its reductions as ``accN``, and defines their results."""
        reductions = [i for i in code if i.op == "reduce"]
        for instr in reductions:
            self.line(*start(instr))
            if online := plan.after(instr.results[0]):
                names = online_state(online)[1:]
                self.line(*(f"{name} = tl.zeros([XBLOCK, RBLOCK], acc{online.first}.dtype)" for name in names))

        def chunk() -> None:
            self.reduced_points("chunk")
            for instr in code:
                if instr.op != "reduce":
                    self.body.emit(instr)
                    continue
                value = self.body.operand(instr.operands[0])
                online = plan.after(instr.results[0])
                self.line(*([online_step(online, value, begin)] if online else accumulate(instr, value)))

        self.loop(begin, end, chunk)
        for instr in reductions:
            self.line(*finish(instr))
            self.body.known(instr.results)


def branch(is_whole: str, whole: str, masked: str) -> list[str]:
    """Statements that call ``whole`` for full blocks (if WHOLE is set) and ``masked`` for others."""
    return [
        f"if {WHOLE}:",
        f"    if {is_whole}:",
        f"        {whole}",
        "    else:",
        f"        {masked}",
        "else:",
        f"    {masked}",
    ]


def number(arg: Arg) -> str:
    """The value of an argument that is passed by value, converted to its own type."""
    if arg.dtype == "f64":
        return f"tl.cast({arg.name}, tl.int64).to(tl.float64, bitcast=True)"
    return f"{arg.name} != 0" if arg.dtype == "i1" else f"tl.cast({arg.name}, {TYPES[arg.dtype]})"


def online_state(online: Online) -> list[str]:
    """Names of the accumulators of a reduction and of the online sum that depends on it."""
    own = [f"shift{online.result}", f"drift{online.result}"] if online.kind == "square" else []
    return [f"acc{online.first}", f"acc{online.result}", *own]


def online_step(online: Online, value: str, begin: str) -> str:
    """The statement that updates both with one chunk."""
    accumulators = ", ".join(online_state(online))
    steps = "" if online.kind == "exp" else f"tr.steps(chunk, {begin}, RBLOCK), "
    return f"{accumulators} = tr.{online.kind}_step({accumulators}, {value}, {steps}rmask)"


def online_terms(online: Online, count: str, centre: str) -> str:
    """Each lane's contribution to the online sum, once ``centre`` is known. ``count``: elements of all lanes."""
    first, second, *own = online_state(online)
    if online.kind == "exp":
        return f"tr.exp_terms({first}, {second}, {centre})"
    return f"tr.square_terms({', '.join(own)}, {second}, tr.lane_counts({count}, RBLOCK), {centre})"
