#!/bin/sh
# SPDX-License-Identifier: MIT
# The manual gives mandoc nothing to complain about: test_manual.sh FILE. 77: there is no mandoc.
if ! command -v mandoc >/dev/null 2>&1; then
    echo "skipped: there is no mandoc to read $1 with"
    exit 77
fi
mandoc -T lint -W warning "$1"
