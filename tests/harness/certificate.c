/* SPDX-License-Identifier: MIT
 * Certificates for tests of TLS, made by OpenSSL. */
#include "certificate.h"

#include "process.h"

#include <check.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DAY_S (24 * 3600L)
#define PATH_SIZE 300

static FILE *open_file(const char *folder, const char *name, const char *ending, const char *mode)
{
	char path[PATH_SIZE];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s.%s", folder, name, ending);
	file = fopen(path, mode);
	ck_assert_msg(file != NULL, "cannot open %s", path);
	return file;
}

static EVP_PKEY *key_new(void)
{
	EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_id(EVP_PKEY_EC, NULL);
	EVP_PKEY *key = NULL;

	ck_assert(context && EVP_PKEY_keygen_init(context) == 1 &&
	          EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context, NID_X9_62_prime256v1) == 1 &&
	          EVP_PKEY_keygen(context, &key) == 1);
	EVP_PKEY_CTX_free(context);
	return key;
}

static void add_extension(X509 *made, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX context;
	X509_EXTENSION *extension;

	X509V3_set_ctx(&context, issuer, made, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
	ck_assert_msg(extension && X509_add_ext(made, extension, -1) == 1, "%s", value);
	X509_EXTENSION_free(extension);
}

static X509 *read_certificate(const char *folder, const char *name)
{
	FILE *file = open_file(folder, name, "pem", "r");
	X509 *read = PEM_read_X509(file, NULL, NULL, NULL);

	fclose(file);
	ck_assert_ptr_nonnull(read);
	return read;
}

static EVP_PKEY *read_key(const char *folder, const char *name)
{
	FILE *file = open_file(folder, name, "key", "r");
	EVP_PKEY *read = PEM_read_PrivateKey(file, NULL, NULL, NULL);

	fclose(file);
	ck_assert_ptr_nonnull(read);
	return read;
}

static void fill(X509 *made, X509 *issuer, EVP_PKEY *key, const struct certificate *certificate)
{
	static long serial = 1;
	int to_days = certificate->to_days ? certificate->to_days : 30;

	X509_set_version(made, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(made), serial++);
	X509_gmtime_adj(X509_getm_notBefore(made), certificate->from_days * DAY_S - 3600);
	X509_gmtime_adj(X509_getm_notAfter(made), to_days * DAY_S + 3600);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_ASC,
	                           (const unsigned char *)certificate->name, -1, -1, 0);
	X509_set_issuer_name(made, X509_get_subject_name(issuer));
	X509_set_pubkey(made, key);
	if (!certificate->issuer)
		add_extension(made, issuer, NID_basic_constraints, "critical,CA:TRUE");
	if (certificate->sites)
		add_extension(made, issuer, NID_subject_alt_name, certificate->sites);
}

static void write_files(const char *folder, const char *name, X509 *made, EVP_PKEY *key)
{
	FILE *file = open_file(folder, name, "key", "w");

	ck_assert(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) == 1);
	fclose(file);
	file = open_file(folder, name, "pem", "w");
	ck_assert(PEM_write_X509(file, made) == 1);
	fclose(file);
}

static void make(const char *folder, const struct certificate *certificate)
{
	EVP_PKEY *key = key_new(), *issuer_key = key;
	X509 *made = X509_new(), *issuer = made;

	ck_assert_ptr_nonnull(made);
	if (certificate->issuer) {
		issuer = read_certificate(folder, certificate->issuer);
		issuer_key = read_key(folder, certificate->issuer);
	}
	fill(made, issuer, key, certificate);
	ck_assert_int_gt(X509_sign(made, issuer_key, EVP_sha256()), 0);
	write_files(folder, certificate->name, made, key);
	if (certificate->issuer) {
		X509_free(issuer);
		EVP_PKEY_free(issuer_key);
	}
	X509_free(made);
	EVP_PKEY_free(key);
}

/* In a child: so the test's process uses OpenSSL only through the library, as most programs do. */
void certificate_make(const char *folder, const struct certificate *certificate)
{
	pid_t pid = process_fork();
	int status;

	if (!pid) {
		make(folder, certificate);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

void certificate_make_usual(const char *folder)
{
	const struct certificate ca = {.name = "ca"};
	const struct certificate server = {
		.name = "server", .issuer = "ca", .sites = "DNS:localhost,IP:127.0.0.1"};

	certificate_make(folder, &ca);
	certificate_make(folder, &server);
}
