"""The pytest plugin: durability tests are the scenarios of the matrix, selected by `-k` as any other test.

    @pytest.mark.durability("ENGINE-FILESYSTEM-SETTINGS_FAULT")
    def test_promise(durability):
        durability.check()

A test with the argument `durability` runs once for each scenario that its marker names, with the scenario's id as test
id; without a marker, once for each scenario of the matrix. The fixture measures the scenario and the controls of its
group; `check` fails the test unless the result is the expected one. Import and collection start no machine. All
workers of a session share one run directory.

    def test_my_program(durability_of):
        durability_of("./mydb", filesystem="FILESYSTEM", fault="powercut", promise="durable").check()

measures a user's program; `image="recipe.toml"` says what the program needs in the guest. What the program has to do
is in docs/how-to/your-own-program.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rig.contract.devices import DEFAULT_DEVICE, DEVICES
from rig.contract.scenario import OWN_WORKLOAD
from rig.front import programs

if TYPE_CHECKING:
    from rig.analysis.explain.story import Telling
    from rig.analysis.judging.outcome import Row, Summary
    from rig.contract.scenario import Scenario
    from rig.engines.builds import Library
    from rig.machines.guests import Guests, Machines


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the rig."""
    group = parser.getgroup("rig", "durability under power loss")
    group.addoption("--rig-profile", default="quick", help="how closely to look: smoke, quick, nightly or exhaustive")
    group.addoption("--rig-device", default=DEFAULT_DEVICE, help=f"the disk: {', '.join(DEVICES)}")
    group.addoption("--rig-seed", default=1, type=int, help="seed of the workload and of sampling")
    group.addoption(
        "--rig-library", default=None, help="another build of the engine: a shared library, or NAME==VERSION"
    )
    group.addoption("--rig-run-dir", default=None, help="run directory; a run that is there already is resumed")
    group.addoption(
        "--rig-no-explain", action="store_true", help="do not explain the worst state that breaks a promise"
    )
    group.addoption(
        "--rig-scenarios", default="default", help="scenarios if no marker names any: default, all, or a pattern"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    line = "durability(*scenarios): measures what a database loses, in virtual machines; ids may contain * and ?"
    config.addinivalue_line("markers", line)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test that has the argument `durability` by the scenarios of its marker or of `--rig-scenarios`."""
    if "durability" not in metafunc.fixturenames:
        return
    patterns = [str(pattern) for mark in metafunc.definition.iter_markers("durability") for pattern in mark.args]
    metafunc.parametrize(
        "durability",
        [
            pytest.param(scenario, marks=pytest.mark.durability, id=scenario.id)
            for scenario in _offer(metafunc.config, patterns)
        ],
        indirect=True,
    )


@dataclass(frozen=True)
class Measured:
    """One scenario, measured together with the controls of its group."""

    row: Row
    summary: Summary
    failures: dict[str, str]
    tellings: Mapping[str, Telling] = field(default_factory=dict)

    def check(self) -> None:
        """Fail the test, with the table and a line to replay each loss, unless the result is the expected one.

        A promise must be kept. Under a shim that swallows fsync it must be broken, which proves that the rig notices.
        Where the omitted sync does not matter to the promise, either result is right.
        """
        result = self.row.judgement.result
        if result not in self._right:
            right = " or ".join(sorted(self._right))
            pytest.fail(f"{result}, expected {right}\n{self.text()}", pytrace=False)
        print(self.text())  # noqa: T201 - pytest captures it and shows it with -rA or -s

    def text(self) -> str:
        """Return the table of the scenario and its controls, and the states that broke the promise, ready to replay."""
        from rig.analysis.show import broken
        from rig.analysis.show.table import explanation, table_text

        lines = [table_text(self.summary, 110)]
        if self.row.is_sabotaged:
            # The table leaves this out, because the scenario's promise is meant to break.
            lines += explanation(self.row)
        lines += broken.lines(broken.breaks(self.summary, self.tellings))
        lines += [f"not measured {scenario}: {message}" for scenario, message in self.failures.items()]
        return "\n".join(lines)

    @property
    def _right(self) -> set[str]:
        from rig.analysis.judging.mutations import expectation
        from rig.analysis.judging.outcome import Result
        from rig.contract.orders import DROP_PREFIX

        scenario = self.row.outcome.scenario
        expected = expectation(scenario)
        if scenario.shim.startswith(DROP_PREFIX) and expected is not None and not expected.matters:
            return {Result.KEPT, Result.BROKEN}
        if self.row.is_sabotaged:
            return {Result.BROKEN}
        # Where the documentation promises nothing, a test of the setting has no reason to fail. Where a promise could
        # not be held against the engine, the test has proven nothing.
        return {Result.KEPT} if self.row.is_withheld else {Result.KEPT, Result.NOT_JUDGED}


@pytest.fixture(scope="session")
def rig_library(request: pytest.FixtureRequest) -> Library | None:
    """Return the build of an engine that `--rig-library` names, or None for the guest's own."""
    from rig.contract.errors import RigError
    from rig.engines import engines
    from rig.engines.builds import library_for

    word = request.config.getoption("--rig-library")
    try:
        return library_for({engine.name for engine in engines()}, word) if word else None
    except RigError as error:
        pytest.fail(f"--rig-library: {error}", pytrace=False)


@pytest.fixture(scope="session")
def rig_guests(rig_library: Library | None) -> Iterator[Guests]:
    """Hold the guest images and the templates for the session; make what the cache lacks when it is needed."""
    from rig.machines.guests import guests

    with guests([rig_library] if rig_library else []) as source:
        yield source


@pytest.fixture(scope="session")
def rig_run_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run directory that all workers of the session share."""
    if request.config.getoption("--rig-run-dir"):
        return Path(request.config.getoption("--rig-run-dir"))
    base = tmp_path_factory.getbasetemp()
    return (base.parent if hasattr(request.config, "workerinput") else base) / "rig-run"


@pytest.fixture
def durability(
    request: pytest.FixtureRequest,
    rig_guests: Guests,
    rig_library: Library | None,
    rig_run_dir: Path,
    record_property: Callable[[str, object], None],
) -> Measured:
    """Measure one scenario and the controls of its group."""
    from rig.analysis.history.figures import figures
    from rig.front.selection import with_controls
    from rig.images.recipes import BASE
    from rig.machines.guests import name_of

    library = rig_library.name if rig_library else ""
    scenario: Scenario = request.param
    # Scenarios with other templates belong to another run.
    name = name_of(scenario)
    folder = rig_run_dir if name == BASE else rig_run_dir.with_name(f"{rig_run_dir.name}-{name}")
    measured = _measure(request.config, rig_guests.of(scenario), library, folder, scenario, with_controls([scenario]))
    for name, value in asdict(figures(measured.row)).items():
        record_property(name, value)
    return measured


def _measure(  # noqa: PLR0917 - the types differ, except for two scenarios; mypy catches a swap
    config: pytest.Config,
    machines: Machines,
    library: str,
    run_dir: Path,
    scenario: Scenario,
    together: list[Scenario],
    program: Library | None = None,
) -> Measured:
    """Measure a scenario together with others, which are its controls; of a `program` if it is one."""
    from rig.analysis.show.broken import breaks
    from rig.campaign import campaign
    from rig.contract.devices import device_named
    from rig.front.explaining import explain_break, tellings
    from rig.front.rehearsal import void_if_it_never_opens
    from rig.planning import matrix
    from rig.store import Run

    profile = matrix.profile(config.getoption("--rig-profile"))
    device = device_named(config.getoption("--rig-device"))
    seed = config.getoption("--rig-seed")
    wanted = matrix.configure(together, profile, device, seed, library)
    definition = {
        "profile": profile.name,
        "device": device.name,
        "seed": seed,
        "library": library,
        "recorder": machines.recorder.identity,
        "verifier": machines.verifier.identity,
    }
    run = Run.create(run_dir, definition)
    jobs = 1 if hasattr(config, "workerinput") else 0
    campaign.Campaign(run, profile, machines, campaign.Silent(), jobs).measure(wanted)
    if program:
        void_if_it_never_opens(run, wanted, program)
    measured = _measurement(run, scenario, [scenario.id for scenario in wanted], profile.exposure_min)
    if not config.getoption("--rig-no-explain") and (broken := breaks(measured.summary)):
        explain_break(run, broken, machines)
    return replace(measured, tellings=tellings(run))


@pytest.fixture
def durability_of(request: pytest.FixtureRequest, rig_run_dir: Path) -> Callable[..., Measured]:
    """Return a function that measures a user's program, as `rig run --program` does."""

    def measure(  # noqa: PLR0917 - users pass all but the first two by name
        program: str | Path,
        filesystem: str,
        fault: str = programs.DEFAULT_FAULT,
        promise: str | None = None,
        image: str | Path | None = None,
        workload: str = OWN_WORKLOAD,
        neighbour: str | None = None,
        clients: int | None = None,
        environment: Sequence[str] = (),
        arguments: Sequence[str] = (),
    ) -> Measured:
        from rig.contract.errors import UsageError
        from rig.machines.guests import guests

        try:
            chosen = programs.select(
                str(program), filesystem, [fault], promise, image, workload=workload, neighbour=neighbour,
                clients=clients, environment=environment, arguments=arguments,
            )  # fmt: skip
        except UsageError as error:
            pytest.fail(str(error), pytrace=False)
        with guests([chosen.build]) as source:
            scenarios = source.able(chosen.scenarios)
            (asked,) = [scenario for scenario in scenarios if scenario.shim == "none"]
            # Whatever is recorded differently has a run of its own.
            folder = rig_run_dir.with_name(f"{rig_run_dir.name}-{chosen.build.name}-{asked.recording_key}")
            name = chosen.build.name
            return _measure(request.config, source.of(asked), name, folder, asked, scenarios, chosen.build)

    return measure


def _offer(config: pytest.Config, patterns: list[str]) -> list[Scenario]:
    from rig.analysis.dossiers import control_settings
    from rig.contract.devices import device_named
    from rig.contract.errors import UsageError
    from rig.planning import defaults, matrix

    offer = config.getoption("--rig-scenarios")
    try:
        # Reject wrong values before anything starts.
        matrix.profile(config.getoption("--rig-profile"))
        device_named(config.getoption("--rig-device"))
        if patterns:
            return matrix.select(patterns)
        if offer == "default":
            return defaults.default_scenarios(matrix.profile("quick"), control_settings)
        return matrix.all_scenarios() if offer == "all" else matrix.select([offer])
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None


def _measurement(run: object, scenario: Scenario, ids: list[str], exposure_min: int) -> Measured:
    from rig.analysis.judging.outcome import summarise
    from rig.store import Run

    assert isinstance(run, Run)
    results, damaged = run.results(ids)
    failures = {name: text for name, text in run.failures().items() if name in ids}
    failures |= {f"damaged {number}": str(error) for number, error in enumerate(damaged)}
    if scenario.id not in {result.scenario.id for result in results}:
        pytest.fail(f"{scenario.id} could not be measured: {failures.get(scenario.id, 'no result')}", pytrace=False)
    summary = summarise(results, exposure_min, str(run.folder.absolute()))
    row = next(row for row in summary.rows if row.outcome.scenario.id == scenario.id)
    return Measured(row, summary, failures)
