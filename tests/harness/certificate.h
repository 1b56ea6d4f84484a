/* SPDX-License-Identifier: MIT
 * Certificates for tests of TLS, made by OpenSSL. */
#ifndef CERTIFICATE_H
#define CERTIFICATE_H

struct certificate {
	const char *name;   /* of the files NAME.pem and NAME.key, and its subject */
	const char *issuer; /* the name of one that exists already, NULL = itself: a CA */
	const char *sites;  /* "DNS:localhost,IP:127.0.0.1", NULL = none */
	int from_days;      /* valid from that many days after now, */
	int to_days;        /* to that many; 0 = 30 */
};

/* Write the two files into the folder; fails the test on an error. */
void certificate_make(const char *folder, const struct certificate *certificate);
/* Make "ca", and "server" of that CA for localhost and 127.0.0.1. */
void certificate_make_usual(const char *folder);

#endif
