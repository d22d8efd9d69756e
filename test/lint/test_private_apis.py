"""The check of private PyTorch APIs finds each kind of use, and the tree has none outside of the three places."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("private_apis", Path(__file__).parent / "private_apis.py")
assert _spec is not None and _spec.loader is not None
checker = importlib.util.module_from_spec(_spec)
import sys  # noqa: E402

sys.modules["private_apis"] = checker
_spec.loader.exec_module(checker)

FOUND = {
    "import torch._dynamo.config": "torch._dynamo.config",
    "import torch._inductor as inductor": "torch._inductor",
    "from torch._dynamo import trace_rules": "torch._dynamo.trace_rules",
    "from torch.fx.experimental import _config": "torch.fx.experimental._config",
    "from torch import _C": "torch._C",
    "import torch\ntorch._C._get_tracing_state()": "torch._C._get_tracing_state",
    "import torch as t\nt.fx.graph._snake_case(1)": "torch.fx.graph._snake_case",
    "from torch.amp import autocast_mode as m\nm._enter_autocast()": "torch.amp.autocast_mode._enter_autocast",
    "import torch\nr = torch.random\nr._seed": "torch.random._seed",
    "import torch\na, b = torch.fx, 1\ndef f():\n    return a.node._side_effectful": "torch.fx.node._side_effectful",
    "import torch\nx: object = torch.nn\nx._reduction": "torch.nn._reduction",
    "import torch\ntorch._dynamo.config.patch()": "torch._dynamo.config.patch",
    "import torch\ntorch._ops.resolve_key": "torch._ops.resolve_key",
    "import torch\ntorch.utils._pytree._get_node_type": "torch.utils._pytree._get_node_type",
    "import importlib\nimportlib.import_module('torch._higher_order_ops.cond')": '"torch._higher_order_ops.cond"',
    "tensor._version": "._version",
    "op()._schema.arguments": "._schema",
    "getattr(node, '_dynamo_source', None)": "getattr _dynamo_source",
    "setattr(run, '_boxed_call', True)": "setattr _boxed_call",
    "hasattr(env, 'var_to_range')": "hasattr var_to_range",
    "size.node.expr": ".node.expr",
    "value.node.hint": ".node.hint",
    "tensor.fake_mode": ".fake_mode",
    "mode.shape_env.guards": ".shape_env",
    "frame.f_locals['n']": ".f_locals",
    "fake.item_memo = None": ".item_memo",
}

FINE = [
    "import torch._dynamo\ntorch._dynamo.reset()\ntorch._dynamo.mark_dynamic(x, 0)",
    "import torch\ntorch._check(x > 0)\ntorch._check_is_size(n)\ntorch._assert_async(x.all())",
    "import torch\nisinstance(x, torch._ops.OpOverload)",
    "import torch.utils._pytree as pytree\nfrom torch.utils._pytree import tree_leaves\npytree.tree_map(f, x)",
    "import torch\ntorch._logging.getArtifactLogger('symshape', 'output_code')",
    "import torch\naten = torch.ops.aten\naten._to_copy.default\ntorch.ops.aten._unsafe_view(x)",
    "from symshape.frontend.graph_rewrites.masks.node_writer import aten\naten._to_copy",
    "class A:\n    _field: int = 0\n    def _method(self): ...\ndef f(other): return other._field, other._method()",
    "class A:\n    def __init__(self): self._own = 1\ndef f(a): return a._own",
    "import torch\ntorch.__version__\nx.__class__",
    'import torch\n"""Like ``torch._dynamo.OptimizedModule``."""\n"torch._dynamo.config"',
    "import torch\ndef f(torch):\n    return torch._thing()\nclass _Own:\n    _thing = 1",
    "import sys\nsys._getframe(1)",
    "expr.node.op",
]


@pytest.mark.parametrize("source", FOUND)
def test_kinds_of_use(source: str) -> None:
    assert FOUND[source] in [use.name for use in checker.private_uses(source)]


@pytest.mark.parametrize("source", FINE)
def test_what_is_fine(source: str) -> None:
    assert checker.private_uses(source) == []


def test_attributes_of_the_package_are_its_own() -> None:
    assert checker.private_uses("x._polynomial", frozenset({"_polynomial"})) == []


def test_three_places(tmp_path: Path) -> None:
    for name in ("frontend/bridge/a.py", "frontend/patches/a.py", "runtime/torch_c.py", "runtime/a.py", "codegen/a.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("import torch\n\ntorch._C\n")
    assert [(file, use.line) for file, use in checker.package_uses(tmp_path)] == [
        ("codegen/a.py", 3),
        ("runtime/a.py", 3),
    ]


@pytest.mark.long  # `make lint` says the same
def test_the_tree() -> None:
    assert list(checker.package_uses()) == []
