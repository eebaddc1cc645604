"""Whether an engine makes its documented sync calls; a kept promise counts only if it makes at least these.

Each plain recording ends with a supervised sample of transactions (`rig.guest.watch.sample`).
`rig.engines.NAME.syncs` lists the sync sequences of the settings. There are four answers:
- agrees: every transaction did one of them, and some did the most common.
- more: the documented syncs are all there, with others between them. That is noted; the build can only be safer.
- different: anything else. A sync is missing, or others are in its place: this build or these settings are not what the
  documentation describes. A counterexample still counts, a kept promise does not.
- not compared: the engine documents no sequence for these settings. That is noted: what is not documented is not wrong.
  If it makes no sync call at all, the note says so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rig.analysis.judging.metrics import Outcome
from rig.contract.results import MeasuredScenario
from rig.engines import Engine, find_engine
from rig.engines.syncs import NO_CALLS, in_roles, syncs_of

NOT_COMPARED = "no documented protocol: not compared"
NEVER_SYNCS = "its transactions make no sync call that the rig can see (O_SYNC, O_DSYNC and io_uring are not seen)"


@dataclass(frozen=True)
class SyncComparison:
    """How the sampled sync calls compare with the documented ones; at least one of the two texts is empty."""

    # Why the promise may not count as kept; names the sampled and the documented calls.
    difference: str = ""
    # A remark that changes no result.
    note: str = ""


def known_sequences(engine: str, settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the sync sequences of one transaction at these settings, the most common first; empty if not known."""
    known = find_engine(engine)
    syncs = syncs_of(known) if known else None
    if not known or not syncs:
        return ()
    return tuple(dict.fromkeys(in_roles(known, sequence) for sequence in syncs.sequences(settings)))


def compare(measured: MeasuredScenario) -> SyncComparison:
    """Compare the sampled sync calls of a scenario with the documented ones."""
    scenario, sampled = measured.scenario, measured.recording.syncs
    engine, known = find_engine(scenario.engine), known_sequences(scenario.engine, scenario.all_settings)
    # A stored run may be of an engine that is not installed here.
    if engine and not known:
        # Nobody documents a user's program for the rig.
        silent = "" if engine.own_driver else NOT_COMPARED
        return SyncComparison(note=NEVER_SYNCS if set(sampled) == {NO_CALLS} else silent)
    if not engine or not sampled:
        return SyncComparison()
    strange = sorted(sequence for sequence in sampled if sequence not in known)
    if not strange and known[0] in sampled:
        return SyncComparison()
    shown = ", ".join(f"'{sequence}' ({sampled[sequence]})" for sequence in strange or sorted(sampled))
    both = f"measured {shown}, documented {_alternatives(known)}"
    # If no transaction did the most common sequence, each must have at least its syncs.
    common = () if known[0] in sampled else known[:1]
    syncs = _sync_words(engine)
    if all(_has_more(sequence, known, syncs) for sequence in strange) and all(
        _has_more(sequence, common, syncs) for sequence in (sampled if common else ())
    ):
        return SyncComparison(note=f"a transaction syncs more than is documented: {both}")
    return SyncComparison(f"the syncs of a transaction are not the documented ones: {both}")


def lines(outcomes: Iterable[Outcome]) -> list[str]:
    """Return a line of the text table for each note, with the settings that it is about."""
    about: dict[tuple[str, str], dict[str, None]] = {}
    for outcome in outcomes:
        if note := compare(outcome.measured).note:
            about.setdefault((outcome.scenario.engine, note), {})[outcome.settings_name] = None
    return [f"syncs of {engine} ({', '.join(names)}): {note}" for (engine, note), names in about.items()]


def _sync_words(engine: Engine) -> set[str]:
    """Return the words of a sequence that are syncs; others, such as `unlink`, are not."""
    syncs = syncs_of(engine)
    return {kind.role for kind in syncs.KINDS.values()} if syncs else set()


def _has_more(sequence: str, known: Sequence[str], syncs: set[str]) -> bool:
    """Whether this sequence contains every known sequence nearest to it, and all its other words are syncs.

    If it lacks one of several equally near sequences, it may lack a sync of that sequence.
    """
    measured = _words(sequence)
    nearest: dict[int, list[list[str]]] = defaultdict(list)
    for words in map(_words, known):
        nearest[len(measured) + len(words) - 2 * len(_common_words(measured, words))].append(words)
    return all(
        _common_words(measured, words) == words and set((Counter(measured) - Counter(words)).elements()) <= syncs
        for words in nearest[min(nearest)]
    )


def _words(sequence: str) -> list[str]:
    return [] if sequence == NO_CALLS else sequence.split()


def _common_words(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """Return the longest row of words that both have in this order."""
    best: list[list[str]] = [[] for _ in range(len(other) + 1)]
    for word in one:
        previous = best
        best = [[]]
        for rank, same in enumerate(other):
            best.append([*previous[rank], word] if word == same else max(previous[rank + 1], best[rank], key=len))
    return best[-1]


def _alternatives(sequences: tuple[str, ...]) -> str:
    return " or ".join(f"'{sequence}'" for sequence in sequences)
