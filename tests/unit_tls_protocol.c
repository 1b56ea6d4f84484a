/* SPDX-License-Identifier: MIT
 * The protocol inside of TLS (ALPN): a store that names one speaks with no server that does not
 * choose it. */
#include "harness/test.h"
#include "harness/tls_link.h"

#include <string.h>

/* A server that knows one protocol, chosen as servers do that refuse others, or that ignore them.
 */
static int choose(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                  const unsigned char *in, unsigned in_len, void *known)
{
	(void)ssl;
	for (unsigned at = 0; at < in_len; at += 1 + in[at])
		if (in[at] == strlen(known) && !memcmp(in + at + 1, known, in[at])) {
			*out = in + at + 1;
			*out_len = in[at];
			return SSL_TLSEXT_ERR_OK;
		}
	return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static int ignore(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                  const unsigned char *in, unsigned in_len, void *known)
{
	(void)ssl;
	(void)out;
	(void)out_len;
	(void)in;
	(void)in_len;
	(void)known;
	return SSL_TLSEXT_ERR_NOACK;
}

static struct tls_link link_to(int version, const char *protocol, SSL_CTX_alpn_select_cb_func how,
                               char *known)
{
	struct tls_link link = tls_link_new(tls_url("localhost", ""), "server", version);

	link.target.tls_protocol = protocol;
	if (how)
		SSL_CTX_set_alpn_select_cb(link.server.settings, how, known);
	return link;
}

TEST(protocol_that_the_server_chooses_is_spoken)
{
	static char h2[] = "h2";

	tls_start();
	for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
		struct tls_link link = link_to(version, "h2", choose, h2);
		MEETS(&link);
		tls_send_and_check(&link, "some bytes", 10);
		/* A resumed session has it, too. */
		lk__tls_remember(&link.shared, link.tls);
		MEETS(&link);
		tls_send_and_check(&link, "some bytes", 10);
		tls_link_free(&link);
	}
}

TEST(server_without_the_protocol_is_refused)
{
	static char other[] = "http/1.1";

	tls_start();
	for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
		struct tls_link link = link_to(version, "h2", choose, other);
		FAILS(&link, LK_ESERVER, "does not offer \"h2\"");
		tls_link_free(&link);
		link = link_to(version, "h2", ignore, other);
		FAILS(&link, LK_ESERVER, "does not offer \"h2\"");
		tls_link_free(&link);
		link = link_to(version, "h2", NULL, NULL);
		FAILS(&link, LK_ESERVER, "does not offer \"h2\"");
		tls_link_free(&link);
	}
}

TEST(without_a_protocol_none_is_offered)
{
	static char h2[] = "h2";
	struct tls_link link;

	tls_start();
	link = link_to(0, NULL, choose, h2);
	MEETS(&link);
	tls_send_and_check(&link, "some bytes", 10);
	tls_link_free(&link);
}
