"""The libraries that a page is made with, which the extra ``report`` installs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from symshape.errors import OptionError


def template_environment(folder: Path) -> Any:
    """Jinja's environment for the templates of a folder, in which a name that is missing is an error. OptionError where
    jinja2 is missing."""
    jinja2 = library("jinja2")
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def library(name: str) -> Any:
    """The module; OptionError with the command that installs it where it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise OptionError(
            f"the HTML report needs {package}, which is not installed", next_step="pip install 'symshape[report]'"
        ) from error
