"""A cache of a test's own that has what takes minutes to make: images, templates, and what the host was found to do."""

from __future__ import annotations

import shutil
from pathlib import Path

from rig.contract.orders import Processor
from rig.host import processes
from rig.images.image import Image
from rig.machines import accelerator, usermode
from rig.machines.template import Template

_LIMIT_S = 120


def furnish_cache(folder: Path, image: Image, *templates: Template) -> Path:
    """Copy an image, the kernel of user-mode machines and templates into a cache, whose folder is returned."""
    # Where KVM does not work, to find that out takes twenty seconds.
    accelerator.best_accelerator(image)
    usermode.obstacle(image, Processor.PLAIN)
    kernel = usermode.build()
    folder.mkdir(parents=True, exist_ok=True)
    for note in (accelerator.note_of(image), usermode.note_of(kernel)):
        if note.exists():
            shutil.copy(note, folder)
    of_images = [("images", one.folder) for one in (image, kernel)]
    for kind, path in [*of_images, *(("templates", one.folder) for one in templates)]:
        (folder / kind).mkdir(parents=True, exist_ok=True)
        # Memory is a sparse file.
        processes.run(["cp", "-r", "--reflink=auto", str(path), str(folder / kind)], timeout_s=_LIMIT_S)
    return folder
