#include "wire/control/token.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "wire/control/auth.h"
#include "wire/control/tls.h"

#include "base/bits.h"

#define PREFIX "relive-"
#define IDENTITY_PREFIX "relive:1:"
#define KEY_DIGITS (2 * TLS_KEY_BYTES)

static const struct {
	const char *name;
	enum token_role role;
} roles[] = {
	{ "read", TOKEN_READ },   { "learn", TOKEN_LEARN }, { "write", TOKEN_WRITE },
	{ "admin", TOKEN_ADMIN }, { "node", TOKEN_NODE },
};

const char *token_role_name(enum token_role role)
{
	for (size_t i = 0; i < ARRAY_LEN(roles); i++)
		if (roles[i].role == role)
			return roles[i].name;
	return "none";
}

static bool find_role(const char *name, size_t len, enum token_role *role_out)
{
	for (size_t i = 0; i < ARRAY_LEN(roles); i++)
		if (strlen(roles[i].name) == len && memcmp(roles[i].name, name, len) == 0) {
			*role_out = roles[i].role;
			return true;
		}
	return false;
}

int token_role_find(const char *name, enum token_role *role_out)
{
	if (find_role(name, strlen(name), role_out))
		return 0;
	return error_set(-EINVAL, "role \"%.32s\": want read, learn, write, admin or node", name);
}

/*
 * Parses ROLE, the separator and EPOCH, which is decimal without leading zeros, at the start of
 * text. Returns the number of characters read; 0 = the text does not begin so.
 */
static size_t take_id(const char *text, size_t len, char separator, struct token_id *id_out)
{
	const char *end = memchr(text, separator, len), *digits;
	uint64_t epoch = 0;
	size_t left, n = 0;

	if (!end || !find_role(text, (size_t)(end - text), &id_out->role))
		return 0;
	digits = end + 1;
	left = len - (size_t)(digits - text);
	while (n < left && n < 10 && isdigit((unsigned char)digits[n]))
		epoch = epoch * 10 + (uint64_t)(digits[n++] - '0');
	if (n == 0 || epoch > UINT32_MAX || (digits[0] == '0' && n > 1))
		return 0;
	id_out->epoch = (uint32_t)epoch;
	return (size_t)(digits - text) + n;
}

/* -------- tokens -------- */

int token_parse(const char *name, const char *token, struct token_id *id_out)
{
	const size_t prefix = sizeof(PREFIX) - 1;
	struct token_id id;
	const char *key;
	size_t n;

	if (strncmp(token, PREFIX, prefix) != 0) {
		*id_out = (struct token_id){ .role = TOKEN_ADMIN };
		return auth_check_token(name, token);
	}
	n = take_id(token + prefix, strlen(token + prefix), '-', &id);
	key = token + prefix + n;
	if (n == 0 || id.epoch == 0 || *key++ != '-' || strlen(key) != KEY_DIGITS ||
	    strspn(key, "0123456789abcdef") != KEY_DIGITS)
		return error_set(
			-EINVAL,
			"%s: no token of a role, want relive-ROLE-EPOCH- and %d digits, as "
			"`relive token ROLE` prints it",
			name, KEY_DIGITS);
	*id_out = id;
	return 0;
}

void token_identity(const struct token_id *id, char text_out[TOKEN_IDENTITY_BYTES])
{
	snprintf(text_out, TOKEN_IDENTITY_BYTES, IDENTITY_PREFIX "%s:%" PRIu32,
		 token_role_name(id->role), id->epoch);
}

bool token_identity_parse(const void *text, size_t len, struct token_id *id_out)
{
	const size_t prefix = sizeof(IDENTITY_PREFIX) - 1;
	const char *chars = text;
	struct token_id id;

	if (len <= prefix || memcmp(chars, IDENTITY_PREFIX, prefix) != 0 ||
	    take_id(chars + prefix, len - prefix, ':', &id) != len - prefix ||
	    (id.epoch == 0 && id.role != TOKEN_ADMIN))
		return false;
	*id_out = id;
	return true;
}

int token_derive(const char *store_token, const struct token_id *id,
		 char token_out[TOKEN_TEXT_BYTES])
{
	char info[TOKEN_IDENTITY_BYTES];
	uint8_t key[TLS_KEY_BYTES];
	int n, ret;

	if (id->epoch == 0) {
		snprintf(token_out, TOKEN_TEXT_BYTES, "%s", store_token);
		return 0;
	}
	token_identity(id, info);
	ret = tls_derive(store_token, "relive token 1", info, key);
	if (ret)
		return ret;
	n = snprintf(token_out, TOKEN_TEXT_BYTES, PREFIX "%s-%" PRIu32 "-",
		     token_role_name(id->role), id->epoch);
	for (size_t i = 0; i < sizeof(key); i++)
		snprintf(token_out + n + 2 * i, 3, "%02x", key[i]);
	return 0;
}

int token_check_epoch(const struct token_id *id, uint32_t epoch)
{
	if (id->epoch == 0 || id->epoch == epoch)
		return 0;
	return error_set(-EACCES,
			 "token: of epoch %" PRIu32 ", the store is at %" PRIu32
			 ": ask its owner for a new one (relive token %s)",
			 id->epoch, epoch, token_role_name(id->role));
}
