"""How long tests take: what takes long begins first, so that no worker is left alone with it.

`make check` leaves it out.

`tests/durations.json` has the seconds of every test function that takes at least `SLOW_S`, by module; of a test with
parameters, the seconds of the slowest. `make durations` measures them again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

SLOW_S = 0.5
_LONG_S, _MODULES_SHOWN = 60, 40
_FILE = Path(__file__).with_suffix(".json")
_OPTION = "--store-durations"
_stored: Mapping[str, Mapping[str, float]] = json.loads(_FILE.read_text()) if _FILE.exists() else {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, action="store_true", help=f"write {_FILE.name} anew for the modules that are run")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "slow: takes half a second or more, or needs more programs than a run: not in make check"
    )
    config.addinivalue_line("markers", "representative: of the tests in machines, one that make test runs")
    # The workers of pytest-xdist report to the controller, which has them all.
    if config.getoption(_OPTION) and not hasattr(config, "workerinput"):
        _begin(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow, and put the modules with the longest tests first; each module stays in one piece."""
    longest: dict[str, float] = {}
    for item in items:
        module, name = _place(item.nodeid)
        seconds = _stored.get(module, {}).get(name, 0.0)
        longest[module] = max(longest.get(module, 0.0), seconds)
        if seconds >= SLOW_S:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: -longest[_place(item.nodeid)[0]])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in which modules the time of a long run went."""
    seconds = Counter[str]()
    reports = [each for kind in terminalreporter.stats.values() for each in kind if hasattr(each, "duration")]
    for report in reports:
        seconds[_place(report.nodeid)[0]] += report.duration
    if seconds.total() > _LONG_S:
        terminalreporter.section(f"slowest of {len(seconds)} modules, which took {seconds.total():.0f} s in all")
        for module, sum_s in seconds.most_common(_MODULES_SHOWN):
            terminalreporter.write_line(f"{sum_s:7.1f} s  {module}")


def _begin(config: pytest.Config) -> None:
    seen: dict[str, dict[str, float]] = {}

    class Recorder:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            tests = seen.setdefault(_place(report.nodeid)[0], {})
            tests[report.nodeid] = tests.get(report.nodeid, 0.0) + report.duration

        def pytest_sessionfinish(self) -> None:
            measured = {module: _slow(tests) for module, tests in seen.items()}
            kept = {module: tests for module, tests in {**_stored, **measured}.items() if tests}
            _FILE.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")

    config.pluginmanager.register(Recorder())


def _slow(tests: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of each function that takes long, from the seconds of each test."""
    slowest: dict[str, float] = {}
    for nodeid, seconds in tests.items():
        _, name = _place(nodeid)
        slowest[name] = max(slowest.get(name, 0.0), round(seconds, 1))
    return {name: seconds for name, seconds in slowest.items() if seconds >= SLOW_S}


def _place(nodeid: str) -> tuple[str, str]:
    """Return module and function of a test."""
    module, _, name = nodeid.partition("::")
    return module, name.partition("[")[0]
