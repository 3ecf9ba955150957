#include "tests/support/certificates.h"

#include "tests/support/test.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#define DAY_SECONDS 86400

static X509 *make(const char *name, EVP_PKEY *key, long serial)
{
	X509 *x509 = X509_new();
	X509_NAME *subject;

	assert_non_null(x509);
	assert_int_equal(X509_set_version(x509, 2), 1);
	assert_int_equal(ASN1_INTEGER_set(X509_get_serialNumber(x509), serial), 1);
	assert_non_null(X509_gmtime_adj(X509_getm_notBefore(x509), -DAY_SECONDS));
	assert_non_null(X509_gmtime_adj(X509_getm_notAfter(x509), DAY_SECONDS));
	assert_int_equal(X509_set_pubkey(x509, key), 1);
	subject = X509_get_subject_name(x509);
	assert_int_equal(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
						    (const unsigned char *)name, -1, -1, 0),
			 1);
	return x509;
}

static void extend(X509 *x509, int nid, const char *value)
{
	X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);

	assert_non_null(extension);
	assert_int_equal(X509_add_ext(x509, extension, -1), 1);
	X509_EXTENSION_free(extension);
}

static void sign(X509 *x509, X509 *issuer, EVP_PKEY *key)
{
	assert_int_equal(X509_set_issuer_name(x509, X509_get_subject_name(issuer)), 1);
	assert_true(X509_sign(x509, key, EVP_sha256()) > 0);
}

static void write_cert(const char *path, X509 *x509)
{
	FILE *file = fopen(path, "we");

	assert_non_null(file);
	assert_int_equal(PEM_write_X509(file, x509), 1);
	assert_int_equal(fclose(file), 0);
}

static void write_key(const char *path, EVP_PKEY *key)
{
	FILE *file = fopen(path, "we");

	assert_non_null(file);
	assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
	assert_int_equal(fclose(file), 0);
}

void certificates_make(struct certificates *certs, const char *dir, const char *name)
{
	EVP_PKEY *ca_key = EVP_EC_gen("P-256"), *key = EVP_EC_gen("P-256");
	X509 *ca, *x509;

	assert_non_null(ca_key);
	assert_non_null(key);
	ca = make("test ca", ca_key, 1);
	extend(ca, NID_basic_constraints, "critical,CA:TRUE");
	sign(ca, ca, ca_key);
	x509 = make(name, key, 2);
	extend(x509, NID_subject_alt_name, "IP:127.0.0.1,DNS:localhost");
	sign(x509, ca, ca_key);
	snprintf(certs->ca, sizeof(certs->ca), "%s/%s-ca.pem", dir, name);
	snprintf(certs->cert, sizeof(certs->cert), "%s/%s.pem", dir, name);
	snprintf(certs->key, sizeof(certs->key), "%s/%s.key", dir, name);
	write_cert(certs->ca, ca);
	write_cert(certs->cert, x509);
	write_key(certs->key, key);
	X509_free(ca);
	X509_free(x509);
	EVP_PKEY_free(ca_key);
	EVP_PKEY_free(key);
}
