"""The Dockerfiles, without a build: their linter, and what they copy, run and say."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.support.compose import DEPLOY

ROOT = DEPLOY.parent
DOCKERFILES = sorted(DEPLOY.glob("*.Dockerfile"))
HADOLINT = shutil.which("hadolint") or str(Path(sys.executable).with_name("hadolint"))

each_file = pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.stem)


def instructions(file: Path) -> list[str]:
    """One line each, without comments."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    return re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()


def of_kind(file: Path, kind: str) -> list[str]:
    return [line.split(maxsplit=1)[1] for line in instructions(file) if line.startswith(f"{kind} ")]


def lint(file: Path) -> subprocess.CompletedProcess:
    command = [HADOLINT, "--failure-threshold", "style", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_there_is_one_for_each_part():
    assert [file.stem for file in DOCKERFILES] == ["control", "node", "relay"]


@each_file
def test_the_linter_has_nothing_to_say(file):
    done = lint(file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_linter_would_say_something(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM debian\nRUN apt-get install gcc\nCMD gcc\n")
    done = lint(tmp_path / "Dockerfile")
    assert done.returncode == 1
    assert "DL3015" in done.stdout


@each_file
def test_what_is_copied_exists_and_is_not_ignored(file):
    kept = [
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    for copied in of_kind(file, "COPY"):
        if copied.startswith("--from="):
            continue
        *sources, _ = copied.split()
        for source in sources:
            assert (ROOT / source).exists()
            assert any(fnmatch(source, pattern) for pattern in kept), source


def test_nothing_else_is_sent_to_the_builder():
    """A secret of deploy/secrets, or .git, must not end in a layer."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    first, *rest = [line for line in lines if not line.startswith("#")]
    assert first == "*"
    assert not any("deploy" in line or ".git" in line for line in rest)


@each_file
def test_the_base_is_an_argument(file):
    stages = {line.split(" AS ")[1] for line in of_kind(file, "FROM") if " AS " in line}
    for line in of_kind(file, "FROM"):
        base = line.split()[0]
        assert base == "${BASE}" or base in stages
    assert any(line.startswith("BASE=") for line in of_kind(file, "ARG"))


@each_file
def test_it_ends_without_root(file):
    users = of_kind(file, "USER")
    assert users[-1] == "10001:0"


@pytest.mark.parametrize("name", ["control", "node"])
def test_any_uid_of_group_0_may_write_where_something_is_kept(name):
    """A folder that COPY makes would have the builder's mode."""
    file = DEPLOY / f"{name}.Dockerfile"
    made = re.search(
        r"install --directory (--\S+ )+ *(?P<paths>/.*)$",
        file.read_text().replace("\\\n", ""),
        re.M,
    )
    assert "--group=0 --mode=775" in made[0]
    kept = {path for line in of_kind(file, "VOLUME") for path in json.loads(line)}
    assert kept | {"/var/lib/poolhouse"} == set(made["paths"].split())


@each_file
def test_programs_get_signals_and_arguments_as_they_are(file):
    """A shell in between would take SIGTERM and not pass it on."""
    for kind in ("ENTRYPOINT", "CMD"):
        assert all(line.startswith("[") for line in of_kind(file, kind))
    (health,) = of_kind(file, "HEALTHCHECK")
    assert re.search(r"CMD \[", health)
    assert of_kind(file, "ENTRYPOINT")


@each_file
def test_it_says_what_it_is(file):
    said = " ".join(of_kind(file, "LABEL"))
    for name in ("title", "description", "licenses", "version", "revision", "created"):
        assert f"org.opencontainers.image.{name}=" in said


@pytest.mark.parametrize("name", ["control", "node"])
def test_the_parts_that_are_listed_for_it_exist(name):
    text = (DEPLOY / f"{name}.Dockerfile").read_text()
    assert "sbom.cdx.json" in text.partition("\nFROM ${BASE}\n")[0]
    extras = re.search(r"list-requirements ((?:\w+ )+)>", text)[1].split()
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "list-requirements", *extras],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    wanted += [line for extra in extras for line in project["optional-dependencies"][extra]]
    assert done.stdout.splitlines() == wanted
    assert any("torch" in line for line in wanted) is (name == "node")


@each_file
def test_the_packages_are_listed_after_the_last_installation(file):
    lines = instructions(file)
    listed = [n for n, line in enumerate(lines) if "debian-sbom >" in line]
    changes = ("apt-get install", "FROM ${BASE}")
    changed = [n for n, line in enumerate(lines) if any(words in line for words in changes)]
    assert listed
    assert listed[-1] >= changed[-1]


def test_the_list_of_packages_is_that_of_dpkg():
    done = subprocess.run(
        [ROOT / "tools" / "debian-sbom"], capture_output=True, text=True, check=True
    )
    listed = json.loads(done.stdout)
    assert (listed["bomFormat"], listed["specVersion"]) == ("CycloneDX", "1.6")
    show = "${db:Status-Status} ${Package} ${Version}\n"
    known = subprocess.run(
        ["dpkg-query", "--show", f"--showformat={show}"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    installed = {tuple(line.split()[1:]) for line in known if line.startswith("installed ")}
    assert {(each["name"], each["version"]) for each in listed["components"]} == installed
    assert len({each["bom-ref"] for each in listed["components"]}) == len(listed["components"])
    for each in listed["components"]:
        kind, _, name = each["purl"].partition("@")[0].rpartition("/")
        version = each["purl"].partition("@")[2]
        assert re.fullmatch(r"pkg:deb/[a-z]+", kind)
        assert unquote(name) == each["name"]
        assert unquote(version.partition("?arch=")[0]) == each["version"]
        assert "+" not in each["purl"]


def test_an_extra_that_does_not_exist_is_named():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "list-requirements", "nodes"],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 2
    assert "no extra nodes" in done.stderr


def test_the_sbom_maker_is_pinned():
    assert re.search(r"^cyclonedx-bom==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)


def test_the_compiler_is_in_the_cuda_image_alone():
    text = (DEPLOY / "node.Dockerfile").read_text()
    runtime, cuda = text.split("FROM runtime AS cuda")
    assert "gcc" not in runtime
    assert "gcc" in cuda.split("FROM runtime AS cpu")[0]
    assert "gcc" not in cuda.split("FROM runtime AS cpu")[1]
