#include "tests/support/test.h"

#include "server/metad/roles.h"

#include <errno.h>
#include <string.h>

enum {
	NONE = RELIVE__TABLE_ACCESS__TABLE_ACCESS_NONE,
	READ = RELIVE__TABLE_ACCESS__TABLE_ACCESS_READ,
	LEARN = RELIVE__TABLE_ACCESS__TABLE_ACCESS_LEARN,
	WRITE = RELIVE__TABLE_ACCESS__TABLE_ACCESS_WRITE,
};

/* Access granted to a role that requests the given one; -EACCES or -EINVAL. */
static int given(enum token_role role, uint32_t access, bool read_only)
{
	Relive__TableOpenRequest request = RELIVE__TABLE_OPEN_REQUEST__INIT;
	Relive__TableAccess out = RELIVE__TABLE_ACCESS__TABLE_ACCESS_NONE;
	int ret;

	request.access = access;
	request.read_only = read_only;
	ret = roles_access(role, &request, &out);
	assert_true(ret == 0 || out == RELIVE__TABLE_ACCESS__TABLE_ACCESS_NONE);
	return ret ? ret : (int)out;
}

TEST(roles_access__is_never_more_than_the_roles)
{
	for (int read_only = 0; read_only < 2; read_only++) {
		assert_int_equal(given(TOKEN_READ, NONE, read_only), READ);
		assert_int_equal(given(TOKEN_READ, READ, read_only), READ);
		assert_int_equal(given(TOKEN_READ, LEARN, read_only), -EACCES);
		assert_int_equal(given(TOKEN_READ, WRITE, read_only), -EACCES);
		assert_int_equal(given(TOKEN_LEARN, NONE, read_only), LEARN);
		assert_int_equal(given(TOKEN_LEARN, READ, read_only), READ);
		assert_int_equal(given(TOKEN_LEARN, LEARN, read_only), LEARN);
		assert_int_equal(given(TOKEN_LEARN, WRITE, read_only), -EACCES);
		assert_int_equal(given(TOKEN_WRITE, WRITE, read_only), WRITE);
		assert_int_equal(given(TOKEN_ADMIN, WRITE, read_only), WRITE);
		assert_int_equal(given(TOKEN_NODE, NONE, read_only), -EACCES);
	}
	assert_int_equal(given(TOKEN_WRITE, NONE, false), WRITE);
	assert_int_equal(given(TOKEN_WRITE, NONE, true), LEARN);
	assert_int_equal(given(TOKEN_ADMIN, NONE, true), LEARN);
	assert_int_equal(given(TOKEN_ADMIN, READ, false), READ);
	assert_int_equal(given(TOKEN_ADMIN, 4, false), -EINVAL);
}

TEST(roles_check__names_what_is_wanted)
{
	assert_int_equal(roles_check(TOKEN_LEARN, ROLES_READ, "x"), 0);
	assert_int_equal(roles_check(TOKEN_LEARN, ROLES_WRITE, "append"), -EACCES);
	assert_non_null(strstr(error_last(), "append: wants a token of role write, this one is of "
					     "role learn"));
	assert_int_equal(roles_check(TOKEN_READ, ROLES_NODE, "node register"), -EACCES);
	assert_non_null(strstr(error_last(), "role node"));
	assert_int_equal(roles_check(TOKEN_NODE, ROLES_READ, "table open"), -EACCES);
	assert_non_null(strstr(error_last(), "role read"));
}

int main(void)
{
	return test_run(NULL, NULL);
}
