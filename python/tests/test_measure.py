"""tools/measure, of a repository of two commits whose figures are counted by hand."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDED = ("git", "cloc", "ctags")

FIRST = {
    # Six lines of code; `once` and TWICE_MACRO are referenced once, `twice` twice.
    "ds/a.c": '#include "ds/a.h"\n/* once twice */\n#define TWICE_MACRO 2\n\n'
              "static int once(void) { return TWICE_MACRO; }\n"
              "static int twice(void) { return once(); }\n"
              "int a(void) { return twice() + twice(); } // twice()\n"
              'const char *a_text = "once()";\n',
    "ds/a.h": "int a(void);\nint a_of_b(void);\n",
    "ds/of_b.c": '#include "ds/a.h"\n#include "ds/b.h"\nint a_of_b(void)\n{\n\n\treturn b();\n}\n',
    "ds/b.h": "int b(void);\n",
    "ds/b.c": '#include "ds/b.h"\n#include "ds/c.h"\nint b(void)\n{\n\treturn c();\n}\n',
    "ds/c.h": "int c(void);\n",
    "ds/c.c": '#include "ds/c.h"\n#include "ds/b.h"\nint c(void)\n{\n\treturn b();\n}\n',
    "base/table.def": "X(1)\nX(2)\n",
    "tests/unit/test_a.c": "static int b(void) { return 1; }\nint main(void) { return b(); }\n",
    "notes.txt": "int not_counted;\n",
}
SECOND = {"ds/c.c": '#include "ds/c.h"\nint c(void)\n{\n\treturn 1;\n}\n'}


def commit(repository, files):
    for name, text in files.items():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git = ["git", "-C", repository, "-c", "user.name=t", "-c", "user.email=t@t", "-c",
           "commit.gpgsign=false"]
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "files"], check=True)


def measure(repository, *arguments):
    ran = subprocess.run([ROOT / "tools/measure", *arguments], cwd=repository, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def rows(text):
    """(section, what) -> (value of A, of B)"""
    table = {}
    for line in text.splitlines()[1:]:
        what, *values = re.split(r"\s{2,}", line[10:])
        table[line[:9].strip(), what] = tuple(values[:2])
    return table


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing:
        pytest.skip("no %s: run tools/setup test" % " and ".join(missing))
    folder = tmp_path_factory.mktemp("measured")
    subprocess.run(["git", "init", "-q", folder], check=True)
    commit(folder, FIRST)
    commit(folder, SECOND)
    return folder


@pytest.fixture(scope="module")
def table(repository):
    status, text, error = measure(repository, "HEAD~1")
    assert status == 0, error
    return rows(text)


def test_measure__counts_code_lines_without_blanks_and_comments(table):
    assert table["code", "ds"] == ("28", "27")  # 6 + 2 + 6 + 1 + 6 + 1 + 6, then 5
    assert table["code", "base"] == ("2", "2")
    assert table["code", "all tests"] == ("2", "2")
    assert table["code", "all"] == ("30", "29")


def test_measure__names_the_longest_function(table):
    assert table["function", "count"] == ("6", "6")
    assert table["function", "longest"][0] == "5 a_of_b (ds/of_b.c)"
    assert table["function", "median"] == ("4", "4")


def test_measure__counts_references_in_code_only(table):
    assert table["statics", "used once"][0] == "66.7 % (2 of 3)"
    assert table["statics", "functions only"][0] == "50.0 % (1 of 2)"


def test_measure__counts_files_of_folders_with_tests(table):
    assert table["files", "1. largest folder"] == ("7 ds", "7 ds")
    assert ("files", "3. largest folder") in table


def test_measure__finds_a_circle_and_sees_it_gone(table):
    assert table["circles", "by use, largest"] == ("2", "none")
    assert table["circles", "by include, largest"] == ("2", "none")


def test_measure__names_the_members_of_a_large_circle(repository):
    names = "abcdef"
    files = {"x/%s.h" % name: "int %s(void);\n" % name for name in names}
    for at, name in enumerate(names):
        other = names[(at + 1) % len(names)]
        files["x/%s.c" % name] = '#include "x/%s.h"\nint %s(void)\n{\n\treturn %s();\n}\n' % (
            other, name, other)
    commit(repository, files)
    status, text, _ = measure(repository, "--members", "HEAD~1", "HEAD")
    assert status == 0
    members = " ".join("x/" + name for name in names)
    assert text.count("circle by use of 6: " + members) == 1


def test_measure__of_no_commit_fails(repository):
    status, _, error = measure(repository, "nowhere")
    assert status != 0
    assert "nowhere" in error


def test_measure__leaves_nothing_behind(repository, tmp_path):
    environment = dict(os.environ, TMPDIR=str(tmp_path))
    subprocess.run([ROOT / "tools/measure", "HEAD"], cwd=repository, env=environment, check=True,
                   stdout=subprocess.DEVNULL)
    assert not list(tmp_path.iterdir())
