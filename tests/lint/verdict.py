#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The verdict knows no experiment: no name of a built-in experiment, of a workload, of a metric or of a setting that
they vary appears in a text of the code that compares, explains and reports."""
import glob
import os
import re
import sys

VERDICT = ["analyse.c", "why.c", "lead.c", "costs.c", "stats.c", "planted.c", "report_text.c", "report_html.c", "report_costs.c", "plot.c"]


def names(top):
    out = set()
    for path in glob.glob(os.path.join(top, "lab", "*.yaml")):
        out.add(os.path.basename(path)[:-len(".yaml")])
        with open(path, encoding="utf-8") as f:
            text = re.sub(r"#.*", "", f.read())
        out.update(re.findall(r"\b((?:drive|disk|guest|host|work)\.[a-z]+)\b", text))
    with open(os.path.join(top, "src", "lab", "workload.c"), encoding="utf-8") as f:
        out.update(re.findall(r'^    \{"([a-z-]+)"', f.read(), re.M))
    for path in glob.glob(os.path.join(top, "guest", "lab", "*.sh")):
        with open(path, encoding="utf-8") as f:
            out.update(re.findall(r"\$lab (?:phase|fsync) ([a-z-]+)", f.read()))
    return out


def main():
    top = sys.argv[1]
    wanted = names(top)
    assert {"disk-bus", "fio", "drive.if", "unpack"} <= wanted, wanted
    bad = 0
    for name in VERDICT:
        with open(os.path.join(top, "src", "lab", name), encoding="utf-8") as f:
            code = re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: "\n" * m.group().count("\n"), f.read(), flags=re.S)
        for number, line in enumerate(code.split("\n"), 1):
            for text in re.findall(r'"((?:[^"\\]|\\.)*)"', line):
                for found in sorted(w for w in wanted if re.search(rf"(?<![\w.:-]){re.escape(w)}(?![\w.-])", text)):
                    if line.startswith("#include"):
                        continue
                    print(f"src/lab/{name}:{number}: '{found}' belongs to an experiment: \"{text}\"")
                    bad = 1
    sys.exit(bad)


main()
