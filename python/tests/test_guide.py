"""The user guide: its programs run as they are shown, its site builds, its links lead somewhere."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import relive

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted((DOCS / "guide").glob("*.md"))
PROGRAMS = sorted((DOCS / "guide").glob("*.py"))
OUTSIDE = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md"]  # of the site
# Waits of two seconds warn, and a busy machine makes any wait that long.
WARNINGS = ["-W", "error", "-W", "default::RuntimeWarning"]
LINK = re.compile(r"\]\(([^()\s]+)\)")


def shown(page):
    """Programs that a page includes."""
    return re.findall(r"```\{literalinclude\} (\S+\.py)", page.read_text(encoding="utf-8"))


def test_guide__pages_show_a_program_each():
    assert len(PAGES) == 13
    for page in PAGES:
        assert shown(page), page.name
    assert sorted({name for page in PAGES for name in shown(page)}) == [p.name for p in PROGRAMS]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_guide__program_runs(program, tmp_path):
    command = relive.build_info()["programs"].get("relive")
    if command is None and '"relive"' in program.read_text(encoding="utf-8"):
        pytest.skip("no relive command here: build it, and put it on PATH")
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("RELIVE_")}
    if command is not None:
        environment["PATH"] = os.pathsep.join([str(pathlib.Path(command).parent), os.environ["PATH"]])
    done = subprocess.run([sys.executable, *WARNINGS, program], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=240, cwd=tmp_path,
                          env=environment, check=False)
    assert done.returncode == 0, done.stdout


def anchors(path):
    """Anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    heads = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("name", OUTSIDE)
def test_links__of_pages_outside_the_site(name):
    for link in LINK.findall((ROOT / name).read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / name).parent / path if path else ROOT / name
        assert target.exists(), "%s links to %s" % (name, link)
        assert not anchor or anchor in anchors(target), "%s links to %s" % (name, link)


def test_site__builds_without_a_warning_and_needs_no_network(tmp_path):
    if not pathlib.Path(relive.__file__).resolve().is_relative_to(ROOT):
        pytest.skip("the site is made of this tree's package, not of an installed one")
    sphinx = shutil.which("sphinx-build")
    if sphinx is None:
        pytest.skip("no sphinx-build: run tools/setup test")
    done = subprocess.run([sphinx, "-W", "--keep-going", "-q", "-b", "html", "-d",
                           tmp_path / "doctrees", DOCS, tmp_path / "site"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout
    for page in (tmp_path / "site").rglob("*.html"):
        loaded = re.findall(r"""(?:\bsrc|<link[^>]*\bhref)=["'](?:https?:)?//[^"']*""",
                            page.read_text(encoding="utf-8"))
        assert not loaded, "%s loads %s" % (page.name, loaded)
    functions = (tmp_path / "site" / "reference" / "c.html").read_text(encoding="utf-8")
    header = (ROOT / "include" / "relive" / "relive.h").read_text(encoding="utf-8")
    for name in re.findall(r"^RLV_(?:API|CHECKED) .*?(rlv_\w+)\(", header, re.MULTILINE):
        assert 'id="c.%s"' % name in functions, name
    names = (tmp_path / "site" / "reference" / "python.html").read_text(encoding="utf-8")
    for name in set(relive.__all__) - {"datasets", "errors", "info", "sequence", "signature", "views"}:
        assert 'id="relive.%s"' % name in names, name
