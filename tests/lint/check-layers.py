#!/usr/bin/env python3
"""Checks the include graph against layers.txt, and that it has no cycle.

usage: check-layers.py SOURCE_ROOT
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def read_layers(path):
    layers = {}
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            name, _, allowed = line.partition(":")
            layers[name.strip()] = allowed.split()
    return layers


def find_cycle(graph):
    done, path = set(), []

    def visit(node):
        if node in path:
            return path[path.index(node):] + [node]
        if node in done:
            return None
        path.append(node)
        for nxt in sorted(graph.get(node, ())):
            cycle = visit(nxt)
            if cycle:
                return cycle
        path.pop()
        done.add(node)
        return None

    for node in sorted(graph):
        cycle = visit(node)
        if cycle:
            return cycle
    return None


def check(root):
    layers = read_layers(root / "tests/lint/layers.txt")
    faults, files, headers = [], 0, {}
    for base in (root / "controlplane", root / "guest-agent"):
        for path in sorted(base.rglob("*.[ch]")):
            folder = path.parent.name
            own = f"{folder}/{path.name}"
            if folder not in layers:
                faults.append(f"{path}: folder {folder} is not in layers.txt")
                continue
            files += 1
            includes = INCLUDE.findall(path.read_text())
            for inc in includes:
                target = inc.split("/")[0]
                if "/" not in inc:
                    faults.append(f"{own}: include \"{inc}\" must name its folder")
                elif target != folder and not {target, inc} & set(layers[folder]):
                    faults.append(f"{own}: {folder} may not include {inc}")
            if path.suffix == ".h":
                headers[own] = set(includes)
    cycle = find_cycle(headers)
    if cycle:
        faults.append("headers include each other in a circle: " + " -> ".join(cycle))
    return faults, files


def main():
    faults, files = check(pathlib.Path(sys.argv[1]))
    for fault in faults:
        print(fault)
    if files == 0:
        print("no source file found")
        return 1
    print(f"{files} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
