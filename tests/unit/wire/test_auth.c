#include "tests/support/test.h"

#include "wire/control/auth.h"

#include <errno.h>
#include <string.h>

static const char token[] = "0123456789abcdef";

static struct auth_nonces make_nonces(void)
{
	struct auth_nonces nonces;

	for (int i = 0; i < AUTH_NONCE_BYTES; i++) {
		nonces.dialler[i] = (uint8_t)i;
		nonces.listener[i] = (uint8_t)(255 - i);
	}
	return nonces;
}

/* Computed by another implementation (Python's hmac). */
TEST(auth_prove__known_answers)
{
	static const uint8_t listener[] = { 0xe6, 0x63, 0xa3, 0x50, 0xb7, 0x60, 0xa2, 0x2e,
					    0xce, 0x7c, 0x37, 0x45, 0xc2, 0x2e, 0x48, 0x12,
					    0xa2, 0xe5, 0xe5, 0x63, 0xc0, 0x5d, 0x57, 0x07,
					    0x56, 0x5a, 0x7e, 0x6a, 0xa8, 0x7a, 0x72, 0x1a };
	static const uint8_t dialler[] = { 0x73, 0x84, 0x10, 0xec, 0xc2, 0x87, 0x29, 0x97,
					   0x5b, 0x99, 0x3b, 0xfb, 0x40, 0x92, 0x27, 0xc7,
					   0x05, 0x18, 0xcd, 0x7c, 0xe6, 0xe1, 0x23, 0xa9,
					   0x50, 0x0e, 0x7e, 0x86, 0x12, 0xe8, 0xc9, 0x54 };
	const struct auth_nonces nonces = make_nonces();
	uint8_t proof[AUTH_PROOF_BYTES];

	assert_int_equal(auth_prove(AUTH_LISTENER, token, &nonces, proof), 0);
	assert_memory_equal(proof, listener, sizeof(proof));
	assert_int_equal(auth_prove(AUTH_DIALLER, token, &nonces, proof), 0);
	assert_memory_equal(proof, dialler, sizeof(proof));
}

TEST(auth_prove__another_token_gives_another_proof)
{
	const struct auth_nonces nonces = make_nonces();
	uint8_t a[AUTH_PROOF_BYTES], b[AUTH_PROOF_BYTES];

	assert_int_equal(auth_prove(AUTH_DIALLER, token, &nonces, a), 0);
	assert_int_equal(auth_prove(AUTH_DIALLER, "0123456789abcdeg", &nonces, b), 0);
	assert_false(auth_is_proof(a, b, sizeof(b)));
	assert_true(auth_is_proof(a, a, sizeof(a)));
}

TEST(auth_prove__either_nonce_matters)
{
	struct auth_nonces nonces = make_nonces();
	uint8_t first[AUTH_PROOF_BYTES], proof[AUTH_PROOF_BYTES];

	assert_int_equal(auth_prove(AUTH_DIALLER, token, &nonces, first), 0);
	nonces.dialler[31] ^= 1;
	assert_int_equal(auth_prove(AUTH_DIALLER, token, &nonces, proof), 0);
	assert_false(auth_is_proof(first, proof, sizeof(proof)));
	nonces = make_nonces();
	nonces.listener[0] ^= 1;
	assert_int_equal(auth_prove(AUTH_DIALLER, token, &nonces, proof), 0);
	assert_false(auth_is_proof(first, proof, sizeof(proof)));
}

/* A listener that is sent its own nonce back cannot be made to prove for the dialler. */
TEST(auth_prove__sides_are_not_interchangeable)
{
	const struct auth_nonces nonces = make_nonces();
	struct auth_nonces swapped;
	uint8_t listener[AUTH_PROOF_BYTES], dialler[AUTH_PROOF_BYTES];

	memcpy(swapped.dialler, nonces.listener, AUTH_NONCE_BYTES);
	memcpy(swapped.listener, nonces.dialler, AUTH_NONCE_BYTES);
	assert_int_equal(auth_prove(AUTH_LISTENER, token, &swapped, listener), 0);
	assert_int_equal(auth_prove(AUTH_DIALLER, token, &nonces, dialler), 0);
	assert_false(auth_is_proof(dialler, listener, sizeof(listener)));
}

TEST(auth_is_proof__wrong_length_is_none)
{
	const uint8_t proof[AUTH_PROOF_BYTES + 1] = { 0 };

	assert_false(auth_is_proof(proof, proof, 0));
	assert_false(auth_is_proof(proof, proof, AUTH_PROOF_BYTES - 1));
	assert_false(auth_is_proof(proof, proof, AUTH_PROOF_BYTES + 1));
	assert_true(auth_is_proof(proof, proof, AUTH_PROOF_BYTES));
}

TEST(auth_prove__empty_token_gives_einval)
{
	const struct auth_nonces nonces = make_nonces();
	uint8_t proof[AUTH_PROOF_BYTES];

	assert_int_equal(auth_prove(AUTH_LISTENER, "", &nonces, proof), -EINVAL);
	assert_int_equal(auth_prove(AUTH_DIALLER, NULL, &nonces, proof), -EINVAL);
}

TEST(auth_check_token__counts_bits_by_the_digits)
{
	assert_int_equal(auth_check_token("t", "0123456789abcdef0123456789ABCDEF"), 0);
	assert_int_equal(auth_check_token("t", "0123456789abcdef0123456789ABCDE"), -EINVAL);
	assert_int_equal(auth_check_token("t", "q83vEjRWeJq83vEjRWeJqw"), 0);
	assert_int_equal(auth_check_token("t", "q83vEjRWeJq83vEjRWeJq"), -EINVAL);
	assert_int_equal(auth_check_token("t", ""), -EINVAL);
	assert_non_null(strstr(error_last(), "t: a token of 0 bits"));
}

TEST(auth_nonce__differs_each_time)
{
	uint8_t a[AUTH_NONCE_BYTES], b[AUTH_NONCE_BYTES];

	assert_int_equal(auth_nonce(a), 0);
	assert_int_equal(auth_nonce(b), 0);
	assert_memory_not_equal(a, b, sizeof(a));
}

int main(void)
{
	if (test_skips_msan("libcrypto"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
