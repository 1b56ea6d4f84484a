# SPDX-License-Identifier: MIT
# What counting costs is measured against a library that counts nothing: the mutant of that name.

COUNTED_PAIRS := $(BUILD)/bench/counters/pairs
UNCOUNTED := build/mutant-nothing-counted/build/liblatchkey.so.$(VERSION)

$(COUNTED_PAIRS): bench/counters/pairs.c bench/counters/library.h include/latchkey.h
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -Iinclude $(LDFLAGS) -o $@ $< -ldl

$(UNCOUNTED): $(SHARED) $(STATIC) $(HARNESS) tests/mutants/nothing-counted.mutant
	$(call say,PLANT,nothing-counted)
	$(Q)$(MAKE) -s MUTANT=nothing-counted lib && touch $@

ifneq ($(if $(T),$(filter counters,$(T)),all),)
bench: $(SHARED) $(COUNTED_PAIRS) $(if $(VARIANT),,$(UNCOUNTED))
endif
