"""The parts of the manual's reference that are written from the code: commands, engines, file systems, faults, devices.

`python -m tests.unit.docs.reference` writes them, and `make docs` does so first. `docs/reference/cli.md` is written as
a whole. The other pages have a part between two comments, and the rest is by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import click

from rig.contract.devices import DEFAULT_DEVICE, DEVICES
from rig.contract.faultspecs import FAULTS, SPECS, FaultSpec
from rig.contract.injections import Injection
from rig.engines import Spec, engines, settings_name
from rig.filesystems import FileSystem, filesystems
from rig.front.cli import main
from tests.unit.house import ROOT

FOLDER = ROOT / "docs" / "reference"
COMMAND = "python -m tests.unit.docs.reference"
_BEGIN, _END = f"<!-- From here on written by `{COMMAND}` -->", "<!-- Up to here -->"


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each page of the reference that has a generated part, with the text that it must have."""
    yield FOLDER / "cli.md", commands()
    for name, part in PARTS.items():
        path = FOLDER / name
        before, begin, rest = path.read_text().partition(_BEGIN)
        _, end, after = rest.partition(_END)
        assert end, f"{path} needs the lines {_BEGIN!r} and {_END!r}"
        yield path, f"{before}{begin}\n\n{part()}\n\n{end}{after}"


def commands() -> str:
    """Return the page of all commands."""
    parts = [
        "# Commands",
        f"Written by `{COMMAND}` from the commands themselves. `rig COMMAND --help` shows the same text.",
        "[Exit codes](table.md#exit-codes) says what the commands return.",
    ]
    for name, command in sorted(_commands("rig", main)):
        # A command keeps the help option of its first context, so this one has the names that the user's has.
        context = click.Context(command, info_name=name, **main.context_settings)
        parts += [
            f"## {name}",
            _escape(_paragraphs(command.help or "")),
            f"```\n{_usage(name, command, context)}\n```",
        ]
        options = [option for option in command.params if isinstance(option, click.Option)]
        if rows := [row for option in options for row in _option(option, context)]:
            parts.append(_table(("option", "meaning"), rows))
    return "\n\n".join(parts) + "\n"


def devices() -> str:
    """Return the table of the modelled disks."""
    rows = [
        (
            f"`{device.name}`" + (" (default)" if device.name == DEFAULT_DEVICE else ""),
            device.read_ms, device.write_ms, device.flush_ms, device.atomic_bytes, device.source,
        )
        for device in DEVICES.values()
    ]  # fmt: skip
    return _table(("device", "read", "write", "flush", "bytes written atomically", "source"), rows)


def faults() -> str:
    """Return the table of what is done under each fault."""
    head = ("fault", "class", "fault model", "injected while the workload runs", "notes")
    return _table(head, map(_fault, SPECS.values()))


def file_systems() -> str:
    """Return the table of how each file system is made and mounted, and what it protects against."""
    head = ("file system", "disk, MiB", "mount options", "further options", "kernel", "nothing promised under")
    return _table(head, map(_file_system, filesystems()))


def engine_specs() -> str:
    """Return a table for each engine of ours; others may be installed too."""
    specs = [engine.spec for engine in engines() if engine.module.startswith("rig.")]
    return "\n\n".join(f"### `{spec.name}`\n\n{_engine(spec)}" for spec in sorted(specs, key=lambda spec: spec.name))


PARTS: Mapping[str, Callable[[], str]] = {
    "devices.md": devices,
    "engines.md": engine_specs,
    "faults.md": faults,
    "filesystems.md": file_systems,
}


def _commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    for word, inner in command.commands.items():
        yield from _commands(f"{name} {word}", inner)


def _option(option: click.Option, context: click.Context) -> Iterator[tuple[str, str]]:
    if record := option.get_help_record(context):
        names, meaning = record
        # In a table a bar has to be escaped, also in code.
        yield f"`{names.replace(' RANGE', '')}`".replace("|", "\\|"), _escape(" ".join(meaning.split()))


def _usage(name: str, command: click.Command, context: click.Context) -> str:
    return " ".join([name, *command.collect_usage_pieces(context)])


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _fault(spec: FaultSpec) -> tuple[object, ...]:
    notes = {
        "the recovery is cut too": spec.cuts_recovery and not spec.later_count,
        "the recovered database works on and is cut again": bool(spec.later_count),
        "what is shown after a restart must last": spec.injection is Injection.KILLCUT,
        "nothing is promised": spec.is_unpromised,
        "checks the rig itself": spec.is_cross_check,
        "the disk keeps its cache": spec.keeps_device_cache,
        "the page cache lives": spec.keeps_page_cache,
    }
    return (
        f"`{spec.name}`",
        str(spec.fault_class),
        f"`{spec.model}`" if spec.model else "none: judged while it is recorded",
        f"`{spec.injection}`" if spec.injection else "",
        ", ".join(note for note, holds in notes.items() if holds),
    )


def _file_system(variant: FileSystem) -> tuple[object, ...]:
    further = [f"{fault}: `{options}`" for fault, options in sorted(variant.options_by_fault.items())]
    return (
        f"`{variant.word}`" + (" (default)" if variant.is_default else ""),
        variant.disk_mib_min,
        f"`{variant.mount_options}`" if variant.mount_options else "",
        ", ".join(further),
        f"`{variant.kernel}`" if variant.kernel else "",
        _faults(variant.unsafe),
    )


def _engine(spec: Spec) -> str:
    everything = [(settings_name(settings), settings) for settings in spec.all_settings()]
    rows = {
        "settings": "; ".join(f"{name}: {_words(choices)}" for name, choices in spec.settings.items()),
        "names in ids": _words(name for name, _ in everything) if len(spec.settings) > 1 else "",
        "promise nothing when the power goes": _words(
            name for name, settings in everything if spec.is_unprotected(settings)
        ),
        "lose nothing, as promised": _words(spec.strict),
        "the same as others": ", ".join(f"`{name}` as `{other}`" for name, other in spec.same_as.items()),
        "tuning": _words(f"{name}={value}" for name, value in spec.tuning.items()),
        "tunings with a word in ids": _words(spec.tunings),
        "skills": _words(sorted(spec.skills)),
        "events": _words(sorted(spec.events)),
        "several connections": str(spec.sharing) if spec.sharing != "none" else f"no: {spec.alone_because}",
        "faults that cannot affect it": "; ".join(f"`{fault}`: {why}" for fault, why in sorted(spec.immune.items())),
        "computes at most for a crash state": f"{spec.state_limit_s} s",
        "measured if no scenario is named": "yes" if spec.is_default else "no",
    }
    return _table(("what", "value"), [(what, value) for what, value in rows.items() if value])


def _faults(chosen: Iterable[str]) -> str:
    """Return faults by name, or those that are left if most are chosen."""
    others = sorted({*FAULTS} - {*chosen})
    if len(others) > len(FAULTS) / 2:
        return _words(sorted(chosen))
    return f"all but {_words(others)}" if others else "all"


def _words(words: Iterable[object]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _escape(text: str) -> str:
    return re.sub(r"([*_|<>])", r"\\\1", text)


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


if __name__ == "__main__":
    for page, wanted in pages():
        if not page.exists() or page.read_text() != wanted:
            page.write_text(wanted)
            print(page.relative_to(ROOT))  # noqa: T201 - it is a command
