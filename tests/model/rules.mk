# SPDX-License-Identifier: MIT
# Every state of a few clients in small bounds: see tests/model/main.c.

## model  every state: 2 clients, 4 steps each; BIG=1: 3 and 6, 40 minutes; NIGHTLY=1: more bounds;
##        KIND=lock|semaphore|rate|latch|quorum|etcd; PLANT=NAME: the wrong variant of that name, and its
##        effect; PLANT=all; SECONDS=, STATES=, WALKS= limits; SEED= one walk over a quorum again
$(call settings,BIG KIND PLANT SECONDS STATES EVERY WITH WALKS SEED)
# Two processes share the kinds between them; locks take half of the time.
MODEL_SHARES := $(if $(BIG)$(KIND)$(PLANT),$(or $(KIND),all),lock semaphore,latch,rate,quorum,etcd)
.PHONY: model
model: $(BUILD)/model
	@pids=; for kind in $(MODEL_SHARES); do \
		[ $$kind = all ] && kind=; \
		LK_COMMIT="$(COMMIT)" $(BUILD)/model $(if $(BIG),BIG=$(BIG)) \
			$(if $(NIGHTLY),NIGHTLY=$(NIGHTLY)) $${kind:+KIND=$$kind} \
			$(if $(PLANT),PLANT=$(PLANT)) $(if $(SECONDS),SECONDS=$(SECONDS)) \
			$(if $(STATES),STATES=$(STATES)) $(if $(EVERY),EVERY=$(EVERY)) \
			$(if $(WITH),WITH=$(WITH)) $(if $(WALKS),WALKS=$(WALKS)) \
			$(if $(SEED),SEED=$(SEED)) & \
		pids="$$pids $$!"; \
	done; \
	for pid in $$pids; do wait $$pid || failed=1; done; [ ! "$$failed" ]
