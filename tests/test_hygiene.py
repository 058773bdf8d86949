"""What must hold for the repository as a whole."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution, version
from pathlib import Path

import pytest

from tests.support.paths import ROOT

LOCK_FILES = ["package-lock.json", "requirements/dev.txt", "requirements/hub5.txt"]
TEXT = {
    ".py",
    ".ts",
    ".tsx",
    ".js",
    ".mjs",
    ".cjs",
    ".json",
    ".md",
    ".toml",
    ".yaml",
    ".yml",
    ".sh",
    ".html",
    ".css",
}
# At least a word says why.
REASON = r"\W+.*\b\w{3,}"
# Spelt in parts, so that this file does not find itself.
MACHINE_PATHS = re.compile(
    "|".join(["/" + "work/", "/" + "root/", "/" + "home/[a-z]+/", "/" + "tmp/team"])
)
REGISTRIES = re.compile(
    "|".join(
        [
            r"pypi\." + "org",
            "files.python" + "hosted",
            r"registry\." + "npmjs",
            r"registry\." + "yarnpkg",
            r"deb\." + "debian",
        ]
    )
)
NOT_PURE = {
    "asyncio",
    "concurrent",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "urllib",
    "uuid",
}


def _tracked() -> list[Path]:
    """Files that git knows or would add; a source distribution has no git and is left alone."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def _lines(*suffixes: str) -> Iterator[tuple[str, str]]:
    """Each line of the tracked text files, with where it stands."""
    for path in _tracked():
        if path.suffix in (suffixes or TEXT) or (not suffixes and not path.suffix):
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
                yield f"{path.relative_to(ROOT)}:{number}", line


def test_no_path_of_a_machine_is_committed() -> None:
    assert [where for where, line in _lines() if MACHINE_PATHS.search(line)] == []


def test_no_registry_is_named() -> None:
    assert [where for where, line in _lines() if REGISTRIES.search(line)] == []


@pytest.mark.parametrize("name", LOCK_FILES)
def test_lock_files_fit_any_registry(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    # Neither the addresses that npm writes beside a package, nor an option of pip's, which would
    # stand at the beginning of a line: hashes are set in.
    assert re.search(r'"resolved":|^-', text, re.MULTILINE) is None
    assert "sha512-" in text or "--hash=sha256:" in text


def test_every_python_pin_has_a_hash() -> None:
    for name in LOCK_FILES[1:]:
        text = (ROOT / name).read_text("utf-8").replace("\\\n", " ")
        pins = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
        assert pins
        assert [pin.split()[0] for pin in pins if "==" not in pin or "--hash=" not in pin] == []


@pytest.mark.parametrize(
    ("what", "suffixes", "mark", "explained"),
    [
        ("noqa", (".py",), r"#\s*noqa\b", rf"#\s*noqa: [A-Z]+\d+(, ?[A-Z]+\d+)*{REASON}"),
        ("type: ignore", (".py",), r"#\s*type:\s*ignore", rf"#\s*type: ignore\[[\w, -]+\]{REASON}"),
        ("pragma: no cover", (".py",), r"#\s*pragma: no cover", rf"#\s*pragma: no cover{REASON}"),
        (
            "eslint-disable",
            (".ts", ".tsx", ".js"),
            r"eslint-disable",
            rf"eslint-disable[\w-]* [\w@/, -]+ --{REASON}",
        ),
        ("ts-expect-error", (".ts", ".tsx"), r"@ts-", rf"@ts-expect-error{REASON}"),
    ],
    ids=["noqa", "type-ignore", "no-cover", "eslint-disable", "ts-expect-error"],
)
def test_every_exception_to_a_check_names_its_rule_and_reason(
    what: str, suffixes: tuple[str, ...], mark: str, explained: str
) -> None:
    this = Path(__file__).name
    bare = [
        where
        for where, line in _lines(*suffixes)
        if this not in where and re.search(mark, line) and not re.search(explained, line)
    ]
    assert not bare, f"{what} without rule or reason:\n" + "\n".join(bare)


def test_the_domain_imports_only_pure_parts_of_the_standard_library() -> None:
    impure = []
    for path in (ROOT / "hub_ext" / "allotment_hub" / "domain").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for name in _imported(node):
                top = name.split(".")[0]
                own = name.startswith("allotment_hub.domain")
                if not own and (top not in sys.stdlib_module_names or top in NOT_PURE):
                    impure.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)} {name}")
    assert impure == []


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [node.module or ""]
    return []


def test_every_make_target_is_in_make_help() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    phony = {t for line in re.findall(r"^\.PHONY:(.*)$", makefile, re.M) for t in line.split()}
    documented = set(re.findall(r"^([a-z0-9-]+):.*## \S", makefile, re.M))
    assert phony == documented


def test_the_make_targets_that_documents_name_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    named = {
        (where, target)
        for where, line in _lines(".md", ".py", ".sh", ".yaml")
        if Path(__file__).name not in where
        for target in re.findall(r"`make ([a-z0-9-]+)", line)
    }
    assert {entry for entry in named if entry[1] not in targets} == set()


def test_versions_agree() -> None:
    package = json.loads((ROOT / "package.json").read_text("utf-8"))["version"]
    lock = json.loads((ROOT / "package-lock.json").read_text("utf-8"))
    assert lock["version"] == lock["packages"][""]["version"] == package
    assert version("jupyter-allotment") == package


def test_continuous_integration_runs_the_documented_command() -> None:
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_every_command_and_spawner_name_leads_to_something() -> None:
    points = distribution("jupyter-allotment").entry_points
    assert {point.name for point in points} >= {"allotment", "allotment-hub", "governed-local"}
    for point in points:
        assert callable(point.load()), point
