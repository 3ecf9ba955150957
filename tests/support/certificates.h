/*
 * certificates.h - a CA and certificates of it, made for a test.
 */
#ifndef RLV_TESTS_SUPPORT_CERTIFICATES_H
#define RLV_TESTS_SUPPORT_CERTIFICATES_H

#define CERTIFICATES_PATH 160

/* Paths of PEM files. */
struct certificates {
	char ca[CERTIFICATES_PATH];
	char cert[CERTIFICATES_PATH];
	char key[CERTIFICATES_PATH];
};

/*
 * Makes DIR/NAME-ca.pem, DIR/NAME.pem and DIR/NAME.key: a CA of its own and a certificate of that CA
 * for 127.0.0.1 and localhost. Fails the test on any error.
 */
void certificates_make(struct certificates *certs, const char *dir, const char *name);

#endif
