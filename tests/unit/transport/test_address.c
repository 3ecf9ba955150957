/*
 * test_address.c - addresses of nodes over a wire, well-formed and not.
 */
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#include "transport/attach/address.h"

static void check(const char *text, const char *host, const char *port, const char *path)
{
	struct node_address address;
	char again[TRANSPORT_URI_BYTES];

	assert_int_equal(node_address_parse(text, &address), 0);
	assert_string_equal(address.host, host);
	assert_string_equal(address.port, port);
	assert_string_equal(address.path, path);
	assert_int_equal(node_address_format(&address, again, sizeof(again)), 0);
	assert_string_equal(again, text);
}

TEST(node_address_parse__takes_it_apart)
{
	check("node1:7471;/run/node", "node1", "7471", "/run/node");
	check("10.0.0.1:0", "10.0.0.1", "0", "");
	check(":65535;x", "", "65535", "x");
	check("[fe80::1%eth0]:1;a;b:2", "fe80::1%eth0", "1", "a;b:2");
}

TEST(node_address_parse__port_loses_leading_zeros)
{
	struct node_address address;

	assert_int_equal(node_address_parse("a:00080", &address), 0);
	assert_string_equal(address.port, "80");
}

TEST(node_address_parse__of_what_is_none_gives_einval)
{
	static const char *const bad[] = {
		"",           "node",        "node;path", "node:",       "node:65536",
		"node:99999", "node:123456", "node:12a",  "node:-1",     "node: 1",
		"node:1;",    "fe80::1:80",  "[fe80::1]", "[fe80::1]80", "[fe80::1",
		"[]:1",       "[::1:80",     ";node:80",
	};
	struct node_address address = { .port = "x" };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		error_clear();
		assert_int_equal(node_address_parse(bad[i], &address), -EINVAL);
		assert_non_null(strstr(error_last(), "HOST:PORT"));
	}
	assert_string_equal(address.port, "x"); /* untouched */
}

TEST(node_address_parse__of_a_long_one_gives_einval)
{
	char text[TRANSPORT_URI_BYTES + 8];
	struct node_address address;

	memset(text, 'h', sizeof(text));
	memcpy(text + TRANSPORT_URI_BYTES - 3, ":1", 3);
	assert_int_equal(node_address_parse(text, &address), 0);
	memcpy(text + TRANSPORT_URI_BYTES - 3, "h:1", 4);
	assert_int_equal(node_address_parse(text, &address), -EINVAL);
}

TEST(node_address_format__without_room_gives_enametoolong)
{
	struct node_address address = { .host = "::1", .port = "5", .path = "p" };
	char text[10] = "untouched";

	assert_int_equal(node_address_format(&address, text, 9), -ENAMETOOLONG);
	assert_string_equal(text, "untouched");
	assert_int_equal(node_address_format(&address, text, 10), 0);
	assert_string_equal(text, "[::1]:5;p");
}

int main(void)
{
	return test_run(NULL, NULL);
}
