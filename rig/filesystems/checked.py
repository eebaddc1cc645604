"""What file systems on one disk have in common: the options that the kernel lists, and a program that checks them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import ClassVar

from rig.filesystems import kernel
from rig.filesystems.filesystem import FileSystem

_LIMIT_S = 120
_SAID_CHARS = 400


@dataclass(frozen=True)
class CheckedFileSystem(FileSystem):
    """A file system with a checker, whose driver lists its options in /proc/mounts."""

    # The checker, and the words with which it only looks or repairs. It exits with 0 for a clean file system.
    CHECKER: ClassVar[tuple[str, ...]]
    LOOKS: ClassVar[tuple[str, ...]]
    REPAIRS: ClassVar[tuple[str, ...]]
    # What the checker reads from its standard input.
    ANSWERS: ClassVar[str] = ""

    def mounted_with(self, device: str) -> str:
        """Return all mount options, the default ones too."""
        return kernel.mount_options(device)

    def damage(self, device: str) -> str:
        """Return what the checker complains about; empty if nothing."""
        process = self._check(*self.LOOKS, device)
        return self._report(process) if process.returncode else ""

    def repair(self, device: str) -> str:
        """Repair what the checker finds; return what it says."""
        return self._report(self._check(*self.REPAIRS, device))

    def complaints(self, output: str) -> str:
        """Return what the checker says without its progress."""
        return output

    def _check(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*self.CHECKER, *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_LIMIT_S, check=False, input=self.ANSWERS
        )

    def _report(self, process: subprocess.CompletedProcess[str]) -> str:
        words = self.complaints(process.stdout + process.stderr)[:_SAID_CHARS]
        return f"{' '.join(self.CHECKER)} {process.returncode}: {words}"


def run(*command: str) -> str:
    """Run a tool and return what it prints; raise CalledProcessError if it fails."""
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_LIMIT_S).stdout


def one_line(lines: list[str]) -> str:
    """Return lines as one, with single blanks."""
    return " ".join(" ".join(lines).split())
