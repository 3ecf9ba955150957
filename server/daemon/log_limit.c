#include "server/daemon/log_limit.h"

#include <stddef.h>

#include "base/bits.h"
#include "base/os/clock.h"

bool log_limit_pass(struct log_limit *limit, const char *where, uint64_t now_ns)
{
	struct log_kind *kind = limit->kinds, *last = &limit->kinds[LOG_KINDS - 1];

	while (kind < last && kind->where && kind->where != where)
		kind++;
	kind->where = where;
	kind->free_at = max_u64(kind->free_at, now_ns);
	if (kind->free_at - now_ns > (LOG_BURST - 1) * LOG_PAUSE_NS) {
		kind->left_out++;
		return false;
	}
	kind->free_at += LOG_PAUSE_NS;
	return true;
}

const char *log_limit_take(struct log_limit *limit, uint64_t *left_out)
{
	for (uint32_t i = 0; i < LOG_KINDS; i++) {
		struct log_kind *kind = &limit->kinds[i];

		if (!kind->left_out)
			continue;
		*left_out = kind->left_out;
		kind->left_out = 0;
		return kind->where;
	}
	return NULL;
}
