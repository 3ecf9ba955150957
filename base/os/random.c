#include "base/os/random.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

int random_fill(void *out, size_t bytes)
{
	ssize_t n = getrandom(out, bytes, 0);

	if (n == (ssize_t)bytes)
		return 0;
	return error_set(-EIO, "getrandom: %s", n < 0 ? strerror(errno) : "too few bytes");
}
