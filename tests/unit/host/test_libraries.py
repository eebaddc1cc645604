"""Builds of SQLite that the user names: a fitting one is kept under its digest, any other is refused early."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from rig.contract.errors import HostError, StoreError, UsageError
from rig.contract.results import PlanFacts
from rig.engines import engines
from rig.engines.builds import ImageContents, Library, guest_glibc
from rig.engines.sqlite import builds as libraries
from rig.engines.sqlite.library import FUNCTIONS
from rig.front import cli
from rig.host import processes
from rig.images.warmup import warm_orders
from rig.planning import matrix
from rig.store import Run
from rig.workloads import MEASURED

# Needs a compiler.
pytestmark = pytest.mark.slow

EVERY_FUNCTION = "\n".join(f"void {name}(void) {{}}" for name in FUNCTIONS)
(SCENARIO,) = matrix.select(["sqlite-ext4-wal_full_powercut"])


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RIG_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def compile_library(folder: Path, code: str, *flags: str) -> Path:
    (folder / "code.c").write_text(code)
    library = folder / "code.so"
    processes.run(["gcc", "-shared", "-fPIC", "-w", "-o", str(library), str(folder / "code.c"), *flags], timeout_s=60)
    return library


def guest(glibc: str) -> ImageContents:
    packages = f"libc-bin\t9.9-1\nlibc6:amd64\t{glibc}-12+deb13u4\nlibc6-dev\t1.0\n"
    return ImageContents(packages, lambda path: path.endswith("/libc.so.6"))


def index_with(folder: Path, version: str, member: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip find only this wheel."""
    folder.mkdir()
    info = f"apsw-{version}.dist-info"
    with zipfile.ZipFile(folder / f"apsw-{version}-cp313-cp313-manylinux_2_28_x86_64.whl", "w") as wheel:
        wheel.writestr("apsw/__init__.cpython-313-x86_64-linux-gnu.so", member)
        wheel.writestr("apsw/_unicode.cpython-313-x86_64-linux-gnu.so", b"")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: apsw\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: cp313-cp313-manylinux_2_28_x86_64\n")
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def test_a_library_is_kept_under_its_digest_and_outlives_its_file(tmp_path: Path, own_cache: Path) -> None:
    path = compile_library(tmp_path, EVERY_FUNCTION)
    found = libraries.library(str(path))
    assert (found, path.read_bytes()) == (libraries.library(str(path)), found.path.read_bytes())
    assert own_cache in found.path.parents
    path.unlink()
    assert found == libraries.library_of_run(found.name, None)
    compile_library(tmp_path, EVERY_FUNCTION + "int more;")
    other = libraries.library(str(path))
    assert found.name != other.name
    with pytest.raises(UsageError, match=f"made with {found.name}.*another build, {other.name}"):
        libraries.library_of_run(found.name, str(path))
    with pytest.raises(UsageError, match=r"the SQLite of the guest.*another build"):
        libraries.library_of_run("", str(path))
    assert libraries.library_of_run("", None) is None
    other.path.write_bytes(b"x")
    with pytest.raises(StoreError, match="damaged"):
        libraries.library_of_run(other.name, None)
    found.path.unlink()
    with pytest.raises(StoreError, match=f"{found.name}, which is no longer in the cache.*--library"):
        libraries.library_of_run(found.name, None)


def test_what_is_no_sqlite_library_is_refused(tmp_path: Path) -> None:
    for word, message in (
        (str(tmp_path / "absent.so"), "cannot be read: No such file"),
        (str(tmp_path), "cannot be read: Is a directory"),
        (__file__, "not a shared library: it is not an ELF file"),
        ("sqlite==3.51.3", "not a build of SQLite.*apsw=="),
        ("apsw==", "not a build of SQLite"),
        ("apsw==../x", "not a build of SQLite"),
        (str(compile_library(tmp_path, "int answer;")), "not a SQLite library: it lacks sqlite3_"),
    ):
        with pytest.raises(UsageError, match=message):
            libraries.library(word)
    foreign = compile_library(tmp_path, EVERY_FUNCTION)
    data = bytearray(foreign.read_bytes())
    data[18:20] = (183).to_bytes(2, "little")  # EM_AARCH64
    foreign.write_bytes(data)
    with pytest.raises(UsageError, match="for another machine"):
        libraries.library(str(foreign))


def test_what_the_guest_could_not_load_is_refused(tmp_path: Path) -> None:
    found = libraries.library(
        str(compile_library(tmp_path, EVERY_FUNCTION + "int puts(char *);int f(void){return puts(0);}"))
    )
    libraries.require_loadable(found, guest("2.41"))
    with pytest.raises(UsageError, match=r"needs the C library 2\.[\d.]+, the guest has 2\.1;"):
        libraries.require_loadable(found, guest("2.1"))
    (tmp_path / "libneedy.so").write_bytes(
        compile_library(tmp_path, "int needy;", "-Wl,-soname,libneedy.so").read_bytes()
    )
    needs = compile_library(tmp_path, EVERY_FUNCTION + "extern int needy; int *p = &needy;", f"-L{tmp_path}", "-lneedy")
    with pytest.raises(UsageError, match=r"needs libneedy\.so, which the guest does not have"):
        libraries.require_loadable(libraries.library(str(needs)), guest("2.41"))
    with pytest.raises(HostError, match="lists no libc6"):
        guest_glibc("libc6-dev\t2.41\n")


def test_a_wheel_is_fetched_once_and_its_digest_kept(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extension = compile_library(tmp_path, "void *PyInit_apsw(void) { return 0; }").read_bytes()
    index_with(tmp_path / "index", "3.1.2.0", extension, monkeypatch)
    found = libraries.library("apsw==3.1.2.0")
    assert (extension, True) == (found.path.read_bytes(), found.name.startswith("apsw-"))
    for path in (tmp_path / "index").iterdir():
        path.unlink()
    assert found == libraries.library("apsw==3.1.2.0")
    (wheel,) = own_cache.glob("wheels/*/*.whl")
    wheel.write_bytes(wheel.read_bytes()[:-1])
    with pytest.raises(StoreError, match=f"{wheel} is damaged; remove {wheel.parent}"):
        libraries.library("apsw==3.1.2.0")


def test_a_version_that_is_not_offered_is_told_from_a_network_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_with(tmp_path / "index", "3.1.2.0", b"no ELF", monkeypatch)
    with pytest.raises(UsageError, match=r"no wheel of apsw 9\.9 .*the newest are: 3\.1\.2\.0"):
        libraries.library("apsw==9.9")
    with pytest.raises(StoreError, match="does not have the layout of an APSW wheel: it is not an ELF file"):
        libraries.library("apsw==3.1.2.0")
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    # Nothing listens on the discard port.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(
        HostError, match=r"(?s)could not be fetched from PyPI: check the network and the spelling.*refused"
    ):
        libraries.library("apsw==9.9")


def test_a_scenario_carries_its_library_and_is_recorded_apart() -> None:
    (default,) = matrix.configure([SCENARIO], matrix.profile("quick"))
    (built,) = matrix.configure([SCENARIO], matrix.profile("quick"), library="so-1")
    assert ({**SCENARIO.tuning, "library": "so-1"}, SCENARIO.id) == (built.tuning, built.id)
    assert default.recording_key != built.recording_key
    assert "so-1" == built.orders.settings["library"]


def test_a_bad_library_is_a_usage_error_before_anything_is_started(tmp_path: Path) -> None:
    for command in (["run"], ["run", SCENARIO.id]):
        result = CliRunner().invoke(cli.main, [*command, "--library", str(tmp_path / "absent.so")])
        assert (2, True) == (result.exit_code, "absent.so cannot be read" in result.output)


def test_a_replay_refuses_another_library_than_the_runs(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {"profile": "quick"})
    run.write_plan(replace(SCENARIO, tuning={"library": "so-0123456789abcdef"}), PlanFacts(1, 1, 1, 0, 0))
    path = compile_library(tmp_path, EVERY_FUNCTION)
    line = ["replay", SCENARIO.id, "e1", "--run-dir", str(run.folder)]
    result = CliRunner().invoke(cli.main, [*line, "--library", str(path)])
    assert (2, True) == (result.exit_code, "made with so-0123456789abcdef" in result.output)
    result = CliRunner().invoke(cli.main, line)
    assert (3, True) == (result.exit_code, "which is no longer in the cache" in result.output)


def test_one_build_of_each_kind_warms_a_machine() -> None:
    orders = list(warm_orders([Library("sqlite", name, Path(name)) for name in ("so-2", "so-1", "apsw-1")], engines()))
    assert ["apsw-1", "so-2"] == sorted(one.settings["library"] for one in orders if "library" in one.settings)


def test_each_setting_to_warm_and_each_workload_that_is_measured_warms_a_machine_once() -> None:
    for engine in engines():
        orders = list(warm_orders((), [engine]))
        measured = set(engine.workloads) & set(MEASURED) or set(engine.workloads)
        assert measured == {one.workload for one in orders}
        settings = [engine.spec.settings_named(name) for name in engine.spec.warm]
        assert all(any(named.items() <= one.settings.items() for one in orders) for named in settings)
        assert len(orders) == max(len(measured), len(settings))
