#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The checkers of tools/ must find what they look for. Each case is a small tree with one fault planted in it; the same
# tree without the fault must pass.
#
#   test_checkers.sh TOOLS
set -u
tools=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cases=0
failed=0

# A tree that every checker accepts.
fresh_tree() {
    rm -rf "$work/tree"
    for folder in include/skipdecode src/base src/engine src/kernels cli docs models; do
        mkdir -p "$work/tree/$folder"
    done
    cd "$work/tree" || exit 1
    licence='/* SPDX-License-Identifier: MIT */'
    printf '%s\n#include <stddef.h>\n' "$licence" >include/skipdecode/skipdecode.h
    printf '%s\n#include "include/skipdecode/skipdecode.h"\n' "$licence" >src/base/error.h
    printf '%s\n#include "src/base/error.h"\n' "$licence" >src/kernels/kernels.h
    printf '%s\n#include "src/engine/kv.h"\n#include "src/kernels/kernels.h"\n\nint f(int x)\n{\n    return x;\n}\n' \
        "$licence" >src/engine/kv.c
    printf '%s\nint f(int x);\n' "$licence" >src/engine/kv.h
    printf '%s\n#include "src/base/error.h"\n#include "src/model/model.h"\n' "$licence" >cli/main.c
    printf 'check:\n\ttrue\n' >Makefile
    cat >program <<'END'
#!/bin/sh
case "$*" in
help) printf 'usage: skipdecode VERB\n\n  generate  makes text\n' ;;
'help generate') printf 'skipdecode generate MODEL\n  --batch N  rows\n' ;;
*) exit 2 ;;
esac
END
    chmod +x program
    printf '.Sh DESCRIPTION\n.It Cm generate\n.Ss Options\n.It Fl -batch Ar n\n' >docs/skipdecode.1
    cat >README.md <<'END'
Run `make check`; see `src/engine/kv.c`, `engine/kv.c`, `src/*/kv.h` and [the manual](docs/skipdecode.1).
Use `--batch`, `skipdecode generate DIR --batch 4`, or `ctest --quiet`.

    make check
    ./skipdecode generate models/.. --batch 4

Prose that says make and --quiet, and https://example.org/docs/GONE.md.

```sh
make check JOBS=2          # comment
build/skipdecode generate models/ \
    --batch 4 | tee log --append
cmake --preset release
```
END
}

expect() { # $1: 0 or 1, $2: what the output must hold, $3: what is being tried, $4...: command
    want=$1 part=$2 title=$3
    shift 3
    cases=$((cases + 1))
    "$@" >"$work/out" 2>&1
    got=$?
    if [ "$got" -ne "$want" ] || ! grep -q -e "$part" "$work/out"; then
        failed=$((failed + 1))
        echo "$title: exit status $got instead of $want, or no \"$part\" in:"
        sed 's/^/    /' "$work/out"
    fi
}

includes() { "$tools/check-includes" .; }
style() { "$tools/check-style" .; }
docs() { "$tools/check-docs" ./program .; }

# ---- includes -------------------------------------------------------------------------------------------------------

fresh_tree
expect 0 'follow the table' 'allowed includes' includes

forbidden() { # $1: file, $2: include line, $3: what the message must hold
    fresh_tree
    printf '%s\n' "$2" >>"$1"
    expect 1 "$3" "$1 with $2" includes
}
forbidden src/base/error.h '#include "src/kernels/kernels.h"' 'room base may include no other room'
forbidden src/kernels/kernels.h '#include "src/engine/kv.h"' 'not engine'
forbidden src/kernels/kernels.h '  #  include "src/tokenizer/tokenizer.h"' 'not tokenizer'
forbidden src/engine/kv.c '#include "src/generate/generate.h"' 'not generate'
forbidden src/engine/kv.c '#include "kv.h"' 'written from the repository root'
forbidden src/engine/kv.c '#include "../base/error.h"' 'without . and ..'
forbidden src/engine/kv.c '#include "src/engine/../base/error.h"' 'without . and ..'
forbidden src/engine/kv.c '#include "cli/cli.h"' 'not a header of src/'
forbidden src/engine/kv.c '#include "tests/support/support.h"' 'not a header of src/'
forbidden src/engine/kv.c '#include "src/base/error.c"' 'not a header of src/'
forbidden src/engine/kv.c '#include <skipdecode/skipdecode.h>' 'with quotes'
forbidden include/skipdecode/skipdecode.h '#include "src/base/error.h"' 'libc only'
forbidden cli/main.c '#include "src/kernels/kernels.h"' 'not one of the headers that rooms offer'

fresh_tree
mkdir src/attic
printf '#include "src/base/error.h"\n' >src/attic/a.c
expect 1 'room attic is not in the table' 'an unknown room' includes

# ---- style ----------------------------------------------------------------------------------------------------------

fresh_tree
expect 0 'the longest function 1' 'good style' style

ugly() { # $1: text to append to a source, $2: what the message must hold
    fresh_tree
    printf '%b' "$1" >>src/engine/kv.c
    expect 1 "$2" "$2" style
}
long=$(printf '%0121d' 0)
ugly '\tint x;\n' 'a tab'
ugly 'int x; \n' 'a blank at the end'
ugly 'int x;\r\n' 'a blank at the end'
ugly "int a$long;\n" '127 columns'
ugly "\nint big(void)\n{\n$(printf '    f(0);\\n%.0s' $(seq 151))}\n" 'function big has 151 lines'
ugly "$(printf 'int f(int x);\\n%.0s' $(seq 1200))" 'lines; split the file'
fresh_tree
printf 'int x;\n' >src/engine/kv.h
expect 1 'SPDX' 'no licence' style
fresh_tree
printf '/* %s */\n' "$(printf 'ü%.0s' $(seq 110))" >>src/engine/kv.c
expect 0 'check-style' 'columns are characters' style

# ---- documents ------------------------------------------------------------------------------------------------------

fresh_tree
expect 0 'uses of the program' 'true documents' docs
expect 77 'options not checked' 'no program' "$tools/check-docs" '' .

drifted() { # $1: line to append to README.md, $2: what the message must hold
    fresh_tree
    printf '%s\n' "$1" >>README.md
    expect 1 "$2" "document with $1" docs
}
# shellcheck disable=SC2016
{
    drifted 'See `src/engine/gone.c`.' 'src/engine/gone.c does not exist'
    drifted 'See src/engine/gone.c.' 'src/engine/gone.c does not exist'
    drifted 'See `engine/gone.c`.' 'engine/gone.c does not exist'
    drifted 'See `src/*/gone*.c`.' 'does not exist'
    drifted 'See `src/engine/gone.c:12`.' 'does not exist'
    drifted 'See [this](docs/GONE.md#part).' 'leads nowhere'
    drifted 'Run `make gone`.' 'no target gone'
    drifted 'Give `--gone`.' 'no option --gone'
    drifted 'Run `skipdecode generate DIR --gone=1`.' 'no option --gone'
    drifted 'Run `skipdecode gone DIR`.' 'no verb gone'
    drifted "$(printf '```\nbuild/skipdecode generate x \\\n  --gone\n```')" 'no option --gone'
    drifted "$(printf '\n    make gone')" 'no target gone'
    drifted "$(printf '\n    skipdecode generate x \\\n  --gone')" 'no option --gone'
    drifted "$(printf '\n    ls src/engine/gone.c')" 'does not exist'
    drifted "$(printf '```\nmake gone\n```')" 'no target gone'
}
fresh_tree
printf '.It Fl -gone\n' >>docs/skipdecode.1
expect 1 'no option --gone' 'the manual names too much' docs
fresh_tree
printf '.Sh DESCRIPTION\n.It Cm generate\n' >docs/skipdecode.1
expect 1 'does not name the option --batch' 'the manual names too little' docs

# ---- header and exports ---------------------------------------------------------------------------------------------

header() { "$tools/check-header" include/skipdecode/skipdecode.h; }
fresh_tree
printf 'int sd_f(const char *text) { return !text; }\n' >>include/skipdecode/skipdecode.h
expect 1 'redefinition' 'a header that cannot be included twice' header
fresh_tree
seq -f 'int sd_f%.0f(void);' 301 >>include/skipdecode/skipdecode.h
expect 1 '300 at most' 'a long header' header

exports() { # $1: line of the header, $2: code
    fresh_tree
    printf '%s\n' "$1" >include/skipdecode/skipdecode.h
    printf '#define SD_API __attribute__((visibility("default")))\n%s\n' "$2" >x.c
    cc -fvisibility=hidden -fPIC -shared -o libx.so x.c && cc -fPIC -c -o x.o x.c && ar rc libx.a x.o &&
        "$tools/check-exports" libx.so libx.a include/skipdecode/skipdecode.h
}
declared='SD_API int sd_f(void);'
expect 0 '1 exported functions' 'good exports' exports "$declared" 'SD_API int sd_f(void) { return 1; }'
expect 1 'not exported by' 'a hidden function' exports "$declared" 'int sd_f(void) { return 1; }'
expect 1 'not declared SD_API' 'an export too many' exports "$declared" \
    'SD_API int sd_f(void) { return 1; } SD_API int sd_g(void) { return 1; }'
expect 1 'do not start with sd_' 'a foreign symbol' exports "$declared" \
    'SD_API int sd_f(void) { return 1; } int helper(void) { return 1; }'

# ---------------------------------------------------------------------------------------------------------------------

if [ $failed -ne 0 ]; then
    echo "checkers: $failed of $cases cases failed"
    exit 1
fi
echo "checkers: $cases cases, each planted fault was found"
