# SPDX-License-Identifier: MIT
# Every statement of every script is deleted in turn; a program that runs the scripts in memory must
# notice (killers).  Exceptions are in tests/statements/survivors, with their reasons.
#
## statements  delete each in turn: FILES="lock_ask.lua ..." (default all), SHARE=1/10 (a part), J=2

$(call settings,FILES)
.PHONY: statements
statements:
	$(Q)MAKE="$(MAKE)" $(call pass,J SHARE) LK_COMMIT="$(COMMIT)" tests/mutants/run --statements $(FILES)
