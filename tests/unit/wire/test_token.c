#include "tests/support/test.h"

#include "wire/control/token.h"

#include <errno.h>
#include <string.h>

#define STORE_TOKEN "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define READ_3 "relive-read-3-f9957b91c62a97c5be2ebebc28e49d1157d29f310ae8976374f51aff3bd48022"
#define ADMIN_LAST \
	"relive-admin-4294967295-" \
	"ad203720ce76b891dfa4d83c28df3604813fc4888f0d46995cbc300d949fe84e"

/* Expected tokens, by another implementation of HKDF (RFC 5869): Python's hmac. */
TEST(token_derive__known_answers)
{
	const struct token_id own = { .role = TOKEN_ADMIN };
	const struct token_id read = { TOKEN_READ, 3 }, last = { TOKEN_ADMIN, UINT32_MAX };
	char token[TOKEN_TEXT_BYTES];

	assert_int_equal(token_derive(STORE_TOKEN, &read, token), 0);
	assert_string_equal(token, READ_3);
	assert_int_equal(token_derive(STORE_TOKEN, &last, token), 0);
	assert_string_equal(token, ADMIN_LAST);
	assert_int_equal(token_derive(STORE_TOKEN, &own, token), 0);
	assert_string_equal(token, STORE_TOKEN);
}

TEST(token_parse__finds_role_and_epoch)
{
	struct token_id id;

	assert_int_equal(token_parse("t", STORE_TOKEN, &id), 0);
	assert_true(id.role == TOKEN_ADMIN && id.epoch == 0);
	assert_int_equal(token_parse("t", READ_3, &id), 0);
	assert_true(id.role == TOKEN_READ && id.epoch == 3);
	assert_int_equal(token_parse("t", ADMIN_LAST, &id), 0);
	assert_true(id.role == TOKEN_ADMIN && id.epoch == UINT32_MAX);
}

TEST(token_parse__what_is_none_gives_einval)
{
	static const char key[] = STORE_TOKEN;
	static const char *const heads[] = {
		"relive-",
		"relive-read",
		"relive-read-",
		"relive-read-3",
		"relive-read-0-",
		"relive-read-03-",
		"relive-read-4294967296-",
		"relive-read--1-",
		"relive-god-1-",
		"relive-read-99999999999-",
		"relive-read-3-0-",
		"relive-Read-3-",
		"relive-read-3 ",
	};
	char token[TOKEN_TEXT_BYTES];
	struct token_id id = { TOKEN_NODE, 7 };

	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		snprintf(token, sizeof(token), "%s%s", heads[i], key);
		assert_int_equal(token_parse("RELIVE_TOKEN", token, &id), -EINVAL);
		assert_non_null(strstr(error_last(), "RELIVE_TOKEN"));
	}
	snprintf(token, sizeof(token), "%.*s", (int)strlen(READ_3) - 1, READ_3);
	assert_int_equal(token_parse("t", token, &id), -EINVAL);
	snprintf(token, sizeof(token), "%s0", READ_3);
	assert_int_equal(token_parse("t", token, &id), -EINVAL);
	assert_true(id.role == TOKEN_NODE && id.epoch == 7);
	assert_int_equal(token_parse("t", "0123", &id), -EINVAL);
}

TEST(token_identity__there_and_back)
{
	static const enum token_role roles[] = { TOKEN_READ, TOKEN_LEARN, TOKEN_WRITE, TOKEN_ADMIN,
						 TOKEN_NODE };
	char text[TOKEN_IDENTITY_BYTES];
	struct token_id back;

	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
		const struct token_id id = { roles[i], UINT32_MAX - (uint32_t)i };

		token_identity(&id, text);
		assert_true(token_identity_parse(text, strlen(text), &back));
		assert_true(back.role == id.role && back.epoch == id.epoch);
	}
	assert_true(token_identity_parse("relive:1:admin:0", 16, &back));
	assert_true(back.role == TOKEN_ADMIN && back.epoch == 0);
}

TEST(token_identity_parse__what_is_none_gives_false)
{
	static const char *const texts[] = {
		"",
		"relive",
		"relive:1:",
		"relive:1:admin",
		"relive:1:admin:",
		"relive:1:read:0",
		"relive:2:admin:0",
		"relive:1:god:1",
		"relive:1:read:01",
		"relive:1:read:1 ",
		"relive:1:read:4294967296",
		"relive:1:read:-1",
		"relive:1::1",
		"relive:1:read,admin:1",
	};
	struct token_id id = { TOKEN_NODE, 7 };
	char longer[1000];

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_false(token_identity_parse(texts[i], strlen(texts[i]), &id));
	memset(longer, '1', sizeof(longer));
	memcpy(longer, "relive:1:read:", 14);
	assert_false(token_identity_parse(longer, sizeof(longer), &id));
	assert_false(token_identity_parse("relive:1:read:1\0", 16, &id));
	assert_true(id.role == TOKEN_NODE && id.epoch == 7);
}

TEST(token_check_epoch__names_both)
{
	const struct token_id own = { .role = TOKEN_ADMIN }, old = { TOKEN_LEARN, 2 };

	assert_int_equal(token_check_epoch(&own, 3), 0);
	assert_int_equal(token_check_epoch(&old, 2), 0);
	assert_int_equal(token_check_epoch(&old, 3), -EACCES);
	assert_non_null(strstr(error_last(), "token: of epoch 2, the store is at 3: ask its owner "
					     "for a new one"));
}

int main(void)
{
	if (test_skips_msan("libcrypto"))
		return TEST_EXIT_SKIP;
	return test_run(NULL, NULL);
}
