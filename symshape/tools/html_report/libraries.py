"""Imports the optional libraries of HTML pages, which the extra ``report`` installs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from symshape.errors import OptionError


def template_environment(folder: Path) -> Any:
    """A Jinja environment for a folder of templates; undefined names are errors. OptionError if jinja2 is missing."""
    jinja2 = library("jinja2")
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def library(name: str) -> Any:
    """Imports a module. OptionError, with the command that installs it, if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise OptionError(
            f"the HTML report needs {package}, which is not installed", next_step="pip install 'symshape[report]'"
        ) from error
