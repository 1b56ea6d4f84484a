# SPDX-License-Identifier: MIT
# Bugs planted on purpose, each noticed by a named test: tests/mutants/run.
#
## mutants  verify that the tests fail: M="name ..." (default all), SHARE=1/3 (a part), BY=unit (noticed by
##          unit tests), J=2 (at once)
## MUTANT=  a build with that bug, in build/mutant-NAME: make MUTANT=claim-skipped test T=live_contract

$(call settings,M SHARE BY)
.PHONY: mutants
mutants:
	$(Q)MAKE="$(MAKE)" $(call pass,J SHARE BY) LK_COMMIT="$(COMMIT)" tests/mutants/run $(M)
