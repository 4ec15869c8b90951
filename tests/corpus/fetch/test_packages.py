"""Packages by real apt-get and real pip from repositories of files, and the cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.corpus.fetch.package_builder import apt_config, deb, index, page, sdist

from eyas.corpus.fetch.packages import Cache, Unreachable, apt_packages, pypi_package

needs_apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="there is no apt-get here")
NOWHERE = "http://127.0.0.1:9/"


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "packages")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four packages that only apt's lists to be fetched know."""
    folder = tmp_path / "repository"
    folder.mkdir()
    for name in ("guide-en", "guide-fr", "guide-common", "other"):
        deb(folder, name, {f"{name}/a.html": page(name)}, version="1:2.0")
    index(folder)
    monkeypatch.setenv("APT_CONFIG", str(apt_config(tmp_path / "apt", f"copy:{folder}")))
    return folder


@pytest.fixture
def wheelhouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that pip can find."""
    folder = tmp_path / "wheelhouse"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def digests(folder: Path) -> set[str]:
    return {hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.glob("*.deb")}


@needs_apt
def test_apt_packages_are_fetched_with_package_lists_of_our_own(
    repository: Path, cache: Cache, tmp_path: Path
) -> None:
    files, missing = apt_packages(["guide-*", "other", "no-such-package"], cache)
    assert [(f.name, f.version) for f in files] == [
        ("guide-en", "1:2.0"),
        ("guide-fr", "1:2.0"),
        ("other", "1:2.0"),
    ]
    assert missing == ["no-such-package"]
    assert {f.sha256 for f in files} < digests(repository)
    assert not list((tmp_path / "apt" / "state" / "lists").glob("*Packages*"))


@needs_apt
def test_a_cached_package_is_not_fetched_again(repository: Path, cache: Cache) -> None:
    first = apt_packages(["other"], cache)
    for path in repository.glob("*.deb"):
        path.unlink()
    assert apt_packages(["other"], cache) == first


@needs_apt
def test_a_damaged_cached_package_is_fetched_again(
    repository: Path, cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    (file,), _ = apt_packages(["other"], cache)
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[:-1] + b"?")
    assert apt_packages(["other"], cache) == ([file], [])
    assert file.path.read_bytes() == whole
    assert "is damaged and is fetched again" in caplog.text


@needs_apt
def test_lists_that_are_out_of_date_are_looked_up_again(
    repository: Path, cache: Cache, tmp_path: Path
) -> None:
    subprocess.run(["apt-get", "-qq", "update"], check=True, capture_output=True)
    (repository / "other_1%3a2.0_all.deb").unlink()
    deb(repository, "other", {"a.html": page("newer")}, version="1:2.1")
    index(repository)
    (file,), missing = apt_packages(["other"], cache)
    assert (file.version, missing) == ("1:2.1", [])


@needs_apt
def test_without_network_what_is_cached_is_taken_and_the_rest_is_named(
    repository: Path, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,), _ = apt_packages(["guide-fr"], cache)
    monkeypatch.setenv("APT_CONFIG", str(apt_config(tmp_path / "offline", NOWHERE)))
    shutil.rmtree(cache.folder / "apt")
    assert apt_packages(["guide-*"], cache) == ([file], [])
    with pytest.raises(Unreachable, match=r"apt:other.*apt-get: .*127.0.0.1"):
        apt_packages(["guide-fr", "other"], cache)


@needs_apt
def test_a_real_package_arrives_over_the_network(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("APT_CONFIG", raising=False)
    try:
        (file,), _ = apt_packages(["debian-reference"], cache)
    except (Unreachable, ValueError) as error:
        pytest.skip(f"this machine's apt cannot fetch debian-reference: {error}")
    assert file.path.read_bytes()[:8] == b"!<arch>\n"
    assert file.sha256 == hashlib.sha256(file.path.read_bytes()).hexdigest()


@pytest.mark.parametrize("backend", ["", "its own"])
def test_a_source_distribution_is_fetched_without_running_its_code(
    wheelhouse: Path, cache: Cache, backend: str
) -> None:
    path = sdist(wheelhouse, "some-docs", {"a.html": page("one")}, backend=backend)
    sdist(wheelhouse, "some-docs", {"a.html": page("old")}, version="1.4", backend=backend)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    file = pypi_package("Some_Docs", cache)
    assert (file.name, file.version, file.sha256) == ("some-docs", "1.5", digest)
    assert not (wheelhouse / "ran").exists()


def test_a_version_may_be_asked_for_and_a_cached_one_is_taken(
    wheelhouse: Path, cache: Cache
) -> None:
    for version in ("1.4", "1.5"):
        sdist(wheelhouse, "docs", {"a.html": page(version)}, version=version)
    first = pypi_package("docs==1.4", cache)
    assert first.version == "1.4"
    for path in wheelhouse.iterdir():
        path.unlink()
    assert pypi_package("docs", cache) == first
    with pytest.raises(Unreachable, match=r"pypi:docs==1.5 .*pip"):
        pypi_package("docs==1.5", cache)


def test_a_package_that_pip_does_not_know_is_named(wheelhouse: Path, cache: Cache) -> None:
    with pytest.raises(Unreachable, match=r"pypi:no-such-docs .*pip"):
        pypi_package("no-such-docs", cache)


def test_nothing_but_whole_files_is_left_in_the_cache(wheelhouse: Path, cache: Cache) -> None:
    sdist(wheelhouse, "docs", {"a.html": page("one")})
    file = pypi_package("docs", cache)
    assert sorted(path.name for path in cache.folder.iterdir()) == [
        file.path.name,
        f"{file.path.name}.json",
    ]
