# SPDX-License-Identifier: MIT
# Every state of a few clients in small bounds: see tests/model/main.c.

## model  every state: 2 clients, 4 steps each; BIG=1: 3 and 6, 40 minutes; KIND=lock|semaphore|rate|latch;
##        PLANT=NAME: the wrong variant of that name, and its effect; PLANT=all; SECONDS=, STATES= limits
$(call settings,BIG KIND PLANT SECONDS STATES EVERY WITH)
.PHONY: model
model: $(BUILD)/model
	@LK_COMMIT="$(COMMIT)" $(BUILD)/model $(if $(BIG),BIG=$(BIG)) \
		$(if $(KIND),KIND=$(KIND)) $(if $(PLANT),PLANT=$(PLANT)) \
		$(if $(SECONDS),SECONDS=$(SECONDS)) $(if $(STATES),STATES=$(STATES)) \
		$(if $(EVERY),EVERY=$(EVERY)) $(if $(WITH),WITH=$(WITH))
