#!/bin/sh
# docs/api.md is what the operation table says.
# usage: check-api-doc.sh API-DOC SOURCE_ROOT
set -eu
if ! "$1" | diff -u "$2/docs/api.md" -; then
	echo "docs/api.md is not current: run ninja docs-api in the build directory" >&2
	exit 1
fi
