#include "tests/support/test.h"

#include "client/store/uri.h"

#include <errno.h>
#include <string.h>

static void expect(const char *text, enum uri_kind kind, const char *rest, uint16_t port)
{
	struct uri uri;

	assert_int_equal(uri_parse(text, &uri), 0);
	assert_int_equal(uri.kind, kind);
	assert_string_equal(uri.text, rest);
	assert_int_equal(uri.port, port);
}

static void refuse(const char *text, const char *word)
{
	struct uri uri = { .port = 99 };

	assert_int_equal(uri_parse(text, &uri), -EINVAL);
	assert_non_null(strstr(error_last(), word));
	assert_non_null(strstr(error_last(), "relive://HOST:PORT"));
	assert_int_equal(uri.port, 99);
}

TEST(uri_parse__embed)
{
	expect("embed:", URI_EMBED, "", 0);
	expect("embed:pool.rlv", URI_EMBED, "pool.rlv", 0);
	expect("embed:a:b/c", URI_EMBED, "a:b/c", 0);
	refuse("embed:?size=3G", "no options");
}

TEST(uri_parse__shm)
{
	expect("shm:demo", URI_SHM, "demo", 0);
	expect("shm:A_b-3.x", URI_SHM, "A_b-3.x", 0);
}

TEST(uri_parse__tcp)
{
	expect("relive://host:1234", URI_TCP, "host", 1234);
	expect("relive://host", URI_TCP, "host", 7117);
	expect("relive://[::1]:99", URI_TCP, "::1", 99);
	expect("relive://[fe80::1]", URI_TCP, "fe80::1", 7117);
	expect("relive://10.0.0.1:65535", URI_TCP, "10.0.0.1", 65535);
}

TEST(uri_parse__announced)
{
	expect("relive://@/srv/job 7:a.uri", URI_TCP, "@/srv/job 7:a.uri", 0);
	expect("relive://@store.uri", URI_TCP, "@store.uri", 0);
	refuse("relive://@", "bad");
}

TEST(uri_parse__unknown_scheme)
{
	refuse("", "unknown scheme");
	refuse("embed", "unknown scheme");
	refuse("http://host", "unknown scheme");
	refuse("relive:/host", "unknown scheme");
	refuse("EMBED:", "unknown scheme");
}

TEST(uri_parse__null)
{
	refuse(NULL, "NULL");
}

TEST(uri_parse__bad_store_name)
{
	refuse("shm:", "name");
	refuse("shm:../x", "name");
	refuse("shm:a/b", "name");
	refuse("shm:.hidden", "name");
	refuse("shm:a b", "name");
	refuse("shm:1234567890123456789012345678901234567890123456789", "name");
}

TEST(uri_parse__bad_host_or_port)
{
	refuse("relive://", "bad host");
	refuse("relive://:80", "bad host");
	refuse("relive://a/b:80", "bad host");
	refuse("relive://[::1", "no ]");
	refuse("relive://[]:1", "bad host");
	refuse("relive://h:", "bad port");
	refuse("relive://h:0", "bad port");
	refuse("relive://h:65536", "bad port");
	refuse("relive://h:99999999999", "bad port");
	refuse("relive://h:12x", "bad port");
	refuse("relive://[::1]x", "bad port");
}

TEST(uri_parse__length_limit)
{
	char text[URI_TEXT_BYTES + 8];

	memset(text, 'x', sizeof(text));
	memcpy(text, "embed:", 6);
	text[URI_TEXT_BYTES - 1] = '\0';
	expect(text, URI_EMBED, text + 6, 0);
	text[URI_TEXT_BYTES - 1] = 'x';
	text[URI_TEXT_BYTES] = '\0';
	refuse(text, "too long");
}

int main(void)
{
	return test_run(NULL, NULL);
}
