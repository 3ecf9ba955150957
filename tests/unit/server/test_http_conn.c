#include "server/net/http_conn.h"

#include "server/net/http.h"

#include "tests/support/test.h"

#include "base/bits.h"

#include <errno.h>

TEST(http_parse__gives_the_page_or_the_code_of_a_refusal)
{
	static const struct {
		const char *text;
		int code;
		enum http_path path;
	} cases[] = {
		{ "GET /metrics HTTP/1.1\r\n\r\n", 200, HTTP_METRICS },
		{ "GET /metrics?x=1 HTTP/1.0\r\n\r\n", 200, HTTP_METRICS },
		{ "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200, HTTP_HEALTHZ },
		{ "GET /metric HTTP/1.1\r\n\r\n", 404, 0 },
		{ "GET /metricss HTTP/1.1\r\n\r\n", 404, 0 },
		{ "GET / HTTP/1.1\r\n\r\n", 404, 0 },
		{ "POST /metrics HTTP/1.1\r\n\r\n", 405, 0 },
		{ "GET", 400, 0 },
		{ "GET ", 400, 0 },
		{ " /metrics HTTP/1.1\r\n\r\n", 400, 0 },
		{ "get /metrics HTTP/1.1\r\n\r\n", 400, 0 },
		{ "GET /metrics", 400, 0 },
		{ "GET /metrics\r\n\r\n", 400, 0 },
		{ "GET /metrics HTTP/1.", 400, 0 },
		{ "GET /metrics HTTP/1.12\r\n\r\n", 400, 0 },
		{ "GET http://h/metrics HTTP/1.1\r\n\r\n", 400, 0 },
		{ "", 400, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		enum http_path path = 0;
		int code = http_parse(cases[i].text, &path);

		if (code != cases[i].code || path != cases[i].path)
			fail_msg("\"%s\": %d, page %d", cases[i].text, code, (int)path);
	}
}

TEST(http_check_address__takes_a_port_and_an_ip)
{
	static const char *const good[] = { "9117", "127.0.0.1:9117", "0.0.0.0:1", "[::]:65535" };
	static const char *const bad[] = { "",        "0",         "65536",     "localhost:9117",
					   "1.2.3.4", "1.2.3.4:0", "1.2.3.4:x", ":9117",
					   "[::1]",   "9117 ",     "-1" };

	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		if (http_check_address(good[i]))
			fail_msg("%s: %s", good[i], error_last());
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (http_check_address(bad[i]) != -EINVAL)
			fail_msg("%s is taken", bad[i]);
}

int main(void)
{
	return test_run(NULL, NULL);
}
