/*
 * Fuzzes the parser of requests for /metrics and /healthz. An accepted request names one of the
 * pages.
 */
#include "server/net/http_conn.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	enum http_path path = HTTP_PATHS;
	int code;

	if (!text)
		return 0;
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	code = http_parse(text, &path);
	if (code != 200 && code != 400 && code != 404 && code != 405)
		abort();
	if ((code == 200) != (path < HTTP_PATHS) || (code == 200 && strncmp(text, "GET /", 5) != 0))
		abort();
	free(text);
	return 0;
}
