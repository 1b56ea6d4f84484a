#!/bin/sh
# SPDX-License-Identifier: MIT
# The public headers compile alone, as C11 and C++17, by both compilers, without a warning; their
# version works in an #if.
set -eu
cd "$(dirname "$0")/.."
flags="-Wall -Wextra -Wshadow -Wconversion -pedantic -Werror -Iinclude -fsyntax-only"
version='#include <latchkey.h>
#if LK_VERSION_NUM < 200 || LK_VERSION_NUM >= 1000000
#error "a version that a program can compare"
#endif'
for cc in gcc clang; do
	echo "$version" | $cc -std=c11 $flags -x c -
	echo '#include <latchkey.h>' | $cc -std=c11 -Wstrict-prototypes $flags -x c -
	echo '#include <latchkey.h>' | $cc -std=c++17 $flags -x c++ -
	echo '#include <latchkey.hpp>' | $cc -std=c++17 $flags -x c++ -
done
