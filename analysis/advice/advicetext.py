"""Advice in words: for a terminal, as Markdown, as a page, and as JSON. No text says more than was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rig.analysis.advice.advice import Advice, Assessment, Standing, is_limited
from rig.analysis.advice.candidates import Candidate, Showing
from rig.analysis.judging.randomcut import Estimate, RandomCut
from rig.analysis.show.pages import rendered
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
    return f"Nothing that was measured meets {' '.join(advice.wishes.words)} under {_listed(advice.faults)}."


def paragraphs(advice: Advice) -> list[tuple[str, list[str]]]:
    """Return what follows the headline: titles, each with its lines."""
    found = [("asked", [f"{' '.join(advice.wishes.words)} under {_listed(advice.faults)}"])]
    if advice.best:
        found.append(("evidence", [evidence(one) for one in advice.best.showings]))
        if advice.best.cut:
            found.append(("at a random instant", cut_lines(advice.best.cut)))
        found.append(("mind", _warnings(advice.best)))
        found.append(("as fast", [_named(one, advice.best) for one in advice.as_fast]))
        found.append(("next faster", _next(advice, advice.best)))
    found += [
        (standing.value, [_why(one, advice) for one in advice.assessed if one.standing is standing])
        for standing in (Standing.RULED_OUT, Standing.UNPROVEN)
    ]
    return [(title, lines) for title, lines in found if lines]


def evidence(showing: Showing) -> str:
    """Return on one line what one fault showed, and the evidence for it."""
    if showing.piece is None:
        return f"{showing.fault}: not measured"
    outcome = showing.piece.row.outcome
    digest = outcome.scenario.recording.digest[:_DIGEST_LETTERS]
    promise = f"; documented: {showing.promise.text}" if showing.promise else ""
    return (
        f"{showing.fault}: {_losses(showing)} ({outcome.database_count} states, {outcome.exposure_count} file contents)"
        f"; {showing.piece.run}, profile {showing.piece.profile}, recording {digest}{promise}"
    )


def cut_lines(cut: RandomCut) -> list[str]:
    """Return the loss of a power cut at a random instant, with a line for each question."""
    trials = f"{cut.instant_count} instants, as good as {cut.stretch_count} independent ones"
    found = [f"loses something: {percent(cut.losing)} ({trials})"]
    if cut.damaged_share:
        found.append(f"comes back damaged: {share(cut.damaged_share)}")
    if cut.lost_mean and cut.lost_max is not None and cut.age_mean_s and cut.age_max_s is not None:
        beyond = f"{cut.beyond_max_upper * 100:.2g} %"
        found.append(
            f"transactions lost: {estimate(cut.lost_mean)} on average, {cut.lost_max} at most "
            f"(more at <= {beyond} of instants)"
        )
        found.append(f"age of the oldest lost: {estimate(cut.age_mean_s)} s on average, {cut.age_max_s:.3g} s at most")
    return [*found, f"at the pace of this workload: {cut.pace_per_s:.3g} transactions per second, pauses included"]


def percent(one: Estimate) -> str:
    """Return a probability such as `90.0 % (80.1 to 96.2 %)`."""
    if one.low is None or one.high is None:
        return f"{share(one.value)} ({TOO_SHORT})"
    if one.value == 0:
        return f"{share(0.0)} (<= {one.high * 100:.2g} %)"
    return f"{share(one.value)} ({one.low * 100:.3g} to {one.high * 100:.3g} %)"


def _brief(one: Estimate) -> str:
    return share(one.value) if one.low is None else percent(one)


def estimate(one: Estimate) -> str:
    """Return a mean such as `5.3 (3.1 to 7.7)`."""
    if one.low is None or one.high is None:
        return number(one.value)
    return f"{number(one.value)} ({number(one.low)} to {number(one.high)})"


def rows(advice: Advice) -> list[list[str]]:
    """Return every candidate as a row below `HEADINGS`, the fastest first; its place is named where places differ."""
    places = {one.candidate.place for one in advice.assessed}
    return [_row(one, advice, has_place=len(places) > 1) for one in advice.assessed]


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
    return rendered("advice.html.j2", values)


def as_data(advice: Advice, commands: Sequence[str]) -> dict[str, Any]:
    """Return the advice in JSON's types."""
    return {
        "headline": headline(advice),
        "wishes": {**asdict(advice.wishes), "words": list(advice.wishes.words)},
        "faults": list(advice.faults),
        "take": _candidate(advice.best) if advice.best else None,
        "as_fast": [one.title for one in advice.as_fast],
        "next_faster": _assessment(advice.next_faster) if advice.next_faster else None,
        "unbeaten": [{"settings": one.title, "place": one.place} for one in advice.unbeaten],
        "candidates": [_assessment(one) for one in advice.assessed],
        "to_get_the_evidence": list(commands),
    }


def _losses(showing: Showing) -> str:
    harmed = f", file system damaged in {showing.harmed_count} states" if showing.harmed_count else ""
    seconds = f" ({showing.lost_s_max:.3g} s)" if showing.lost_s_max else ""
    return f"lost max {showing.lost_max}{seconds}, damage {showing.damage.text}{harmed}"


def _warnings(candidate: Candidate) -> list[str]:
    """Return what the wishes do not cover: losses without a documented limit, and damage of the file system."""
    found = [
        f"{one.fault}: the documentation sets no limit; {one.lost_max} lost is the most that was seen, at this pace"
        for one in candidate.showings
        if one.lost_max and not is_limited(one)
    ]
    harmed = [one for one in candidate.showings if one.harmed_count]
    return found + [
        f"{one.fault}: {candidate.filesystem} itself was damaged in {one.harmed_count} states; no setting prevents that"
        for one in harmed
    ]


def _next(advice: Advice, best: Candidate) -> list[str]:
    one = advice.next_faster
    if one is None:
        return ["nothing that was measured is faster"]
    times = number((one.candidate.transactions_per_s or 0) / (best.transactions_per_s or 1))
    found = [f"{_named(one.candidate, best)}, {times} times as fast ({one.standing})"]
    found += [f"{showing.fault}: {_losses(showing)}{_replay(showing)}" for showing in one.candidate.showings]
    if one.candidate.cut:
        found.append(f"at a random instant it loses something: {percent(one.candidate.cut.losing)}")
    return found


def _replay(showing: Showing) -> str:
    if showing.worst is None:
        return ""
    piece, verdict = showing.worst
    return f"; {replay_line(piece.row.outcome.scenario.id, verdict, piece.run)}"


def _why(one: Assessment, advice: Advice) -> str:
    """Return the reasons against a candidate, each with the wishes and the faults that it concerns."""
    wishes: dict[str, list[str]] = {}
    faults: dict[str, list[str]] = {}
    for reason in one.reasons:
        wishes.setdefault(reason.text, []).append(reason.wish)
        faults.setdefault(reason.text, []).append(reason.fault)
    found = []
    for text, words in wishes.items():
        by = f"{' '.join(dict.fromkeys(filter(None, words)))}: " if any(words) else ""
        own = dict.fromkeys(faults[text])
        found.append(f"{by}{text}" + (f" ({_listed(own)})" if set(own) != set(advice.faults) else ""))
    return f"{_named(one.candidate, advice.best)}: {'; '.join(found)}"


def _row(one: Assessment, advice: Advice, *, has_place: bool) -> list[str]:
    candidate = one.candidate
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
        "take" if candidate == advice.best else one.standing.value,
    ]


def _named(candidate: Candidate, best: Candidate | None) -> str:
    """Return the settings of a candidate, with its place unless the best has the same."""
    if best is None or candidate.place != best.place:
        return f"{candidate.title} ({candidate.place})"
    return candidate.title


def _assessment(one: Assessment) -> dict[str, Any]:
    return {**_candidate(one.candidate), "standing": one.standing.value, "reasons": [asdict(r) for r in one.reasons]}


def _candidate(one: Candidate) -> dict[str, Any]:
    return {
        "engine": one.engine, "version": one.version, "filesystem": one.filesystem, "device": one.device,
        "settings": one.name, "variant": one.variant, "transactions_per_virtual_s": one.transactions_per_s,
        "random_instant": asdict(one.cut) if one.cut else None, "evidence": [_showing(each) for each in one.showings],
    }  # fmt: skip


def _showing(one: Showing) -> Mapping[str, Any]:
    known = {
        "fault": one.fault, "lost_max": one.lost_max, "lost_virtual_s_max": one.lost_s_max,
        "damage": asdict(one.damage), "filesystem_damage_states": one.harmed_count, "doubts": list(one.doubts),
        "documented": one.promise.text if one.promise else None,
        "replay": _replay(one).removeprefix("; ") or None,
    }  # fmt: skip
    if one.piece is None:
        return known | {"measured": False}
    outcome = one.piece.row.outcome
    recording = outcome.scenario.recording
    return known | {
        "measured": True, "scenario": outcome.scenario.id, "run": one.piece.run, "profile": one.piece.profile,
        "seed": recording.seed, "recording": recording.digest, "states": outcome.database_count,
        "file_contents": outcome.exposure_count,
    }  # fmt: skip


def _listed(words: Sequence[str] | Mapping[str, None]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
