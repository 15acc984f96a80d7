"""A release, without a tag, a registry and signatures: what each step would do."""

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture(scope="module")
def release():
    loader = SourceFileLoader("release", str(ROOT / "tools" / "release"))
    spec = spec_from_loader(loader.name, loader)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def tree(tmp_path):
    """The files that tell versions, with a changelog whose release is dated."""
    packages = ("control/poolhouse_control", "node/poolhouse_node")
    for name in ("pyproject.toml", *(f"{package}/__init__.py" for package in packages)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    chart = tmp_path / "helm" / "poolhouse"
    chart.mkdir(parents=True)
    (chart / "Chart.yaml").write_text(f'name: x\nversion: {VERSION}\nappVersion: "{VERSION}"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        f"# Changelog\n\n## Unreleased\n\n- Later.\n\n## {VERSION} - 2026-12-01\n\n### Added\n\n"
        "- Rooms.\n\n## 0.0.1 - 2026-01-01\n\n- Before.\n"
    )
    return tmp_path


def test_the_notes_are_the_section_of_the_version(release, tree):
    assert release.notes(f"v{VERSION}", tree) == "### Added\n\n- Rooms.\n"
    assert release.notes("v0.0.1", tree) == "- Before.\n"


def test_a_release_that_agrees_with_itself_is_taken(release, tree):
    release.check(f"v{VERSION}", tree)


@pytest.mark.parametrize("tag", ["1.2.3", "v1.2", "vnext", "v1.2.3-rc1", "v1.2.3\n"])
def test_a_tag_that_is_none_is_refused(release, tree, tag):
    with pytest.raises(release.ReleaseError, match="no tag of a release"):
        release.check(tag, tree)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("pyproject.toml", f'version = "{VERSION}"', 'version = "7.7.7"'),
        ("node/poolhouse_node/__init__.py", VERSION, "7.7.7"),
        ("helm/poolhouse/Chart.yaml", f"\nversion: {VERSION}", "\nversion: 7.7.7"),
        ("helm/poolhouse/Chart.yaml", f'appVersion: "{VERSION}"', "appVersion: 7.7.7"),
        ("CHANGELOG.md", "2026-12-01", "soon"),
        ("CHANGELOG.md", "### Added\n\n- Rooms.\n", ""),
    ],
)
def test_what_does_not_agree_is_named(release, tree, file, old, new):
    text = (tree / file).read_text()
    assert old in text
    (tree / file).write_text(text.replace(old, new))
    with pytest.raises(release.ReleaseError, match=re.escape(file)):
        release.check(f"v{VERSION}", tree)


def test_today_everything_that_tells_a_version_tells_one(release):
    assert {said for _, said in release._said_versions(ROOT)} == {VERSION}


@pytest.mark.slow
def test_files_are_built_and_summed(release, tmp_path):
    release.build(tmp_path, release._run)
    names = {file.name for file in tmp_path.iterdir()}
    wheel, sdist = f"poolhouse-{VERSION}-py3-none-any.whl", f"poolhouse-{VERSION}.tar.gz"
    assert {wheel, sdist, "SHA256SUMS"} <= names
    with zipfile.ZipFile(tmp_path / wheel) as archive:
        inside = set(archive.namelist())
    assert "poolhouse_control/relay/templates/turnserver.conf.j2" in inside
    assert "poolhouse_node/cli/health.py" in inside
    with tarfile.open(tmp_path / sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    # Everything that its Makefile, tests and Dockerfiles need, and nothing that git leaves out.
    assert packed == {*files_of_the_repository(), "PKG-INFO"}
    sums = dict(
        reversed(line.split("  ")) for line in (tmp_path / "SHA256SUMS").read_text().splitlines()
    )
    assert set(sums) == names - {"SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest


def files_of_the_repository() -> set[str]:
    words = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in done.stdout.splitlines() if (ROOT / name).is_file()}


def test_the_chart_is_packed_the_same_each_time(release, tree, tmp_path):
    chart = tree / "helm" / "poolhouse"
    (chart / "templates").mkdir()
    (chart / "templates" / "a.yaml").write_text("a: 1\n")
    (chart / "ci").mkdir()
    for ignored in (".helmignore", "ci/values.yaml", "templates/a.yaml~"):
        (chart / ignored).write_text("# for tests\nci/\n*~\n.helmignore\n")
    one = release.pack_chart(chart, tmp_path)
    assert one.name == f"poolhouse-{VERSION}.tgz"
    first = one.read_bytes()
    (chart / "templates" / "a.yaml").touch()
    assert release.pack_chart(chart, tmp_path).read_bytes() == first
    with tarfile.open(one) as archive:
        assert archive.getnames() == ["poolhouse/Chart.yaml", "poolhouse/templates/a.yaml"]


def commands_of(release, *words, capsys):
    assert release.main(["--dry-run", *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_every_image_is_built_with_its_facts_and_signed(release, capsys, monkeypatch):
    monkeypatch.setenv("TORCH_INDEX", "https://example.org/cpu")
    built = commands_of(release, "images", "v1.2.3", "registry.example.org/us", capsys=capsys)
    signed = commands_of(release, "sign-images", "v1.2.3", "registry.example.org/us", capsys=capsys)
    assert len(built) == len(signed) == len(release.IMAGES) == 4
    for image, line, signature in zip(release.IMAGES, built, signed, strict=True):
        tag = image.tag("registry.example.org/us", "1.2.3")
        assert f"--tag {tag} ." in line
        assert f" {tag}@sha256:" in signature
        assert "--sbom=true --provenance=mode=max" in line
        dockerfile = (ROOT / "deploy" / f"{image.dockerfile}.Dockerfile").read_text()
        for argument in re.findall(r"--build-arg (\w+)=", line):
            assert f"ARG {argument}" in dockerfile
        assert ("TORCH_INDEX" in line) is (image.target == "cpu")
        if image.target:
            assert f" AS {image.target}\n" in dockerfile
    assert len({image.tag("", "1") for image in release.IMAGES}) == 4


def test_the_sums_are_signed(release, capsys, tmp_path):
    (line,) = commands_of(release, "sign", str(tmp_path), capsys=capsys)
    assert line.startswith("cosign sign-blob --yes --bundle ")
    assert line.endswith("/SHA256SUMS")


def test_a_digest_is_read_from_what_the_builder_wrote(release, tmp_path):
    file = tmp_path / "image.json"
    file.write_text(f'{{"containerimage.digest": "sha256:{"a" * 64}"}}')
    assert release._digest(file) == f"sha256:{'a' * 64}"
    file.write_text("{}")
    with pytest.raises(release.ReleaseError, match="no digest"):
        release._digest(file)


def test_wrong_words_show_the_steps(release, capsys):
    assert release.main(["publish"]) == 2
    assert "sign-images TAG REGISTRY" in capsys.readouterr().err
    assert release.main(["check", "nonsense"]) == 1
    assert "no tag of a release" in capsys.readouterr().err


# ---- the workflows ------------------------------------------------------------------------------


def steps(workflow: Path) -> list[dict]:
    said = yaml.safe_load(workflow.read_text())
    return [step for job in said["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_no_more_than_it_needs_and_ends(workflow):
    said = yaml.safe_load(workflow.read_text())
    assert said["permissions"] == {"contents": "read"}
    for job in said["jobs"].values():
        assert job["timeout-minutes"] <= 90
    for step in steps(workflow):
        assert ("uses" in step) is not ("run" in step)
        # What others wrote must not be pasted into a script.
        assert "${{" not in step.get("run", "")


def test_a_tag_starts_each_step_in_order(release, monkeypatch):
    """With the words that the program takes."""
    done = []
    for step in ("check", "notes", "build", "sign", "build_images", "sign_images"):
        monkeypatch.setattr(
            release, step, lambda *words, step=step: done.append((step, *words[:2])) or ""
        )
    workflow = ROOT / ".github" / "workflows" / "release.yml"
    assert yaml.safe_load(workflow.read_text())[True] == {"push": {"tags": ["v*"]}}
    for step in steps(workflow):
        if found := re.search(r"tools/release (.*?)(?: > \S+)?$", step.get("run", "")):
            words = found[1].replace('"$TAG"', "v1.2.3").replace('"$REGISTRY"', "r").split()
            assert release.main(["--dry-run", *words]) == 0
    dist = Path("dist")
    assert [step[0] for step in done] == [
        "check", "build", "sign", "notes", "build_images", "sign_images",
    ]  # fmt: skip
    assert [step[1] for step in done] == ["v1.2.3", dist, dist, "v1.2.3", "v1.2.3", "v1.2.3"]


def test_ci_runs_what_a_person_runs():
    runs = [step["run"] for step in steps(ROOT / ".github/workflows/ci.yml") if "run" in step]
    assert runs[-1] == ".ci/run"
    done = subprocess.run(
        ["bash", "-n", ROOT / ".ci" / "run"], capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr
