#!/bin/sh
# A build without test hooks knows none of their switches. usage: check-no-hooks.sh FILE
set -u
grep -aq 'paddock_%s' "$1" || { echo "$1: not the code that was to be looked at"; exit 1; }
! grep -a 'PADDOCK_TEST_' "$1"
