#!/usr/bin/env python3
"""The alerts name metrics that exist, and each alert is tested; where promtool is, it runs the tests.

    check_alerts.py PROGRAM ALERTS TESTS CONNECTOR

PROGRAM and CONNECTOR as for check_board.py.
"""
import re
import shutil
import subprocess
import sys

from check_board import METRIC, connector_names, sample_names


def main():
    program, alerts, tests, connector = sys.argv[1:]
    with open(alerts, encoding="utf-8") as rules, open(tests, encoding="utf-8") as cases:
        rules, cases = rules.read(), cases.read()
    known = sample_names(program)[0] | connector_names(connector)
    expressions = re.findall(r"expr: (.*?)\n        (?:for|labels):", rules, re.S)
    names = re.findall(r"- alert: (\w+)", rules)
    assert len(expressions) == len(names) > 5, (len(expressions), len(names))
    for name, expression in zip(names, expressions):
        for metric in METRIC.findall(expression):
            if metric not in known:
                sys.exit(f"alert {name}: there is no {metric}")
        if not re.search(rf"alertname: {name}\n        exp_alerts:\n          - exp_labels", cases):
            sys.exit(f"alert {name}: no test in {tests} makes it fire")
    print(f"{len(names)} alerts name metrics that exist, and have tests")
    if shutil.which("promtool") is None:
        print("promtool is missing: the tests of the alerts were not run")
        return
    subprocess.run(["promtool", "check", "rules", alerts], check=True)
    subprocess.run(["promtool", "test", "rules", tests], check=True)


if __name__ == "__main__":
    main()
