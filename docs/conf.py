"""Sphinx's settings: `make docs` builds the site from docs/ into build/docs, without a network.

The Python reference is made of docstrings (autodoc). The C reference is made of the comments of the
public headers, which tools/src2man reads for the man pages, too.
"""

import importlib.machinery
import importlib.util
import pathlib
import re

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

ROOT = pathlib.Path(__file__).resolve().parents[1]

project = "Relive"
version = re.search(r"project\(relive VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "alabaster"
html_theme_options = {"description": "experience replay in shared memory", "page_width": "1080px",
                      "sidebar_width": "240px"}
html_sidebars = {"**": ["about.html", "searchbox.html", "navigation.html"]}
html_show_copyright = False
highlight_language = "none"
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True}
nitpicky = True
nitpick_ignore = [("myst", "../examples/kubernetes")]  # a folder, which a site has no page for
nitpick_ignore_regex = [("c:identifier", ".*")]  # types in prototypes


def read_header(path):
    """A public header, parsed by tools/src2man."""
    loader = importlib.machinery.SourceFileLoader("src2man", str(ROOT / "tools" / "src2man"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("src2man", loader))
    loader.exec_module(module)
    return module.Header(path.read_text(encoding="utf-8"))


def indented(lines):
    return ["   " + line for line in lines] + [""]


def literal(text, language="none"):
    return [".. code-block:: " + language, "", *indented(text.split("\n"))]


def prose(comment):
    """Joins lines that begin at the margin; indented ones are tables or code and stay unchanged."""
    out = []
    for part in re.split(r"(?m)((?:^[ \t]+\S.*\n?)+)", comment):
        if part.startswith((" ", "\t")):
            out += literal(part.rstrip("\n"))
        elif part.strip():
            out += [re.sub(r"([\\*`|_])", r"\\\1", part.strip("\n")), ""]
    return "\n".join(out).split("\n")


class CHeader(SphinxDirective):
    """``.. c-header:: relive.h``, in reStructuredText: the head comment, types and functions of a public header."""

    required_arguments = 1

    def run(self):
        path = ROOT / "include" / "relive" / self.arguments[0]
        self.env.note_dependency(str(path))
        header, lines, comment = read_header(path), [], ""
        lines += literal(header.head)
        for name, prototype, own in header.functions:
            comment = own or comment
            lines += [".. c:function:: " + prototype.rstrip(";"), "", *indented(prose(comment))]
        for name, text in header.types.items():  # no declarations: some are named as a function
            lines += [".. rubric:: " + name, "", *literal(text, "c")]
        section = nodes.section()
        section.document = self.state.document
        self.state.nested_parse(StringList(lines, source=str(path)), 0, section)
        return section.children


def plain_docstring(app, what, name, obj, options, lines):
    """Docstrings of the C extension are plain text."""
    if type(obj).__name__ in ("method_descriptor", "getset_descriptor", "builtin_function_or_method"):
        lines[:] = prose("\n".join(lines))


def setup(app):
    app.add_directive("c-header", CHeader)
    app.connect("autodoc-process-docstring", plain_docstring)
    return {"parallel_read_safe": True}
