/*
 * Fuzzes file names in a pool's directory: a name that is accepted as a region or a page is the
 * name that formatting gives.
 */
#include "transport/pool/region_name.h"
#include "wire/region.h"
#include "wire/rptr.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct target_region info = { .id = 77777 };
	uint32_t page = 77777;
	char *text = malloc(size + 1), name[REGION_NAME_BYTES];

	if (!text)
		return 0;
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	if (region_name_parse(text, &info, &page)) {
		region_name_format(&info, page, name);
		if (strcmp(name, text) != 0 || info.id == 0 || info.id > RPTR_MAX_REGION ||
		    (page != REGION_WHOLE && info.role != REGION_PAGES) || region_name_is_tmp(text))
			abort();
	} else if (info.id != 77777 || page != 77777) {
		abort();
	}
	(void)region_name_is_tmp(text);
	free(text);
	return 0;
}
