"""Probes of a document's own figures: what its columns say about each other, without any experiment."""

from __future__ import annotations

from pathlib import Path

from rig.analysis.documents.probes.probe import Figures

# 000_b23a4b58a0669b1a.txt, lines 223 to 226 and 271 to 272: work, then writes/s and reads/s of both rows.
_WORK = (12 * 2000, 40 * 1000)
_RATES = ((8408, 14014), (9768, 16281))
# 004_b69e233fac2395fd.txt, lines 41 to 44: MB/s, us, space amplification.
_ROWS = ((180.22, 0.61416, 2.667), (77.33, 1.43117, 1.625), (51.73, 2.13972, 2.06667), (36.17, 3.06011, 1.625))


def one_clock(folder: Path) -> Figures:
    """Compare the ratio of the two columns with the ratio of the work."""
    del folder
    work = _WORK[1] / _WORK[0]
    apart = [abs(reads / writes / work - 1) for writes, reads in _RATES]
    seconds = [_WORK[0] / writes for writes, _ in _RATES]
    across = abs(_RATES[1][0] / _RATES[0][0] / work - 1)
    return {
        "apart_most": max(apart), "across": across, "s_default": seconds[0], "s_wal": seconds[1],
        "gain_percent": (seconds[0] / seconds[1] - 1) * 100,
    }  # fmt: skip


def one_measurement(folder: Path) -> Figures:
    """Multiply throughput by latency in each row; were they two measurements, the product would vary."""
    del folder
    products = [throughput * latency for throughput, latency, _ in _ROWS]
    others = [throughput * space for throughput, _, space in _ROWS]
    return {
        "product": sum(products) / len(products), "spread": max(products) / min(products) - 1,
        "spread_other": max(others) / min(others) - 1, "rows": len(_ROWS),
    }  # fmt: skip
