/* SPDX-License-Identifier: MIT
 * Parties: who holds or waits, by what each client tells of itself. */
#ifndef LK__PARTY_H
#define LK__PARTY_H

#include "client.h"

/* 1:client:nonce:...: the middle is the party's id, the client the owner of its description.  False
 * when it is no ticket. */
bool lk__party_id(const struct lk__resp *ticket, lk_party *party);
/* Fill in who they are; what nobody told stays empty.  _locked; gives the mutex up meanwhile. */
lk_err lk__party_describe(struct lk__handle *handle, lk_party *const *parties, size_t count);

#endif
