#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Every fault of broken_kernels.c, planted at every level that this machine has, must turn one of the tests red.
#
#   run.sh "ref;avx2;...;avx512bf16" PROGRAM...
set -u
here=$(dirname "$0")
levels=$(echo "$1" | tr ';' ' ')
shift
[ $# -gt 0 ] || { echo "negative: there are no tests to try"; exit 1; }

faults=$(sed -n 's/^    {"\([a-z0-9_]*\)", {\..*/\1/p' "$here/broken_kernels.c")
out=$(mktemp)
trap 'rm -f "$out"' EXIT

planted=0
missed=0
for level in $levels; do
    export SKIPDECODE_CPU="$level"
    unset SKIPDECODE_BREAK
    absent=false
    for program in "$@"; do
        "$program" >"$out" 2>&1
        case $? in
        0) ;;
        77) absent=true ;;
        *)
            cat "$out"
            echo "negative: $(basename "$program") fails at level $level with nothing broken"
            exit 1
            ;;
        esac
    done
    if $absent; then
        echo "negative: this machine lacks $level"
        continue
    fi

    for fault in $faults; do
        export SKIPDECODE_BREAK="$level:$fault"
        planted=$((planted + 1))
        noticed=
        for program in "$@"; do
            "$program" >"$out" 2>&1
            status=$?
            if grep -q "nothing to break: $level:$fault" "$out"; then
                planted=$((planted - 1)) # the level has no such entry
                noticed=nothing
                break
            fi
            if ! grep -q "broken on purpose: $level:$fault" "$out"; then
                continue # a program that never asks for this level
            fi
            if [ $status -ne 0 ]; then
                noticed=$(basename "$program" | sed 's/^broken_//')
                break
            fi
        done
        if [ -z "$noticed" ]; then
            missed=$((missed + 1))
            echo "negative: NOT NOTICED by any test: $fault at level $level"
        fi
    done
done

echo "negative: $((planted - missed)) of $planted planted faults were noticed"
[ $planted -gt 0 ] && [ $missed -eq 0 ]
