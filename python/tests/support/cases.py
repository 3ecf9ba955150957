"""A pytest plugin that prints the outcome of each case in the format of the C tests, so that
tools/run-tests counts them."""

_outcomes = {}
_left_out = []  # why whole files were


def _say(word, name):
    print("\n[ %8s ] %s" % (word, name.split("/")[-1]), flush=True)


def pytest_runtest_logstart(nodeid):
    _say("RUN     ", nodeid)


def pytest_runtest_logreport(report):
    if report.failed:
        _outcomes[report.nodeid] = "failed"
    elif report.skipped:
        _outcomes[report.nodeid] = "skipped"
        print("\n%s" % report.longrepr[2])
    if report.when != "teardown":
        return
    outcome = _outcomes.pop(report.nodeid, "ok")
    _say({"ok": "OK", "failed": "FAILED ", "skipped": "SKIPPED"}[outcome], report.nodeid)


def pytest_collectreport(report):
    if report.skipped:
        _left_out.append(report.longrepr[2])


def pytest_unconfigure():
    """Prints the reason of a skipped file as the last line."""
    for reason in _left_out:
        print(reason)
