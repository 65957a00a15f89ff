#!/bin/sh
# A generated page is what its generator writes today.
# usage: check-doc.sh GENERATOR PAGE TARGET
set -eu
if ! "$1" | diff -u "$2" -; then
	echo "$2 is not current: run ninja $3 in the build directory" >&2
	exit 1
fi
