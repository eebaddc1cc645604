"""Explain crash states of a run: one that a user names, or the worst that breaks a promise, at the end of the run.

At the end of a run an explanation is an extra. It has a limit of time, and whatever goes wrong is a line of text
instead of the story. What came of it is kept in the run directory, and a later report shows it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from rig.contract.errors import RigError, UsageError
from rig.front import programs
from rig.front.rundirs import name_of_run

if TYPE_CHECKING:
    from rig.analysis.explain.explanation import Explanation
    from rig.analysis.explain.story import Telling
    from rig.analysis.show.broken import Break
    from rig.contract.results import Verdict
    from rig.engines.builds import Library
    from rig.host.progress import Progress
    from rig.machines.guests import Source
    from rig.store import Run

# Seconds for the search for the smallest loss, for an engine whose states take milliseconds, and for a server.
_LIMIT_S, _LIMIT_OF_SERVER_S = 25, 120
# Seconds until the last sync is tried, for a program whose states take seconds too.
_GUESSES_S = 300
# A server takes a second to judge a state.
_SINGLES_OF_SERVER_MAX = 24
# At the end of a run: seconds for the search, and for everything.
_SEARCH_S, _GIVE_UP_S = 15, 120


def explain_stored(target: Run, scenario: str, state_id: str, library: str | None, image: str | None) -> Explanation:
    """Explain one crash state of a run."""
    from rig.campaign.evidence import require_choice
    from rig.front.progress import show
    from rig.machines.guests import guests

    stored = target.scenario(scenario)
    require_choice(stored)
    build = programs.of_run(stored, library, image)
    with (
        show("explaining", "states judged") as progress,
        guests([build] if build else [], progress.says) as source,
    ):
        return _explain(target, scenario, state_id, source, _LIMIT_S, progress)


def explain_worst(target: Run, exposure_min: int, build: Library | None) -> None:
    """Explain the worst state with which a run breaks a promise, and keep what came of it."""
    from rig.analysis.judging.outcome import summarise
    from rig.analysis.show.broken import breaks
    from rig.front.progress import show
    from rig.machines.guests import guests

    results, _ = target.results()
    if broken := breaks(summarise(results, exposure_min)):
        with (
            show("explaining", "states judged") as progress,
            guests([build] if build else [], progress.says) as source,
        ):
            progress.says("explaining the worst state that breaks a promise; --no-explain leaves this out")
            explain_break(target, broken, source, progress)


def explain_break(target: Run, broken: Sequence[Break], source: Source, progress: Progress | None = None) -> None:
    """Explain the worst break that can be explained, unless that was done before, and keep what came of it."""
    from rig.analysis.explain.story import Narrative, Telling

    chosen, refusal = _choice(target, broken)
    scenario, state = chosen.row.outcome.scenario.id, chosen.worst.state
    kept = tellings(target).get(scenario)
    if kept and kept.story and kept.state == state:
        return
    telling = Telling(state, None, refusal)
    if not refusal:
        try:
            with _time_limit(_GIVE_UP_S, f"rig explain {scenario} {state}{_run_dir_option(target)}"):
                explanation = _explain(target, scenario, state, source, _SEARCH_S, progress)
            telling = Telling(state, Narrative.of(explanation, chosen.row.promise))
        except (RigError, TimeoutError) as error:
            telling = Telling(state, None, str(error))
        except Exception as error:  # an extra must not cost the run its report
            logging.getLogger(__name__).exception("this is a bug in the rig")
            telling = Telling(state, None, f"the rig has a bug: {error!r}")
    target.write_explanation(scenario, asdict(telling))


def keep(target: Run, scenario_id: str, telling: Telling) -> None:
    """Keep what came of explaining a state, unless the run has a story of the scenario."""
    kept = tellings(target).get(scenario_id)
    if not (kept and kept.story):
        target.write_explanation(scenario_id, asdict(telling))


def tellings(target: Run) -> dict[str, Telling]:
    """Return scenario -> what came of explaining one of its states; leave out what is damaged."""
    from rig.analysis.explain.story import Telling
    from rig.contract.messages import decode

    readable: dict[str, Telling] = {}
    for scenario, stored in target.explanations().items():
        try:
            readable[scenario] = decode(Telling, stored)
        except (ValueError, TypeError):
            continue
    return readable


def _choice(target: Run, broken: Sequence[Break]) -> tuple[Break, str]:
    """Return the worst break that can be explained; if none can, the worst, and why not."""
    refusals = []
    for each in broken:
        if not (refusal := _refusal(target, each.row.outcome.scenario.id, each.worst)):
            return each, ""
        refusals.append(refusal)
    return broken[0], refusals[0]


def _run_dir_option(target: Run) -> str:
    name = name_of_run(target.folder)
    return f" --run-dir {name}" if name else ""


def _refusal(target: Run, scenario_id: str, verdict: Verdict) -> str:
    """Return why a state is not explained at the end of a run; empty if it is."""
    from rig.campaign.evidence import require_choice, require_single_cut
    from rig.engines import Sharing, load
    from rig.recordings import archive

    scenario = target.scenario(scenario_id)
    recorded = archive.load(target.recording_folder(scenario))
    if recorded is None:
        return "its recording is gone"
    try:
        require_choice(scenario)
        require_single_cut(scenario, recorded.facts, verdict.state, has_lives=True)
    except UsageError as error:
        return str(error)
    if load(scenario.engine_module).spec.sharing is Sharing.SERVER:
        return f"a server takes minutes: rig explain {scenario_id} {verdict.state}"
    return ""


def _explain(  # noqa: PLR0917 - only the two names have one type
    target: Run, scenario: str, state_id: str, source: Source, limit_s: float, progress: Progress | None
) -> Explanation:
    from rig.analysis.explain.explanation import explain
    from rig.campaign.evidence import of_scenario, of_state, verdict_of
    from rig.engines import Sharing, load

    stored = target.scenario(scenario)
    is_server = load(stored.engine_module).spec.sharing is Sharing.SERVER
    with (
        of_scenario(target, scenario, source.of(stored), progress) as of_run,
        of_state(target, of_run, state_id) as (evidence, state),
    ):
        verdict = verdict_of(evidence, target, state, state_id)
        if is_server:
            return explain(evidence, state, verdict, _LIMIT_OF_SERVER_S, _SINGLES_OF_SERVER_MAX)
        return explain(evidence, state, verdict, limit_s, guesses_s=_GUESSES_S if limit_s == _LIMIT_S else 0)


@contextmanager
def _time_limit(limit_s: float, without: str) -> Iterator[None]:
    """Stop the machines of this process if a block takes longer; raise TimeoutError then.

    `without` is a command that has no such limit.
    """
    from rig.machines import machine

    is_late = threading.Event()

    def stop() -> None:
        is_late.set()
        machine.stop_all()

    timer = threading.Timer(limit_s, stop)
    timer.start()
    try:
        yield
    except RigError:
        if is_late.is_set():
            raise TimeoutError(f"it took longer than {limit_s} s; this has no such limit: {without}") from None
        raise
    finally:
        timer.cancel()
        timer.join()
        machine.allow_all()
