"""Small programs that failed once, by what was wrong: a backend of agreement.py, and the program."""

from __future__ import annotations

INTEGER_THRESHOLD = """
SIZES = [(2, 3)]

def inputs(s, t):
    x0 = integers(s + 2)
    return [x0]

def program(x0):
    v0 = F.threshold(x0, -0.5, 3.0)
    return (v0,)
"""

DIAGONAL_OF_A_LAYER_NORM = """
SIZES = [(5, 3), (2, 3), (67, 3)]

def inputs(s, t):
    x0 = normal(s)
    return [x0]

def program(x0):
    v0 = F.mish(x0)
    v1 = F.layer_norm(v0 + torch.arange(v0.shape[-1]), v0.shape[-1:])
    v2 = torch.diag(v1)
    return (v2,)
"""

TANGENT_SHOWS_SIZE = """
SIZES = [(2, 3), (4, 6)]
GRADIENT = True

def inputs(s, t):
    x0 = normal(s)
    x1 = normal(s, t)
    return [x0, x1]

def program(x0, x1):
    v0 = x1 / 3
    v1 = v0.as_subclass(torch.Tensor)
    v2 = v1[:min(v0.shape[1], x0.shape[0])]
    v3 = v2.abs() if v2.shape[0] < 10 and v0.shape[0] > 1 else v2 * -2
    v4 = F.pad(v0, (1, 3), value=5)
    return (v4,)
"""

SIGN_OF_ZERO = """
SIZES = [(33, 3)]

def inputs(s, t):
    x0 = normal(s).sign() * -0.0
    return [x0]

def program(x0):
    v0 = 1 / (x0 + 0.0)
    v1 = 1 / (x0 + -0.0)
    v2 = 1 / x0.masked_fill(x0 == 0, -0.0)
    return (v0, v1, v2)
"""

SIGN_OF_ZERO_IN_BOUNDS = """
SIZES = [(33, 3), (4, 64)]

def inputs(s, t):
    x0 = normal(s, t).sign() * -0.0
    return [x0]

def program(x0):
    v0 = 1 / x0.relu()
    v1 = 1 / x0.clamp(0, 1)
    v2 = 1 / x0.clamp_min(0.0)
    v3 = 1 / x0.clamp_max(-0.0)
    v4 = 1 / F.hardtanh(x0, 0.0, 1.0)
    return (v0, v1, v2, v3, v4)
"""

SELECTED_OF_FEW = """
SIZES = [(2, 3), (8, 3)]
GRADIENT = True

def inputs(s, t):
    x0 = normal(s, t)
    return [x0]

def program(x0):
    v0 = x0[1:, :1]
    v1 = v0[:min(v0.shape[0], 2), v0.shape[1] // x0.shape[0]:]
    return (v1[v1 > 1].sum(), v1 * 2)
"""

SELECTED_OF_NOTHING = """
SIZES = [(8, 3), (5, 17)]

def inputs(s, t):
    x0 = normal(s, t)
    return [x0]

def program(x0):
    v0 = x0[2:, :x0.shape[1] // 9]
    return (v0[v0 > 0].exp().sum(),)
"""

NOTHING_TO_READ = """
SIZES = [(5, 7), (17, 0), (1, 1), (0, 17)]
GRADIENT = True

def inputs(s, t):
    x0 = normal(s, 3, t)
    x1 = normal(s, t, dtype=torch.float16)
    x2 = integers(4)
    return [x0, x1, x2]

def program(x0, x1, x2):
    v0 = x0.ceil().reshape(1, -1)
    v1 = x1.flatten(0, 1).softmax(-1)
    v2 = x0.flatten(0, 1)[:, :1].expand(-1, x0.shape[2]).sum(-1)
    v3 = v1.expand(4, -1)[x2.clamp(0, 3)].sum(-1)
    return (F.normalize(v0, dim=-1), v1, v2, v3)
"""

WRAPPED_FIRST = """
SIZES = [(2, 3), (1, 17)]

def inputs(s, t):
    x0 = integers()
    x1 = integers(s, t, low=0, dtype=torch.uint8)
    return [x0, x1]

def program(x0, x1):
    return (x0.gcd(x1), (x0 - 7).gcd(x1))
"""

SCALARS_AND_BLOCKS = """
SIZES = [(2, 3)]

def inputs(s, t):
    x0 = normal(3, 4)
    return [x0]

def program(x0):
    v0 = F.cross_entropy(x0, torch.arange(x0.shape[0]) % x0.shape[1])
    return (torch.atan2(x0, v0.abs() + 1), torch.pow(x0, v0), (x0 > 0) & (v0 > 1))
"""

DIVIDED_BY_A_HALF = """
SIZES = [(4, 16), (4, 2)]

def inputs(s, t):
    x0 = normal(t)
    return [x0]

def program(x0):
    v0 = x0.abs().reshape(x0.shape[0] // 2, -1) if x0.shape[0] % 2 == 0 and x0.shape[0] > 0 else x0
    return (v0.clone(), torch.linalg.vector_norm(v0, 3))
"""

TYPE_OF_NOTHING = """
SIZES = [(4, 16), (0, 2)]

def inputs(s, t):
    x0 = normal(s, dtype=torch.float64)
    x1 = normal(t, dtype=torch.bfloat16)
    return [x0, x1]

def program(x0, x1):
    return (torch.cat([x0, x1, x1 > 0]), torch.cat([x1.long(), x0.int(), x1]))
"""

BACKWARDS = """
SIZES = [(7, 6), (17, 2), (3, 40)]

def inputs(s, t):
    x0 = normal(t, s).t()
    return [x0]

def program(x0):
    v0 = x0.repeat_interleave(4, -1).flip(1)
    v1 = x0[:, :, None].expand(-1, -1, x0.shape[0]).reshape(x0.shape[0], -1).flip(0, 1)
    return (v0, v1, x0.repeat(3, 2).flip(1), v0.flip(0).sum(0), F.pixel_shuffle(v0[None].repeat(4, 1, 1), 2).flip(2))
"""

TYPE_OF_A_SCALAR = """
SIZES = [(2, 3), (0, 1), (17, 1)]

def inputs(s, t):
    x0 = normal(s)
    x1 = normal(t, dtype=torch.float16)
    return [x0, x1]

def program(x0, x1):
    v0 = x0.sum(0, dtype=torch.float64)
    v1 = torch.addr(v0, x0, x1)
    return (torch.block_diag(v0, x0), torch.block_diag(x1, v0 > 0, v0), v1, torch.addr(x1[:1], x1, x1, alpha=2))
"""

MEMORY_OF_ANOTHER_SIZE = """
SIZES = [(67, 2), (31, 8), (64, 2), (2, 3)]

def inputs(s, t):
    x0 = normal(s, t)
    return [x0]

def program(x0):
    v0 = x0[1:, 0].tile(2)
    v1 = v0.chunk(2, -1)[-1]
    v2 = v1 + float(x0.amax().item())
    v1.sigmoid_()
    v0[-1:] += v0[:1]
    return (v0, v1, v2)
"""

INPUTS_OF_ONE_MEMORY = """
SIZES = [(16, 5)]

def inputs(s, t):
    x0 = normal(s, s)
    x1 = x0
    x2 = x0[1:]
    return [x0, x1, x2]

def program(x0, x1, x2):
    v0 = x1.logcumsumexp(1)
    return (v0.sum().cos(), x2.sum())
"""

PADDED_BY_NOTHING = """
SIZES = [(2, 3), (5, 4), (3, 3), (3, 2)]

def inputs(s, t):
    x0 = normal(t, 3, s).permute(2, 1, 0)
    return [x0]

def program(x0):
    return (F.pad(x0, (0, (x0.shape[2] + 1) % 4)), F.pad(x0, (-1, x0.shape[2] - 3)))
"""

MEMORY_OF_UNKNOWN_SIZE = """
SIZES = [(2, 3), (5, 3), (3, 17)]

def inputs(s, t):
    x0 = normal(s)
    x1 = normal(t, s)
    return [x0, x1]

def program(x0, x1):
    v0 = x0.isfinite()
    v1 = v0.squeeze()
    v2 = x0.masked_select(x0 == x1).shape[0] + x1
    v1[1:] = True
    return (v0, v1, v2)
"""

SCALE_OF_ATTENTION = """
SIZES = [(2, 3), (17, 3), (2, 5)]

def inputs(s, t):
    x0 = normal(s)
    return [x0]

def program(x0):
    return (F.scaled_dot_product_attention(x0[None], x0[None], x0[None]),)
"""

DIVIDED_NOTHING = """
SIZES = [(2, 2), (3, 3)]

def inputs(s, t):
    x0 = normal(s, t)
    x1 = normal(s, t)
    x2 = normal(s, t)
    return [x0, x1, x2]

def program(x0, x1, x2):
    v0 = x0.isnan()
    v1 = v0[..., max(x2.shape[1], x1.shape[1]):]
    v2 = x2[..., v1.reshape(-1)[:3] % max(x2.shape[-1], 1)]
    return (x2[v0].sum(), v2.t().unflatten(0, (-1, 2)))
"""

NOTHING_FOUND = """
SIZES = [(0, 5), (3, 5)]

def inputs(s, t):
    x0 = normal(s)
    return [x0]

def program(x0):
    v0 = x0.nonzero()
    v1 = v0.as_subclass(torch.Tensor)
    v2 = v1 >> 2
    return (v0.gcd(v2),)
"""

VARIANCE_OF_ONE = """
SIZES = [(5, 4), (1, 5), (5, 1)]
GRADIENT = True

def inputs(s, t):
    x0 = normal(s, t)
    return [x0]

def program(x0):
    return (x0.cumsum(1), x0.var(1))
"""

KNOWN_SIZE_IN_A_JOINT_GRAPH = """
SIZES = [(2, 3), (5, 3)]
GRADIENT = True

def inputs(s, t):
    x0 = normal(s)
    x1 = normal(s, 0)
    return [x0, x1]

def program(x0, x1):
    v0 = x1[::2]
    v1 = x0.masked_scatter(x0.bool(), x0.flip(0))
    return (v1, v0.clone())
"""

SELECTED_OF_FOUND = """
SIZES = [(3, 4), (5, 2), (1, 3)]

def inputs(s, t):
    x0 = normal(s, t)
    return [x0]

def program(x0):
    v0 = x0.nonzero()
    v1 = v0[v0 > 1]
    v2 = v0[:, None].expand(-1, 5, -1).masked_select((v0 > 0)[:, None])
    v3 = torch.argwhere(v0 > 1)
    v4 = (v0[:, None] > v0).nonzero()
    return (v1, v2, v3, v4)
"""

PART_OF_A_MEMORY = """
SIZES = [(2, 3), (5, 3), (4, 1), (7, 2)]

def inputs(s, t):
    x0 = normal(s)
    x1 = normal(s, t)
    return [x0, x1]

def program(x0, x1):
    v0 = x0.clone()[1:]
    v1 = x1.clone()[1:]
    v2 = v0.as_subclass(torch.Tensor)
    v3 = v1.as_subclass(torch.Tensor)
    v2.reshape(-1)[:2].zero_()
    v3.reshape(-1)[:2].zero_()
    return (v0.clone(), v1.clone(), v2 + 1, v3)
"""

SLICE_OF_A_PRODUCT = """
SIZES = [(3, 2), (1, 1), (2, 3), (5, 0)]

def inputs(s, t):
    x0 = normal(t)
    x1 = normal(s, t)
    x2 = normal()
    return [x0, x1, x2]

def program(x0, x1, x2):
    v0 = x2.unsqueeze(-1).expand(2)
    v1 = v0[(x1.shape[1] * x0.shape[0] // 2):]
    v2 = v1.gather(-1, v1.shape[-1] - 1 - torch.zeros_like(v1, dtype=torch.int64))
    return (v1 + 1, v2)
"""

WRITTEN_UP_TO_A_DIFFERENCE = """
SIZES = [(0, 17), (8, 3), (3, 13), (1, 40), (64, 31)]

def inputs(s, t):
    x0 = normal(s, t)
    x1 = normal(s)
    return [x0, x1]

def program(x0, x1):
    v0 = x1.clone()
    v0[:(x1.shape[0] - x0.shape[1] // 6)] = 0
    return (v0,)
"""

REGRESSIONS = {
    "inputs of one memory are exact in float64": ("symshape", INPUTS_OF_ONE_MEMORY),
    "an amount of a padding is 0": ("symshape", PADDED_BY_NOTHING),
    "inputs share a memory of dynamic size, and one is written to": ("symshape", MEMORY_OF_UNKNOWN_SIZE),
    "a guard on a float": ("jit", SCALE_OF_ATTENTION),
    "inputs after a graph break share a memory of another size": ("symshape", MEMORY_OF_ANOTHER_SIZE),
    "a scalar's type counts less, or does not": ("settings", TYPE_OF_A_SCALAR),
    "the same scalars in Triton": ("triton", TYPE_OF_A_SCALAR),
    "a dim that runs backwards is divided": ("symshape", BACKWARDS),
    "the same in Triton's code": ("triton", BACKWARDS),
    "tensors without elements have a type": ("symshape", TYPE_OF_NOTHING),
    "a size for which another one is divided by 0": ("settings", DIVIDED_BY_A_HALF),
    "numbers of another type are wrapped first": ("symshape", WRAPPED_FIRST),
    "comparisons of scalars meet blocks": ("triton", SCALARS_AND_BLOCKS),
    "a row without elements of a tensor without memory": ("symshape", NOTHING_TO_READ),
    "the same in Triton": ("triton", NOTHING_TO_READ),
    "a fraction is cut off to compare integers with it": ("settings", INTEGER_THRESHOLD),
    "two dims of a reader over one reduced dim": ("symshape", DIAGONAL_OF_A_LAYER_NORM),
    "the size of a tangent is all that shows a symbol": ("symshape", TANGENT_SHOWS_SIZE),
    "equal constants with different signs": ("symshape", SIGN_OF_ZERO),
    "the sign of a zero that is at a bound": ("symshape", SIGN_OF_ZERO_IN_BOUNDS),
    "at most one element can be selected": ("settings", SELECTED_OF_FEW),
    "dims of no elements, which the prover knows, are regrouped": ("settings", DIVIDED_NOTHING),
    "the base of a view has a size of one": ("settings", NOTHING_FOUND),
    "a guard makes what floats are divided by 0": ("settings", VARIANCE_OF_ONE),
    "a size that is known, in a joint graph": ("symshape", KNOWN_SIZE_IN_A_JOINT_GRAPH),
    "an equation is divided by a size that is 0": ("settings", SELECTED_OF_NOTHING),
    "what is selected of found indices has a bound beyond 64 bits": ("settings", SELECTED_OF_FOUND),
    "inputs share a memory, in the middle of which their base begins": ("symshape", PART_OF_A_MEMORY),
    "a sum is an argument of a kernel, and its parts are none": ("settings", SLICE_OF_A_PRODUCT),
    "the same sum in Triton": ("triton", SLICE_OF_A_PRODUCT),
    "sizes do not say where the part ends that is written to": ("settings", WRITTEN_UP_TO_A_DIFFERENCE),
}
