#!/bin/sh
# Each header compiles alone and guards itself. usage: check-headers.sh SOURCE_ROOT CC [FLAGS...]
set -u
root=$1
shift
cd "$root" || exit 1
faults=0
count=0
for header in $(find controlplane guest-agent -name '*.h' | sort); do
    count=$((count + 1))
    grep -q '^#pragma once' "$header" || { echo "$header: no #pragma once"; faults=$((faults + 1)); }
    printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
        "$@" -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -fsyntax-only \
            -I. -Icontrolplane -Iguest-agent -x c - || faults=$((faults + 1))
done
echo "$count headers, $faults faults"
[ "$count" -gt 0 ] && [ "$faults" -eq 0 ]
