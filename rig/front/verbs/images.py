"""The commands about guest images and the templates made from them."""

from __future__ import annotations

from pathlib import Path

import click

from rig.contract.errors import UsageError


@click.group()
def image() -> None:
    """Guest images and the templates made from them."""


@image.command("build")
@click.argument("name", default="base")
def image_build(name: str) -> None:
    """Build the guest image NAME, or the image of your own recipe NAME.toml, unless the cache has it."""
    from rig.host.cache import require_cache
    from rig.images import recipes
    from rig.images.image import build

    wanted = recipes.of_file(Path(name)).recipe if name.endswith(recipes.SUFFIX) else recipes.recipe_named(name)
    require_cache()
    click.echo(build(wanted, lambda text: click.echo(text, err=True)).folder)


@image.command("list")
def image_list() -> None:
    """List the images that engines and file systems need, built or not, and all images and templates in the cache."""
    from rig.host.cache import cache_folder
    from rig.images import recipes
    from rig.images.image import images, is_built

    for wanted in recipes.recipes():
        if not is_built(wanted):
            click.echo(f"image     {wanted.name:16} {wanted.digest}  not built: rig image build {wanted.name}")
    current = {recipe.digest: recipe.name for recipe in recipes.recipes()}
    for image in images():
        other = "of another version of its recipe" if image.name in current.values() else "of a recipe of your own"
        old = "" if image.digest in current else f"  {other}"
        click.echo(f"image     {image.name:16} {image.digest}  {_mib(image.folder)} MiB  {image.folder}{old}")
    for folder in sorted((cache_folder() / "templates").glob("*/identity")):
        click.echo(f"template  {folder.parent.name}  {_mib(folder.parent)} MiB")


@image.command("remove")
@click.argument("name")
def image_remove(name: str) -> None:
    """Remove the images of this name, and all templates that are not in use."""
    from rig.images.image import images, remove
    from rig.machines.template import remove_templates

    if name not in {image.name for image in images()}:
        raise UsageError(f"no image {name!r}; there are: {', '.join(image.name for image in images()) or 'none'}")
    for folder in [*remove_templates(), *remove(name)]:
        click.echo(f"removed {folder}")


def _mib(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()) >> 20
