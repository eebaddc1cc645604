"""Advice in words: for a terminal, as Markdown, as a page, and as JSON. No text says more than was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rig.analysis.advice.advice import Advice, Assessment, Standing, is_limited
from rig.analysis.advice.candidates import Candidate, Showing
from rig.analysis.judging.randomcut import Estimate, RandomCut
from rig.analysis.show.pages import render
from rig.analysis.show.table import number, replay_line, share

HEADINGS = (
    "settings", "tx/s", "lost max", "lost s max", "random cut loses", "damage", "file contents", "standing",
)  # fmt: skip
CAPTION = (
    "tx/s: transactions per virtual second. random cut loses: the probability that a power cut at a random instant "
    "loses something, if all unflushed writes are lost, with its 95 % interval. *: no other setting beats it in both "
    "speed and loss."
)
TOO_SHORT = "too short a run for an interval"
_DIGEST_LETTERS = 12


def headline(advice: Advice) -> str:
    """Return the answer in one sentence."""
    if advice.best:
        speed = number(advice.best.transactions_per_s)
        return f"Take {advice.best.title} ({advice.best.place}): {speed} transactions per virtual second."
    if not advice.assessed:
        return "No advice: nothing that fits was measured."
    if advice.is_refused:
        return "No advice: the evidence does not suffice."
    return f"Nothing that was measured meets {' '.join(advice.wishes.words)} under {_enumeration(advice.faults)}."


def paragraphs(advice: Advice) -> list[tuple[str, list[str]]]:
    """Return what follows the headline: titles, each with its lines."""
    sections = [("asked", [f"{' '.join(advice.wishes.words)} under {_enumeration(advice.faults)}"])]
    if advice.best:
        sections.append(("evidence", [evidence(showing) for showing in advice.best.showings]))
        if advice.best.cut:
            sections.append(("at a random instant", cut_lines(advice.best.cut)))
        sections.append(("mind", _warnings(advice.best)))
        sections.append(("as fast", [_settings_text(candidate, advice.best) for candidate in advice.as_fast]))
        sections.append(("next faster", _next(advice, advice.best)))
    sections += [
        (
            standing.value,
            [_why(assessment, advice) for assessment in advice.assessed if assessment.standing is standing],
        )
        for standing in (Standing.RULED_OUT, Standing.UNPROVEN)
    ]
    return [(title, lines) for title, lines in sections if lines]


def evidence(showing: Showing) -> str:
    """Return on one line what one fault showed, and the evidence for it."""
    if showing.piece is None:
        return f"{showing.fault}: not measured"
    outcome = showing.piece.row.outcome
    digest = outcome.measured.recording.digest[:_DIGEST_LETTERS]
    promise = f"; documented: {showing.promise.text}" if showing.promise else ""
    return (
        f"{showing.fault}: {_losses(showing)} ({outcome.database_count} states, {outcome.exposure_count} file contents)"
        f"; {showing.piece.run}, profile {showing.piece.profile}, recording {digest}{promise}"
    )


def cut_lines(cut: RandomCut) -> list[str]:
    """Return the loss of a power cut at a random instant, with a line for each question."""
    trials = f"{cut.instant_count} instants, as good as {cut.stretch_count} independent ones"
    lines = [f"loses something: {percent(cut.losing)} ({trials})"]
    if cut.damaged_share:
        lines.append(f"comes back damaged: {share(cut.damaged_share)}")
    if cut.lost_mean and cut.lost_max is not None and cut.age_mean_s and cut.age_max_s is not None:
        beyond = f"{cut.beyond_max_upper * 100:.2g} %"
        lines.append(
            f"transactions lost: {estimate(cut.lost_mean)} on average, {cut.lost_max} at most "
            f"(more at <= {beyond} of instants)"
        )
        lines.append(f"age of the oldest lost: {estimate(cut.age_mean_s)} s on average, {cut.age_max_s:.3g} s at most")
    return [*lines, f"at the pace of this workload: {cut.pace_per_s:.3g} transactions per second, pauses included"]


def percent(interval: Estimate) -> str:
    """Return a probability such as `90.0 % (80.1 to 96.2 %)`."""
    if interval.low is None or interval.high is None:
        return f"{share(interval.value)} ({TOO_SHORT})"
    if interval.value == 0:
        return f"{share(0.0)} (<= {interval.high * 100:.2g} %)"
    return f"{share(interval.value)} ({interval.low * 100:.3g} to {interval.high * 100:.3g} %)"


def _brief(interval: Estimate) -> str:
    return share(interval.value) if interval.low is None else percent(interval)


def estimate(interval: Estimate) -> str:
    """Return a mean such as `5.3 (3.1 to 7.7)`."""
    if interval.low is None or interval.high is None:
        return number(interval.value)
    return f"{number(interval.value)} ({number(interval.low)} to {number(interval.high)})"


def rows(advice: Advice) -> list[list[str]]:
    """Return every candidate as a row below `HEADINGS`, the fastest first; its place is named where places differ."""
    places = {assessment.candidate.place for assessment in advice.assessed}
    return [_row(assessment, advice, has_place=len(places) > 1) for assessment in advice.assessed]


def markdown(advice: Advice, commands: Sequence[str]) -> str:
    """Return the advice as Markdown."""
    parts = [f"**{headline(advice)}**"]
    parts += [f"**{title}**\n\n" + "\n".join(f"- {line}" for line in lines) for title, lines in paragraphs(advice)]
    if advice.assessed:
        head = f"| {' | '.join(HEADINGS)} |\n|{' --- |' * len(HEADINGS)}"
        body = "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows(advice))
        parts += [f"{head}\n{body}", CAPTION]
    if commands:
        parts.append("To get the evidence:\n\n```sh\n" + "\n".join(commands) + "\n```")
    return "\n\n".join(parts) + "\n"


def page_html(advice: Advice, commands: Sequence[str]) -> str:
    """Return the advice as a self-contained page."""
    values = {
        "headline": headline(advice),
        "paragraphs": paragraphs(advice),
        "headings": HEADINGS,
        "rows": rows(advice),
        "caption": CAPTION,
        "commands": list(commands),
    }
    return render("advice.html.j2", values)


def as_data(advice: Advice, commands: Sequence[str]) -> dict[str, Any]:
    """Return the advice in JSON's types."""
    return {
        "headline": headline(advice),
        "wishes": {**asdict(advice.wishes), "words": list(advice.wishes.words)},
        "faults": list(advice.faults),
        "take": _candidate(advice.best) if advice.best else None,
        "as_fast": [candidate.title for candidate in advice.as_fast],
        "next_faster": _assessment(advice.next_faster) if advice.next_faster else None,
        "unbeaten": [{"settings": candidate.title, "place": candidate.place} for candidate in advice.unbeaten],
        "candidates": [_assessment(assessment) for assessment in advice.assessed],
        "to_get_the_evidence": list(commands),
    }


def _losses(showing: Showing) -> str:
    harmed = f", file system damaged in {showing.harmed_count} states" if showing.harmed_count else ""
    seconds = f" ({showing.lost_s_max:.3g} s)" if showing.lost_s_max else ""
    return f"lost max {showing.lost_max}{seconds}, damage {showing.damage.text}{harmed}"


def _warnings(candidate: Candidate) -> list[str]:
    """Return what the wishes do not cover: losses without a documented limit, and damage of the file system."""
    warnings = [
        f"{showing.fault}: the documentation sets no limit; "
        f"{showing.lost_max} lost is the most that was seen, at this pace"
        for showing in candidate.showings
        if showing.lost_max and not is_limited(showing)
    ]
    harmed = [showing for showing in candidate.showings if showing.harmed_count]
    return warnings + [
        f"{showing.fault}: {candidate.filesystem} itself was damaged in {showing.harmed_count} states; "
        "no setting prevents that"
        for showing in harmed
    ]


def _next(advice: Advice, best: Candidate) -> list[str]:
    faster = advice.next_faster
    if faster is None:
        return ["nothing that was measured is faster"]
    times = number((faster.candidate.transactions_per_s or 0) / (best.transactions_per_s or 1))
    steps = [f"{_settings_text(faster.candidate, best)}, {times} times as fast ({faster.standing})"]
    steps += [f"{showing.fault}: {_losses(showing)}{_replay(showing)}" for showing in faster.candidate.showings]
    if faster.candidate.cut:
        steps.append(f"at a random instant it loses something: {percent(faster.candidate.cut.losing)}")
    return steps


def _replay(showing: Showing) -> str:
    if showing.worst is None:
        return ""
    piece, verdict = showing.worst
    return f"; {replay_line(piece.row.outcome.scenario.id, verdict, piece.run)}"


def _why(assessment: Assessment, advice: Advice) -> str:
    """Return the reasons against a candidate, each with the wishes and the faults that it concerns."""
    wishes: dict[str, list[str]] = {}
    faults: dict[str, list[str]] = {}
    for reason in assessment.reasons:
        wishes.setdefault(reason.text, []).append(reason.wish)
        faults.setdefault(reason.text, []).append(reason.fault)
    reasons = []
    for text, words in wishes.items():
        by = f"{' '.join(dict.fromkeys(filter(None, words)))}: " if any(words) else ""
        own = dict.fromkeys(faults[text])
        reasons.append(f"{by}{text}" + (f" ({_enumeration(own)})" if set(own) != set(advice.faults) else ""))
    return f"{_settings_text(assessment.candidate, advice.best)}: {'; '.join(reasons)}"


def _row(assessment: Assessment, advice: Advice, *, has_place: bool) -> list[str]:
    candidate = assessment.candidate
    damage = max((each.damage for each in candidate.showings), key=lambda each: (each.count, each.upper))
    counts = [each.piece.row.outcome.exposure_count if each.piece else 0 for each in candidate.showings]
    seconds = max(each.lost_s_max for each in candidate.showings)
    star = "*" if candidate in advice.unbeaten else ""
    place = f" {candidate.engine}, {candidate.filesystem}, {candidate.device}" if has_place else ""
    return [
        f"{candidate.title}{star}{place}",
        number(candidate.transactions_per_s),
        str(candidate.loss[1]),
        f"{seconds:.3g}",
        _brief(candidate.cut.losing) if candidate.cut else "-",
        damage.text if damage.total else "-",
        ", ".join(map(str, counts)),
        "take" if candidate == advice.best else assessment.standing.value,
    ]


def _settings_text(candidate: Candidate, best: Candidate | None) -> str:
    """Return the settings of a candidate, with its place unless the best has the same."""
    if best is None or candidate.place != best.place:
        return f"{candidate.title} ({candidate.place})"
    return candidate.title


def _assessment(assessment: Assessment) -> dict[str, Any]:
    return {
        **_candidate(assessment.candidate),
        "standing": assessment.standing.value,
        "reasons": [asdict(r) for r in assessment.reasons],
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "engine": candidate.engine, "version": candidate.version,
        "filesystem": candidate.filesystem, "device": candidate.device,
        "settings": candidate.name, "variant": candidate.variant,
        "transactions_per_virtual_s": candidate.transactions_per_s,
        "random_instant": asdict(candidate.cut) if candidate.cut else None,
        "evidence": [_showing(each) for each in candidate.showings],
    }  # fmt: skip


def _showing(showing: Showing) -> Mapping[str, Any]:
    known = {
        "fault": showing.fault, "lost_max": showing.lost_max, "lost_virtual_s_max": showing.lost_s_max,
        "damage": asdict(showing.damage), "filesystem_damage_states": showing.harmed_count,
        "doubts": list(showing.doubts),
        "documented": showing.promise.text if showing.promise else None,
        "replay": _replay(showing).removeprefix("; ") or None,
    }  # fmt: skip
    if showing.piece is None:
        return known | {"measured": False}
    outcome = showing.piece.row.outcome
    recording = outcome.measured.recording
    return known | {
        "measured": True, "scenario": outcome.scenario.id, "run": showing.piece.run, "profile": showing.piece.profile,
        "seed": recording.seed, "recording": recording.digest, "states": outcome.database_count,
        "file_contents": outcome.exposure_count,
    }  # fmt: skip


def _enumeration(words: Sequence[str] | Mapping[str, None]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
