# SPDX-License-Identifier: MIT
# The comparison of our codec with protobuf-c, which only these tests need.

PROTOBUF := $(BUILD)/gen/messages.pb-c
$(PROTOBUF).c: tests/etcd/messages.proto | needs
	$(call say,PROTO,$<)
	$(Q)mkdir -p $(@D)
	$(Q)protoc-c --proto_path=tests/etcd --c_out=$(@D) $<
$(PROTOBUF).h: $(PROTOBUF).c ;
$(PROTOBUF).o: $(PROTOBUF).c
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

PROTOBUF_TESTS := $(filter %/unit_etcd_protobuf %/unit_etcd_protobuf_answers,$(TESTS))
$(PROTOBUF_TESTS:=.o): | $(PROTOBUF).h
$(PROTOBUF_TESTS): $(PROTOBUF).o
$(PROTOBUF_TESTS): override LDFLAGS += $(PROTOBUF).o -lprotobuf-c
