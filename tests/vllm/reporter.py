"""A pytest plugin: puts Quire in the place of vLLM's classes if asked, and notes how each test ends.

    QUIRE_SUBSTITUTE   1: quire_shim.substitute()
    QUIRE_REPORT       a file that gets one JSON line for each test that begins or ends

Lines are written at once, so that a test that takes the process down is known.
"""
import json
import os

if os.environ.get("QUIRE_SUBSTITUTE") == "1":
    import quire_shim

    quire_shim.substitute()


def note(test, outcome, message=""):
    with open(os.environ["QUIRE_REPORT"], "a", encoding="utf-8") as file:
        file.write(json.dumps([test, outcome, message]) + "\n")


def message_of(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash else report.longrepr or "").strip().splitlines()
    return lines[0][:200] if lines else ""


def pytest_runtest_logstart(nodeid, location):
    note(nodeid, "crashed")


def pytest_runtest_logreport(report):
    if report.when == "call":
        is_expected = hasattr(report, "wasxfail")
        note(report.nodeid, "xfailed" if is_expected else report.outcome,
             message_of(report) if report.failed else "")
    elif report.failed:
        note(report.nodeid, "error", message_of(report))
    elif report.skipped:
        note(report.nodeid, "skipped")


def pytest_collectreport(report):
    if report.failed:
        note(report.nodeid, "error", message_of(report))
