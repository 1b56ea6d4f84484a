/* SPDX-License-Identifier: MIT
 * TLS by OpenSSL with memory BIOs.  A memory BIO never blocks and never fails for lack of a peer,
 * so each call does all that the bytes so far allow. */
#include "tls.h"

#include "built_with.h"
#include "fork.h"

#if LK__TLS

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SMALLEST_BUFFER 512

struct lk__tls {
	pthread_mutex_t mutex; /* guards all below; a leaf */
	SSL *ssl;
	BIO *in, *out;        /* of ssl, which frees them */
	bool has_certificate; /* of our own, to show if asked */
	const char *protocol; /* that the server must choose, NULL = none */
	const char *plain;    /* as lk__target_plain() */
	char server_name[256];
};

/* ---- Settings ----------------------------------------------------------------------------- */

/* Empty OpenSSL's queue of errors.  Returns the first reason's number, 0 if there is none, and its
 * text; or ERR_R_MALLOC_FAILURE if that is among them. */
static int take_reason(const char **text)
{
	unsigned long code = ERR_get_error(), next;
	int reason = ERR_GET_REASON(code);

	*text = code ? ERR_reason_error_string(code) : NULL;
	if (!*text)
		*text = "unknown error";
	while ((next = ERR_get_error()))
		if (ERR_GET_REASON(next) == ERR_R_MALLOC_FAILURE)
			reason = ERR_R_MALLOC_FAILURE;
	return reason;
}

static lk_err file_failed(const char *option, const char *path, struct lk__why *why)
{
	const char *text;
	int reason = take_reason(&text);
	struct lk__why inner;

	if (access(path, R_OK) != 0) {
		lk__why_errno(&inner, LK_EINVALID, option, errno, "");
		return lk__why_set(why, LK_EINVALID, "%s (%s)", inner.text, path);
	}
	if (reason == ERR_R_MALLOC_FAILURE)
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	return lk__why_set(why, LK_EINVALID, "%s: %s: %s", option, path, text);
}

/* OpenSSL would ask for the password of a key on the terminal. */
static int no_password(char *password, int size, int writing, void *arg)
{
	(void)password;
	(void)size;
	(void)writing;
	(void)arg;
	return 0;
}

/* Our own certificate, with those between it and its CA, and its key. */
static lk_err load_own(SSL_CTX *settings, const struct lk__target *target, struct lk__why *why)
{
	const char *cert = target->tls_cert;
	const char *key = target->tls_key ? target->tls_key : cert;
	struct lk__why inner;
	lk_err err;

	SSL_CTX_set_default_passwd_cb(settings, no_password);
	if (SSL_CTX_use_certificate_chain_file(settings, cert) != 1)
		return file_failed("cert", cert, why);
	if (SSL_CTX_use_PrivateKey_file(settings, key, SSL_FILETYPE_PEM) == 1)
		return LK_OK;
	err = file_failed("key", key, &inner);
	return lk__why_set(why, err, "%s%s", inner.text,
	                   target->tls_key ? "" : " (without key=FILE, it is read from cert)");
}

static lk_err load_files(SSL_CTX *settings, const struct lk__target *target, struct lk__why *why)
{
	if (target->tls_ca && SSL_CTX_load_verify_locations(settings, target->tls_ca, NULL) != 1)
		return file_failed("ca", target->tls_ca, why);
	if (!target->tls_ca && SSL_CTX_set_default_verify_paths(settings) != 1)
		return lk__why_set(why, LK_ESYSTEM, "cannot read the system's CA certificates");
	return target->tls_cert ? load_own(settings, target, why) : LK_OK;
}

static lk_err load(struct lk__tls_shared *shared, const struct lk__target *target,
                   struct lk__why *why)
{
	SSL_CTX *settings;
	lk_err err;

	/* The first call of OpenSSL decides: otherwise exit() frees what our threads still use. */
	if (OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL) != 1)
		return lk__why_set(why, LK_ESYSTEM, "OpenSSL cannot start");
	ERR_clear_error();
	settings = SSL_CTX_new(TLS_client_method());
	if (!settings)
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	/* The system may demand a newer version. */
	if (SSL_CTX_get_min_proto_version(settings) < TLS1_2_VERSION)
		SSL_CTX_set_min_proto_version(settings, TLS1_2_VERSION);
	SSL_CTX_set_options(settings, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	SSL_CTX_set_verify(settings, target->tls_unverified ? SSL_VERIFY_NONE : SSL_VERIFY_PEER,
	                   NULL);
	err = load_files(settings, target, why);
	ERR_clear_error();
	if (err) {
		SSL_CTX_free(settings);
		return err;
	}
	SSL_CTX_free(shared->settings);
	shared->settings = settings;
	return LK_OK;
}

lk_err lk__tls_load(struct lk__tls_shared *shared, const struct lk__target *target,
                    struct lk__why *why)
{
	lk_err err;

	lk__fork_hold();
	err = load(shared, target, why);
	lk__fork_let();
	return err;
}

void lk__tls_unload(struct lk__tls_shared *shared)
{
	lk__fork_hold();
	SSL_CTX_free(shared->settings);
	SSL_SESSION_free(shared->session);
	lk__fork_let();
	*shared = (struct lk__tls_shared){0};
}

void lk__tls_end_thread(void)
{
	lk__fork_hold();
	OPENSSL_thread_stop();
	lk__fork_let();
}

/* ---- A connection ------------------------------------------------------------------------- */

static void enter(struct lk__tls *tls)
{
	lk__fork_hold();
	pthread_mutex_lock(&tls->mutex);
	ERR_clear_error();
}

static void leave(struct lk__tls *tls)
{
	pthread_mutex_unlock(&tls->mutex);
	lk__fork_let();
}

static bool is_address(const char *text)
{
	struct in6_addr address;

	return inet_pton(AF_INET, text, &address) == 1 || inet_pton(AF_INET6, text, &address) == 1;
}

/* The name in the server's certificate: without the zone of an IPv6 address, since that is a name
 * of this machine, and without the dot that ends an absolute host name. */
static void choose_name(struct lk__tls *tls, const struct lk__target *target)
{
	const char *name = target->tls_server_name ? target->tls_server_name : target->host;
	size_t len = strcspn(name, "%");

	if (len >= sizeof(tls->server_name))
		len = sizeof(tls->server_name) - 1;
	if (len > 1 && name[len - 1] == '.')
		len--;
	memcpy(tls->server_name, name, len);
}

/* Demand the name, and send it to the server, too (SNI), where addresses are not allowed. */
static bool expect_name(struct lk__tls *tls)
{
	X509_VERIFY_PARAM *expected = SSL_get0_param(tls->ssl);
	char *name = tls->server_name;

	X509_VERIFY_PARAM_set_hostflags(expected, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	if (is_address(name))
		return X509_VERIFY_PARAM_set1_ip_asc(expected, name) == 1;
	return X509_VERIFY_PARAM_set1_host(expected, name, 0) == 1 &&
	       SSL_set_tlsext_host_name(tls->ssl, name) == 1;
}

/* Offer one protocol by ALPN: a server that does not know it may refuse, or choose none. */
static bool offer_protocol(struct lk__tls *tls)
{
	unsigned char list[64];
	size_t len = tls->protocol ? strlen(tls->protocol) : 0;

	if (!len || len >= sizeof(list))
		return !len;
	list[0] = (unsigned char)len;
	memcpy(list + 1, tls->protocol, len);
	return SSL_set_alpn_protos(tls->ssl, list, (unsigned)len + 1) == 0;
}

/* Offer a copy: a session may not be used with the settings of two dials. */
static void offer_session(SSL *ssl, SSL_SESSION *kept)
{
	SSL_SESSION *session = kept ? SSL_SESSION_dup(kept) : NULL;

	if (session)
		(void)SSL_set_session(ssl, session); /* a full handshake otherwise */
	SSL_SESSION_free(session);
}

static bool set_up(struct lk__tls *tls, const struct lk__tls_shared *shared)
{
	tls->ssl = SSL_new(shared->settings);
	if (!tls->ssl)
		return false;
	tls->in = BIO_new(BIO_s_mem());
	tls->out = BIO_new(BIO_s_mem());
	if (!tls->in || !tls->out) {
		BIO_free(tls->in);
		BIO_free(tls->out);
		return false;
	}
	/* An empty BIO means "not yet", not the end. */
	BIO_set_mem_eof_return(tls->in, -1);
	BIO_set_mem_eof_return(tls->out, -1);
	SSL_set_bio(tls->ssl, tls->in, tls->out);
	SSL_set_connect_state(tls->ssl);
	offer_session(tls->ssl, shared->session);
	return expect_name(tls) && offer_protocol(tls);
}

struct lk__tls *lk__tls_new(const struct lk__tls_shared *shared, const struct lk__target *target)
{
	struct lk__tls *tls = calloc(1, sizeof(*tls));
	bool good;

	if (!tls)
		return NULL;
	if (pthread_mutex_init(&tls->mutex, NULL) != 0) {
		free(tls);
		return NULL;
	}
	tls->has_certificate = target->tls_cert != NULL;
	tls->protocol = target->tls_protocol;
	tls->plain = lk__target_plain(target);
	choose_name(tls, target);
	enter(tls);
	good = set_up(tls, shared);
	ERR_clear_error();
	leave(tls);
	if (good)
		return tls;
	lk__tls_free(tls);
	return NULL;
}

void lk__tls_free(struct lk__tls *tls)
{
	if (!tls)
		return;
	enter(tls);
	SSL_free(tls->ssl);
	leave(tls);
	pthread_mutex_destroy(&tls->mutex);
	free(tls);
}

/* ---- Errors ------------------------------------------------------------------------------- */

static lk_err untrusted(const struct lk__tls *tls, struct lk__why *why)
{
	long number = SSL_get_verify_result(tls->ssl);

	switch (number) {
	case X509_V_ERR_HOSTNAME_MISMATCH:
	case X509_V_ERR_IP_ADDRESS_MISMATCH:
		return lk__why_set(why, LK_ESERVER,
		                   "the certificate is not for \"%s\" (if it is the right server, "
		                   "name it as its certificate does: server_name=NAME)",
		                   tls->server_name);
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
	case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
	case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
	case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
		return lk__why_set(why, LK_ESERVER,
		                   "the certificate is of an unknown CA (name the CA's file: "
		                   "ca=FILE): %s",
		                   X509_verify_cert_error_string(number));
	case X509_V_ERR_CERT_HAS_EXPIRED:
		return lk__why_set(
			why, LK_ESERVER,
			"the certificate has expired (renew it at the server, or correct "
			"this machine's clock)");
	case X509_V_ERR_CERT_NOT_YET_VALID:
		return lk__why_set(
			why, LK_ESERVER,
			"the certificate is not valid yet (correct this machine's clock)");
	case X509_V_OK: /* the verification could not be done */
	case X509_V_ERR_OUT_OF_MEM:
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	default:
		return lk__why_set(why, LK_ESERVER, "the certificate is not valid: %s",
		                   X509_verify_cert_error_string(number));
	}
}

static lk_err without_protocol(const struct lk__tls *tls, struct lk__why *why)
{
	return lk__why_set(why, LK_ESERVER, "the server does not offer \"%s\" over TLS (ALPN)",
	                   tls->protocol ? tls->protocol : "");
}

/* The server ended the connection, with this alert. */
static lk_err alerted(const struct lk__tls *tls, int alert, const char *text, struct lk__why *why)
{
	switch (alert) {
	case SSL_AD_BAD_CERTIFICATE:
	case SSL_AD_UNSUPPORTED_CERTIFICATE:
	case SSL_AD_CERTIFICATE_REVOKED:
	case SSL_AD_CERTIFICATE_EXPIRED:
	case SSL_AD_CERTIFICATE_UNKNOWN:
	case SSL_AD_UNKNOWN_CA:
	case SSL_AD_ACCESS_DENIED:
	case SSL_AD_CERTIFICATE_REQUIRED:
		if (tls->has_certificate)
			return lk__why_set(why, LK_EAUTH,
			                   "the server refused the certificate of cert=: %s", text);
		return lk__why_set(why, LK_EAUTH,
		                   "the server wants a client certificate (cert=FILE, key=FILE)");
	case SSL_AD_HANDSHAKE_FAILURE:
		return lk__why_set(why, LK_ESERVER, "the server refused the TLS handshake%s",
		                   tls->has_certificate ? ""
		                                        : " (if it wants a client "
		                                          "certificate: cert=FILE, key=FILE)");
	case SSL_AD_NO_APPLICATION_PROTOCOL:
		return without_protocol(tls, why);
	case SSL_AD_PROTOCOL_VERSION:
		return lk__why_set(why, LK_ESERVER, "the server has neither TLS 1.2 nor 1.3");
	default:
		return lk__why_set(why, LK_ECONN, "ended by the server: %s", text);
	}
}

/* The reason why a call failed that returned result. */
static lk_err explain(const struct lk__tls *tls, int result, struct lk__why *why)
{
	int kind = SSL_get_error(tls->ssl, result);
	const char *text;
	int reason = take_reason(&text);
	lk_err err;

	if (kind == SSL_ERROR_ZERO_RETURN)
		err = lk__why_set(why, LK_ECONN, "connection closed by the server");
	else if (reason == ERR_R_MALLOC_FAILURE)
		err = lk__why_set(why, LK_ENOMEM, "out of memory");
	else if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
		err = untrusted(tls, why);
	else if (reason > SSL_AD_REASON_OFFSET)
		err = alerted(tls, reason - SSL_AD_REASON_OFFSET, text, why);
	else if (reason == SSL_R_UNSUPPORTED_PROTOCOL)
		err = lk__why_set(why, LK_ESERVER, "the server has neither TLS 1.2 nor 1.3");
	else if (SSL_in_before(tls->ssl) || SSL_get_state(tls->ssl) == TLS_ST_CW_CLNT_HELLO)
		err = lk__why_set(why, LK_ESERVER,
		                  "the server does not speak TLS (if its port is plain, %s): %s",
		                  tls->plain, text);
	else
		err = lk__why_set(why, LK_ECONN, "TLS: %s", text);
	return err;
}

/* ---- Bytes -------------------------------------------------------------------------------- */

/* Move the bytes to send into out. */
static bool take_out(struct lk__tls *tls, struct lk__buf *out)
{
	size_t len = BIO_ctrl_pending(tls->out), cap = out->cap ? out->cap : SMALLEST_BUFFER;

	while (cap - out->len < len)
		cap *= 2;
	if (len && cap > out->cap) {
		char *data = realloc(out->data, cap);
		if (!data)
			return false;
		out->data = data;
		out->cap = cap;
	}
	if (len && BIO_read(tls->out, out->data + out->len, (int)len) != (int)len)
		return false;
	out->len += len;
	return true;
}

static bool put_in(struct lk__tls *tls, const char *bytes, size_t len)
{
	return !len || BIO_write(tls->in, bytes, (int)len) == (int)len;
}

static bool has_protocol(const struct lk__tls *tls)
{
	const unsigned char *chosen;
	unsigned len;

	if (!tls->protocol)
		return true;
	SSL_get0_alpn_selected(tls->ssl, &chosen, &len);
	return len == strlen(tls->protocol) && !memcmp(chosen, tls->protocol, len);
}

static lk_err shake(struct lk__tls *tls, bool *done, struct lk__why *why)
{
	int result = SSL_do_handshake(tls->ssl);

	*done = result == 1;
	if (*done && !has_protocol(tls))
		return without_protocol(tls, why);
	if (*done || SSL_get_error(tls->ssl, result) == SSL_ERROR_WANT_READ)
		return LK_OK;
	return explain(tls, result, why);
}

lk_err lk__tls_shake(struct lk__tls *tls, const char *bytes, size_t len, struct lk__buf *out,
                     bool *done, struct lk__why *why)
{
	lk_err err = LK_ENOMEM;

	enter(tls);
	*done = false;
	if (put_in(tls, bytes, len))
		err = shake(tls, done, why);
	if (!take_out(tls, out) || err == LK_ENOMEM)
		err = lk__why_set(why, LK_ENOMEM, "out of memory");
	leave(tls);
	return err;
}

static int64_t decrypt(struct lk__tls *tls, char *plain, size_t size, bool *more,
                       struct lk__why *why)
{
	int got = SSL_read(tls->ssl, plain, (int)size);

	if (got > 0) {
		*more = SSL_pending(tls->ssl) > 0 || BIO_ctrl_pending(tls->in) > 0;
		return got;
	}
	if (SSL_get_error(tls->ssl, got) == SSL_ERROR_WANT_READ)
		return 0;
	explain(tls, got, why);
	return -1;
}

int64_t lk__tls_decrypt(struct lk__tls *tls, const char *bytes, size_t len, char *plain,
                        size_t size, bool *more, struct lk__why *why)
{
	int64_t got = -1;

	*more = false;
	enter(tls);
	if (put_in(tls, bytes, len))
		got = decrypt(tls, plain, size, more, why);
	else
		lk__why_set(why, LK_ENOMEM, "out of memory");
	leave(tls);
	return got;
}

lk_err lk__tls_encrypt(struct lk__tls *tls, const char *plain, size_t len, struct lk__buf *out,
                       struct lk__why *why)
{
	lk_err err = LK_OK;
	int result;

	enter(tls);
	result = SSL_write(tls->ssl, plain, (int)len);
	if (result != (int)len)
		err = explain(tls, result, why);
	if (!err && !take_out(tls, out))
		err = lk__why_set(why, LK_ENOMEM, "out of memory");
	leave(tls);
	return err;
}

/* ---- Sessions and facts --------------------------------------------------------------------- */

void lk__tls_remember(struct lk__tls_shared *shared, struct lk__tls *tls)
{
	SSL_SESSION *session, *copy = NULL;

	enter(tls);
	session = SSL_get0_session(tls->ssl);
	if (session && SSL_SESSION_is_resumable(session))
		copy = SSL_SESSION_dup(session);
	if (copy) {
		SSL_SESSION_free(shared->session);
		shared->session = copy;
	}
	ERR_clear_error();
	leave(tls);
}

static int days_left(const SSL *ssl)
{
	X509 *certificate = SSL_get_peer_certificate(ssl);
	int days = 0, seconds = 0;

	if (certificate)
		ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(certificate));
	X509_free(certificate);
	return seconds < 0 ? days - 1 : days;
}

void lk__tls_look(struct lk__tls *tls, struct lk__tls_facts *facts)
{
	enter(tls);
	memset(facts, 0, sizeof(*facts));
	strncpy(facts->version, SSL_get_version(tls->ssl), sizeof(facts->version) - 1);
	strncpy(facts->cipher, SSL_get_cipher_name(tls->ssl), sizeof(facts->cipher) - 1);
	memcpy(facts->name, tls->server_name, sizeof(facts->name));
	facts->is_resumed = SSL_session_reused(tls->ssl);
	facts->days_left = days_left(tls->ssl);
	ERR_clear_error();
	leave(tls);
}

#endif
