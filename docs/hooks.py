"""How MkDocs makes a site of this folder, and a check that no page fetches anything from another host.

The Markdown files at the root of the repository become pages in `project/`. A link between them and the manual works on
the repository's page as it stands, and is moved for the site. All sources are published too, for `llms.txt`.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ("AGENTS.md", "BENCHMARKS.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_LINK = re.compile(r"(?<=\]\()(?!#|[a-z]+:)([^)\s#]+)")
# What a browser fetches by itself, if it is on another host. A link that a reader may follow is none of these.
_FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|link)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>"""
    r"""|@import[^;]*//[^;]*;|url\(["']?(?:https?:)?//[^)]*\)|class=["']?mermaid""",
    re.IGNORECASE,
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the findings in the order of their index, and the measurements below them."""
    links = _LINK.findall((Path(config.docs_dir) / "findings" / "index.md").read_text())
    pages = [f"findings/{link}" for link in dict.fromkeys(links) if "/" not in link and link.endswith(".md")]
    measurements = [page for page in pages if page.startswith("findings/measurements-")]
    (section,) = [entry["Findings"] for entry in config.nav or [] if "Findings" in entry]
    section += [page for page in pages if page not in measurements]
    section.append({"Measurements": measurements})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository's root."""
    for name in PROJECT:
        files.append(File.generated(config, f"project/{name}", content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Return the page with the links that its place in the site needs."""
    place = page.file.src_uri
    source = place.removeprefix("project/") if place.startswith("project/") else f"docs/{place}"

    def move(match: re.Match[str]) -> str:
        target = _in_site(posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1])))
        return posixpath.relpath(target, posixpath.dirname(place)) if target else match[1]

    return _LINK.sub(move, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Publish the sources; raise PluginError if a page, style or script would fetch something from another host."""
    site = Path(config.site_dir)
    for path in sorted(site.rglob("*")):
        if path.suffix in {".html", ".css"} and (match := _FETCHED.search(path.read_text())):
            raise PluginError(f"{path.relative_to(site)} would fetch from another host: {match[0][:200]}")
    for source in sorted(Path(config.docs_dir).rglob("*.md")):
        target = site / source.relative_to(config.docs_dir)
        target.write_bytes(source.read_bytes())


def _in_site(path: str) -> str | None:
    """Return where a file of the repository is in the site; None if it is not there."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "README.md":
        return "index.md"
    return f"project/{path}" if path in PROJECT else None
