"""An explanation in words: a paragraph, a list, Markdown fit for an issue tracker, and a page.

A `Narrative` is all of the words with the drawing, as plain data that a run directory keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import shorten

from rig.analysis.dossiers import Promise
from rig.analysis.explain.blame import Blame
from rig.analysis.explain.blocks import NamedWrite
from rig.analysis.explain.checks import StoryCheck
from rig.analysis.explain.drawing import Drawing, svg
from rig.analysis.explain.explanation import Explanation
from rig.analysis.explain.instants import span_text
from rig.contract.calls import SeenCall
from rig.contract.orders import ADD_EVERYTHING, ADD_WITHIN, DIRECTORY
from rig.contract.results import VerdictKind
from rig.contract.scenario import WRITEBACK
from rig.engines.syncs import CallName
from rig.faults import DiskLetter, JointState
from rig.filesystems.roles import ChangeKind, FileChange

_CHANGES_MAX, _CHANGES_LISTED_MAX, _BLAMES_MAX = 3, 8, 2
# From which probability on it is said that chance may explain a check.
_CHANCE_TOLD_MIN = 0.05
_FRAMES_MAX = 12
# The characters of a paragraph for what the engine said.
_DETAIL_MAX = 120
# What a sync is added of, where it is no file.
_TARGETS = {DIRECTORY: "of the directory", ADD_EVERYTHING: "of everything"}
# What a verdict means, as the end of "After this cut ...".
_MEANINGS = {
    VerdictKind.LOST_SUFFIX: "acknowledged transactions are gone",
    VerdictKind.TORN: "the database has a part of a transaction",
    VerdictKind.HOLE: "the database lacks a transaction and has a later one",
    VerdictKind.STALE: "the database has rows that were changed since",
    VerdictKind.FOREIGN: "the database has rows that nobody wrote",
    VerdictKind.CORRUPT: "the engine's own check finds the database damaged",
    VerdictKind.UNOPENABLE: "the engine refuses to open the database",
    VerdictKind.SPLIT: "one of several databases has a transaction that another lacks",
}


@dataclass(frozen=True)
class Narrative:
    """An explanation in words."""

    headline: str
    paragraph: str
    enough: tuple[str, ...]
    facts: tuple[str, ...]
    drawing: Drawing
    # The last sentences of the paragraph: what would mend it. Empty in runs of earlier versions.
    conclusion: str = ""

    @classmethod
    def of(cls, explanation: Explanation, promise: Promise | None) -> Narrative:
        """Tell an explanation."""
        *_, conclusion = _sentences(explanation)
        return cls(
            headline(explanation), paragraph(explanation), tuple(minimal_list(explanation)),
            tuple(facts_list(explanation, promise)), explanation.drawing, conclusion,
        )  # fmt: skip


@dataclass(frozen=True)
class Telling:
    """What came of explaining a state: its story, or why it has no story."""

    state: str
    story: Narrative | None
    failure: str = ""


def paragraph(explanation: Explanation) -> str:
    """Return an explanation in a few sentences."""
    return " ".join(_sentences(explanation))


def lines(explanation: Explanation) -> list[str]:
    """Return the explanation as lines of text for a terminal: the paragraph, the lists, the drawing."""
    lines_of_text = [paragraph(explanation), ""]
    lines_of_text += [f"  {line}" for line in minimal_list(explanation)]
    return [*lines_of_text, "", *explanation.drawing.text.splitlines()]


def minimal_list(explanation: Explanation) -> list[str]:
    """Return the minimal sets, the instants and the checks, a line each."""
    loss = explanation.loss
    lines_of_text = _sides("enough to be lost", explanation.lost, len(loss.culprit.sets))
    if explanation.landed and explanation.landed[0]:
        lines_of_text += _sides("enough to have landed", explanation.landed, len(loss.landed.sets))
    else:
        lines_of_text.append("enough to have landed: nothing; to lose all that was not flushed is enough")
    lines_of_text.append(f"smallest state: {loss.culprit.state.id}")
    lines_of_text.append(f"first cut: before entry {loss.first_instant.entry}, {loss.first_instant.phase}")
    lines_of_text.append(f"last cut: before entry {loss.last_instant.entry}, {loss.last_instant.phase}")
    lines_of_text += [check_text(check) for check in explanation.checks]
    lines_of_text += _stacks(explanation)
    if not loss.is_complete or not loss.culprit.is_minimal:
        lines_of_text.append("time ran out: the sets may not be the smallest")
    return [*lines_of_text, f"{loss.judged_count} crash states were judged for this"]


def markdown(explanation: Explanation, promise: Promise | None, replay_line: str) -> str:
    """Return the explanation as Markdown: versions, settings, promise, what happened, how to reproduce."""
    parts = (
        f"## {headline(explanation)}",
        paragraph(explanation),
        "### What is enough",
        "\n".join(f"- {line}" for line in minimal_list(explanation)),
        "### Timeline",
        f"```\n{explanation.drawing.text}\n```",
        "### Versions and settings",
        "\n".join(f"- {line}" for line in facts_list(explanation, promise, "`")),
        "### How to reproduce",
        f"```sh\n{replay_line}\n```",
    )
    return "\n\n".join(parts) + "\n"


def page(story: Narrative, replay_line: str) -> str:
    """Return a story as a page of HTML, with the drawing as a picture."""
    from rig.analysis.show.pages import render

    values = {"story": story, "picture": svg(story.drawing), "replay_line": replay_line}
    return render("explanation.html.j2", values)


def meaning(kind: VerdictKind) -> str:
    """Return what a kind of verdict means, as a clause."""
    return _MEANINGS.get(kind, f"the verdict is {kind}")


def headline(explanation: Explanation) -> str:
    """Return the engine, the verdict, the settings and the file system in one line."""
    scenario, kind = explanation.scenario, explanation.loss.verdict.kind
    return f"{scenario.engine}: {kind} after a power cut ({scenario.settings_name} on {scenario.filesystem})"


def facts_list(explanation: Explanation, promise: Promise | None, quote: str = "") -> list[str]:
    """Return versions, settings and the promise, a line each; settings stand between quotes."""
    facts, scenario = explanation.facts, explanation.scenario
    settings = [
        f"{quote}{name}={value}{quote}"
        for name, value in facts.settings.items()
        if name not in {"version", "source_id"}
    ]
    return [
        f"engine: {scenario.engine} {facts.engine_version}",
        f"settings, read back: {', '.join(settings)}",
        f"file system: {scenario.filesystem}, mounted with {quote}{facts.filesystem.get('mount', '')}{quote}",
        f"kernel {facts.kernel}, {facts.qemu_version}",
        f"what is promised: {f'{promise.text} ({promise.source})' if promise else 'not known'}",
    ]


def check_text(check: StoryCheck) -> str:
    """Return what a check showed, as a sentence without its full stop."""
    added = " and ".join(map(_of_target, check.added))
    if check.failure:
        return f"a sync {added} could not be tried: {check.failure}"
    after, before = f"{check.broken_after} of {check.count_after}", f"{check.broken_before} of {check.count_before}"
    show = "are damaged" if check.is_damage else "show this"
    weight = "" if check.broken_before else " under the same supervision, so no sync can be shown to help"
    if check.helps and check.chance > _CHANCE_TOLD_MIN:
        weight = f" (chance alone would do this in {check.chance:.0%} of such checks)"
    return f"with a sync {added} added, {after} contents {show}; without it, {before}{weight}"


def _of_target(target: str) -> str:
    """Return of what a sync was added, in words."""
    if target in _TARGETS:
        return _TARGETS[target]
    name = target.removeprefix(ADD_WITHIN)
    return f"of {name}" if name == target else f"of {name} between its writes"


def _sentences(explanation: Explanation) -> Iterator[str]:
    loss = explanation.loss
    yield _what_happened(explanation)
    if isinstance(loss.state, JointState):
        late = loss.state.late
        yield (
            f"Disk {late.other} died first, with all that it had not flushed, and disk {late} went on. "
            f"Disk {DiskLetter.A} has the files, and disk {DiskLetter.B} the journal."
        )
    if lives := explanation.scenario.lives:
        yield f"It was cut in life {len(lives) + 1}, which began with {lives[-1]} transactions."
    if not explanation.has_syncs:
        yield "The workload makes no sync call at all (RWF_DSYNC and io_uring are not seen)."
    sets = explanation.lost
    if not sets or not sets[0]:
        yield "No write that the disk had was lost: what is missing had not reached the disk."
    elif len(loss.culprit.sets) > 1 and len(sets[0]) == 1:
        yield f"It is enough that one of {len(loss.culprit.sets)} writes is lost, for example the {_short(sets[0][0])}."
    else:
        yield f"It is enough that {_list_text(sets[0])} {_is_or_are(sets[0])} lost."
    yield from _premise_sentences(explanation)
    if explanation.torn:
        torn, by = explanation.torn, f" of {explanation.torn.program}" if explanation.torn.program else ""
        yield f"It is enough that {_list_text(explanation.landed[0])} {_is_or_are(explanation.landed[0])} on the disk."
        yield f"Both are parts of one write, {call_text(torn)}{by}, {_when(torn)}: it was torn."
        yield "With all of it on the disk, and with none of it, nothing is damaged: a sync cannot keep a write whole."
        return
    yield from _blame_sentences(explanation)
    if loss.subject:
        span = span_text(loss.last_instant.time_ns - loss.first_instant.time_ns)
        first, last = loss.first_instant.phase, loss.last_instant.phase
        if loss.verdict.acked == loss.subject:
            yield f"A cut can show it from its acknowledgement until {span} later, {last}."
        else:
            yield f"The first cut that shows it is {first}, and the last is {span} later, {last}."
    yield _check_sentence(explanation)


def _what_happened(explanation: Explanation) -> str:
    verdict = explanation.loss.verdict
    if explanation.loss.subject and verdict.kind is VerdictKind.LOST_SUFFIX:
        first, last = explanation.loss.subject, verdict.acked
        if first == last:
            return f"Transaction {first} was acknowledged and is gone after this cut."
        which = f"{first} and {last}" if last == first + 1 else f"{first} to {last}"
        return f"Transactions {which} were acknowledged and are gone after this cut."
    phase = explanation.loss.last_instant.phase
    # The report has the whole with the verdict. Here it would hide the reason.
    detail = shorten(verdict.detail, _DETAIL_MAX, placeholder=" [...]").rstrip(".")
    return f"After this cut, {phase}, {meaning(verdict.kind)}{f': {detail}' if detail else ''}."


def _premise_sentences(explanation: Explanation) -> Iterator[str]:
    """Yield what has to be on the disk, if that is the news."""
    loss, writes = explanation.loss, explanation.landed[0] if explanation.landed else ()
    if not writes:
        return
    if explanation.scenario.tuned == WRITEBACK:
        yield f"It is enough that {_list_text(writes)} {_is_or_are(writes)} on the disk early, before a sync."
    elif loss.premise is loss.first:
        call = explanation.landed_by
        by = f"; the last call before that which may be behind it is {call_text(call)}" if call else ""
        yield f"It begins as soon as {_list_text(writes)} {_is_or_are(writes)} on the disk{by}."


def _blame_sentences(explanation: Explanation) -> Iterator[str]:
    # Calls of one kind on one file lack the same sync.
    alike = {(blame.call.name, blame.call.path): blame for blame in reversed(explanation.blames)}
    for blame in list(reversed(alike.values()))[:_BLAMES_MAX]:
        yield _blame_sentence(blame, explanation)
    if explanation.has_unseen:
        yield "No call that is seen wrote it: AIO and io_uring need none, and no sync is added for them."


def _blame_sentence(blame: Blame, explanation: Explanation) -> str:
    call = blame.call
    where = _when(call)
    by = f" of {call.program}" if call.program else ""
    subject = "The call behind it is"
    if blame.is_apart:
        subject = "What is gone was written by" if explanation.loss.subject else "Not synced by then was"
    beginning = f"{subject} {call_text(call)}{by}, {where}"
    if call.name == CallName.MAP:
        beginning = f"It is in memory mapped from {call.path}{by}, and no call shows when it was written there"
        if blame.sync:
            return f"{beginning}. A sync of it follows, which may have come before that."
    what = "the directory" if blame.of_directory else call.path
    if blame.sync is None:
        until = "before the commit returns" if call.phase.startswith("commit") else "before the next transaction"
        until = "before the write that landed" if blame.is_relied_on else until
        return f"{beginning}; no sync of {what} follows {until}."
    if not explanation.loss.subject:
        before = "" if isinstance(explanation.loss.state, JointState) else ", and the cut comes before that"
        return f"{beginning}. A sync of {what} follows it{before}."
    options = explanation.facts.filesystem.get("mount", "")
    return (
        f"{beginning}. A sync of {what} followed and did not help: look at the file system ({options}) and the device."
    )


def _stacks(explanation: Explanation) -> Iterator[str]:
    """Yield how a program came to the calls that are blamed, the innermost function first."""
    calls = [*(blame.call for blame in explanation.blames[:_BLAMES_MAX]), explanation.landed_by]
    for call in dict.fromkeys(call for call in calls if call and call.stack):
        more = " ..." if len(call.stack) > _FRAMES_MAX else ""
        yield f"stack of {call_text(call)}: {', '.join(call.stack[:_FRAMES_MAX])}{more}"


def _when(call: SeenCall) -> str:
    if call.phase.startswith("commit"):
        return f"in the commit of transaction {call.number}"
    return f"after transaction {call.number} was acknowledged" if call.number else "after the workload had ended"


def call_text(call: SeenCall) -> str:
    """Return a call as a programmer would write it."""
    if call.name in {CallName.WRITE, CallName.ALLOCATE}:
        size = f", {call.length_bytes} bytes" if call.length_bytes >= 0 else ""
        place = f" at {call.offset_bytes}" if call.offset_bytes >= 0 else ""
        return f"{call.name}({call.path}{size}{place})"
    if call.name == CallName.RENAME:
        return f"rename({call.path}, {call.new_path})"
    if call.name == CallName.TRUNCATE:
        return f"truncate({call.path}, {call.offset_bytes})"
    return f"{call.name}({call.path})"


def _check_sentence(explanation: Explanation) -> str:
    if explanation.untold:
        return f"Which calls are behind it is not known, and was not checked: {explanation.untold}."
    if explanation.is_proven:
        text = check_text(next(check for check in explanation.checks if check.helps))
        return f"{text[0].upper()}{text[1:]}."
    if not explanation.checks:
        return "No sync was found to be missing, so this explanation was not checked."
    last = explanation.checks[-1]
    if partial := [check for check in explanation.checks if check.helps_in_part]:
        best = min(partial, key=lambda check: check.chance)
        return f"A sync mends a part of it: {check_text(best)}. The rest is about what is written, and in which order."
    if last.added == (ADD_EVERYTHING,) and last.broken_after and not explanation.has_unseen:
        hint = (
            "at the file system and the device"
            if explanation.loss.subject
            else "at what is written, and in which order"
        )
        return f"No sync mends it: {check_text(last)}. Look {hint}."
    has_all = any(check.added == (ADD_EVERYTHING,) for check in explanation.checks)
    more = " Time ran out before other syncs were tried." if explanation.is_cut_short and not has_all else ""
    return f"This is a guess: {check_text(last)}.{more}"


def _sides(title: str, sets: Sequence[Sequence[NamedWrite]], count: int) -> list[str]:
    sets_in_words = [f"{title}: {_list_text(writes, long=True) or 'nothing that the disk had'}" for writes in sets]
    return (
        [*sets_in_words, f"{title}: {count - len(sets)} more sets of this size"] if count > len(sets) else sets_in_words
    )


def _list_text(writes: Sequence[NamedWrite], *, long: bool = False) -> str:
    return " and ".join(f"the {_long(write) if long else _short(write)}" for write in writes)


def _is_or_are(writes: Sequence[NamedWrite]) -> str:
    return "is" if len(writes) == 1 else "are"


def _short(write: NamedWrite) -> str:
    if not write.changes:
        return str(write)
    changes = _telling(write)
    shown = [str(change) for change in changes[:_CHANGES_MAX]]
    if more := len(changes) - len(shown):
        shown.append(f"changes {more} more things")
    *most, last = shown
    return f"{write}, which {', '.join(most)} and {last}," if most else f"{write}, which {last},"


def _long(write: NamedWrite) -> str:
    where, changes = f"entry {write.atom.entry}", _telling(write)
    shown = "".join(f"; it {change}" for change in changes[:_CHANGES_LISTED_MAX])
    if more := len(changes[_CHANGES_LISTED_MAX:]):
        shown += f"; it changes {more} more things"
    return f"{write} ({where}){shown}"


def _telling(write: NamedWrite) -> Sequence[FileChange]:
    """Return what a block changes, without times if it changes anything else."""
    return [change for change in write.changes if change.kind is not ChangeKind.TIMES] or write.changes
