"""What random programs are made of: statements with holes.

A hole is a letter, and a digit where it is used twice. Tensors: ``a`` any, ``m`` no bool, ``f`` floating, ``i``
integer, ``l`` int64, ``b`` bool, ``e`` a number that is the same in every way to compute it, ``x`` that or bool, ``y``
such a float. ``d0``: a dim of the tensor of hole 0. Others: ``k`` a small integer, ``p`` a positive one, ``c`` a float
that few bits hold, ``n`` a size computed from shapes, ``q`` a comparison of sizes, ``t0`` a dtype other than hole 0's.

What is discontinuous (comparisons, rounding, the place of an extremum) reads only numbers that any order of computing
leaves the same, so that a difference is an error. How a result stands to that:
"""

from __future__ import annotations

MOVES = "moves"  # takes values as they are: the same if the operands are
ROUNDS = "rounds"  # one correctly rounded operation: the same but for half types, which are rounded later when compiled
APPROXIMATE = "approximate"  # depends on the order of a sum, or on a library's exp

Family = dict[str, tuple[str, ...]]

POINTWISE: Family = {
    ROUNDS: (
        "{m} + {m}", "{a} + {a}", "{m} - {m}", "{m} * {m}", "{a} * {a}", "{m} + {k}", "{m} - {c}", "{k} - {m}",
        "{m} * {c}", "{a} * {k}", "{m} / {c}", "{f} / ({f}.abs() + 1)", "{m} / {p}", "torch.add({m}, {m}, alpha={k})",
        "torch.sub({m}, {m}, alpha={k})", "{f}.square()", "{f}.abs().sqrt()", "{m} * {n}", "{m} + {n}",
        "{f} / ({n} + 1)", "torch.rsub({m}, {k})", "{f}.relu() * {f}", "({f} + {c}).reciprocal()", "{m} ** 2",
        "{i} ** 3", "{f} ** -1", "torch.lerp({f0}, {f0} * {c}, 0.25)", "F.leaky_relu({f}, 0.25)", "F.hardtanh({f})",
        "{i} / {p}", "{i} / {m}",
    ),
    MOVES: (
        "-{m}", "{m}.abs()", "{f}.relu()", "{m}.clamp({k}, 5)", "{m}.clamp(min={k})", "{m}.clamp_max({c})",
        "{x0}.to({t0})", "{x0}.to({t0})", "{b}.to(torch.float32)", "{b}.to(torch.int64)", "torch.where({b}, {m}, {m})",
        "torch.where({b}, {m}, {k})", "torch.where({b}, {c}, {f})", "{a0}.masked_fill({b}, {k})",
        "torch.maximum({m}, {m})", "torch.minimum({m}, {m})", "torch.fmax({f}, {f})", "torch.clamp({f}, {f}, {f})",
        "{f}.nan_to_num()", "{f}.copysign({f})", "{a}.clone()", "{a}.contiguous()", "F.threshold({e}, {c}, {c})",
        "{l}.clamp(-100, 100).to(torch.int8)", "{l}.abs().clamp(max=200).to(torch.uint8)", "{m}.float()",
        "{f}.double()", "{x}.bool()", "{b}.type_as({m})", "torch.heaviside({e0}, {e0})",
    ),
    APPROXIMATE: (
        "{f}.tanh()", "{f}.sigmoid()", "{f}.tanh().exp()", "({f}.abs() + 0.5).log()", "{f}.sin()", "{f}.cos()",
        "{f}.erf()", "({f}.abs() + 1).rsqrt()", "({f}.abs() + 0.25) ** 0.5", "({f}.abs() + 0.5) ** {f}.tanh()",
        "F.gelu({f})", "F.silu({f})", "F.softplus({f})", "F.elu({f})", "F.mish({f})", "F.logsigmoid({f})",
        "torch.atan2({f}, {f}.abs() + 1)", "{f}.atan()", "torch.hypot({f}, {f})", "torch.logaddexp({f}, {f})",
        "F.gelu({f}, approximate='tanh')", "{f}.abs().log1p()", "{f}.tanh().expm1()",
        "torch.addcmul({f}, {f}, {f}, value={c})", "torch.addcdiv({f}, {f}, {f}.abs() + 1)", "F.hardswish({f})",
        "F.selu({f})", "{f} * {f} + {f}", "F.smooth_l1_loss({f}, {f}, reduction='none')",
        "torch.xlogy({f}, {f}.abs() + 1)", "{i}.tanh()", "{f}.sinc()", "({f}.tanh() * 0.75).asin()",
    ),
}  # fmt: skip

DISCRETE: Family = {
    MOVES: (
        "{e} > {e}", "{e} <= {e}", "{x} == {x}", "{x} != {k}", "{e} < {c}", "{e} >= {k}", "{b} & {b}", "{b} | {b}",
        "{b} ^ {b}", "~{b}", "{b}.logical_not()", "torch.logical_and({x}, {x})", "torch.logical_or({x}, {b})",
        "torch.isnan({f})", "{f}.isfinite()", "{y}.floor()", "{y}.ceil()", "{y}.round()", "{y}.trunc()", "{y}.frac()",
        "{e}.sign()", "{i} // {p}", "{i} // -3", "{i} % {p}", "{i} % -4", "{i} // ({i}.abs() + 1)",
        "{i} % ({i}.abs() + 1)", "torch.fmod({i}, {p})", "torch.div({i}, {p}, rounding_mode='trunc')",
        "torch.div({i}, {k}, rounding_mode='floor')", "{y} // {p}", "{y} % 1.5", "torch.fmod({y}, -2.5)", "{i} & {i}",
        "{i} | {k}", "{i} ^ {i}", "~{i}", "{i} << {p}", "{i} >> {p}", "{i} >> ({i} & 7)", "{i} << ({i} & 3)",
        "{y}.clamp(-50, 50).to(torch.int64)", "{y}.clamp(-50, 50).int()", "{e} - {e}.floor()", "{e}.signbit()",
        "torch.round({y} * {c}, decimals=0)", "torch.isclose({y0}, {y0} + {c})",
        "torch.bucketize({y}, torch.tensor([-1.0, 0.0, 0.5, 2.0]))", "{i}.gcd({i})", "{e}.eq({k}) | {b}", "{e} > {n}",
        "{i} < {n}", "{y}.isneginf()",
    ),
}  # fmt: skip

VIEWS: Family = {
    MOVES: (
        "{a0}.transpose({d0}, {d0})", "{a}.t()", "{a}.mT", "{a0}.movedim({d0}, {d0})", "{a0}.unsqueeze({d0})",
        "{a}.unsqueeze(-1)", "{a}[None]", "{a}.squeeze()", "{a}.squeeze(0)", "{a}.reshape(-1)", "{a}.view(-1)",
        "{a0}.reshape({n}, -1)", "{a0}.reshape(-1, {n})", "{a0}.view({a0}.shape[0], -1)",
        "{a0}.reshape({a0}.shape[-1], -1)", "{a}.flatten(1)", "{a}.flatten(0, 1)", "{a}.reshape(-1, 2)",
        "{a0}.unflatten({d0}, (-1, 2))", "{a0}.reshape({a0}.shape[0], -1, 1)", "{a}[1:]", "{a}[:-1]", "{a}[::2]",
        "{a}[..., 1::3]", "{a}[{n}:]", "{a}[:{n}]", "{a}[..., :{n}]", "{a}[..., {n}:]", "{a}[-{p}:]", "{a}[{k}:{n}]",
        "{a}[0]", "{a}[..., -1]", "{a}[:, 0]", "{a0}.select({d0}, {k})", "{a0}.flip({d0})", "{a}.flip(0, -1)",
        "{a0}.roll({k}, {d0})", "{a}.roll({k})", "{a0}.unfold({d0}, 2, {p})", "{a}.diagonal()", "{a}.diagonal({k})",
        "{a}.diagonal(offset={k}, dim1=-2, dim2=-1)", "{a0}.narrow({d0}, 0, {a0}.shape[{d0}] // 2)",
        "{a0}.expand({n}, *{a0}.shape)", "{a}.unsqueeze(0).expand({p}, *[-1] * {a}.dim())",
        "{a0}.unsqueeze(-1).expand(*{a0}.shape, {p})", "{a0}.expand_as({m})", "{a}.broadcast_to({n}, {n})",
        "{a0}.permute(*reversed(range({a0}.dim())))", "{a}.swapaxes(0, -1)",
        "{a0}.repeat({p}, *[1] * ({a0}.dim() - 1))", "{a}.repeat(1, 2)", "{a0}.tile({p})",
        "{a0}.repeat_interleave({p}, {d0})", "{a}.tril()", "{a}.triu({k})", "torch.diag({a})", "torch.diag_embed({a})",
        "{a}.rot90(1)", "{a}.view_as({a}.clone())", "{a}.ravel()", "{a}.detach()", "{a}.as_subclass(torch.Tensor)",
        "{a}.reshape({p}, -1)", "{a}.reshape(-1, {p})", "{a}[:, None]", "{a}[..., None, :]",
    ),
}  # fmt: skip

JOINS: Family = {
    MOVES: (
        "torch.cat([{a0}, {a0}], {d0})", "torch.cat([{m}, {m}], 0)", "torch.cat([{a}, {a}], -1)",
        "torch.cat([{a}, {a}, {a}])", "torch.stack([{a}, {a}])", "torch.stack([{a0}, {a0}], {d0})",
        "torch.stack([{m}, {m}], -1)", "F.pad({m}, ({p}, 1))", "F.pad({m}, (1, {p}), value={k})",
        "F.pad({a}, (-1, 2))", "F.pad({m}, (0, 0, {p}, 0))", "F.pad({m}, (0, {n} % 4))",
        "F.pad({f}[None], (1, 1), mode='replicate')", "F.pad({f}[None], (1, 1), mode='reflect')",
        "F.pad({f}[None], (1, 1), mode='circular')", "{a}.split(2)[0]", "{a}.split(2)[-1]", "{a0}.chunk(2, {d0})[0]",
        "{a0}.chunk(2, {d0})[-1]", "{a}.unbind(0)[0]", "{a}.tensor_split(3)[1]", "torch.cat({a}.split(3)[::-1])",
        "torch.cat([part * {k} for part in {m}.chunk(2, -1)], -1)", "torch.hstack([{a}, {a}])",
        "torch.vstack([{a}, {a}])", "torch.zeros_like({a})", "torch.ones_like({m0})", "torch.full_like({m}, {k})",
        "torch.zeros({n}, 2)", "torch.arange({n})", "torch.arange({n}, dtype=torch.float32) * {c}",
        "torch.full(({n},), {c})", "{m}.new_zeros({n}, {n})", "torch.eye({n})",
        "torch.ones({n}, dtype=torch.bool).tril() if False else torch.ones({n}, {n}).tril()",
        "torch.arange(0, {n}, {p})", "torch.cat([{m}, {m}.new_zeros({n})])", "{m}.new_full({m0}.shape, {k})",
        "torch.empty_like({m}).fill_({k})", "torch.stack([{b}, {b}])", "torch.block_diag({m}, {m})",
        "torch.meshgrid({a0}.reshape(-1)[:5], {a0}.reshape(-1)[:3], indexing='ij')[0]", "F.pad({b}, (1, {p}))",
        "torch.tensor({k}) + {m}", "torch.cat([{a}[1:], {a}[:1]])",
    ),
}  # fmt: skip

REDUCTIONS: Family = {
    APPROXIMATE: (
        "{f0}.sum({d0})", "{f}.sum()", "{f0}.sum({d0}, keepdim=True)", "{f}.mean()", "{f0}.mean({d0})",
        "{f0}.mean({d0}, keepdim=True)", "{f}.sum((0, 1))", "{f}.mean((0, -1), keepdim=True)",
        "{f0}.var({d0}, unbiased=False)", "{f0}.std({d0}, keepdim=True) + 1", "{f}.var()", "{f0}.tanh().prod({d0})",
        "{f0}.softmax({d0})", "{f0}.log_softmax({d0})", "{f0}.logsumexp({d0})", "{f0}.tanh().cumsum({d0})",
        "({f0}.tanh() + 0.5).cumprod({d0})", "{f0}.norm(dim={d0})",
        "F.layer_norm({f0} + torch.arange({f0}.shape[-1]), {f0}.shape[-1:])",
        "F.normalize({f}, dim=-1)", "{f0} - {f0}.mean({d0}, keepdim=True)",
        "{f0} / (1 + {f0}.abs().amax({d0}, keepdim=True))", "torch.var_mean({f0}, {d0})[1]",
        "{f0}.sum({d0}, dtype=torch.float64)", "F.mse_loss({f}, {f})", "F.rms_norm({f0}, {f0}.shape[-1:])",
        "{f}.norm()", "{f0}.logcumsumexp({d0})", "torch.linalg.vector_norm({f}, 3)",
        "F.cross_entropy({f0}, torch.arange({f0}.shape[0]) % {f0}.shape[1])", "F.softmin({f0}, {d0})",
        "F.cosine_similarity({f}, {f}, -1)", "torch.trapezoid({f})", "{f0}.diff(dim={d0})", "{f}.softmax(0).sum(-1)",
    ),
    MOVES: (
        "{m0}.amax({d0})", "{m0}.amin({d0}, keepdim=True)", "{m}.max()", "{m}.min()", "{m0}.max({d0})[0]",
        "{e0}.max({d0})[1]", "{e0}.argmax({d0})", "{e0}.argmin({d0}, keepdim=True)", "{e}.argmax()", "{x0}.any({d0})",
        "{x}.all()", "{x0}.all({d0}, keepdim=True)", "{i}.sum()", "{i0}.sum({d0})", "{b0}.sum({d0})",
        "{b}.sum((0, 1))", "{i0}.prod({d0})", "{i0}.cumsum({d0})", "{b0}.cumsum({d0})", "{i0}.cumprod({d0})",
        "{x0}.count_nonzero({d0})", "{x}.count_nonzero()", "{m0}.cummax({d0})[0]", "{e0}.cummin({d0})[0]",
        "{e0}.sort({d0})[0]", "{e0}.argsort({d0}, stable=True)", "{e0}.sort({d0}, descending=True, stable=True)[1]",
        "{e}.topk(1)[0]", "{e0}.median({d0})[0]", "{e}.aminmax()[0]", "{i0}.sum({d0}, keepdim=True) + {i0}",
        "{e0}.amax({d0}, keepdim=True) == {e0}", "{e}.kthvalue(1)[0]", "{i}.float().sum()", "{b}.float().mean()",
        "{e0}.mode({d0})[0]", "torch.isin({i}, torch.tensor([1, 2]))", "{m}.amax((0, 1))",
    ),
}  # fmt: skip

INDEXING: Family = {
    MOVES: (
        "{a0}.index_select({d0}, torch.arange({a0}.shape[{d0}] // 2))", "{a0}[{i}.long() % max({a0}.shape[0], 1)]",
        "{a0}[{l}.reshape(-1)[:4] % max({a0}.shape[0], 1)]", "{a0}[..., {l}.reshape(-1)[:3] % max({a0}.shape[-1], 1)]",
        "{a0}[torch.arange({a0}.shape[0]).flip(0)]", "{a0}[[0, -1]]", "{a0}[:, [0]]", "{a}[torch.tensor([0])]",
        "{a0}[torch.arange({a0}.shape[0])[:, None], torch.arange({a0}.shape[1])]",
        "{a0}[torch.arange({a0}.shape[0]), 0]", "{a0}.gather({d0}, torch.zeros_like({a0}, dtype=torch.int64))",
        "{a0}.gather(0, {l} % max({a0}.shape[0], 1))",
        "{m0}.gather({d0}, {m0}.shape[{d0}] - 1 - torch.zeros_like({m0}, dtype=torch.int64))",
        "{a0}.take({l} % max({a0}.numel(), 1))", "torch.take_along_dim({a0}, {e}.argsort(-1, stable=True), -1)",
        "F.embedding({l} % max({f0}.shape[0], 1), {f0})", "F.one_hot({l} % 5, 5)",
        "{a0}.scatter({d0}, torch.zeros_like({a0}[:1], dtype=torch.int64), {k})",
        "{m0}.scatter(0, torch.zeros_like({m0}[:1], dtype=torch.int64), {m0} + 1)",
        "{i0}.scatter_add({d0}, torch.zeros_like({i0}, dtype=torch.int64), {i0})",
        "{m0}.index_fill({d0}, torch.tensor([0]), {k})", "{m0}.index_copy(0, torch.tensor([0]), {m0}[-1:])",
        "{i0}.index_add(0, torch.tensor([0, 0]), {i0}[:2])", "{m0}.index_put((torch.tensor([0]),), {m0}[-1])",
        "{i0}.index_put((torch.zeros({i0}.shape[0], dtype=torch.int64),), {i0}, accumulate=True)",
        "torch.searchsorted({y0}.sort(-1)[0], {y0})", "torch.where({b0})[0].sum()", "{e}.nonzero().sum(0)",
        "{m}[{b}].amax() if False else {m}.amax(-1)", "{i0}[{i0} > {k}].sum()", "{e0}[{e0} > {k}].sum() * 0 + {e0}",
        "{a0}.masked_select({b}).shape[0] + {i}", "{i0}[{b}].sum()", "{a0}.reshape(-1)[{l} % max({a0}.numel(), 1)]",
        "{e0}.masked_scatter({e0}.bool(), {e0}.flip(0))",
        "{l}.abs().reshape(-1).clamp(max=9).bincount(minlength=3)[:3]", "{a0}[{n} // 2]", "{a0}[:, {n} // 3]",
    ),
    APPROXIMATE: (
        "{f0}.scatter_add({d0}, torch.zeros_like({f0}, dtype=torch.int64), {f0})",
        "{f0}.index_add(0, {l}.reshape(-1)[:2] % max({f0}.shape[0], 1), {f0}[:2])",
        "{f0}.index_put(({l}.reshape(-1)[:3] % max({f0}.shape[0], 1),), {f0}[:1], accumulate=True)",
        "{f0}.scatter_reduce({d0}, torch.zeros_like({f0}, dtype=torch.int64), {f0}, 'amax')", "{f}[{b}].sum()",
        "{f0}[{b0}].mean() if False else {f0}.mean()", "{y0}[{y0} > {c}].sum()", "({f0} * 2)[{b}].tanh().sum()",
        "F.embedding_bag({l}.reshape(-1, 1) % max({f0}.shape[0], 1), {f0}, mode='sum')",
    ),
}  # fmt: skip

PRODUCTS: Family = {
    APPROXIMATE: (
        "{f0}.tanh() @ {f0}.tanh().mT", "{f0} @ {f0}.mT", "{f} @ {f}", "torch.outer({f}, {f})",
        "torch.einsum('ij,kj->ik', {f}, {f})", "F.linear({f0}, {f0}.reshape(-1, {f0}.shape[-1])[:3])",
        "torch.bmm({f0}[None], {f0}.mT[None])", "torch.addmm({f}, {f}, {f})", "torch.einsum('i,j->ij', {f}, {f})",
        "torch.einsum('ij,ij->i', {f}, {f})", "torch.matmul({f0}.mT, {f0})",
        "torch.cdist({f0}[None], {f0}[None] + 3)[0] + 1",
        "F.scaled_dot_product_attention({f0}[None], {f0}[None], {f0}[None])", "F.avg_pool1d({f}[None], 2)",
        "F.max_pool1d({f}[None], 2)", "F.conv1d({f0}[:, None], {f0}.reshape(-1)[:3].view(1, 1, 3), padding=1)",
        "F.interpolate({f}[None], scale_factor=2.0)", "torch.dot({f0}.reshape(-1), {f0}.reshape(-1))",
    ),
}  # fmt: skip

# Statements: they write to the tensor of hole 0.
MUTATIONS: Family = {
    ROUNDS: (
        "{m0}.add_({m})", "{m0}.mul_({m})", "{m0}.sub_({k})", "{m0}.mul_({k})", "{m0}[1:].add_({k})", "{m0} += {m}",
        "{m0} -= {k}", "{m0}[:, 0] += {k}", "{m0}[::2] *= {k}", "{f0}.div_({p})", "{m0}.t().add_({k})",
        "{m0}.view(-1)[1:].mul_({k})", "{m0}[-1:] += {m0}[:1]", "{f0}.addcmul_({f}, {f})", "{f0}.square_()",
    ),
    MOVES: (
        "{m0}.copy_({m})", "{m0}[{b}] = {k}", "{e0}[{e0} > {k}] = 0", "{m0}[0] = {k}", "{m0}[..., 0] = {k}",
        "{a0}[:{n}] = 0", "{m0}[1:] = {m0}[:-1].clone()", "{m0}[:, ::2] = {k}", "{m0}[{n}:] = {m0}[:1]",
        "{a0}.zero_()", "{m0}.fill_({k})", "{m0}.masked_fill_({b}, {k})", "{m0}.clamp_({k}, 4)", "{m0}.neg_()",
        "{a0}.transpose(0, -1)[0] = 0", "{m0}.diagonal().fill_({k})", "{m0}.select(0, 0).copy_({m})",
        "{m0}[{l}.reshape(-1)[:2] % max({m0}.shape[0], 1)] = {k}", "{f0}.relu_()",
        "{m0}.index_fill_(0, torch.tensor([0]), {k})", "{a0}.unsqueeze_(0)", "{a0}.t_()", "{b0}.logical_not_()",
        "{b0} &= {b}", "{b0}[1:] = True", "{m0}.reshape(-1)[:2].zero_()",
        "{m0}.expand({p}, *{m0}.shape)[0].fill_({k})", "{m0}.tril_()", "{m0}[..., :2].copy_({m0}[..., -2:].clone())",
        "{m0}.masked_fill_({b}, 0).abs_()",
    ),
    APPROXIMATE: (
        "{f0}.tanh_()", "{f0}.sigmoid_()", "{f0}.copy_({f}.sin())", "{f0}[1:] += {f}.mean()", "{f0}.lerp_({f}, 0.3)",
        "{f0}[0] = {f}.sum()",
    ),
}  # fmt: skip

# Statements that are more than an expression; {v} is the name that they give the result.
NUMBERS: Family = {
    MOVES: (
        "{v} = {m} * 2 if {q} else {m} + 1", "if {q}:\n    {v} = {f0}.abs()\nelse:\n    {v} = {f0} * {k}",
        "{v} = {a0} if {q} else {a0}.flip(0)", "{v} = {m0}\nfor part in range({n} % 3):\n    {v} = {v} + part",
        "{v} = {i} * int({l}.sum().item() % 7)", "{v} = {m} + float({e}.amax().item())",
        "{v} = {i} + 1 if {i}.sum() > 0 else {i}", "{v}, unused = {a}.split({n} // 2 + 1)[:2]",
        "{v} = {a0}.reshape({a0}.shape[0] // 2, -1) if {a0}.shape[0] % 2 == 0 and {a0}.shape[0] > 0 else {a0}",
        "{v} = torch.tensor({n}) + {i}", "{v} = {m} * ({n} > {p})", "{v} = {m0} * {m0}.dim() + {m0}.numel()",
        "{v} = {m} + sum(range({p}))",
    ),
    APPROXIMATE: (
        "{v} = {f0} * ({f0}.shape[0] ** 0.5)", "{v} = {f0} / ({f0}.numel() + 1) ** 0.5",
        "{v} = {f} * float({n}) ** -0.5 if {n} > 0 else {f}", "{v} = {f} * ({n} / ({n} + 1))",
    ),
}  # fmt: skip

SIZE_EXPRESSIONS = (
    "{s}", "{s}", "{s}", "{s} // 2", "{s} + 1", "{s} * 2", "max({s}, {s})", "min({s}, {s})", "{s} * {s} + 1",
    "{s} - {s} // 2", "({s} + 3) // 4", "{s} % 3", "{s} + {s}", "max({s} - 2, 0)", "min({s}, 4)", "{s} // 2 + 1",
    "({s} + 7) // 8 * 8", "{s} * {s} // 2", "abs({s} - {s})", "max(1, {s} // 3)",
)  # fmt: skip
SIZE_COMPARISONS = (
    "{n} > {n}", "{n} == {n}", "{s} > 4", "{s} % 2 == 0", "{s} <= {s}", "{n} != {s}", "{s} < 10 and {s} > 1",
    "{s} >= {s} * 2", "not {s}",
)  # fmt: skip

# With how often each is drawn.
FAMILIES: tuple[tuple[Family, int], ...] = (
    (POINTWISE, 30), (DISCRETE, 14), (VIEWS, 20), (JOINS, 9), (REDUCTIONS, 14), (INDEXING, 8), (PRODUCTS, 2),
    (MUTATIONS, 7), (NUMBERS, 4),
)  # fmt: skip

INPUTS = (
    "normal(s, t)", "normal(s, t)", "normal(t, s).t()", "normal(s, t + 1)[:, 1:]", "normal(2 * s, t)[::2]",
    "normal(t)", "normal(s)", "normal(s, 1)", "normal(1, t)", "normal(t, s)", "normal(s, t, 4)", "normal(s, 3, t)",
    "normal(t, 3, s).permute(2, 1, 0)", "normal()", "normal(2 * s, t)", "normal(1, t).expand(s, t)", "normal(s + t)",
    "normal(s, 2 * t)", "normal(3, 4)", "normal(s * t)", "normal(s, t).flip(0)", "normal(s, t, dtype=torch.float64)",
    "normal(s, t, dtype=torch.float16)", "normal(t, dtype=torch.bfloat16)", "normal(s, t, dtype=torch.bfloat16)",
    "normal(s, 1, dtype=torch.float64)", "integers(s, t)", "integers(t, s).t()", "integers(t)",
    "integers(s, t, dtype=torch.int32)", "integers(s, 1, dtype=torch.int8)",
    "integers(s, t, low=0, dtype=torch.uint8)", "integers(t, dtype=torch.int16)", "flags(s, t)", "flags(t)",
    "flags(s, 1)", "integers(s + 2, dtype=torch.int64)[2:]", "integers()", "normal(4 * t)[:t]", "normal(s, 0)",
    "normal(s, s)",
)  # fmt: skip
