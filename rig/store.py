"""A run directory: what defines the run, its recordings, and one row for each verdict, durable as soon as it is known.

    manifest.json            everything that defines the run; written once
    recordings/KEY/          the logs and facts.json, see `rig.recordings.archive`
    scenarios/ID/verdicts.jsonl  a line for each verdict, appended and synced batch by batch
    scenarios/ID/void.jsonl      verdicts that do not count, because their scenario cannot be trusted
    scenarios/ID/plan.json       how many legal crash states are planned; written before the first verdict
    scenarios/ID/failure         why the scenario could not be measured, if it could not
    scenarios/ID/retries.jsonl   a line for each such failure after which it was measured again
    scenarios/ID/explanation.json  why a state breaks the promise, or why that was not found out
    scenarios/ID/explanation.html  the same as a page, for the report to link to
    scenarios/ID/recoveries/     the recordings of recoveries, if these are cut, see `rig.recordings.recoveries`
    verdicts.parquet         all verdicts, for other tools; written at the end

A killed run resumes where it stopped. A line that the kill truncated is dropped. Any other damaged line is reported
with its place, and its crash state is checked again when the run resumes (`mend`).
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from rig.contract.devices import current_name
from rig.contract.errors import RecordingError, RigError, StoreError
from rig.contract.messages import decode
from rig.contract.results import MeasuredScenario, PlanFacts, Verdict
from rig.contract.scenario import Scenario
from rig.filesystems import filesystem_named
from rig.host.files import atomic_write, require_space
from rig.recordings import archive
from rig.recordings.recoveries import Recoveries

# Raised with each change that an earlier version could not read, or would misread.
_FORMAT = 6
_SPACE_BYTES = 64 << 20
_BLOCK_BYTES = 1 << 16
_LOCK_POLL_S = 0.05
_VERDICTS, _VOID, _RETRIES = "verdicts.jsonl", "void.jsonl", "retries.jsonl"
_EXPLANATION = "explanation.json"
# Keys of a manifest: which part of a plan a run is, and the scenarios of that part.
SHARD, OF_SHARD = "shard", "scenarios of the shard"


class Run:
    """A run directory; several processes may work in one."""

    def __init__(self, folder: Path, definition: Mapping[str, Any]) -> None:
        self.folder = folder
        self.definition = definition

    @classmethod
    def create(cls, folder: Path, definition: Mapping[str, Any]) -> Run:
        """Make a run directory, or take one with the same definition; raise StoreError if it holds another run."""
        if (folder / "manifest.json").exists():
            run = cls.open(folder)
            if differing := run.differing(definition):
                raise StoreError(
                    f"{folder} holds another run (it differs in {', '.join(differing)}); name another folder"
                )
            return run
        require_space(folder, _SPACE_BYTES, "a run")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make the run directory {folder}: {error.strerror}") from None
        text = json.dumps({"format": _FORMAT, **definition}, indent=1)
        atomic_write(folder / "manifest.json", text.encode())
        return cls.open(folder)

    def differing(self, definition: Mapping[str, Any]) -> list[str]:
        """Return the keys in which the definition of this run and another one differ, sorted."""
        stored, wanted = self.definition, json.loads(json.dumps({"format": _FORMAT, **definition}))
        return sorted(key for key in {*stored, *wanted} if stored.get(key) != wanted.get(key))

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Open a run directory; raise StoreError if it is not one or its manifest is damaged."""
        path = folder / "manifest.json"
        try:
            definition = json.loads(path.read_text())
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(f"{folder} is not a run directory: it has no manifest.json") from None
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise StoreError(f"{path} is damaged: {error}") from None
        if not isinstance(definition, dict) or "format" not in definition:
            raise StoreError(f"{path} is not the manifest of a run: it has no format")
        if definition["format"] != _FORMAT:
            raise StoreError(
                f"{path} was written by another version of the rig: it has format {definition['format']}, but this "
                f"version reads format {_FORMAT}; read it with the version that wrote it, or measure again elsewhere"
            )
        return cls(folder, definition)

    @property
    def profile(self) -> str:
        """Return the name of the profile that the run was measured with; raise StoreError if the manifest has none."""
        if "profile" not in self.definition:
            raise StoreError(f"{self.folder / 'manifest.json'} is damaged: it does not name a profile")
        return str(self.definition["profile"])

    def recording_folder(self, scenario: Scenario) -> Path:
        """Return the folder of a scenario's recording."""
        return self.folder / "recordings" / scenario.recording_key

    def has_repeated(self) -> bool:
        """Return whether one of the recordings was made twice, and compared."""
        return any(archive.was_repeated(folder) for folder in self.folder.glob("recordings/*"))

    def recoveries(self, scenario: Scenario) -> Recoveries:
        """Return the recordings of a scenario's recoveries, for a fault that cuts recoveries."""
        disk_mib = filesystem_named(scenario.filesystem).disk_mib_min
        return Recoveries(self._folder(scenario.id) / "recoveries", disk_mib, scenario.device.atomic_bytes)

    @contextmanager
    def lock(self, scenario: Scenario, stopped: threading.Event) -> Iterator[None]:
        """Lock a recording and its scenarios against other processes; raise StoreError if stopped while waiting."""
        folder = self.recording_folder(scenario)
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "lock", "w") as file:
            while not _is_locked(file):
                # Waiting for the lock in the kernel would ignore `stopped`.
                if stopped.wait(_LOCK_POLL_S):
                    raise StoreError(f"{folder} was in use by another process until we were stopped")
            yield

    def write_plan(self, scenario: Scenario, facts: PlanFacts) -> None:
        """Store a scenario and its plan; remove an earlier failure.

        Raise StoreError if the folder has verdicts on another recording, for example of another program.
        """
        folder = self._folder(scenario.id)
        if (folder / "plan.json").exists() and self.scenario(scenario.id).recording_key != scenario.recording_key:
            raise StoreError(f"{folder} has verdicts on another recording; name another run directory")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "failure").unlink(missing_ok=True)
        text = json.dumps({"scenario": asdict(scenario), "plan": asdict(facts)}, indent=1)
        atomic_write(folder / "plan.json", text.encode())

    def write_ending(self, scenario: Scenario, why: str, *, is_saturated: bool) -> None:
        """Note why no more states of a scenario were planned though more file contents were wanted."""
        facts = _plan(self._folder(scenario.id) / "plan.json")[1]
        self.write_plan(scenario, replace(facts, ending=why, is_saturated=is_saturated))

    def emulated_because(self, scenario: Scenario) -> str:
        """Return why a scenario was judged under emulation alone; empty if it was not, or has no plan yet."""
        path = self._folder(scenario.id) / "plan.json"
        return _plan(path)[1].emulated_because if path.exists() else ""

    def write_failure(self, scenario: Scenario, message: str) -> None:
        """Store the reason why a scenario could not be measured."""
        self.note_failure(scenario.id, message)

    def note_failure(self, scenario_id: str, message: str) -> None:
        """Store the reason why a scenario was not measured; its id may be all that is known."""
        folder = self._folder(scenario_id)
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / "failure", message.encode())

    def void(self, scenario: Scenario, message: str) -> None:
        """Store the reason why a scenario cannot be trusted, and remove it from the results.

        Its verdicts are kept aside as evidence. If the run goes on, none of them counts.
        """
        folder = self._folder(scenario.id)
        self.write_failure(scenario, message)
        (folder / "plan.json").unlink(missing_ok=True)
        if (folder / _VERDICTS).exists():
            (folder / _VERDICTS).replace(folder / _VOID)

    def failures(self) -> dict[str, str]:
        """Return scenario -> why it was not measured, also of those that the run was asked for and did not begin."""
        failures = {path.parent.name: path.read_text() for path in sorted(self.folder.glob("scenarios/*/failure"))}
        for scenario_id in self.definition.get(OF_SHARD) or self.definition.get("scenarios", ()):
            if scenario_id not in failures and not (self._folder(scenario_id) / "plan.json").exists():
                failures[scenario_id] = "the run ended before its turn; the same command with --run-dir goes on"
        return failures

    def note_retry(self, scenario_id: str) -> bool:
        """Note that a scenario that could not be measured is measured again; return False if it must not be.

        A void scenario contradicted itself, and a second attempt that does not is no answer to that.
        """
        folder = self._folder(scenario_id)
        if not (folder / "failure").exists() or (folder / _VOID).exists():
            return False
        with (folder / _RETRIES).open("a") as file:
            file.write(json.dumps((folder / "failure").read_text()) + "\n")
        return True

    def retries(self) -> dict[str, int]:
        """Return scenario -> how often it was measured again, without the scenarios that never were."""
        paths = sorted(self.folder.glob(f"scenarios/*/{_RETRIES}"))
        return {path.parent.name: len(path.read_text().splitlines()) for path in paths}

    def write_explanation(self, scenario_id: str, telling: Mapping[str, Any]) -> None:
        """Store what came of explaining a state of a scenario, instead of what is there."""
        atomic_write(self._folder(scenario_id) / _EXPLANATION, json.dumps(telling, indent=1).encode())

    def explanations(self) -> dict[str, Mapping[str, Any]]:
        """Return scenario -> what came of explaining one of its states, as it was stored; leave out damaged files."""
        stored: dict[str, Mapping[str, Any]] = {}
        for path in sorted(self.folder.glob(f"scenarios/*/{_EXPLANATION}")):
            try:
                stored[path.parent.name] = json.loads(path.read_text())
            except ValueError:
                continue
        return stored

    def explanation_page(self, scenario_id: str) -> Path:
        """Return where the page of a scenario's explanation is."""
        return self._folder(scenario_id) / "explanation.html"

    def append(self, scenario_id: str, verdicts: Iterable[Verdict]) -> None:
        """Append verdicts of a scenario and sync them; the caller must allow one thread at a time."""
        path = self._folder(scenario_id) / _VERDICTS
        try:
            with open(path, "a+b") as file:
                _drop_cut_line(file)
                file.write(_lines(verdicts))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}; the verdicts before this one are kept") from None

    def verdicts(self, scenario_id: str) -> tuple[list[Verdict], list[StoreError]]:
        """Return the verdicts of a scenario, and one error for each damaged line."""
        path = self._folder(scenario_id) / _VERDICTS
        verdicts: list[Verdict] = []
        damaged: list[StoreError] = []
        offset = 0
        # The text after the last newline is a truncated line.
        for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else []:
            try:
                verdicts.append(decode(Verdict, json.loads(line)))
            except (ValueError, TypeError, KeyError) as error:
                damaged.append(StoreError(f"{path}: the line at byte {offset} is damaged: {error}"))
            offset += len(line) + 1
        return verdicts, damaged

    def mend(self, scenario_id: str) -> list[StoreError]:
        """Drop the damaged lines among the verdicts of a scenario and return an error for each."""
        verdicts, damaged = self.verdicts(scenario_id)
        if damaged:
            atomic_write(self._folder(scenario_id) / _VERDICTS, _lines(verdicts))
        return damaged

    def scenario(self, scenario_id: str) -> Scenario:
        """Return a scenario of this run; raise StoreError naming those that exist."""
        path = self._folder(scenario_id) / "plan.json"
        if not path.exists():
            known = ", ".join(sorted(plan_file.parent.name for plan_file in self.folder.glob("scenarios/*/plan.json")))
            raise StoreError(f"{self.folder} has no scenario {scenario_id!r}; it has: {known}")
        return _plan(path)[0]

    def results(self, scenarios: Sequence[str] | None = None) -> tuple[list[MeasuredScenario], list[RigError]]:
        """Return all measured scenarios, or those named, and an error for each damaged file."""
        results: list[MeasuredScenario] = []
        damaged: list[RigError] = []
        for path in sorted(self.folder.glob("scenarios/*/plan.json")):
            if scenarios is not None and path.parent.name not in scenarios:
                continue
            try:
                scenario, facts = _plan(path)
                recorded = archive.load(self.recording_folder(scenario))
            except (StoreError, RecordingError) as error:
                damaged.append(error)
                continue
            if recorded is None:
                damaged.append(StoreError(f"{scenario.id}: its recording is gone"))
                continue
            verdicts, errors = self.verdicts(scenario.id)
            damaged += errors
            device = replace(scenario.device, name=current_name(scenario.device.name))
            measured = replace(scenario, device=device)
            results.append(MeasuredScenario(measured, recorded.facts, facts, tuple(verdicts)))
        return results, damaged

    def _folder(self, scenario_id: str) -> Path:
        return self.folder / "scenarios" / scenario_id


def write_parquet(results: Sequence[MeasuredScenario], path: Path) -> None:
    """Write all verdicts as one Parquet table: a column for each field of `Verdict`, and the engine's version."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {**asdict(verdict), "engine_version": result.recording.engine_version}
        for result in results
        for verdict in result.verdicts
    ]
    # The types are given, not inferred from the rows, because a column may hold only None.
    types = {
        "str": pa.string(), "VerdictKind": pa.string(), "int": pa.int64(), "int | None": pa.int64(), "bool": pa.bool_(),
    }  # fmt: skip
    columns = [(field.name, types[str(field.type)]) for field in fields(Verdict)]
    schema = pa.schema([*columns, ("engine_version", pa.string())])
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink)
    atomic_write(path, sink.getvalue().to_pybytes())


def _is_locked(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _drop_cut_line(file: BinaryIO) -> None:
    """Truncate a file after its last newline, and seek to its end."""
    end = file.seek(0, os.SEEK_END)
    while end:
        begin = max(end - _BLOCK_BYTES, 0)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        if newline >= 0:
            end = begin + newline + 1
            break
        end = begin
    file.truncate(end)
    file.seek(end)


def _lines(verdicts: Iterable[Verdict]) -> bytes:
    return "".join(json.dumps(asdict(verdict)) + "\n" for verdict in verdicts).encode()


def _plan(path: Path) -> tuple[Scenario, PlanFacts]:
    try:
        plan = json.loads(path.read_text())
        return decode(Scenario, plan["scenario"]), decode(PlanFacts, plan["plan"])
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{path} is damaged: {error!r}; remove its folder to measure the scenario again") from None
