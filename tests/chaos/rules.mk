# SPDX-License-Identifier: MIT
# Chaos: real processes, a real server, real faults, and a judge.

## chaos  real processes and faults: T=seconds (20), SEED=, STORE=sentinel, cluster, quorum or etcd,
##        REPLICAS=2, SERVERS=5; PLANT=no-grace, with etcd PLANT=lost-tickets, lost-steps: is it found?
# STORE's default is the demo's.
$(call settings,REPLICAS SERVERS)
.PHONY: chaos
chaos: $(BUILD)/chaos $(BUILD)/judge $(BUILD)/tests/clock.so
	@LK_COMMIT="$(COMMIT)" $(call pass,V) $(BUILD)/chaos T=$(or $(T),20) SEED=$(SEED) STORE=$(filter-out local,$(STORE)) \
		REPLICAS=$(REPLICAS) SERVERS=$(SERVERS) PLANT=$(PLANT)
