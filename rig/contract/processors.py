"""The processors that a guest can have under emulation."""

from __future__ import annotations

from enum import StrEnum


class Processor(StrEnum):
    """Processors by ability: every engine can use the first, and each can do all that the ones before it can."""

    # x86-64 and no more: no SSE4, AVX or BMI. The fastest to emulate.
    PLAIN = "plain"
    # All that the emulator knows, without the instructions that read random numbers from the host.
    MODERN = "modern"
