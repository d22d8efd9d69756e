"""Hooks of mkdocs (``make site``): pages outside of ``docs/``, links to files, GitHub's Markdown.

Pages are written for the repository: their links are relative to the file. On the site README.md is the first page,
CONTRIBUTING.md and CHANGELOG.md are pages, and what else a page links to, a file or a folder, has a page that shows it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[2]
# Files of the repository that are pages by another address.
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
LANGUAGES = {".py": "python", ".mlir": "mlir", ".toml": "toml"}
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"^ *(```|~~~)")
ITEM = re.compile(r"^( *)([-*]|\d+\.) ")


def on_files(files: Files, config: Any) -> Files:
    for path, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text(encoding="utf-8")))
    pending = sorted({target for page in _sources(files) for target in _targets(page)})
    while pending:
        path = pending.pop()
        uri = _uri(path)
        if files.get_file_from_path(uri) is not None or not (ROOT / path).exists():
            continue  # what does not exist is reported as a broken link
        shown = _shown(path)
        files.append(File.generated(config, uri, content=shown, inclusion=InclusionLevel.NOT_IN_NAV))
        if (ROOT / path).is_dir() and isinstance(shown, str):
            pending += [_join(path, link) for _, link, _ in LINK.findall(shown)]
    files.append(File.generated(config, "search/iframe-worker.js", content=_beside("iframe-worker.js")))
    files.append(File.generated(config, "assets/site.css", content=_beside("site.css")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    source = _source(page.file.src_uri)
    lines = [line if fenced else _linked(line, source, page.file.src_uri) for line, fenced in _lines(markdown)]
    return "\n".join(_spaced(lines))


def _sources(files: Files) -> list[str]:
    """The pages that are written, by their paths in the repository."""
    return [_source(file.src_uri) for file in files.documentation_pages()]


def _source(uri: str) -> str:
    return next((path for path, other in PAGES.items() if other == uri), _shown_path(uri) or f"docs/{uri}")


def _shown_path(uri: str) -> str:
    """The file or folder that a generated page shows."""
    return uri.removeprefix("files/").removesuffix(".md") if uri.startswith("files/") else ""


def _uri(path: str) -> str:
    """The address of a file of the repository on the site."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"files/{path}" if path.endswith(".png") else f"files/{path}.md"


def _targets(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [link for line, fenced in _lines(text) if not fenced for _, link, _ in LINK.findall(line)]
    return [_join(posixpath.dirname(page), link) for link in links if "://" not in link]


def _join(folder: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(folder, link))


def _shown(path: str) -> str | bytes:
    """What the page of a file is, or of a folder: links to its files, with the first line that says what each is."""
    found = ROOT / path
    if path.endswith(".png"):
        return found.read_bytes()
    if found.is_dir():
        rows = [f"- [{one.name}]({one.name}): {_said(one)}" for one in sorted(found.glob("*.py"))]
        return "\n".join([f"# {path}/", "", *rows, ""])
    fence = "~~~~"
    text = found.read_text(encoding="utf-8")
    return f"# {found.name}\n\n`{path}`\n\n{fence}{LANGUAGES.get(found.suffix, 'text')}\n{text}{fence}\n"


def _said(file: Path) -> str:
    match = re.search(r'^"""(.*?)(?:"""|$)', file.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else ""


def _beside(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _lines(markdown: str) -> list[tuple[str, bool]]:
    """Each line, and whether it is code."""
    result, opened = [], ""
    for line in markdown.split("\n"):
        match = FENCE.match(line)
        if match and opened in ("", match[1]):
            opened = "" if opened else match[1]
            result.append((line, True))
        else:
            result.append((line, bool(opened)))
    return result


def _linked(line: str, source: str, uri: str) -> str:
    """A line whose links lead to the same files on the site."""

    def moved(match: re.Match[str]) -> str:
        if "://" in match[2]:
            return match[0]
        folder = source if (ROOT / source).is_dir() else posixpath.dirname(source)
        target = _uri(_join(folder, match[2]))
        return match[1] + posixpath.relpath(target, posixpath.dirname(uri) or ".") + match[3]

    return LINK.sub(moved, line)


def _spaced(lines: list[str]) -> list[str]:
    """With an empty line before each list: Python's Markdown wants one, GitHub's does not."""
    result: list[str] = []
    for (line, fenced), above in zip(_lines("\n".join(lines)), ["", *lines]):
        in_list = bool(ITEM.match(above)) or above.startswith("  ")
        if not fenced and ITEM.match(line) and above.strip() and not in_list:
            result.append("")
        result.append(line)
    return result
