"""The libraries that a page is made with, which the extra ``report`` installs."""

from __future__ import annotations

import importlib
from typing import Any

from symshape.errors import OptionError


def library(name: str) -> Any:
    """The module; OptionError with the command that installs it where it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise OptionError(
            f"the HTML report needs {package}, which is not installed", next_step="pip install 'symshape[report]'"
        ) from error
