#!/bin/sh
# SPDX-License-Identifier: MIT
# The public headers alone, as C11 and C++17, by both compilers, without a warning.
set -eu
cd "$(dirname "$0")/.."
flags="-Wall -Wextra -Wshadow -Wconversion -pedantic -Werror -Iinclude -fsyntax-only"
for cc in gcc clang; do
	echo '#include <latchkey.h>' | $cc -std=c11 -Wstrict-prototypes $flags -x c -
	echo '#include <latchkey.h>' | $cc -std=c++17 $flags -x c++ -
	echo '#include <latchkey.hpp>' | $cc -std=c++17 $flags -x c++ -
done
