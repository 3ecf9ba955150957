"""A strict reader of Prometheus' text format, version 0.0.4: anything else is an error."""

import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"'
SAMPLE = re.compile(r"(%s)(?:\{(%s(?:,%s)*)\})? (\S+)\Z" % (NAME, LABEL, LABEL))
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def labels_of(text):
    labels = {}
    for name, value in re.findall(LABEL, text or ""):
        assert name not in labels, "label %s is there twice" % name
        labels[name] = re.sub(r"\\.", lambda found: ESCAPES[found.group()], value)
    return labels


class Family:
    def __init__(self, name, text):
        self.name, self.help, self.type, self.samples = name, text, None, {}

    def put(self, line):
        found = SAMPLE.match(line)
        assert found, "not a sample: %r" % line
        assert found.group(1) == self.name, "%r is within family %s" % (line, self.name)
        assert self.type, "%s: a sample before its TYPE" % self.name
        labels = labels_of(found.group(2))
        key = tuple(sorted(labels.items()))
        assert key not in self.samples, "%r is there twice" % line
        self.samples[key] = float(found.group(found.lastindex))

    def check(self):
        """Checks names by Prometheus' rules."""
        assert self.type in ("counter", "gauge"), self.type
        assert (self.type == "counter") == self.name.endswith("_total"), self.name
        assert not re.search(r"_(ns|ms|us|kib|mib|milliseconds)(_|$)", self.name), self.name
        for key, value in self.samples.items():
            assert value >= 0, (self.name, key, value)


def parse(page):
    """Families by name. AssertionError: the page is not well-formed."""
    families, family = {}, None
    assert page.endswith("\n")
    for line in page[:-1].split("\n"):
        if line.startswith("# HELP "):
            name, text = re.fullmatch(r"# HELP (%s) (\S.*)" % NAME, line).groups()
            assert name not in families, "family %s is there twice" % name
            family = families[name] = Family(name, text)
        elif line.startswith("#"):
            name, kind = re.fullmatch(r"# TYPE (%s) (\w+)" % NAME, line).groups()
            assert name == family.name and not family.type, line
            family.type = kind
        else:
            family.put(line)
    for family in families.values():
        family.check()
    return families


def value(families, name, **labels):
    """None: the family has no such sample."""
    return families[name].samples.get(tuple(sorted(labels.items())))
