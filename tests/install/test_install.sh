#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Installs a build into an empty folder, compiles examples/minimal.c from there as a stranger would, with nothing of the
# source tree on the command line, and lets it generate with the embedded model.
#
#   test_install.sh shared|static|find_package BUILD      from the repository's root; CC, CMAKE, SD_LIBDIR from CTest
set -eu
way=$1 build=$2
model=models/e2e-24l
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
die() { echo "install/$way: $*"; exit 1; }

prefix=$work/prefix
"$CMAKE" --install "$build" --prefix "$prefix" >"$work/log" || { cat "$work/log"; die "installing failed"; }
for file in include/skipdecode/skipdecode.h "$SD_LIBDIR/libskipdecode.so" "$SD_LIBDIR/libskipdecode.a" bin/skipdecode \
    share/man/man1/skipdecode.1; do
    [ -e "$prefix/$file" ] || die "$file was not installed"
done

# The tree may be moved after it was installed (a package's staging folder).
mv "$prefix" "$work/moved"
prefix=$work/moved
PKG_CONFIG_PATH=$prefix/$SD_LIBDIR/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
export PKG_CONFIG_PATH
pkg-config --print-errors --exists skipdecode || die "pkg-config does not accept skipdecode.pc"

version=$("$prefix/bin/skipdecode" --version)
case $version in
*"$(pkg-config --modversion skipdecode)"*) ;;
*) die "the program says \"$version\", skipdecode.pc $(pkg-config --modversion skipdecode)" ;;
esac

warnings='-std=c17 -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Werror'
cp examples/minimal.c "$work"
case $way in
shared)
    # shellcheck disable=SC2046,SC2086
    "$CC" $warnings "$work/minimal.c" $(pkg-config --cflags --libs skipdecode) -o "$work/minimal"
    LD_LIBRARY_PATH=$prefix/$SD_LIBDIR
    export LD_LIBRARY_PATH
    ;;
static) # skipdecode alone from its archive: the program then runs without the installed tree
    rm "$prefix/$SD_LIBDIR"/libskipdecode.so*
    # shellcheck disable=SC2046,SC2086
    "$CC" $warnings "$work/minimal.c" $(pkg-config --static --cflags --libs skipdecode) -o "$work/minimal"
    ;;
find_package)
    cp examples/CMakeLists.txt "$work"
    { "$CMAKE" -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$CC" &&
        "$CMAKE" --build "$work/build"; } >"$work/log" 2>&1 || { cat "$work/log"; die "the example does not build"; }
    mv "$work/build/minimal" "$work/minimal"
    ;;
*) die "unknown way" ;;
esac

output=$("$work/minimal" "$model" "name[Blue Heron], food[Thai]") || die "minimal failed on $model: $output"
[ -n "$output" ] || die "minimal printed nothing"
echo "install/$way: minimal.c compiled and printed: $(printf '%s\n' "$output" | head -n 1)"
