#include "wire/control/auth.h"

#include <errno.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/os/random.h"

#define LABEL_BYTES 6

int auth_check_token(const char *name, const char *token)
{
	size_t len = strlen(token);
	size_t bits = len * (strspn(token, "0123456789abcdefABCDEF") == len ? 4 : 6);

	if (bits >= AUTH_TOKEN_BITS)
		return 0;
	return error_set(-EINVAL,
			 "%s: a token of %zu bits, want %d or more, such as the 64 digits of the "
			 "file `token` in the store's directory",
			 name, bits, AUTH_TOKEN_BITS);
}

int auth_nonce(uint8_t nonce_out[AUTH_NONCE_BYTES])
{
	return random_fill(nonce_out, AUTH_NONCE_BYTES);
}

int auth_prove(enum auth_side side, const char *token, const struct auth_nonces *nonces,
	       uint8_t proof_out[AUTH_PROOF_BYTES])
{
	bool listens = side == AUTH_LISTENER;
	const char *label = listens ? "server" : "client";
	uint8_t text[LABEL_BYTES + 2 * AUTH_NONCE_BYTES];
	uint8_t proof[EVP_MAX_MD_SIZE];
	unsigned int n = 0;

	if (!token || !*token)
		return error_set(-EINVAL, "token: it is empty");
	memcpy(text, label, LABEL_BYTES);
	memcpy(text + LABEL_BYTES, listens ? nonces->dialler : nonces->listener, AUTH_NONCE_BYTES);
	memcpy(text + LABEL_BYTES + AUTH_NONCE_BYTES, listens ? nonces->listener : nonces->dialler,
	       AUTH_NONCE_BYTES);
	if (!HMAC(EVP_sha256(), token, (int)strlen(token), text, sizeof(text), proof, &n) ||
	    n != AUTH_PROOF_BYTES)
		return error_set(-EIO, "HMAC-SHA256 failed");
	memcpy(proof_out, proof, AUTH_PROOF_BYTES);
	return 0;
}

int auth_hash_secret(const uint8_t secret[AUTH_SECRET_BYTES], uint8_t hash_out[AUTH_HASH_BYTES])
{
	if (EVP_Digest(secret, AUTH_SECRET_BYTES, hash_out, NULL, EVP_sha256(), NULL) != 1)
		return error_set(-EIO, "SHA-256 failed");
	return 0;
}

bool auth_is_proof(const uint8_t want[AUTH_PROOF_BYTES], const uint8_t *got, size_t len)
{
	return len == AUTH_PROOF_BYTES && CRYPTO_memcmp(want, got, AUTH_PROOF_BYTES) == 0;
}
