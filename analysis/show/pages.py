"""Self-contained HTML pages made of the templates: they fetch nothing, and the same input gives the same bytes.

Values are shown as text, never as markup, unless they are marked as our own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rig.host.files import atomic_write

_TEMPLATES = Path(__file__).parent / "templates"
STYLE = "report.css"


def render(
    template: str,
    values: Mapping[str, Any],
    *,
    styles: Sequence[str] = (STYLE,),
    filters: Mapping[str, Callable[..., Any]] | None = None,
) -> str:
    """Return a page of one of the templates; its style is `css` there, and `markup` lets our own markup through."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(markup=Markup, **(filters or {}))
    css = "".join((_TEMPLATES / name).read_text(encoding="utf-8") for name in styles)
    return environment.get_template(template).render(css=Markup(css), **values)  # noqa: S704 - our own files


def write(page: str, out: Path) -> None:
    """Write a page, durably or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(out, page.encode())
