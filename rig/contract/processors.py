"""The processors that a guest can have under emulation."""

from __future__ import annotations

from enum import StrEnum


class Processor(StrEnum):
    """From the one that every engine can use to the one that has most; the later can do all that the earlier can."""

    # x86-64 and no more: no SSE4, AVX or BMI. The fastest to emulate.
    PLAIN = "plain"
    # All that the emulator knows, without the instructions that read random numbers from the host.
    MODERN = "modern"
