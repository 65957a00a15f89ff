#!/bin/sh
# Every C file looks as .clang-format says. usage: check-format.sh SOURCE_ROOT
set -u
cd "$1" || exit 1
format=$(command -v clang-format-14 || command -v clang-format) || exit 77
files=$(git ls-files -co --exclude-standard '*.c' '*.h')
[ -n "$files" ] || { echo "no C file found"; exit 1; }
# shellcheck disable=SC2086
"$format" --dry-run --Werror $files
