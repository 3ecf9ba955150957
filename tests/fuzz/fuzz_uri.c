/* Fuzzes the parser of store URIs. An accepted URI is terminated, and parses to the same again. */
#include "client/store/uri.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	struct uri once, twice;

	if (!text)
		return 0;
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	memset(&once, 0xa5, sizeof(once));
	if (uri_parse(text, &once) == 0) {
		if (strnlen(once.text, sizeof(once.text)) == sizeof(once.text) ||
		    uri_parse(text, &twice) || twice.kind != once.kind || twice.port != once.port)
			abort();
	} else if (once.port != 0xa5a5) {
		abort();
	}
	free(text);
	return 0;
}
