/*
 * Auth: both ends prove that they know the store's token, without sending it.
 *
 *   dialler                                     listener
 *     HELLO  nonce D                   ->
 *                                     <-   nonce L, HMAC-SHA256(token, "server" | D | L)
 *     AUTH   HMAC(token, "client" | L | D) ->
 *                                     <-   status, client id
 *
 * The words in front differ, so that an answer of the listener cannot be replayed as a dialler's.
 */
#ifndef RLV_WIRE_AUTH_H
#define RLV_WIRE_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define AUTH_NONCE_BYTES 32
#define AUTH_PROOF_BYTES 32
#define AUTH_TOKEN_BITS 128
#define AUTH_SECRET_BYTES 32
#define AUTH_HASH_BYTES 32

struct auth_nonces {
	uint8_t dialler[AUTH_NONCE_BYTES];
	uint8_t listener[AUTH_NONCE_BYTES];
};

/*
 * Checks that the token can hold AUTH_TOKEN_BITS of randomness. Hexadecimal digits hold 4 bits
 * each, other characters 6. -EINVAL. name: of the option or file, for the message.
 */
RLV_MUST_CHECK int auth_check_token(const char *name, const char *token);

/* Fills a nonce with random bytes of the kernel. -EIO. Thread: any, for all. */
RLV_MUST_CHECK int auth_nonce(uint8_t nonce_out[AUTH_NONCE_BYTES]);

/* Computes the proof of a side. -EIO: OpenSSL failed; -EINVAL: an empty token. */
enum auth_side { AUTH_LISTENER, AUTH_DIALLER };
RLV_MUST_CHECK int auth_prove(enum auth_side side, const char *token,
			      const struct auth_nonces *nonces,
			      uint8_t proof_out[AUTH_PROOF_BYTES]);

/* SHA-256 of a lease's secret; the server stores only this hash. -EIO. */
RLV_MUST_CHECK int auth_hash_secret(const uint8_t secret[AUTH_SECRET_BYTES],
				    uint8_t hash_out[AUTH_HASH_BYTES]);

/*
 * True if the received proof equals want, compared in constant time. len: as received; false if not
 * 32.
 */
bool auth_is_proof(const uint8_t want[AUTH_PROOF_BYTES], const uint8_t *got, size_t len);

#endif
