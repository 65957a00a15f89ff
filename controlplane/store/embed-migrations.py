#!/usr/bin/env python3
"""Writes migrations/NNNN-*.sql as C strings: embed-migrations.py OUT.c FILE..."""

import re
import sys
from pathlib import Path


def c_string(text: str) -> str:
    def line(part: str) -> str:
        escaped = part.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
        return f'\t"{escaped}\\n"'

    return "\n".join(line(part) for part in text.splitlines())


def main() -> None:
    out, *files = sys.argv[1:]
    rows = []
    for number, path in enumerate(map(Path, files), start=1):
        if not re.fullmatch(rf"{number:04}-[a-z0-9-]+\.sql", path.name):
            sys.exit(f"{path}: expected migration {number:04}-NAME.sql here")
        rows.append(f"\t/* {path.name} */\n{c_string(path.read_text(encoding='ascii'))},\n")
    Path(out).write_text(
        '#include "store/store_migrate.h"\n\n'
        "const char *const store_migrations[] = {\n" + "".join(rows) + "};\n\n"
        f"const unsigned store_migration_count = {len(rows)};\n"
    )


main()
