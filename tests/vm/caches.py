"""A cache of a test's own that has the image and its templates already, since to make those takes minutes."""

from __future__ import annotations

from pathlib import Path

from rig import host
from rig.machines.image import Image
from rig.machines.template import Template

_LIMIT_S = 120


def furnished(folder: Path, image: Image, *templates: Template) -> Path:
    """Copy an image and templates into a cache, whose folder is returned."""
    for kind, path in [("images", image.folder), *(("templates", one.folder) for one in templates)]:
        (folder / kind).mkdir(parents=True, exist_ok=True)
        # Memory is a sparse file.
        host.run(["cp", "-r", "--reflink=auto", str(path), str(folder / kind)], timeout_s=_LIMIT_S)
    return folder
